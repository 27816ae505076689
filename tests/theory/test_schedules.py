"""The algorithms as data: verified on symbols for many world sizes, priced against their closed forms."""

import inspect
import math
from dataclasses import replace
from fractions import Fraction

import pytest
from allranks import cost, schedules
from allranks.theory.schedules import ALGORITHMS, Move, Schedule, ScheduleError, algorithms, describe, find
from allranks.theory.schedules.symmetric import symmetric_schedule
from allranks.theory.schedules.trees import two_trees

SIZES = range(1, 65)
ROOTED = ("broadcast", "reduce", "scatter", "gather")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_ends_right_for_1_to_64_ranks(name):
    for p in SIZES:
        ALGORITHMS[name](ranks=p).verify()


def takes(name, option):
    return option in inspect.signature(ALGORITHMS[name]).parameters


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if takes(name, "root")])
def test_rooted_algorithms_end_right_from_every_root(name):
    for p in range(1, 10):
        for root in range(p):
            schedule = ALGORITHMS[name](ranks=p, root=root)
            schedule.verify()
            assert schedule.root == root


def test_the_rooted_algorithms_are_those_of_rooted_collectives_and_all_reduces_through_one_rank():
    rooted = {name for name in ALGORITHMS if takes(name, "root")}
    assert {name for name in ALGORITHMS if ALGORITHMS[name](2).collective in ROOTED} <= rooted
    assert rooted >= {"flat_all_reduce", "tree_all_reduce", "binary_tree_all_reduce"}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if takes(name, "segments")])
@pytest.mark.parametrize("segments", [1, 2, 7])
def test_pipelines_end_right_for_any_number_of_segments(name, segments):
    for p in (1, 2, 3, 4, 6, 7, 16):
        schedule = ALGORITHMS[name](p, segments=segments)
        schedule.verify()
        assert schedule.chunks == segments * (2 if name.startswith("double") else 1)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if takes(name, "ranks_per_node")])
def test_grouped_algorithms_end_right_for_every_size_of_node(name):
    for p in (1, 6, 12, 16):
        for g in (g for g in range(1, p + 1) if p % g == 0):
            ALGORITHMS[name](p, ranks_per_node=g).verify()
    with pytest.raises(ScheduleError, match="ranks_per_node is 4; it must divide the 10 ranks"):
        ALGORITHMS[name](10, ranks_per_node=4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_rank_sends_and_receives_one_message_a_step(name):
    """What the model of one port each way asks for, and why prices are sums over steps."""
    for p in (1, 2, 3, 4, 7, 8, 12):
        for now in ALGORITHMS[name](p).by_step:
            assert now
            assert len({m.src for m in now}) == len(now) == len({m.dst for m in now})
            assert all(m.src != m.dst and len(set(m.chunks)) == len(m.chunks) for m in now)


@pytest.mark.parametrize("p", range(1, 65))
def test_no_rank_has_children_in_both_trees_and_the_trees_are_shallow(p):
    first, second = two_trees(p)
    inner = [{up for up in tree.parent if up is not None} for tree in (first, second)]
    assert not inner[0] & inner[1]
    assert max(first.height, second.height) <= max(1, math.ceil(math.log2(p)))
    for tree in (first, second):
        assert all(list(tree.parent).count(up) <= 2 for up in set(tree.parent))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_rules_in_short_are_the_moves_of_the_schedule(name):
    """`symmetric_schedule` against the full list of messages: who sends how much to whom, step by step."""
    found = 0
    for p in range(1, 33):
        schedule = ALGORITHMS[name](p)
        rules = symmetric_schedule(schedule.collective, schedule.algorithm, p)
        if rules is None:
            continue
        found += 1
        steps = [rule for rule in rules.rules for _ in range(rule.repeat)]
        assert len(steps) == schedule.steps == rules.steps
        vectors = p if schedule.collective == "all_to_all" else 1
        assert rules.parts * vectors == schedule.chunks
        for rule, now in zip(steps, schedule.by_step, strict=True):
            wanted = {(m.src, m.dst, len(m.chunks), m.reduce) for m in now}
            assert {(r, rule.destination(r), rule.chunks, rule.reduce) for r in range(p)} == wanted
            assert all(rule.source(rule.destination(r)) == r for r in range(p))
    regular_ones = (
        "ring",
        "pairwise",
        "bruck",
        "recursive",
        "rabenseifner_all",
        "rabenseifner_far",
        "hierarchical",
        "torus",
        "dissemination",
        "pat",
    )
    assert bool(found) == name.startswith(regular_ones)


def test_algorithms_are_found_by_their_names():
    assert find("all_reduce", "recursive-doubling") is schedules.recursive_doubling_all_reduce
    assert find("all_reduce", "halving_doubling") is schedules.rabenseifner_all_reduce
    assert find("broadcast", "van-de-geijn") is schedules.scatter_allgather_broadcast
    assert set(algorithms("barrier")) == {"dissemination"}
    assert describe("all_to_all", "hierarchical").options == {"ranks_per_node": None}
    assert describe("broadcast", "chain").options == {"root": 0, "segments": 8}
    with pytest.raises(
        ScheduleError, match="no algorithm 'tree' for all_gather; there are ring, recursive-doubling, bruck"
    ):
        find("all_gather", "tree")
    with pytest.raises(ScheduleError, match="no collective 'allreduce'; there are broadcast"):
        find("allreduce", "ring")


def test_every_collective_has_an_algorithm():
    assert {build(2).collective for build in ALGORITHMS.values()} == set(schedules.COLLECTIVES)


def test_all_to_all_counts_what_one_rank_sends():
    schedule = schedules.pairwise_all_to_all(4)
    assert schedule.chunk_nbytes(400) == [100] * 16
    assert schedule.bytes_sent(400) == [300] * 4
    assert schedule.trace(400).nbytes == 1600


def test_a_barrier_moves_no_bytes():
    schedule = schedules.dissemination_barrier(8)
    assert schedule.bytes_sent(1000) == [0] * 8
    assert schedule.price(1000, Fraction(1), Fraction(1)) == 3


def test_messages_of_different_contributions_claim_none():
    sent = [e for e in schedules.bruck_all_gather(4).trace(400) if e.op == "send" and e.step == 1]
    assert all(e.contrib is None and len(e.chunks) == 2 for e in sent)


@pytest.mark.parametrize("segments", [0, -1, 1.5, True])
def test_bad_segments_are_refused(segments):
    with pytest.raises(ScheduleError, match="segments is"):
        schedules.pipelined_chain_broadcast(4, segments=segments)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8, 16, 64])
def test_ring_sends_exactly_the_lower_bound(p):
    sent = schedules.ring_all_reduce(ranks=p).bytes_sent(1000 * p)
    assert sent == [2 * (p - 1) * 1000] * p


@pytest.mark.parametrize("p", SIZES)
def test_prices_equal_the_closed_forms(p):
    a, b, g = Fraction(5, 10**6), Fraction(1, 10**9), Fraction(1, 10**10)
    n = 1000 * p
    lg = math.ceil(math.log2(p))
    assert (
        schedules.ring_all_reduce(p).price(n, a, b, g)
        == 2 * (p - 1) * a + Fraction(2 * n * (p - 1), p) * b + Fraction(n * (p - 1), p) * g
    )
    assert schedules.flat_all_reduce(p).price(n, a, b, g) == 2 * (p - 1) * (a + n * b) + (p - 1) * n * g
    assert schedules.tree_all_reduce(p).price(n, a, b, g) == lg * (a + n * b + n * g) + lg * (a + n * b)
    assert schedules.binomial_broadcast(p).price(n, a, b) == lg * (a + n * b)
    if p == 2**lg:
        assert schedules.recursive_doubling_all_reduce(p).price(n, a, b, g) == lg * (a + n * b + n * g)


def test_a_schedule_that_adds_twice_names_the_rank():
    good = schedules.ring_all_reduce(4)
    again = replace(good, moves=(*good.moves, Move(6, 0, 1, (0,), reduce=True)))
    with pytest.raises(
        ScheduleError, match="step 6: rank 0 to rank 1, chunk 0: the contribution of rank 0 was added twice"
    ):
        again.verify()


def test_a_schedule_that_stops_early_names_what_is_missing():
    good = schedules.ring_all_reduce(4)
    with pytest.raises(
        ScheduleError, match=r"rank \d should hold chunk \d with the contributions of ranks \[0, 1, 2, 3\]"
    ):
        replace(good, moves=good.moves[:-1]).verify()


def test_sending_what_you_do_not_hold_is_named():
    with pytest.raises(ScheduleError, match="rank 1 does not hold chunk 0 yet"):
        Schedule("broadcast", "wrong", 3, 1, (Move(0, 1, 2, (0,)),), root=0).verify()


@pytest.mark.parametrize("ranks", [0, -1, 65537, 2.0, True, "4"])
def test_bad_world_sizes_are_refused(ranks):
    with pytest.raises(ScheduleError, match="ranks is"):
        schedules.ring_all_reduce(ranks)


def test_a_root_outside_the_world_is_refused():
    with pytest.raises(ScheduleError, match="root is 4"):
        schedules.binomial_broadcast(4, root=4)


def test_trace_carries_bytes_and_contributions():
    trace = schedules.ring_all_reduce(4).trace(nbytes=400)
    assert trace.bytes_sent() == trace.bytes_received() == [600] * 4
    last_reduce = [m for m in trace.messages() if m.step == 2]
    assert all(len(m.contrib) == 3 and m.reduce for m in last_reduce)
    assert all(m.contrib == (0, 1, 2, 3) and not m.reduce for m in trace.messages() if m.step >= 3)


@pytest.mark.parametrize(
    "name", ["ring_all_reduce", "hierarchical_all_reduce", "binomial_broadcast", "binomial_reduce"]
)
def test_an_algorithm_placed_otherwise_still_ends_right(name):
    good, seats = schedules.ALGORITHMS[name](6), [3, 0, 5, 1, 4, 2]
    other = good.placed(seats)
    other.verify()
    assert [(m.src, m.dst) for m in other.moves] == [(seats[m.src], seats[m.dst]) for m in good.moves]
    assert other.root == (None if good.root is None else 3)
    assert other.placed([seats.index(rank) for rank in range(6)]) == good


@pytest.mark.parametrize("seats", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4]])
def test_seats_that_are_no_order_of_the_ranks_are_refused(seats):
    with pytest.raises(ScheduleError, match="they must name each of the 4 ranks once"):
        schedules.ring_all_reduce(4).placed(seats)


def test_where_ranks_have_parts_of_their_own_they_stay_in_place():
    with pytest.raises(ScheduleError, match="all_gather can't be placed otherwise"):
        schedules.ring_all_gather(4).placed([1, 0, 2, 3])


@pytest.mark.parametrize(
    ("name", "two_nodes", "four_nodes"),
    [("rabenseifner", 2, 6), ("rabenseifner far first", 16, 24), ("recursive doubling", 16, 32), ("ring", 3.75, 7.5)],
)
def test_the_order_of_partners_decides_what_crosses_the_nodes_borders(name, two_nodes, four_nodes):
    """Vectors that cross, on 16 ranks: with the published order the largest pieces go to the nearest rank."""
    schedule = find("all_reduce", name)(16)
    for per_node, wanted in ((8, two_nodes), (4, four_nodes)):
        crossing = sum(len(m.chunks) for m in schedule.moves if m.src // per_node != m.dst // per_node)
        assert crossing / schedule.chunks == wanted


def test_pat_is_what_nccl_s_own_class_says():
    """Peers and chunks for 4 and 8 ranks, and hops where 8 chunks are on their way at once (NCCL 2.30.7, collectives.h)."""
    sent = [(m.step, m.dst, m.chunks) for m in schedules.pat_all_gather(8).moves if m.src == 0]
    assert sent == [(0, 4, (0,)), (1, 6, (0, 4)), (2, 7, (0, 2, 4, 6))]
    back = [(m.step, m.dst, m.chunks) for m in schedules.pat_reduce_scatter(8).moves if m.src == 0]
    assert back == [(0, 1, (1, 3, 5, 7)), (1, 2, (2, 6)), (2, 4, (4,))]
    hops = {p: schedules.pat_all_gather(p, in_flight=8).steps for p in (16, 32, 64, 256)}
    assert hops == {16: 4, 32: 6, 64: 10, 256: 34}
    assert cost.terms("all_gather", "pat", 1024, 1, in_flight=8).messages == 130
    assert cost.terms("all_gather", "pat", 1024, 1, in_flight=64).messages == 21


@pytest.mark.parametrize("name", ["pat_all_gather", "pat_reduce_scatter"])
def test_pat_with_few_chunks_in_flight(name):
    for p in (1, 2, 3, 5, 6, 7, 8, 12, 17):
        for in_flight in (1, 2, 3):
            schedule = ALGORITHMS[name](p, in_flight=in_flight)
            schedule.verify()
            price = cost.price(schedule.collective, "pat", p, 60 * p, 7, 2, 1, in_flight=in_flight)
            assert schedule.price(60 * p, 7, 2, 1) == price
            assert max((len(move.chunks) for move in schedule.moves), default=0) <= in_flight
        assert ALGORITHMS[name](p, in_flight=1).steps == p - 1
    with pytest.raises(ScheduleError, match="in_flight is 0"):
        ALGORITHMS[name](8, in_flight=0)
    with pytest.raises(cost.CostError, match="in_flight is -1"):
        cost.terms("all_gather", "pat", 8, 1, in_flight=-1)
