"""Judges known answers under many secrets, and prints each mark that depends on the draw.

    python tools/steady_marks.py --secrets 200 --share 1/7
    python tools/steady_marks.py --secrets 8 ring_attention
    python tools/steady_marks.py --secrets 16 --kind mistakes

A right answer must pass whole under every secret, and a wrong one must fail under each (`--kind wrong`). With
`--kind mistakes` nothing is judged: an exercise's own mistakes must show in a case under every secret, or under none.
Prints one line for each mark that differs from that, with what decides it; then how many were judged.
`--share 2/7` judges every seventh answer, from the second on, so that seven nights judge all. The exit code is 1 if any
mark differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from allranks.exercises import get, names
from allranks.judge.judging import MAX_RANKS, judge
from allranks.judge.source import from_text
from allranks.ranks.wire import Ranks

sys.path.extend(str(Path(__file__).resolve().parents[1] / place) for place in ("tests", "tests/exercises"))
import known
from luck import lucky

WALL_S = 900.0  # of one verdict: a busy machine is no draw


def unsteady(answer: known.Answer, secrets: range, right: bool, pool: Ranks) -> list[str]:
    """A line for each secret under which the answer does not get its mark."""
    found = []
    for secret in secrets:
        source = from_text(answer.text, answer.exercise, f"{answer.name}.py")
        verdict = judge(get(answer.exercise), source, secret=secret, pool=pool, wall_s=WALL_S)
        if verdict.passed != right or (right and verdict.score != 1.0):
            found.append(f"{answer}: secret {secret}: {verdict.score}: {verdict.reason}")
    return found


def main() -> int:
    """Judges what the options say; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("exercises", nargs="*", help="only these")
    parser.add_argument("--secrets", type=int, default=200, help="secrets 1 to so many (default 200)")
    parser.add_argument(
        "--kind", choices=("right", "wrong", "mistakes"), default="right", help="which answers (default right)"
    )
    parser.add_argument("--share", default="1/1", help="every n-th answer from the i-th on, as i/n (default all)")
    options = parser.parse_args()
    first, _, step = options.share.partition("/")
    if options.kind == "mistakes":
        chosen = (options.exercises or names())[int(first) - 1 :: int(step)]
        found = [f"{name}: {one}" for name in chosen for one in lucky(get(name), range(1, options.secrets + 1))]
        print(
            *found,
            f"{len(chosen)} exercises under {options.secrets} secrets: {len(found)} mistakes show by luck",
            sep="\n",
        )
        return 1 if found else 0
    chosen = [a for a in known.answers(options.kind) if not options.exercises or a.exercise in options.exercises]
    chosen, differ = chosen[int(first) - 1 :: int(step)], 0
    with Ranks(MAX_RANKS) as pool:
        for answer in chosen:
            for line in unsteady(answer, range(1, options.secrets + 1), options.kind == "right", pool):
                differ += 1
                print(line, flush=True)
    print(f"{len(chosen)} {options.kind} answers under {options.secrets} secrets each: {differ} marks differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
