"""What a widget shows where no kernel runs: on GitHub, on the site, in a notebook opened as plain text."""

from __future__ import annotations

import base64
import json
import re
import secrets
import zlib
from functools import cache
from importlib import resources
from typing import Any


@cache
def packed(name: str) -> bytes:
    """A widget's bundle from static/, zlib-compressed, because each card in a notebook stores a copy."""
    text = (resources.files(__package__) / "static" / f"{name}.js").read_text(encoding="utf-8")
    return zlib.compress(text.encode(), 9)


def with_fallback(bundle: Any, text: str, page: str = "") -> dict[str, Any]:
    """A widget's data by MIME type, with `text` as its plain text and `page` as its HTML if that is not empty.

    `bundle` is what the widget's own `_repr_mimebundle_` returned: the data, (data, metadata), or None.
    """
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    return {**(data or {}), "text/plain": text} | ({"text/html": page} if page else {})


def live_page(module: str, state: dict[str, Any], binary: dict[str, bytes], still: str) -> str:
    """HTML in which a widget works without a kernel and without network.

    `module` is its ES module, `state` and `binary` are its traits, and `still` is HTML that stays where scripts are removed.
    """
    parts = {"NAME": f"allranks-{secrets.token_hex(6)}", "STILL": still, "STATE": _in_script(state)}
    parts["BINARY"] = _in_script({key: base64.b64encode(data).decode() for key, data in binary.items()})
    parts["MODULE"] = base64.b64encode(module.encode()).decode()
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
