"""What ages was looked up within a year, and the files that say it are there and say it."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.core
PAGE = Path(__file__).resolve().parents[2] / "docs" / "currency.md"
OLDEST = timedelta(days=365)
ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| `(?P<value>[^`|]+)` \| \[[^\]]+\]\((?P<file>[^)]+)\) "
    r"\| (?P<source>[^|]+) \| (?P<on>\S+) \|$"
)


def faults(page: str, folder: Path, today: date) -> list[str]:
    """A sentence for each row of the table that nobody should rely on."""
    found = []
    for line in (
        line for line in page.splitlines() if line.startswith("|") and not line.startswith(("| what |", "|---"))
    ):
        row = ROW.match(line)
        if row is None:
            found.append(f"not a row of what, value, file, source and date: {line}")
            continue
        path, looked_up = folder / row["file"], date.fromisoformat(row["on"])
        if today - looked_up > OLDEST:
            found.append(f"{row['what']}: looked up on {looked_up}, more than a year ago; look at {row['source']}")
        if looked_up > today:
            found.append(f"{row['what']}: {looked_up} has not come yet")
        if not path.is_file():
            found.append(f"{row['what']}: {row['file']} is gone")
        elif row["value"] not in path.read_text(encoding="utf-8"):
            found.append(f"{row['what']}: {row['file']} does not say {row['value']}")
    return found


def test_nothing_is_older_than_a_year_and_every_file_says_what_the_page_says():
    page = PAGE.read_text(encoding="utf-8")
    assert len(re.findall(r"^\| .* \| \d{4}-\d\d-\d\d \|$", page, flags=re.M)) > 20
    assert faults(page, PAGE.parent, date.today()) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("| a | `2` | [x](x.md) | s | 2026-01-01 |", []),
        ("| a | `2` | [x](x.md) | s | 2024-12-31 |", ["more than a year ago"]),
        ("| a | `2` | [x](x.md) | s | 2026-03-01 |", ["has not come yet"]),
        ("| a | `2` | [y](y.md) | s | 2026-01-01 |", ["is gone"]),
        ("| a | `3` | [x](x.md) | s | 2026-01-01 |", ["does not say 3"]),
        ("| a | `2` | [x](x.md) | 2026-01-01 |", ["not a row"]),
    ],
)
def test_each_fault_is_found(tmp_path, row, said):
    (tmp_path / "x.md").write_text("2")
    found = faults(f"| what |\n|---|\n{row}\n", tmp_path, date(2026, 2, 1))
    assert len(found) == len(said) and all(words in one for words, one in zip(said, found, strict=True))
