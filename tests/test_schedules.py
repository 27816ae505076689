"""The algorithms as data: verified on symbols for many world sizes, priced against their closed forms."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from allranks import schedules
from allranks.schedules import ALGORITHMS, Move, Schedule, ScheduleError

SIZES = range(1, 65)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_ends_right_for_1_to_64_ranks(name):
    for p in SIZES:
        ALGORITHMS[name](ranks=p).verify()


@pytest.mark.parametrize("name", ["flat_all_reduce", "tree_all_reduce", "binomial_broadcast", "binomial_reduce"])
def test_rooted_algorithms_end_right_from_every_root(name):
    for p in (1, 2, 3, 5, 8, 13):
        for root in range(p):
            ALGORITHMS[name](ranks=p, root=root).verify()


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
