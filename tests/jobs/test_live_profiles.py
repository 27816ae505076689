"""Profiles that torch.profiler makes of live gloo ranks: what was done is what is read."""

import subprocess
import sys
from collections import Counter

import pytest
from allranks.jobs import explain, read

pytestmark = pytest.mark.live
PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

def main(rank, ranks, store, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    pair = dist.new_group([0, 1]) if "pair" in sys.argv else None
    x = torch.ones(2500)
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        for _ in range(6):
            time.sleep(0.25 if rank == 1 else 0.0)
            dist.all_reduce(x)
            dist.reduce_scatter_tensor(torch.empty(10), torch.ones(10 * ranks))
            dist.all_to_all_single(torch.empty(ranks), torch.ones(ranks))
            if pair is not None and rank < 2:
                dist.broadcast(x[:100], 0, group=pair)
    seen.export_chrome_trace(f"{folder}/{rank}.json.gz")
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, (3, sys.argv[1], sys.argv[2]), 3)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("profiles")
    (where / "program.py").write_text(PROGRAM)
    out = where / "out"
    out.mkdir()
    subprocess.run(
        [sys.executable, "program.py", where / "store", out, "pair"],
        cwd=where,
        check=True,
        capture_output=True,
        timeout=150,
    )
    return out


def test_the_calls_are_those_that_were_made(folder):
    job = read(folder)
    assert [r.rank for r in job.records] == [0, 1, 2] and job.world_size == 3 and not job.missing
    want = {("all_reduce", 10_000): 6, ("reduce_scatter", 120): 6, ("all_to_all", 12): 6}
    pair = {("broadcast", 400): 6}
    for record in job.records:
        made = Counter((c.op, c.nbytes) for c in record.calls)
        assert made == Counter(want | (pair if record.rank < 2 else {}))
        assert record.facts["backend"] == "gloo" and record.rank_from == "the file"
        assert all(c.end_us >= c.start_us for c in record.calls)


def test_the_rank_that_slept_is_the_straggler(folder):
    found = explain(folder)
    first = found.causes[0]
    assert (first.kind, first.rank) == ("straggler", 1)
    calls = read(folder).records[1].calls
    took_s = (calls[-1].end_us - calls[0].start_us) * 1e-6
    assert 6 * 0.25 / 2 < first.saves_s < 0.25 + took_s and "idle" in first.evidence
    matched = Counter((m.op, len(m.calls)) for m in found.matching.matches)
    assert matched["all_reduce", 3] >= 4 and matched["broadcast", 2] >= 4, "ends scatter on a busy machine"
