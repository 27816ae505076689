"""Every step of `allranks verify` on this machine's GPUs: these are the tests of the marker `gpu`."""

from __future__ import annotations

import pytest
from allranks.machine.verify import ALL_STEPS, Record, choose
from allranks.machine.verify.run import _fork_server, _run_directory, with_course
from allranks.machine.verify.worker import Worker
from allranks.ranks.engines.devices import Inventory
from allranks.ranks.engines.gpu_processes import keep_initialized

GPUS = Inventory.of_this_machine().gpus
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.live,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not GPUS, reason="No NVIDIA GPU is visible; tests/machine/verify runs the same steps on the CPU."
    ),
]


@pytest.fixture(scope="module")
def carry_out(pytestconfig):
    """A function that carries out a step in a worker, as `allranks verify` does, and returns its outcome."""
    import os

    plan = with_course(choose(), pytestconfig.rootpath)
    assert plan.backend == "nccl"
    let_go = keep_initialized(gpu.physical for gpu in GPUS)
    with _run_directory() as directory:
        env = dict(os.environ)
        server = _fork_server(env)
        record, workers = Record(plan, "", ""), []

        def run(step):
            if not workers or workers[-1].process.poll() is not None:
                workers.append(Worker(plan, directory / "steps.log", env))
            return record.add(workers[-1].run(step, step.limit_s))

        yield run
        if workers:
            workers[-1].end()
        server.close()
    let_go()


@pytest.mark.parametrize("step", ALL_STEPS, ids=[f"{step.phase}: {step.name}" for step in ALL_STEPS])
def test_step(step, carry_out):
    outcome = carry_out(step)
    if outcome.result == "skip":
        pytest.skip(outcome.reason)
    assert outcome.result == "pass", f"{outcome.reason}\n{outcome.output}"
