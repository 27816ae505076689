"""Closed forms against the schedules' own prices (exactly), bounds, nccl-tests' bandwidths by hand, fits, NCCL's model."""

import math
from collections import Counter
from fractions import Fraction

import pytest
from allranks import cost
from allranks.theory.cost import CostError
from allranks.theory.schedules import ALGORITHMS, COLLECTIVES, find

ALPHA, BETA, GAMMA = Fraction(5, 10**6), Fraction(1, 10**9), Fraction(1, 7 * 10**9)
LG = {p: math.ceil(math.log2(p)) for p in range(1, 65)}


def bytes_for(schedule, each=24):
    """A size that cuts into equal chunks."""
    return each * schedule.chunks // (schedule.ranks if schedule.collective == "all_to_all" else 1)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_schedules_price_is_its_closed_form_and_no_less_than_the_bound(name):
    for p in range(1, 65):
        schedule = ALGORITHMS[name](p)
        n = bytes_for(schedule)
        price = schedule.price(n, ALPHA, BETA, GAMMA)
        assert price == cost.price(schedule.collective, schedule.algorithm, p, n, ALPHA, BETA, GAMMA), p
        bound = cost.lower_bound(schedule.collective, p, n)
        assert price >= bound.seconds(ALPHA, BETA, GAMMA)
        if p <= 17:  # each term by itself too
            assert schedule.price(n, 1, 0) >= bound.messages
            assert schedule.price(n, 0, 1) >= bound.nbytes
            assert schedule.price(n, 0, 0, 1) >= bound.reduced_nbytes


@pytest.mark.parametrize("segments", [1, 3, 20])
@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("broadcast", "pipelined chain"), ("all_reduce", "binary tree"), ("all_reduce", "double binary tree")],
)
def test_closed_forms_of_pipelines(collective, algorithm, segments):
    for p in range(1, 34):
        schedule = find(collective, algorithm)(p, segments=segments)
        n = bytes_for(schedule)
        closed = cost.price(collective, algorithm, p, n, ALPHA, BETA, GAMMA, segments=segments)
        assert schedule.price(n, ALPHA, BETA, GAMMA) == closed


@pytest.mark.parametrize(
    ("collective", "algorithm", "p", "terms"),
    [  # worked by hand from the table of facts for n = 1000
        ("all_reduce", "ring", 4, (6, 1500, 750)),
        ("all_reduce", "flat", 4, (6, 6000, 3000)),
        ("all_reduce", "tree", 5, (6, 6000, 3000)),
        ("all_reduce", "recursive doubling", 8, (3, 3000, 3000)),
        ("all_reduce", "recursive doubling", 6, (4, 4000, 3000)),
        ("all_reduce", "rabenseifner", 8, (6, 1750, 875)),
        ("all_reduce", "rabenseifner", 5, (6, 3500, 1750)),
        ("broadcast", "binomial", 8, (3, 3000, 0)),
        ("broadcast", "scatter-allgather", 8, (10, 1750, 0)),
        ("broadcast", "scatter-doubling", 8, (6, 1750, 0)),
        ("all_gather", "bruck", 5, (3, 800, 0)),
        ("reduce_scatter", "recursive halving", 4, (2, 750, 750)),
        ("all_to_all", "pairwise", 5, (4, 800, 0)),
        ("all_to_all", "bruck", 8, (3, 1500, 0)),
        ("barrier", "dissemination", 9, (4, 0, 0)),
    ],
)
def test_closed_forms_by_hand(collective, algorithm, p, terms):
    found = cost.terms(collective, algorithm, p, 1000)
    assert (found.messages, found.nbytes, found.reduced_nbytes) == terms


def price_on(schedule, nbytes, seconds):
    """`Schedule.price` where `seconds(src, dst, nbytes)` says how long each message takes, for links of several kinds."""
    sizes, total = schedule.chunk_nbytes(nbytes), 0
    for now in schedule.by_step:
        ports = Counter()
        for move in now:
            took = seconds(move.src, move.dst, sum(sizes[c] for c in move.chunks))
            ports["out", move.src] += took
            ports["in", move.dst] += took
        total += max(ports.values())
    return total


def test_hierarchical_closed_form_with_two_kinds_of_link():
    inner, outer = (Fraction(2), Fraction(1, 3)), (Fraction(7), Fraction(5, 2))
    for m, g in ((1, 4), (2, 4), (3, 2), (4, 4), (5, 1)):
        n = 12 * m * g
        schedule = ALGORITHMS["hierarchical_all_reduce"](m * g, ranks_per_node=g)

        def seconds(src, dst, size, g=g):
            alpha, beta = inner if src // g == dst // g else outer
            return alpha + size * beta

        assert price_on(schedule, n, seconds) == cost.two_level(m, g, n, inner, outer)
        direct = 2 * (g - 1) * inner[0] + Fraction(2 * n * (g - 1), g) * inner[1]
        direct += 2 * (m - 1) * outer[0] + Fraction(2 * n * (m - 1), g * m) * outer[1]
        assert cost.two_level(m, g, n, inner, outer) == direct


def test_trees_approach_their_limits_for_long_vectors():
    n, p = 1e9, 64
    many = {"segments": 10_000}
    assert cost.price("all_reduce", "double binary tree", p, n, 0.0, 1.0, **many) == pytest.approx(2 * n, rel=2e-3)
    assert cost.price("all_reduce", "binary tree", p, n, 0.0, 1.0, **many) == pytest.approx(4 * n, rel=2e-3)
    assert cost.price("broadcast", "pipelined chain", p, n, 0.0, 1.0, **many) == pytest.approx(n, rel=1e-2)


@pytest.mark.parametrize("p", [3, 8, 33])
@pytest.mark.parametrize("nbytes", [100, 10**5, 10**8])
def test_best_segments_beat_all_others_nearby_and_meet_the_formula(p, nbytes):
    alpha, beta = 5e-6, 1e-9

    def seconds(k):
        return cost.price("broadcast", "pipelined chain", p, nbytes, alpha, beta, segments=k)

    best = cost.best_segments(p, nbytes, alpha, beta)
    assert all(seconds(best) <= seconds(k) + 1e-18 for k in range(max(1, best - 30), best + 30))
    if best > 5:
        assert seconds(best) == pytest.approx((math.sqrt((p - 2) * alpha) + math.sqrt(nbytes * beta)) ** 2, rel=0.01)


def test_recursive_doubling_and_ring_cross_where_the_formulas_say():
    """p = 8: 3(a + nb) = 14a + 1.75nb at n = 11a / 1.25b."""
    crossing = Fraction(11) * ALPHA / (Fraction(5, 4) * BETA)
    for factor, faster in ((Fraction(9, 10), "recursive doubling"), (Fraction(11, 10), "ring")):
        prices = {
            a: cost.price("all_reduce", a, 8, crossing * factor, ALPHA, BETA) for a in ("ring", "recursive doubling")
        }
        assert min(prices, key=prices.get) == faster


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_nothing_is_needed_for_one_rank(collective):
    assert cost.lower_bound(collective, 1, 1000) == cost.Terms()


def test_bandwidths_by_hand():
    """doc/PERFORMANCE.md of nccl-tests: an all-reduce of 1 GB in 10 ms on 8 ranks is 100 GB/s, 175 GB/s on the bus."""
    assert cost.algbw_gb_per_s(10**9, 0.01) == pytest.approx(100)
    factors = {"all_reduce": 1.75, "all_gather": 0.875, "reduce_scatter": 0.875, "all_to_all": 0.875, "gather": 0.875,
               "scatter": 0.875, "broadcast": 1, "reduce": 1}  # fmt: skip
    for collective, factor in factors.items():
        assert cost.busbw_gb_per_s(collective, 8, 10**9, 0.01) == pytest.approx(100 * factor)
    with pytest.raises(CostError, match="barrier moves no bytes"):
        cost.bus_factor("barrier", 8)
    with pytest.raises(CostError, match="time above 0"):
        cost.algbw_gb_per_s(1, 0)


def test_a_fit_finds_what_the_times_were_made_from():
    sizes = [2**k for k in range(3, 27)]
    times = [cost.price("all_reduce", "ring", 4, n, 5e-6, 1e-9) for n in sizes]
    fitted = cost.fit("all_reduce", 4, sizes, times)
    assert fitted.alpha_s.value == pytest.approx(5e-6)
    assert fitted.beta_s_per_byte.value == pytest.approx(1e-9)
    assert fitted.alpha_s.high - fitted.alpha_s.low < 1e-9
    assert fitted.half_nbytes == pytest.approx(6 * 5e-6 / 1.5e-9)
    assert fitted.seconds(12345, 7) == pytest.approx(cost.price("all_reduce", "ring", 7, 12345, 5e-6, 1e-9))


def test_confidence_intervals_hold_the_truth_about_as_often_as_they_say():
    import numpy as np

    random = np.random.default_rng(7)
    sizes = np.array([2**k for k in range(3, 23)])
    truth = np.array([cost.price("all_reduce", "ring", 4, int(n), 5e-6, 1e-9) for n in sizes])
    held = 0
    for _ in range(400):
        fitted = cost.fit("all_reduce", 4, sizes, truth * (1 + 0.1 * random.standard_normal(sizes.size)))
        held += fitted.alpha_s.low <= 5e-6 <= fitted.alpha_s.high
    assert 0.90 <= held / 400 <= 0.99


def test_a_fit_never_gives_a_negative_latency():
    fitted = cost.fit("all_reduce", 4, [1000, 2000, 4000, 8000], [1e-6, 3e-6, 7e-6, 15e-6])
    assert fitted.alpha_s.value == 0 and fitted.beta_s_per_byte.value > 0
    assert fitted.half_nbytes is None


@pytest.mark.parametrize(("sizes", "times"), [([1, 2], [1, 1]), ([5, 5, 5], [1, 1, 1]), ([1, 2, 3], [1, 0, 1])])
def test_too_little_for_a_fit_is_refused(sizes, times):
    with pytest.raises(CostError, match="a fit needs"):
        cost.fit("all_reduce", 4, sizes, times)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (10, 2.22814), (30, 2.04227)]
)
def test_students_t(freedom, quantile):
    """Against printed tables."""
    assert cost.student_t(0.975, freedom) == pytest.approx(quantile, rel=3e-3)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cost.terms("all_reduce", "ring", 0, 1), "ranks is 0"),
        (lambda: cost.terms("all_reduce", "ring", 4, -1), "nbytes is -1; it can't be negative"),
        (lambda: cost.terms("all_reduce", "nope", 4, 1), "there is no algorithm 'nope'"),
        (lambda: cost.terms("all_reduce", "ring", 4, 1, segments=3), "ring all_reduce has no option segments"),
        (lambda: cost.terms("all_reduce", "hierarchical", 10, 1, ranks_per_node=4), "must divide the 10 ranks"),
        (lambda: cost.lower_bound("all_reduse", 4, 1), "there is no collective 'all_reduse'"),
    ],
)
def test_what_has_no_price_is_refused_in_one_sentence(call, words):
    with pytest.raises(CostError, match=words):
        call()


def test_a_value_that_is_set_to_zero_is_not_certain():
    fitted = cost.fit("all_reduce", 4, [8, 16, 32, 64, 128], [5e-6, 4.9e-6, 5.1e-6, 4.8e-6, 5.0e-6])
    assert (fitted.s_per_byte.value, fitted.s_per_byte.low) == (0, 0)
    assert fitted.s_per_byte.high > 1e-9
