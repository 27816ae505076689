"""The course's map: its parts and chapters in the order of the story, from the one table chapters.toml. No torch.

The core is one path, from "Start here" to "Your own job"; every other chapter is a side trip that hangs on a chapter of
the core. What a chapter holds (minutes, checks, predictions) is not here: its notebook says it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TABLE = Path(__file__).resolve().parent / "chapters.toml"
RUNS = "CPU ok, 2 or more GPUs better"


@dataclass(frozen=True)
class Chapter:
    """One notebook of chapters/.

    `was` is its stem when all chapters lay in one folder, "" if it is newer. `hangs_on` is the number of the chapter of
    the core from which a side trip starts, and `why` a question that it answers; both are "" for a chapter of the core.
    `needs` and `helps` are the numbers of the chapters that one must have read, and of those that help; `runs` says
    on what it runs, `short` which of its sections the short way takes ("" for all of it, or none).
    `unlocks` is the argument of `allranks.cost.plan` that the reader's own model gets here, or "". `can` says what the
    reader can do afterwards.
    """

    stem: str
    title: str
    part: str
    was: str = ""
    hangs_on: str = ""
    why: str = ""
    unlocks: str = ""
    can: str = ""
    needs: tuple[str, ...] = ()
    helps: tuple[str, ...] = ()
    runs: str = RUNS
    short: str = ""

    @property
    def number(self) -> str:
        """Its two digits: "04"."""
        return self.stem[:2]

    @property
    def core(self) -> bool:
        """Whether it is one of the chapters that everybody reads."""
        return not self.hangs_on

    @property
    def path(self) -> Path:
        """Where its notebook is in the course's folder: chapters/1_first_hours/04_all_reduce.ipynb."""
        return Path("chapters", self.part, f"{self.stem}.ipynb")

    @property
    def old_path(self) -> Path:
        """Where it was before the parts were made: chapters/07_all_reduce.ipynb."""
        return Path("chapters", f"{self.was}.ipynb") if self.was else self.path


@dataclass(frozen=True)
class Part:
    """A folder of chapters/ with its chapters, in order."""

    folder: str
    title: str
    chapters: tuple[Chapter, ...]

    @property
    def number(self) -> str:
        """ "1" to "4"; "" for the extras, which have no place in the order."""
        first = self.folder.partition("_")[0]
        return first if first.isdigit() else ""


@cache
def parts() -> tuple[Part, ...]:
    """The parts in the order of the story.

    >>> [part.folder for part in parts()]
    ['1_first_hours', '2_collectives', '3_one_model', '4_real_cluster', 'extras']
    """
    table = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    return tuple(
        Part(
            row["folder"],
            row["title"],
            tuple(
                Chapter(
                    stem=line["stem"],
                    title=line["title"],
                    part=row["folder"],
                    was=line.get("old", ""),
                    hangs_on=line.get("from", ""),
                    why=line.get("why", ""),
                    unlocks=line.get("unlocks", ""),
                    can=line["can"],
                    needs=tuple(line.get("needs", ())),
                    helps=tuple(line.get("helps", ())),
                    runs=line.get("runs", RUNS),
                    short=line.get("short", ""),
                )
                for line in row["chapters"]
            ),
        )
        for row in table["part"]
    )


def chapters() -> tuple[Chapter, ...]:
    """Every chapter, in the order of the story.

    >>> chapters()[4].path.as_posix()
    'chapters/1_first_hours/04_all_reduce.ipynb'
    """
    return tuple(chapter for part in parts() for chapter in part.chapters)


def core() -> tuple[Chapter, ...]:
    """The chapters of the core, in the order in which they are read.

    >>> [chapter.number for chapter in core()]
    ['00', '03', '04', '14', '15', '20', '21', '22', '24', '25', '26', '27', '40', '45', '48']
    """
    return tuple(chapter for chapter in chapters() if chapter.core)


def side_trips(chapter: Chapter) -> tuple[Chapter, ...]:
    """The side trips that hang on a chapter of the core, in order.

    >>> [trip.title for trip in side_trips(find("22"))]
    ['FSDP by hand']
    """
    return tuple(trip for trip in chapters() if trip.hangs_on == chapter.number)


def find(number: str) -> Chapter:
    """The chapter with this number, or with this stem. Raises KeyError if there is none.

    >>> find("04").stem, find("04_all_reduce").number
    ('04_all_reduce', '04')
    """
    for chapter in chapters():
        if number in (chapter.number, chapter.stem):
            return chapter
    raise KeyError(f"there is no chapter {number}")


def link(source: Chapter, target: Chapter) -> str:
    """The address of one chapter's notebook as seen from another's.

    >>> link(find("04"), find("03")), link(find("04"), find("14"))
    ('03_point_to_point.ipynb', '../2_collectives/14_reduce_scatter.ipynb')
    """
    return f"{target.stem}.ipynb" if source.part == target.part else f"../{target.part}/{target.stem}.ipynb"


def after(chapter: Chapter) -> Chapter | None:
    """Where "Next" leads: along the core, and from a side trip back to it; None after the last chapter.

    A side trip whose number is lower than that of its chapter of the core, or that hangs on the last one, leads to that
    chapter; any other to the one that follows it.

    >>> after(find("04")).stem, after(find("10")).stem, after(find("17")).stem
    ('14_reduce_scatter', '14_reduce_scatter', '14_reduce_scatter')
    """
    path = core()
    at = path.index(chapter if chapter.core else find(chapter.hangs_on))
    if not chapter.core and (chapter.number < chapter.hangs_on or path[at] == path[-1]):
        return path[at]
    return path[at + 1] if at + 1 < len(path) else None
