"""Keeps what students write out of the form of the log: their names, file names and exceptions can't forge a line of it."""

from __future__ import annotations

import logging
import traceback
import unicodedata
from typing import Any

CONTINUED = "  | "  # begins each further line of a message; no line of ours begins so


def clean(text: str) -> str:
    """The text without control characters and other characters that can't be seen; its further lines are indented."""
    return f"\n{CONTINUED}".join("".join(_visible(c) for c in line) for line in text.rstrip("\n").split("\n"))


def _visible(character: str) -> str:
    hidden = character != "\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "\N{REPLACEMENT CHARACTER}" if hidden else character


def guard_logging() -> None:
    """Makes every log record of this process clean, whoever writes it."""
    make = logging.getLogRecordFactory()
    if getattr(make, "allranks", False):
        return

    def clean_record(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = make(*arguments, **options)
        try:
            text = record.getMessage()
        except Exception:  # as logging would report it; the arguments may hold anything
            text = str(record.msg)
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + "".join(traceback.format_exception(*record.exc_info))
            record.exc_info = None
        record.msg, record.args = clean(text), ()
        return record

    clean_record.allranks = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(clean_record)
