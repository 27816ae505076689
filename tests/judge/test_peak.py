"""The memory of a rank at its sends: what is kept from send to send counts, what is let go of does not."""

import pytest
import torch
import torch.distributed as dist
from allranks.exercises import get
from allranks.exercises.ring_attention import LONG, ROOM
from allranks.judge import run
from allranks.ranks.wire import Ranks, record


def round_the_ring(k, keep):
    """Passes blocks round the ring; `keep` is what a rank does with each that came."""
    rank, p, block = dist.get_rank(), dist.get_world_size(), k.contiguous()
    for _ in range(p - 1):
        coming = torch.empty_like(block)
        ops = [dist.P2POp(dist.isend, block, (rank + 1) % p), dist.P2POp(dist.irecv, coming, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        block = coming
        keep(block)


def lets_go(q, k, v, positions):
    round_the_ring(k, lambda block: None)
    return q


def keeps_tensors(q, k, v, positions):
    kept = []
    round_the_ring(k, kept.append)
    return q


def keeps_arrays(q, k, v, positions):
    kept = []
    round_the_ring(k, lambda block: kept.append(block.numpy().copy()))
    return q


def keeps_rows(q, k, v, positions):
    kept = []
    round_the_ring(k, lambda block: kept.append([row.numpy().copy() for row in block]))
    return q


def keeps_lists(q, k, v, positions):
    kept = {}
    round_the_ring(k, lambda block: kept.setdefault(len(kept), block.tolist()))
    return q


def keeps_bytes(q, k, v, positions):
    kept = []
    round_the_ring(k, lambda block: kept.append((block.numpy().tobytes(), block.shape)))
    return q


def keeps_a_tuple(q, k, v, positions):
    kept = ()

    def keep(block):
        nonlocal kept
        kept += tuple(block.flatten().tolist())

    round_the_ring(k, keep)
    return q


KEEPING = (keeps_tensors, keeps_arrays, keeps_rows, keeps_lists, keeps_bytes, keeps_a_tuple)


@pytest.mark.parametrize(("answer", "blocks"), [(lets_go, 0), *((answer, 11) for answer in KEEPING)])
def test_what_a_rank_keeps_from_send_to_send_is_counted(answer, blocks):
    with Ranks(LONG.ranks) as pool:
        done = run.CaseRunner(get("ring_attention"), answer, pool, secret=0, wall_s=60).run(LONG)
        more = {
            int.from_bytes(used.data, "big")
            for rank in range(LONG.ranks)
            for used in record.used(done.outcome.router, rank, 0).values()
        }
    block = 8 * 3 * LONG.size  # a block of keys: float64, of width 3
    # behind the first of 12 sends 11 blocks more have come; two may be under way
    assert all(blocks * block <= nbytes <= (blocks + 2) * block for nbytes in more)
    assert (max(more) <= ROOM * block) == (blocks == 0)
