"""The processor time of one verdict, for known answers of every exercise, and its parts: starts, runs and messages.

`ALLRANKS_BENCH_EACH` says how many right and how many wrong answers of each exercise are judged once; 0 takes all of
them. The ten slowest of each kind are judged again in every round.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable

from bench.common import ROOT, Result, median, module, processor_s, spread

EACH = int(os.environ.get("ALLRANKS_BENCH_EACH", "2"))
SLOWEST = 10
RANKS, STARTS, RUNS, EXCHANGES = 4, 5, 20, 500
EXCHANGE = """
import torch
import torch.distributed as dist

def exchange(times):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sent, received = torch.ones(8), torch.empty(8)
    for _ in range(times):
        batch = [dist.P2POp(dist.isend, sent, (rank + 1) % ranks), dist.P2POp(dist.irecv, received, (rank - 1) % ranks)]
        for work in dist.batch_isend_irecv(batch):
            work.wait()
"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """All in this process, whose ranks are its forks, so that the kernel counts what they use."""
    import allranks.ranks.wire.rank  # noqa: F401  # before the first verdict, which would have its import
    from allranks.judge.run import one_torch_thread

    result = Result("Processor seconds of one verdict", ("what", "median s", "least to most s"))
    for kind in ("right", "wrong"):
        answers = _chosen(kind)
        once = {}
        for number, answer in enumerate(answers):
            progress(f"{number + 1} of {len(answers)} {kind} answers: {answer}")
            once[answer] = _verdict_s(answer)
        again = {answer: [once[answer]] for answer in sorted(once, key=once.__getitem__, reverse=True)[:SLOWEST]}
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: the slowest {kind} answers")
            for answer, values in again.items():
                values.append(_verdict_s(answer))
        spent = list(once.values())
        result.rows.append((f"all {len(spent)} {kind} answers", f"{median(spent):.2f}", spread(spent)))
        for answer, values in again.items():
            result.rows.append((f"{kind}: {answer}", f"{median(values):.2f}", spread(values)))
    with one_torch_thread():
        for what, values in _parts(rounds, progress).items():
            result.rows.append((what, f"{median(values):.5f}", f"{min(values):.5f} to {max(values):.5f}"))
    load = ", ".join(f"{value:.0f}" for value in os.getloadavg())
    result.notes.append(
        f"Of the judge and its ranks together, forked from the judge; no sandbox. {EACH or 'All'} answers of each "
        f"exercise, each kind, once; the slowest {rounds + 1} times. Load averages meanwhile: {load}."
    )
    return result


def _chosen(kind: str) -> list:
    """Of each exercise the first, and others evenly spread."""
    for folder in ("tests", "tests/exercises"):
        sys.path.insert(0, str(ROOT / folder))
    by_exercise = defaultdict(list)
    for answer in module("tests/exercises/known.py").answers(kind):
        by_exercise[answer.exercise].append(answer)
    chosen = []
    for found in by_exercise.values():
        count = min(EACH or len(found), len(found))
        chosen += [found[len(found) * turn // count] for turn in range(count)]
    return chosen


def _verdict_s(answer) -> float:
    from allranks.exercises import get
    from allranks.judge.judging import MAX_RANKS, judge
    from allranks.judge.source import from_text
    from allranks.ranks.wire import Ranks

    exercise, source = get(answer.exercise), from_text(answer.text, answer.exercise, f"{answer.name}.py")

    def go() -> None:
        # new ones, as in a check, but forked from here: what the fork server's use, the kernel does not tell us
        with Ranks(MAX_RANKS, launch="fork") as ranks:
            judge(exercise, source, pool=ranks)

    return processor_s(go)


def _parts(rounds: int, progress: Callable[[str], None]) -> dict[str, list[float]]:
    """What a start, a first run, a run and an exchange cost, for one rank with its share of the router."""
    from allranks.ranks.wire import Program, Ranks, Rules

    program = Program(EXCHANGE, "exchange", "answer.py")

    def spent(starts: int, runs: int, times: int) -> float:
        def go() -> None:
            for _ in range(starts):
                with Ranks(RANKS, launch="fork") as ranks:
                    ranks.start()
                    for _ in range(runs):
                        ranks.run(program, RANKS, (times,), rules=Rules(contiguous=True, alone=True), ahead=True)

        return processor_s(go) / starts / RANKS

    gc.freeze()
    found: dict[str, list[float]] = defaultdict(list)
    try:
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}: the parts")
            start, first = spent(STARTS, 0, 0), spent(STARTS, 1, 0)
            many, long = spent(1, RUNS, 0), spent(1, 1, EXCHANGES)
            found["a rank's start and its end"].append(start)
            found["its first run, beside"].append(first - start)
            found["each further run, a rank"].append((many - first) / (RUNS - 1))
            found["an exchange (a send and a receive), a rank"].append((long - first) / EXCHANGES)
    finally:
        gc.unfreeze()
    return found
