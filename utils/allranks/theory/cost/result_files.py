"""Sweeps that a tool writes as records instead of a table: each becomes the rows of a table that `nccl_tests` reads.

Sources: rccl-tests' --output_file, JSON and CSV (src/common.cu, Reporter::writeFile, also with the head of builds with MPI up to
2026, which lacks the column `nodes`), and the JSON that was proposed for nccl-tests before its -J (NVIDIA/nccl-tests#318).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["as_tables"]

MOST_RECORDS = 100_000
HEAD = "# size count type redop root time algbw busbw #wrong"
_PROPOSED = re.compile(r'\{"identifier": ?"nccl-tests structured output"')
_CSV = re.compile(r"^numCycle,(?:collective|name),.*\btime,algbw,busbw\b.*$", re.M | re.I)
_RECORD = re.compile(r'\{[^{}]*"algBw"\s*:[^{}]*\}')


def as_tables(text: str) -> str | None:
    """The text with its records as tables, or None where it has none. Each table says how many ranks ran, if its records do.

    >>> print(as_tables('{"algBw":1.0,"busBw":1.5,"gpus":4,"inPlace":0,"name":"AllReduce","size":8,"time":9.5,"wrong":"0"}'))
    # AllReduce (records of rccl-tests), 4 ranks, rccl
    # size count type redop root time algbw busbw #wrong
    8 1 float sum -1 9.5 1.000000 1.500000 0
    <BLANKLINE>
    """
    if found := _PROPOSED.search(text):
        return _proposed(text, found.start())
    if found := _CSV.search(text):
        return _printed(_of_csv(text[found.start() :]))
    return _printed(_of_json(text)) if '"algBw"' in text else None


def _proposed(text: str, start: int) -> str | None:
    """What stands before, such as the command, and the table."""
    try:
        data = json.JSONDecoder().raw_decode(text, start)[0]
        sizes = {int(size): row for part in data["benchmark"] for size, row in part.items()}
        rows = [_row(size, row, row["oop_time"], row["oop_algbw"], row["oop_busbw"], row.get("oop_error"))
                for size, row in sorted(sizes.items())]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return "\n".join([text[:start], HEAD, *rows, ""])


def _row(size: Any, of: dict[str, Any], time: Any, algbw: Any, busbw: Any, wrong: Any) -> str:
    """A row as nccl-tests prints it; records of rccl-tests have no count."""
    kind = of.get("type") or "float", of.get("redop") or "sum", of.get("root") or -1
    cells = int(size), int(of.get("count") or 1), *kind, time, f"{algbw:.6f}", f"{busbw:.6f}", wrong or 0
    return " ".join(map(str, cells))


def _of_json(text: str) -> Iterator[dict[str, Any]]:
    for found in _RECORD.finditer(text):
        try:
            record = json.loads(found[0])
        except (ValueError, RecursionError):
            continue
        yield {name.strip("#").lower(): value for name, value in record.items()}


def _of_csv(text: str) -> Iterator[dict[str, Any]]:
    lines = csv.reader(text.splitlines())
    head = [name.strip("#").lower() for name in next(lines)]
    for cells in lines:
        if len(cells) == len(head) + 1 and "nodes" not in head and "ranks" in head:
            names = [*head[: head.index("ranks")], "nodes", *head[head.index("ranks") :]]
        else:
            names = head
        if len(cells) == len(names):
            yield dict(zip(names, cells, strict=True))


def _printed(records: Iterator[dict[str, Any]]) -> str | None:
    """The records out of place as tables, a table for each test, type and number of ranks."""
    tables: dict[tuple[str, int, str, str], list[str]] = {}
    for _, record in zip(range(MOST_RECORDS), records, strict=False):
        try:
            if int(record.get("inplace", 0)):
                continue
            name = re.sub(r"\W", "", str(record.get("collective") or record["name"]))
            each = int(record.get("gpusperrank") or record.get("gpus") or 0)
            count = int(record["ranks"]) * max(each, 1) if "ranks" in record else each
            time, algbw, busbw = (float(record[key]) for key in ("time", "algbw", "busbw"))
            row = _row(record["size"], {"type": record.get("type"), "redop": record.get("redop")}, time, algbw, busbw,
                       record.get("wrong"))  # fmt: skip
        except (KeyError, TypeError, ValueError):
            continue
        key = (name, count, str(record.get("type")), str(record.get("redop")))
        tables.setdefault(key, []).append(row)
    lines = []
    for (name, count, *_), rows in tables.items():
        whose = f", {count} rank{'' if count == 1 else 's'}, rccl" if count else ""
        lines += [f"# {name} (records of rccl-tests){whose}", HEAD, *rows]
    return "\n".join([*lines, ""]) if lines else None
