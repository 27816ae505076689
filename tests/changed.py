"""Known answers that differ from another one in a few lines only, as a `changed.toml` has them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def changed(path: Path, base: Callable[[str], str]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The name, the entry and the text of each answer in the file; `base` gives the text of the one that it changes.

    In that text each `was` of the entry's changes, which must stand there once, becomes `now`.
    """
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
        text = base(entry["base"])
        for change in entry["change"]:
            if text.count(change["was"]) != 1:
                raise ValueError(
                    f"{path}: in {entry['base']} this does not stand once, as {name} needs it:\n{change['was']}"
                )
            text = text.replace(change["was"], change["now"])
        yield name, entry, text
