"""From a notebook that is opened to its first cell's end, with the kernel forked from the fork server and launched
as always.
"""

from __future__ import annotations

import os
import time

from bench.common import Result, alternate, compared

FIRST_CELL = "import torch\nfrom allranks import World"


def run(rounds: int, progress) -> Result:
    """Measures in turns; each kernel is new and ends before the next begins."""
    from allranks.ranks.engines.forkserver.client import ForkServer
    from allranks.ranks.engines.kernels import NAME
    from jupyter_client import KernelManager
    from jupyter_client.provisioning import KernelProvisionerFactory

    KernelProvisionerFactory.instance().default_provisioner_name = NAME
    forkserver = ForkServer.ensure()
    forkserver.wait_warm()

    def first_cell(shared: dict[str, str]) -> float:
        env = {name: value for name, value in os.environ.items() if name != "ALLRANKS_FORKSERVER"}
        manager = KernelManager(kernel_name="python3")
        began = time.perf_counter()
        manager.start_kernel(env=env | shared)
        client = manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        reply = client.execute_interactive(FIRST_CELL, timeout=120)
        elapsed_s = time.perf_counter() - began
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        assert reply["content"]["status"] == "ok", reply  # noqa: S101 - a bench of a cell that failed is void
        return elapsed_s

    variants = {
        "forked from the fork server (`allranks lab`)": lambda: first_cell(
            {"ALLRANKS_FORKSERVER": str(forkserver.path)}
        ),
        "launched (any other Jupyter)": lambda: first_cell({}),
    }
    times_s = alternate(variants, rounds, progress)
    result = Result(
        "From a kernel's start to the end of `import torch; from allranks import World`",
        ("kernel", "median s", "spread s", "times as long as forked"),
    )
    result.rows += compared(times_s)
    result.notes.append(f"{rounds} rounds in alternation.")
    return result
