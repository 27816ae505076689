"""Virtual time against closed forms, exactly (Fractions), and the port and link rules one by one."""

from fractions import Fraction

import pytest
from allranks.theory.schedules import ALGORITHMS, ceil_lg
from allranks.theory.simulator.clock import (
    Compute,
    Enter,
    NetworkError,
    Recv,
    Send,
    UniformNetwork,
    Wait,
    collective_seconds,
    replay,
)
from allranks.theory.simulator.simulation import TopologyNetwork
from allranks.theory.topology import Link, Topology

ALPHA, BETA = Fraction(3, 7), Fraction(1, 11)


def programs_of(schedule, nbytes):
    """Each rank posts all its moves of a step, then waits for them; as a student's loop over steps does."""
    sizes = schedule.chunk_nbytes(nbytes)
    programs = [[] for _ in range(schedule.ranks)]
    number = {id(m): n for n, m in enumerate(schedule.moves)}
    for step in range(schedule.steps):
        now = [m for m in schedule.moves if m.step == step]
        for m in now:
            programs[m.src].append(Send(number[id(m)], m.dst, sum(sizes[c] for c in m.chunks)))
            programs[m.dst].append(Recv(number[id(m)], m.src))
        for m in now:
            programs[m.src].append(Wait(number[id(m)], sent=True))
            programs[m.dst].append(Wait(number[id(m)], sent=False))
    return programs


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 16])
def test_algorithms_take_their_price(name, ranks):
    schedule = ALGORITHMS[name](ranks)
    nbytes = 48 * schedule.chunks
    timeline = replay(programs_of(schedule, nbytes), UniformNetwork(ALPHA, BETA))
    price = schedule.price(nbytes, ALPHA, BETA)
    # the price lets nobody begin a step before all have ended the one before; where segments flow through a tree, some
    # do
    assert timeline.seconds <= price if "binary tree" in schedule.algorithm else timeline.seconds == price
    assert None not in timeline.finished


@pytest.mark.parametrize("ranks", [2, 4, 7])
def test_ring_all_reduce_closed_form(ranks):
    timeline = replay(programs_of(ALGORITHMS["ring_all_reduce"](ranks), 40 * ranks), UniformNetwork(ALPHA, BETA))
    assert timeline.seconds == 2 * (ranks - 1) * (ALPHA + 40 * BETA)


@pytest.mark.parametrize(("ranks", "segments"), [(2, 1), (3, 4), (5, 8)])
def test_pipelined_chain_closed_form(ranks, segments):
    """(p + k - 2)(alpha + n beta / k): a rank passes a segment on while the next one comes in."""
    programs = [[] for _ in range(ranks)]
    for k in range(segments):
        for r in range(ranks):
            if r:
                programs[r] += [Recv(k * ranks + r - 1, r - 1), Wait(k * ranks + r - 1, sent=False)]
            if r < ranks - 1:
                programs[r].append(Send(k * ranks + r, r + 1, 10))
    # receives are posted ahead, so that a segment never waits for its receiver's program
    for r in range(1, ranks):
        ahead = [s for s in programs[r] if isinstance(s, Recv)]
        programs[r] = ahead + [s for s in programs[r] if not isinstance(s, Recv)]
    timeline = replay(programs, UniformNetwork(ALPHA, BETA))
    assert timeline.seconds == (ranks + segments - 2) * (ALPHA + 10 * BETA)


def test_one_message_at_a_time_each_way():
    fan_out = [[Send(0, 1, 0), Send(1, 2, 0)], [Recv(0, 0), Wait(0, False)], [Recv(1, 0), Wait(1, False)]]
    assert replay(fan_out, UniformNetwork(1, 0)).seconds == 2
    fan_in = [[Recv(0, 1), Recv(1, 2), Wait(0, False), Wait(1, False)], [Send(0, 0, 0)], [Send(1, 0, 0)]]
    assert replay(fan_in, UniformNetwork(1, 0)).spans == {0: (0, 1), 1: (1, 2)}
    both_ways = [
        [Send(0, 1, 5), Recv(1, 1), Wait(0, True), Wait(1, False)],
        [Send(1, 0, 5), Recv(0, 0), Wait(1, True), Wait(0, False)],
    ]
    assert replay(both_ways, UniformNetwork(1, 2)).seconds == 11


def test_of_messages_ready_at_once_a_rank_sends_first_what_it_posted_first():
    """Whichever receiver's program is walked first."""
    fan_out = [[Send(0, 2, 0), Send(1, 1, 0)], [Recv(1, 0), Wait(1, False)], [Recv(0, 0), Wait(0, False)]]
    assert replay(fan_out, UniformNetwork(1, 0)).spans == {0: (0, 1), 1: (1, 2)}


def test_a_busy_port_does_not_hold_up_a_message_that_needs_others():
    """Rank 0's first message waits for rank 2, which is receiving; its second goes to rank 3 meanwhile."""
    programs = [
        [Send(1, 2, 0), Send(2, 3, 0)],
        [Send(0, 2, 100)],
        [Recv(0, 1), Recv(1, 0), Wait(0, False), Wait(1, False)],
        [Recv(2, 0), Wait(2, False)],
    ]
    programs[0].insert(0, Compute(1))
    spans = replay(programs, UniformNetwork(1, 1)).spans
    assert spans[0] == (0, 101)
    assert spans[1] == (101, 102)
    assert spans[2] == (1, 2)


def test_rendezvous_waits_for_the_receiver_and_buffered_does_not():
    programs = [[Send(0, 1, 0), Wait(0, True)], [Compute(10), Recv(0, 0), Wait(0, False)]]
    rendezvous, buffered = replay(programs, UniformNetwork(1, 0)), replay(programs, UniformNetwork(1, 0), buffered=True)
    assert rendezvous.finished == (11, 11)
    assert buffered.finished == (1, 10)
    assert [(i.rank, i.start, i.end) for i in rendezvous.idle] == [(0, 0, 11), (1, 10, 11)]


def test_a_deadlock_is_replayed_as_far_as_it_goes():
    programs = [[Send(0, 1, 0), Wait(0, True)], [Send(1, 0, 0), Wait(1, True)]]
    timeline = replay(programs, UniformNetwork(1, 0))
    assert timeline.finished == (None, None)
    assert timeline.spans == {}


def test_two_level_network_shares_one_card_a_node():
    # inside a node 1 s a message, whatever its size; between nodes 10 s a message and 1 s a byte
    network = TopologyNetwork(Topology("two nodes", 2, Link("inside", 1, 1e30), Link("card", 10, 1)))
    across = [[Send(0, 2, 5)], [Send(1, 3, 5)], [Recv(0, 0), Wait(0, False)], [Recv(1, 1), Wait(1, False)]]
    assert replay(across, network).spans == {0: (0, 15), 1: (15, 30)}
    inside = [[Send(0, 1, 5)], [Recv(0, 0), Wait(0, False)], [Send(1, 3, 5)], [Recv(1, 2), Wait(1, False)]]
    assert replay(inside, network).seconds == 1
    assert network.collective_seconds("barrier", (0, 1), 0) == 1
    assert network.collective_seconds("barrier", (0, 1, 2, 3), 0) == 20


def test_collectives_start_with_the_last_member():
    members = (0, 1, 2)
    step = Enter(0, "all_reduce", members, 30)
    programs = [[Compute(5), step, Wait(0, False)], [step, Wait(0, False)], [step, Wait(0, False)]]
    timeline = replay(programs, UniformNetwork(ALPHA, BETA))
    assert timeline.seconds == 5 + 4 * ALPHA + Fraction(4, 3) * 30 * BETA
    assert ceil_lg(1) == 0
    assert [ceil_lg(p) for p in (2, 3, 4, 5, 8, 9)] == [1, 2, 2, 3, 3, 4]
    assert collective_seconds("broadcast", 5, 10, ALPHA, BETA) == 3 * (ALPHA + 10 * BETA)
    assert collective_seconds("all_to_all", 4, 40, ALPHA, BETA) == 3 * ALPHA + 30 * BETA
    assert collective_seconds("all_reduce", 1, 40, ALPHA, BETA) == 0


def test_the_order_of_the_ranks_programs_in_real_time_plays_no_part():
    schedule = ALGORITHMS["recursive_doubling_all_reduce"](16)
    programs = programs_of(schedule, 1 << 20)
    first = replay(programs, UniformNetwork(2.1e-6, 1 / 3e9))
    assert first == replay(programs, UniformNetwork(2.1e-6, 1 / 3e9))


@pytest.mark.parametrize("alpha, beta", [(-1, 0), (0, -1), (float("nan"), 0)])
def test_negative_figures_are_refused(alpha, beta):
    with pytest.raises(NetworkError):
        UniformNetwork(alpha, beta)


def test_imports_without_torch():
    import subprocess
    import sys

    code = "import sys, allranks.theory.simulator.clock; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_scatter_takes_as_long_as_the_gather_of_its_parts():
    assert collective_seconds("scatter", 4, 4000, 2, 1) == collective_seconds("gather", 4, 1000, 2, 1) == 3006
    assert collective_seconds("reduce_scatter_tensor", 4, 4000, 2, 1) == 3006
