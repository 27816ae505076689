"""How long a chapter's first optimizer takes on new ranks: forked from a server's parent, which is idle before, and from a plain one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.common import Result, alternate, compared

if TYPE_CHECKING:
    from allranks.engines.parent import Parent

CODE = """
import sys, time
from allranks import World

def first():
    import torch
    warm = "torch._dynamo" in sys.modules
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    return warm

world = World(ranks=4)
began = time.perf_counter()
warm = world.run(first)
print(time.perf_counter() - began, all(warm))
"""


def run(rounds: int, progress: Callable[[str], None]) -> Result:
    """Measures in turns; each world is new."""
    from allranks.engines.parent import LATER, QUIET_S, Parent

    plain, lasting = Parent.start(), Parent.start(lasting=True)
    for parent in (plain, lasting):
        parent.wait_warm()
    until = time.monotonic() + 60
    while not _first(lasting)[1]:
        if time.monotonic() > until:
            raise RuntimeError("The lasting parent has not imported what was to be measured.")
        time.sleep(len(LATER) * QUIET_S + 3)
    variants = {
        "a server's (`allranks lab`, the hub)": lambda: _first(lasting)[0],
        "one that a notebook started": lambda: _first(plain)[0],
    }
    times_s = alternate(variants, rounds, progress)
    for parent in (plain, lasting):
        parent.close()
    result = Result(
        "The first `torch.optim.SGD(...)` on 4 new ranks",
        ("forked from a warm parent", "median s", "spread s", "times as long as from a server's"),
    )
    result.rows += compared(times_s)
    result.notes.append(
        f"{rounds} rounds in alternation. torch imports `torch._dynamo` for it; a server's parent does so once nobody asks anything."
    )
    return result


def _first(parent: Parent) -> tuple[float, bool]:
    """(seconds on the slowest rank and back, whether all ranks had the import from their parent)"""
    environment = os.environ | {"ALLRANKS_PARENT": str(parent.path)}
    said = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    first_s, warm = said.stdout.split()
    return float(first_s), warm == "True"
