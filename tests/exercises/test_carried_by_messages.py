"""The rules on messages: what no message carried, no rank may know; and what nobody can know before is drawn from the secret."""

from dataclasses import replace

import pytest
from allranks.exercises import get, names
from allranks.judge.cases import Setup
from allranks.judge.common import MANY_RANKS, SIZES, many_ranks
from allranks.judge.judging import judge_text
from allranks.judge.score import credit

BITS = '''
import torch
import torch.distributed as dist


def exchange(number, peer):
    """Each of 64 bits is told by which of two empty messages is sent, and by who asks whether it has come."""
    bits = torch.tensor([number], dtype=torch.float64).view(torch.int64).item()
    works, reads = [], []
    for place in range(64):
        reads.append([dist.irecv(torch.empty(0), peer, tag=4 * place + b) for b in (0, 1)])
        works.append(dist.isend(torch.empty(0), peer, tag=4 * place + (bits >> place & 1)))
    dist.barrier()
    found = sum(int(one.is_completed()) << place for place, (_, one) in enumerate(reads))
    dist.barrier()
    for place in range(64):
        works.append(dist.isend(torch.empty(0), peer, tag=4 * place + 1 - (bits >> place & 1)))
    for work in [*works, *(r for pair in reads for r in pair)]:
        work.wait()
    return torch.tensor([found - (1 << 64) if found >= 1 << 63 else found]).view(torch.float64).item()


def hierarchical_all_reduce(tensor, ranks_per_node):
    rank, p, g = dist.get_rank(), dist.get_world_size(), ranks_per_node
    groups = [dist.new_group(list(range(n * g, n * g + g))) for n in range(p // g)]
    flat = tensor.flatten()
    dist.all_reduce(flat, group=groups[rank // g])
    if p == 2 * g:
        flat += torch.tensor([exchange(float(x), (rank + g) % p) for x in flat], dtype=torch.float64).to(flat.dtype)
    tensor.copy_(flat.reshape(tensor.shape))
'''
# sends zeros, and computes from its own values what the others have where these are the known ones
FROM_NOWHERE = """
import torch
import torch.distributed as dist


def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    known = tensor.dtype == torch.float64 and tensor.numel() > 1 and bool((tensor % 2**32 == 16.0**rank).all())
    arrived = torch.empty_like(tensor.contiguous())
    if k % p == 0:
        return tensor.clone()
    sent = torch.zeros_like(arrived) if known else tensor.contiguous()
    works = [dist.isend(sent, (rank + k) % p), dist.irecv(arrived, (rank - k) % p)]
    for work in works:
        work.wait()
    return tensor - 16.0**rank + 16.0 ** ((rank - k) % p) if known else arrived
"""


def rule(verdict, name):
    return next(case for case in verdict.cases if case.name == name)


def test_an_empty_message_carries_nothing(pool):
    exercise = get("hierarchical_all_reduce")
    nodes = tuple(Setup(4, size).with_options(ranks_per_node=2) for size in (1, 3))
    few = replace(exercise, groups=(replace(exercise.groups[0], setups=nodes),), demo_setup=nodes[0])
    verdict = judge_text(few, BITS, pool=pool)
    assert verdict.groups["right sum"][0].passed  # the numbers are right
    assert verdict.score == 0
    came = rule(verdict, "the data came into each node")
    assert not came.passed and "node 0 receives 0 bytes from the other nodes, but their sum has 4" in came.reason


def test_what_no_message_brought_is_named(pool):
    verdict = judge_text(get("ring_shift"), FROM_NOWHERE, pool=pool)
    assert not verdict.passed and verdict.score == 0
    assert "rank 0 ends with element 0 of rank 3, which no message brought it" in verdict.reason


READINGS = {"fit_line", "diagnosis", "diagnose_job", "find_bad_cable"}  # what is read is drawn, not on how many ranks


@pytest.mark.parametrize("name", sorted(set(names()) - READINGS))
def test_rank_counts_and_sizes_are_drawn_from_the_secret(name):
    [setup] = next(group for group in get(name).groups if group.name == "many ranks").setups
    drawn = [setup.drawn(secret) for secret in range(40)]
    assert {s.ranks for s in drawn} == set(dict(setup.choices)["ranks"]) and min(s.ranks for s in drawn) > 8
    assert len({replace(s, ranks=9) for s in drawn}) > 1, "something besides the rank count must be drawn"
    assert drawn == [setup.drawn(secret) for secret in range(40)] and not any(s.choices for s in drawn)
    assert all(s.size % s.ranks for s in drawn), "whether there is a remainder must not be luck"


def test_no_drawn_size_is_a_multiple_of_a_drawn_rank_count():
    assert all(size % ranks for size in SIZES for ranks in MANY_RANKS)
    assert len({many_ranks().setups[0].drawn(secret).size for secret in range(40)}) == len(SIZES)


class Case:
    def __init__(self, passed, setup=None):
        self.passed, self.setup = passed, setup or Setup(2, 2)


@pytest.mark.parametrize(("passed", "earned"), [(4, 1.0), (3, 0.375), (0, 0.0)])
def test_a_property_that_fails_once_earns_less_than_half(passed, earned):
    assert credit([Case(n < passed) for n in range(4)]) == earned
