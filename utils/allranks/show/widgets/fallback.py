"""What a widget shows where no kernel runs: on GitHub, on the site, in a notebook opened as plain text."""

from __future__ import annotations

from typing import Any


def with_fallback(bundle: Any, text: str, page: str = "") -> dict[str, Any]:
    """A widget's data by MIME type, with `text` as its plain text and `page` as its HTML if that is not empty.

    `bundle` is what the widget's own `_repr_mimebundle_` returned: the data, (data, metadata), or None.
    """
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    return {**(data or {}), "text/plain": text} | ({"text/html": page} if page else {})
