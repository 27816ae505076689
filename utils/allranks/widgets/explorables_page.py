"""An explorable where no kernel runs: the same module with its values, in HTML that needs no network."""

from __future__ import annotations

import base64
import html
import json
import re
import secrets
import zlib
from functools import cache
from importlib import resources
from typing import Any

# the browser loads this first; it unpacks the module and calls it
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
_PAGE = """<div id="NAME"><p>WORDS</p></div>
<script type="module">
const state = STATE, hooks = {};
state.code = Uint8Array.from(atob("CODE"), (c) => c.charCodeAt(0));
const model = {
  get: (key) => state[key],
  set: (key, value) => { state[key] = value; },
  on: (name, f) => { (hooks[name] ??= []).push(f); },
  off: (name, f) => { hooks[name] = (hooks[name] ?? []).filter((g) => g !== f); },
  save_changes: () => {},
};
const widget = (await import("data:text/javascript;base64,MODULE")).default;
const box = document.getElementById("NAME");
const el = document.createElement("div");
box.replaceChildren(el);
await widget.render({ model, el });
</script>
"""


@cache
def packed() -> bytes:
    """The ES module with its style sheet, as `make js` bundles it; zlib-compressed, because each widget stores a copy."""
    return zlib.compress((resources.files(__package__) / "static" / "explore.js").read_bytes(), 9)


def page(kind: str, data: dict[str, Any], values: dict[str, Any], words: str) -> str:
    """HTML that shows the explorable without a kernel and without a network; `words` stay where no script runs."""
    state = json.dumps({"kind": kind, "data": data, "values": values}).replace("</", "<\\/")
    parts = {
        "NAME": f"allranks-{secrets.token_hex(6)}",
        "WORDS": html.escape(words).replace("\n", "<br>"),
        "STATE": state,
        "CODE": base64.b64encode(packed()).decode(),
        "MODULE": base64.b64encode(LOADER.encode()).decode(),
    }
    # all in one pass, because an inserted text may hold such a word too
    return re.sub("|".join(parts), lambda found: parts[found[0]], _PAGE)
