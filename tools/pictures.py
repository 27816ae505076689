"""Draws the pictures of docs/pictures/: each collective's pictogram in two sizes, the README's ring and map. `--check`
only compares.

`make notebooks` runs it too. The same schedules always give the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("docs", "pictures")


def build() -> dict[Path, str]:
    """The text of each picture by its path in the repository."""
    from allranks import schedules
    from allranks.base.theme import DARK, LIGHT
    from allranks.course.map.page import picture
    from allranks.course.state import state
    from allranks.show.pictures import NAMES, pictogram
    from allranks.show.pictures.motion import motion

    texts = {}
    for name in NAMES:
        texts[FOLDER / f"{name}.svg"] = pictogram(name)
        texts[FOLDER / f"{name}-48.svg"] = pictogram(name, 48)
    ring, title = schedules.ring_all_reduce(4), "Ring all-reduce"
    texts[FOLDER / "ring.svg"] = motion(ring, title)
    texts[FOLDER / "ring-still.svg"] = motion(ring, title, still=True)
    course = state(None)  # of a reader who did nothing yet
    for name, colours in (("map", LIGHT), ("map-dark", DARK)):
        texts[FOLDER / f"{name}.svg"] = picture(course, colours, "begin here")
    return {path: text + "\n" for path, text in texts.items()}


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 naming each file that differs")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    texts = build()
    found = (path.relative_to(options.root) for path in (options.root / FOLDER).glob("*"))
    there = {path for path in found if not path.name.startswith("cost_")}  # those are tools/cost_figures.py's
    differs = [p for p, text in texts.items() if p not in there or (options.root / p).read_bytes() != text.encode()]
    left = sorted(there - set(texts))
    if options.check:
        for path in differs + left:
            print(f"{path} is not what tools/pictures.py draws; run `make notebooks`.", file=sys.stderr)
        return 1 if differs or left else 0
    for path in differs:
        (options.root / path).parent.mkdir(parents=True, exist_ok=True)
        (options.root / path).write_text(texts[path], encoding="utf-8", newline="\n")
        print(f"wrote {path}")
    for path in left:
        print(f"{path} is drawn by nothing; delete it.", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
