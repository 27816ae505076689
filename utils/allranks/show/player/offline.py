"""A widget where no kernel runs: its bundle packed, what unpacks it in the browser, and HTML in which it works."""

from __future__ import annotations

import base64
import json
import re
import secrets
import zlib
from functools import cache
from importlib import resources
from typing import Any

# the browser loads this first; it unpacks the widget's bundle, its trait `code`, and calls it
LOADER = """
async function unpack(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const url = URL.createObjectURL(new Blob([await new Response(stream).text()], { type: "text/javascript" }));
  const widget = await import(url);
  URL.revokeObjectURL(url);
  return widget.default;
}
export default { render: async (context) => (await unpack(context.model.get("code"))).render(context) };
"""


@cache
def packed(room: str, name: str) -> bytes:
    """A widget's bundle from the room's static/, zlib-compressed, because each widget stores a copy."""
    return zlib.compress((resources.files(room) / "static" / f"{name}.js").read_bytes(), 9)


def live_page(state: dict[str, Any], binary: dict[str, bytes], still: str) -> str:
    """HTML in which a widget works without a kernel and without network.

    `state` and `binary` are its traits, with the bundle as `code`; `still` is HTML that stays where scripts are
    removed.
    """
    parts = {"NAME": f"allranks-{secrets.token_hex(6)}", "STILL": still, "STATE": _in_script(state)}
    parts["BINARY"] = _in_script({key: base64.b64encode(data).decode() for key, data in binary.items()})
    parts["MODULE"] = base64.b64encode(LOADER.encode()).decode()
    # all in one pass, because an inserted text may hold such a word too
    return re.sub("@(" + "|".join(parts) + ")@", lambda found: parts[found[1]], _PAGE)


def _in_script(data: Any) -> str:
    """JSON that can't end the script element around it."""
    return json.dumps(data).replace("<", "\\u003c")


_PAGE = """<div id="@NAME@"><div>@STILL@</div></div>
<script type="module">
const state = @STATE@, binary = @BINARY@, hooks = {};
for (const key in binary) state[key] = Uint8Array.from(atob(binary[key]), (c) => c.charCodeAt(0));
const model = {
  get: (key) => state[key],
  set: (key, value) => {
    if (state[key] === value) return;
    state[key] = value;
    (hooks[`change:${key}`] ?? []).forEach((f) => f());
  },
  on: (name, f) => { (hooks[name] ??= []).push(f); },
  off: (name, f) => { hooks[name] = (hooks[name] ?? []).filter((g) => g !== f); },
  save_changes: () => {},
};
const widget = (await import("data:text/javascript;base64,@MODULE@")).default;
const root = document.getElementById("@NAME@"), el = root.appendChild(document.createElement("div"));
await widget.render({ model, el });
root.firstElementChild.remove();
</script>
"""
