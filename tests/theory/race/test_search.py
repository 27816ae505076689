"""The search for all-gathers: what it finds is proved, and what can't be is refused with the reason."""

import pytest
from allranks import race, schedules
from allranks.theory.schedules import ScheduleError


def dgx1():
    lanes = [[0] * 8 for _ in range(8)]
    for (_, src, dst), link in race.task("cube-mesh").fabric.links.items():
        lanes[src][dst] = link.bytes_per_s // 25_000_000_000
    return lanes


def line(p):
    return [[int(abs(a - b) == 1) for b in range(p)] for a in range(p)]


@pytest.mark.parametrize(("chunks", "rounds"), [(1, (1, 1)), (2, (1, 2)), (6, (2, 3, 2))])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_found_keeps_to_its_rounds(chunks, rounds, seed):
    lanes = dgx1()
    found = schedules.search_all_gather(lanes, chunks, rounds, seed=seed)
    found.verify()
    assert found.steps == len(rounds) and found.chunks == 8 * chunks
    for move in found.moves:
        assert 1 <= len(move.chunks) <= rounds[move.step] * lanes[move.src][move.dst]
    received = {rank: sum(len(m.chunks) for m in found.moves if m.dst == rank) for rank in range(8)}
    assert set(received.values()) == {7 * chunks}, "a chunk came twice"
    again = schedules.search_all_gather(lanes, chunks, rounds, seed=seed)
    assert again.moves == found.moves


@pytest.mark.parametrize("p", [2, 3, 4, 5, 6, 7, 8])
def test_both_ways_round_a_ring_half_the_steps_are_enough(p):
    ring = [[int((a - b) % p in (1, p - 1)) for b in range(p)] for a in range(p)]
    steps = p // 2
    found = schedules.search_all_gather(ring, 2, (2,) * (steps - 1) + (2 if p % 2 or p == 2 else 1,))
    assert found.steps == steps


@pytest.mark.parametrize(
    ("lanes", "chunks", "rounds", "sentence"),
    [
        (line(4), 1, (1, 1), "3 chunks must enter rank 0, and its links have room for 2"),
        (line(4), 1, (2, 2), "2 steps do not reach from rank 0 to rank 3"),
        ([[0, 0], [0, 0]], 1, (1,), "1 chunks must enter rank 0, and its links have room for 0"),
    ],
)
def test_what_no_schedule_can_do_is_said(lanes, chunks, rounds, sentence):
    with pytest.raises(ScheduleError, match=f"no schedule has these steps: {sentence}"):
        schedules.search_all_gather(lanes, chunks, rounds)


def test_a_search_without_an_end_gives_up():
    """(1, 2, 4) is too tight: the first step brings too little that the second could pass on."""
    with pytest.raises(
        ScheduleError, match=r"20 tries found no all-gather of 6 chunks .* \d+ chunks were missing at best"
    ):
        schedules.search_all_gather(dgx1(), 6, (1, 2, 4), tries=20)
