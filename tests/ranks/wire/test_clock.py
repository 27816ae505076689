"""The virtual clock of programs that really ran, against closed forms: exact, and the same in every run."""

from fractions import Fraction

import pytest
import torch
import torch.distributed as dist
from allranks import wire
from allranks.base.errors import CourseError
from allranks.theory.simulator.simulation import TopologyNetwork
from allranks.theory.topology import Link, Topology, preset

ALPHA, BETA = Fraction(5, 3), Fraction(2, 7)


def ring_all_reduce(t):
    p, r = dist.get_world_size(), dist.get_rank()
    chunks = list(t.tensor_split(p))
    for step in range(2 * (p - 1)):
        out = (r - step) % p if step < p - 1 else (r + 1 - step + p - 1) % p
        inc = (out - 1) % p
        got = torch.empty_like(chunks[inc])
        works = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, chunks[out], (r + 1) % p), dist.P2POp(dist.irecv, got, (r - 1) % p)]
        )
        for work in works:
            work.wait()
        chunks[inc].copy_(got if step >= p - 1 else chunks[inc] + got)


def tree_broadcast(t):
    p, r = dist.get_world_size(), dist.get_rank()
    have = 1
    while have < p:
        if r < have and r + have < p:
            dist.send(t, r + have)
        elif have <= r < 2 * have:
            dist.recv(t, r - have)
        have *= 2


def halving_doubling(t):
    p, r = dist.get_world_size(), dist.get_rank()
    lo, hi, bit = 0, t.numel(), p // 2
    spans = []
    while bit:
        mid = (lo + hi) // 2
        mine, other = ((lo, mid), (mid, hi)) if not r & bit else ((mid, hi), (lo, mid))
        got = torch.empty(mine[1] - mine[0])
        exchange(t[slice(*other)].clone(), got, r ^ bit)
        t[slice(*mine)] += got
        spans.append((r ^ bit, mine, other))
        (lo, hi), bit = mine, bit // 2
    for peer, mine, other in reversed(spans):
        got = torch.empty(other[1] - other[0])
        exchange(t[slice(*mine)].clone(), got, peer)
        t[slice(*other)] = got


def exchange(out, into, peer):
    sending = dist.isend(out, peer)
    dist.recv(into, peer)
    sending.wait()


def run(pool, fn, p, n, **options):
    inputs = [torch.arange(float(n)) + r for r in range(p)]
    outcome = pool.run(fn, p, per_rank=[(t,) for t in inputs], **options)
    assert outcome.failure is None, outcome.failure.text()
    return outcome, inputs


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_ring_all_reduce(pool, p):
    outcome, inputs = run(pool, ring_all_reduce, p, 6 * p, alpha=ALPHA, beta=BETA)
    for (t,) in outcome.final_args:
        assert torch.equal(t, sum(inputs))
    assert outcome.seconds == 2 * (p - 1) * (ALPHA + 24 * BETA)
    assert outcome.trace.steps == 2 * (p - 1)
    assert outcome.trace.bytes_sent() == [2 * (p - 1) * 24] * p


@pytest.mark.parametrize("p", [2, 3, 4, 7, 8])
def test_tree_broadcast(pool, p):
    outcome, _ = run(pool, tree_broadcast, p, 10, alpha=ALPHA, beta=BETA)
    rounds = (p - 1).bit_length()
    assert outcome.seconds == rounds * (ALPHA + 40 * BETA)
    assert outcome.trace.steps == rounds
    assert run(pool, tree_broadcast, p, 10)[0].seconds == rounds


@pytest.mark.parametrize("p", [2, 4, 8])
def test_halving_doubling(pool, p):
    n = 8 * p
    outcome, inputs = run(pool, halving_doubling, p, n, alpha=ALPHA, beta=BETA)
    assert torch.equal(outcome.final_args[p - 1][0], sum(inputs))
    lg = p.bit_length() - 1
    assert outcome.seconds == 2 * lg * ALPHA + Fraction(2 * (p - 1), p) * 4 * n * BETA


def test_floats_are_the_same_to_the_last_digit(pool):
    seconds = {run(pool, ring_all_reduce, 5, 17, alpha=1.7e-6, beta=1 / 2.3e9)[0].seconds for _ in range(4)}
    assert len(seconds) == 1
    assert (
        run(pool, ring_all_reduce, 5, 17, alpha=1.7e-6, beta=1 / 2.3e9, delivery="shuffled", seed=9)[0].seconds
        in seconds
    )


def test_all_deliveries_give_the_same_result(pool):
    for seed in range(4):
        outcome, inputs = run(pool, ring_all_reduce, 4, 9, delivery="shuffled", seed=seed)
        assert torch.equal(outcome.final_args[2][0], sum(inputs))
    outcome, inputs = run(pool, ring_all_reduce, 4, 9, delivery="buffered")
    assert torch.equal(outcome.final_args[2][0], sum(inputs))


def test_the_trace_carries_times_rounds_and_lines(pool):
    outcome, _ = run(pool, tree_broadcast, 4, 10, alpha=0.5, beta=0.25)
    sends = [e for e in outcome.trace if e.op == "send"]
    assert [(e.rank, e.peer, e.step, e.start, e.end) for e in sends] == [
        (0, 1, 0, 0.0, 10.5),
        (0, 2, 1, 10.5, 21.0),
        (1, 3, 1, 10.5, 21.0),
    ]
    line = tree_broadcast.__code__.co_firstlineno + 5
    assert {e.line for e in sends} == {line}
    idle = [(e.rank, e.start, e.end) for e in outcome.trace if e.op == "wait"]
    assert (2, 10.5, 21.0) not in idle  # rank 2 waited from the start
    assert (2, 0.0, 21.0) in idle
    assert outcome.trace.seconds == 21.0
    assert outcome.trace.meta["alpha"] == 0.5


def test_collectives_have_their_textbook_time(pool):
    def reduce(t):
        dist.all_reduce(t)

    outcome, _ = run(pool, reduce, 4, 10, alpha=ALPHA, beta=BETA)
    assert outcome.seconds == 6 * ALPHA + Fraction(3, 2) * 40 * BETA
    assert [e.op for e in outcome.trace if e.op != "wait"] == ["all_reduce"] * 4


def test_a_topology_makes_the_links_between_nodes_slow(pool):
    network = TopologyNetwork(Topology("two nodes", 2, Link("inside", 1, 1e30), Link("card", 10, 1e30)))
    outcome, _ = run(pool, tree_broadcast, 4, 10, topology=network)
    assert outcome.seconds == 1 + 20  # both messages of the second round leave node 0 through one card


def test_the_log_and_the_trace_are_the_same_in_every_run(pool):
    seen = []
    for delivery in ("rendezvous", "rendezvous", "rendezvous", "shuffled"):
        outcome, _ = run(pool, halving_doubling, 8, 16, delivery=delivery)
        seen.append((outcome.log, outcome.trace.events))
    assert seen[0] == seen[1] == seen[2] == seen[3]
    entries, events = seen[0]
    assert [e.match for e in entries if e.kind == "send"] == list(range(48))
    starts = {e.match: e.start for e in events if e.op == "send"}
    assert [starts[e.match] for e in entries] == sorted(starts[e.match] for e in entries)


def works_meanwhile(seconds):
    from allranks.ranks.wire.endpoint import compute

    rank = dist.get_rank()
    compute(3.0)
    flying = dist.all_reduce(torch.ones(2), async_op=True)
    compute(seconds[rank])
    flying.wait()
    compute(1.0)


def test_what_a_rank_computes_takes_virtual_time_beside_its_messages(pool):
    outcome = pool.run(works_meanwhile, 3, args=([4.0, 1.0, 12.0],))
    assert outcome.failure is None
    assert outcome.seconds == 3 + 12 + 1
    spans = {(e.rank, e.op, e.start, e.end) for e in outcome.trace}
    assert {(r, "all_reduce", 3.0, 7.0) for r in range(3)} < spans  # 2(p-1) rounds of alpha = 1
    assert {(1, "compute", 3.0, 4.0), (1, "wait", 4.0, 7.0), (1, "compute", 7.0, 8.0)} < spans
    assert {e.step for e in outcome.trace} == {None}  # rounds know of messages only


def test_work_in_virtual_time_needs_the_wire():
    with pytest.raises(CourseError, match=r"only in a function that wire\.run runs"):
        wire.compute(1.0)


def test_a_topology_and_a_scale_give_the_time_of_a_machine(pool):
    """A byte that stands for so many takes their time; impossible scales are refused before any rank runs."""
    machine = preset("dgx-h100")

    def to_the_other_node(x):
        rank = dist.get_rank()
        if rank == 0:
            dist.send(x, 8)
        elif rank == 8:
            dist.recv(x, 0)

    with wire.Ranks(9) as ranks:
        outcome = ranks.run(to_the_other_node, args=(torch.zeros(100),), topology=machine, scale=1000)
        assert outcome.seconds == machine.seconds(0, 8, 400_000)
        assert outcome.critical_path.legs[0].link == "the network card"
    for options, words in (
        ({"topology": machine, "scale": 0}, "scale is 0"),
        ({"topology": machine, "scale": 1.5}, r"scale is 1\.5"),
        ({"scale": 2}, "scale is for a topology"),
    ):
        with pytest.raises(wire.WireError, match=words):
            pool.run(dist.get_rank, 2, **options)
