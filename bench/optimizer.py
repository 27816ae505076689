"""How long a chapter's first optimizer takes on new ranks: forked from a Jupyter server's fork server, which is idle
before, and from a plain one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.common import Result, alternate, compared

if TYPE_CHECKING:
    from allranks.ranks.engines.forkserver.client import ForkServer

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
    from allranks.ranks.engines.forkserver.client import ForkServer
    from allranks.ranks.engines.forkserver.loop import QUIET_S
    from allranks.ranks.engines.forkserver.server import LATER

    plain, lasting = ForkServer.start(), ForkServer.start(lasting=True)
    for forkserver in (plain, lasting):
        forkserver.wait_warm()
    until = time.monotonic() + 60
    while not _first(lasting)[1]:
        if time.monotonic() > until:
            raise RuntimeError("The lasting fork server has not imported what was to be measured.")
        time.sleep(len(LATER) * QUIET_S + 3)
    variants = {
        "a server's (`allranks lab`, the hub)": lambda: _first(lasting)[0],
        "one that a notebook started": lambda: _first(plain)[0],
    }
    times_s = alternate(variants, rounds, progress)
    for forkserver in (plain, lasting):
        forkserver.close()
    result = Result(
        "The first `torch.optim.SGD(...)` on 4 new ranks",
        ("forked from a fork server", "median s", "spread s", "times as long as from a server's"),
    )
    result.rows += compared(times_s)
    result.notes.append(
        f"{rounds} rounds in alternation. torch imports `torch._dynamo` for it; a server's fork server imports "
        "it while it has no request."
    )
    return result


def _first(forkserver: ForkServer) -> tuple[float, bool]:
    """(seconds on the slowest rank and back, whether all ranks had the import from their fork server)"""
    environment = os.environ | {"ALLRANKS_FORKSERVER": str(forkserver.path)}
    said = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    first_s, warm = said.stdout.split()
    return float(first_s), warm == "True"
