"""The critical path: its legs fill the whole time, it blames the slow link or rank, and what-if agrees with the
closed forms.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from allranks import schedules
from allranks.theory.simulator.clock import Compute, Enter, Recv, Send, UniformNetwork, Wait, replay
from allranks.theory.simulator.critical import LegKind, critical_path
from allranks.theory.simulator.simulation import SimulateError, TopologyNetwork, programs, run_schedule, simulate
from allranks.theory.simulator.variations import in_parts, what_if
from allranks.theory.topology import preset, uniform

H100 = preset("dgx-h100")
FAT = replace(H100, name="fat", ranks_per_node=4, nics_per_node=2, nodes_per_leaf=2, oversubscription=4.0)
ISLANDS = preset("cloud-ethernet")


@pytest.mark.parametrize("machine", [uniform(5e-6, 1e9), H100, FAT, ISLANDS, H100.with_straggler(3, 2.0)])
@pytest.mark.parametrize("name", sorted(schedules.ALGORITHMS))
def test_the_legs_fill_the_time_without_a_gap(name, machine):
    schedule = schedules.ALGORITHMS[name](16)
    found = run_schedule(schedule, 48_000, machine, gamma=1e-10)
    path = found.critical_path
    assert path.seconds == found.seconds
    assert path.legs[0].start == 0
    assert path.legs[-1].end == found.seconds
    assert all(a.end == b.start for a, b in zip(path.legs, path.legs[1:], strict=False))
    assert all(0 <= path.share(s) <= 1 + 1e-9 for s in path.waits.values())


def test_a_slow_rank_is_named():
    path = run_schedule(schedules.ring_all_reduce(8), 8 << 20, uniform(1e-6, 1e9).with_straggler(5, 10.0)).critical_path
    slow = [leg for leg in path.legs if 5 in (leg.rank, leg.peer)]
    assert sum(leg.seconds for leg in slow) > 0.8 * path.seconds
    assert any(words in path.sentences()[1] for words in ("is rank 6's wait", "is rank 5's wait"))


def test_the_uplink_is_named():
    path = run_schedule(schedules.ring_all_reduce(16), 64 << 20, FAT).critical_path
    assert next(iter(path.by_link())) == "the uplink"
    assert "over the uplink" in path.sentences()[1]


def test_one_receiver_of_many_messages_is_named_with_all_its_senders():
    path = run_schedule(schedules.flat_all_reduce(8), 1 << 20, uniform(0.0, 1e9)).critical_path
    assert path.sentences()[1] == "50 % of the path is rank 0's wait for the sends of ranks 1 to 7."


def test_a_wait_is_said_to_be_a_part_of_the_path_not_all_that_the_rank_waits():
    """Along a chain the last rank idles nearly all the time, and one seventh of the path is its wait."""
    found = run_schedule(schedules.pipelined_chain_broadcast(8, segments=1), 7000, uniform(0.0, 1e9))
    idle = {rank: sum(one.end - one.start for one in found.timeline.idle if one.rank == rank) for rank in range(8)}
    assert idle[7] == pytest.approx(found.seconds) and idle[4] == pytest.approx(5 / 7 * found.seconds)
    assert found.critical_path.sentences()[1].startswith("14 % of the path is rank ")


def test_computing_is_on_the_path_and_a_late_receiver_too():
    sender = [Send(0, 1, nbytes=10), Wait(0, sent=True)]
    receiver = [Compute(7), Recv(0, 0), Wait(0, sent=False)]
    network = UniformNetwork(alpha=1, beta=1)
    path = critical_path([sender, receiver], replay([sender, receiver], network), network)
    assert [(leg.kind, leg.rank, leg.seconds) for leg in path.legs] == [
        (LegKind.COMPUTE, 1, 7),
        (LegKind.MESSAGE, 1, 11),
    ]
    assert path.sentences()[0] == (
        "The critical path has 1 message one after the other: 56 % is bytes, 6 % is start-up (alpha), 39 % is "
        "computing."
    )


def test_a_message_that_waits_for_a_port_says_so():
    to_both = [[Send(0, 1, 10), Send(1, 2, 10), Wait(0, sent=True), Wait(1, sent=True)]]
    others = [[Recv(0, 0), Wait(0, sent=False)], [Recv(1, 0), Wait(1, sent=False)]]
    network = UniformNetwork(alpha=0, beta=1)
    path = critical_path([*to_both, *others], replay([*to_both, *others], network), network)
    assert [leg.queued for leg in path.legs] == [False, True]
    assert "50 % of the time a message of the path waits for another one" in path.sentences()[-1]


def test_a_collective_starts_with_its_last_rank():
    all_ranks = (0, 1)
    both = [[Compute(1 + 4 * r), Enter(0, "all_reduce", all_ranks, 8), Wait(0, sent=False)] for r in all_ranks]
    network = UniformNetwork(alpha=1, beta=0)
    path = critical_path(both, replay(both, network), network)
    assert [(leg.kind, leg.rank) for leg in path.legs] == [(LegKind.COMPUTE, 1), (LegKind.COLLECTIVE, 1)]


def test_nothing_and_a_program_that_never_ends():
    network = UniformNetwork(alpha=1, beta=0)
    assert critical_path([[]], replay([[]], network), network).sentences() == []
    stuck = [[Compute(2), Recv(0, 1), Wait(0, sent=False)], [Compute(1)]]
    assert critical_path(stuck, replay(stuck, network), network).seconds == 1


def test_symmetry_has_no_list_of_messages():
    found = simulate("all_reduce", "ring", 4096, 1 << 30, H100)
    with pytest.raises(SimulateError, match="ask for method='events'"):
        _ = found.critical_path


def chain(ranks, nbytes):
    """A vector that goes from rank to rank."""
    made = [[Send(0, 1, nbytes), Wait(0, sent=True)]]
    for r in range(1, ranks):
        made.append([Recv(r - 1, r - 1), Wait(r - 1, sent=False)])
        if r < ranks - 1:
            made[-1] += [Send(r, r + 1, nbytes), Wait(r, sent=True)]
    return made


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_segments_of_a_chain_are_the_pipelines_formula(k):
    p, n, network = 5, 64, UniformNetwork(alpha=3, beta=1)
    assert in_parts(chain(p, n), network, [range(p)] * k) == (p + k - 2) * (3 + n // k)


def test_the_best_number_of_segments_is_said():
    network = UniformNetwork(alpha=3, beta=1)
    (best,) = what_if(chain(5, 64), network, replay(chain(5, 64), network).seconds)
    assert best.sentence() == f"With 8 segments: {4 * 67 / (11 * 11):.2f} times faster."


def test_one_part_changes_nothing():
    schedule = schedules.ring_all_reduce(8)
    found = run_schedule(schedule, 1 << 20, H100, gamma=1e-9)
    made = programs(schedule, 1 << 20, 1e-9)
    assert in_parts(made, TopologyNetwork(H100), [range(8)]) == pytest.approx(found.seconds)


def test_parts_of_one_rank_compute_one_after_the_other():
    assert in_parts([[Compute(8.0)]], UniformNetwork(), [[0]] * 4) == 8.0


def test_both_directions_use_the_idle_half_of_the_cards():
    pairs = replace(H100, name="pairs", ranks_per_node=2, nics_per_node=2)
    schedule = schedules.ring_all_reduce(8)
    seconds = run_schedule(schedule, 64 << 20, pairs).seconds
    found = what_if(programs(schedule, 64 << 20), TopologyNetwork(pairs), seconds, any_order=True, node_of=pairs.node)
    both = next(one for one in found if one.words == "both directions")
    assert 1.5 < both.times_faster < 2
    assert all(one.times_faster > 1 for one in found)


def test_what_is_best_already_is_left_alone():
    schedule = schedules.recursive_doubling_all_reduce(8)
    network = UniformNetwork(alpha=1.0, beta=0.0)
    assert what_if(programs(schedule, 8), network, 3.0, any_order=True) == []


def test_computing_beside_communication():
    both = [[Compute(4.0), *chain(2, 4)[0]], [Compute(4.0), *chain(2, 4)[1]]]
    network = UniformNetwork(alpha=0.0, beta=1.0)
    found = {one.words: one.seconds for one in what_if(both, network, 8.0)}
    assert found["communication behind computing"] == 4.0
