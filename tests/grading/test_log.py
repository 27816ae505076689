"""What a student can write into the log of nbgrader's commands: no line of its own, and nothing that draws on a terminal."""

from __future__ import annotations

import subprocess
import sys

import pytest
from grading_course import ROOT

from autograder.log import CONTINUED, clean

FORGED = "x\n[AutogradeApp | INFO] ada: 15 of 15"


@pytest.mark.parametrize(
    "bad", ["\x1b[2J", "\r", "\x07", "\x9b", "\u202e", "\u2028", "\x0b", "\x85", "\u200b", "\ud800"]
)
def test_what_can_not_be_seen_is_replaced(bad):
    assert clean(f"a{bad}b") in ("a\N{REPLACEMENT CHARACTER}b", "a\N{REPLACEMENT CHARACTER}[2Jb")


def test_names_in_any_letters_stay():
    assert clean("Zoë Ünal-Ødegård 学生\tאבג") == "Zoë Ünal-Ødegård 学生\tאבג"


def test_a_further_line_never_looks_like_a_first_one():
    assert clean(FORGED) == f"x\n{CONTINUED}[AutogradeApp | INFO] ada: 15 of 15"


def test_every_record_is_clean_however_it_is_made():
    code = f"""
import logging
from autograder.log import guard_logging
guard_logging()
guard_logging()
logging.basicConfig(format="%(levelname)s %(message)s")
log = logging.getLogger("any")
log.error("{{}}".format({FORGED!r}))
log.error("%s", {FORGED!r})
log.error("%d", {FORGED!r})
try:
    raise ValueError({FORGED!r})
except ValueError:
    log.exception("failed")
    log.error("again", exc_info=True)
"""
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stderr.splitlines()
    assert said[:2] == ["ERROR x", f"{CONTINUED}[AutogradeApp | INFO] ada: 15 of 15"]
    assert all(line.startswith(("ERROR ", CONTINUED)) for line in said)
    assert sum("ada: 15 of 15" in line for line in said) >= 4
