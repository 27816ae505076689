"""What every cell holds after each step, the steps of traces that carry none, and what travels to the browser."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace

import pytest
from allranks.show.player.animation import (
    add,
    animate,
    bound,
    columns,
    contributions,
    contributors,
    pattern,
    ranges,
    size,
)
from allranks.show.player.still import still
from allranks.theory.schedules import (
    ALGORITHMS,
    binomial_broadcast,
    flat_all_reduce,
    pairwise_all_to_all,
    recursive_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
)
from allranks.theory.simulator.simulation import simulate
from allranks.theory.topology import preset
from allranks.theory.trace import Event, Trace


def test_contributions_count_and_add():
    assert contributors(contributions([3, 1, 3])) == [1, 3, 3]
    assert contributors(add(contributions([0, 1]), contributions([1, 2]))) == [0, 1, 1, 2]
    assert contributors(add(add(contributions([5]), contributions([5])), contributions([5]))) == [5, 5, 5]
    assert add((), contributions([2])) == contributions([2])
    assert ranges(contributions([0, 1, 2, 5])) == [0, 2, 5, 5]
    assert ranges(contributions([0, 0, 1])) == [0, 1, 0, 0]
    assert ranges(contributions(range(256))) == [0, 255]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 8])
def test_a_schedule_ends_with_what_its_collective_promises(name, ranks):
    schedule = ALGORITHMS[name](ranks)
    found = animate(schedule)
    last = found.states()[-1]
    for cell, wanted in schedule.final().items():
        assert contributors(last[cell]) == sorted(wanted.elements())
    assert len(found.states()) == schedule.steps + 1


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_schedule_and_its_trace_are_the_same_animation(name):
    schedule = ALGORITHMS[name](6)
    direct, traced = animate(schedule, 6000), animate(schedule.trace(6000))
    assert direct.states() == traced.states()
    assert direct.captions() == traced.captions()
    assert direct.bytes_sent() == traced.bytes_sent() == schedule.bytes_sent(6000)
    # the fold agrees with the contributions that the schedule itself wrote into the trace
    for transfer, event in zip(traced.transfers, (e for e in schedule.trace(6000) if e.op == "send"), strict=True):
        assert event.contrib is None or contributors(transfer.carried[0]) == list(event.contrib)


def test_what_a_trace_claims_to_carry_goes_before_the_fold():
    events = (
        Event(0, "send", 1, (0,), nbytes=4, step=0, match=0, contrib=(0, 0)),
        Event(1, "reduce", 0, (0,), nbytes=4, step=0, match=0, contrib=(0, 0)),
    )
    found = animate(Trace("wire", 2, events, "all_reduce", chunks=1, nbytes=4))
    assert contributors(found.states()[-1][1, 0]) == [0, 0, 1]


def test_an_undelivered_send_changes_no_cell_and_is_told():
    found = animate(
        Trace("wire", 2, (Event(0, "send", 1, (0,), nbytes=4, step=0, line=3),), "all_reduce", chunks=1, nbytes=4)
    )
    assert contributors(found.states()[-1][1, 0]) == [1]
    assert found.captions()[1] == (
        "step 1 of 1: rank 0 tries to send chunk 0 to rank 1, which never receives it (line 3); "
        "at the end rank 0 still waits for rank 1 to receive"
    )
    buffered = Trace("wire", 2, (Event(0, "send", 1, nbytes=4, step=0),), meta={"delivery": "buffered"})
    assert "waits" not in animate(buffered).captions()[1], "a buffered send does not wait"


def test_a_receive_that_nobody_serves_is_a_wait_without_an_end():
    events = (
        Event(0, "send", 1, nbytes=4, step=0, match=0),
        Event(1, "recv", 0, nbytes=4, step=0, match=0),
        Event(0, "recv", 1, line=9),
    )
    found = animate(Trace("wire", 2, events))
    (wait,) = found.bars
    assert (wait.rank, wait.op, wait.peer, wait.step, wait.end_step) == (0, "wait", 1, 1, None)
    assert found.captions()[2] == "step 2 of 2: rank 0 waits for rank 1 to send, for ever (line 9)"


def test_a_rank_is_not_idle_while_its_own_message_is_under_way():
    events = (
        Event(1, "send", 0, nbytes=4, step=1, start=2.0, end=3.0, match=0),
        Event(0, "recv", 1, nbytes=4, step=1, start=2.0, end=3.0, match=0),
        Event(1, "send", 2, nbytes=4, step=0, start=0.0, end=2.0, match=1),
        Event(2, "recv", 1, nbytes=4, step=0, start=0.0, end=2.0, match=1),
        Event(0, "wait", 1, start=0.0, end=3.0),
    )
    (wait,) = animate(Trace("wire", 3, events, clock="virtual")).bars
    assert (wait.start, wait.end, wait.step, wait.end_step) == (0.0, 2.0, 0, 0)


def test_steps_are_inferred_where_a_trace_has_none():
    events = []
    for step in range(2):
        for r in range(3):
            at = 2.0 * step
            events.append(Event(r, "send", (r + 1) % 3, nbytes=1, start=at, end=at + 1, match=3 * step + r))
            events.append(Event((r + 1) % 3, "recv", r, nbytes=1, start=at, end=at + 1, match=3 * step + r))
    found = animate(Trace("live", 3, tuple(events), clock="wall"))
    assert found.inferred
    assert [transfer.step for transfer in found.transfers] == [0, 0, 0, 1, 1, 1]


def test_a_collective_after_an_exchange_comes_in_the_step_after_it():
    events = []
    for r in range(2):
        events.append(Event(r, "send", 1 - r, nbytes=4, start=0.0, end=1.0, match=r))
        events.append(Event(1 - r, "recv", r, nbytes=4, start=0.0, end=1.0, match=r))
    events += [Event(r, "all_reduce", nbytes=4, start=2.0, end=3.0) for r in range(2)]
    lines = animate(Trace("live", 2, tuple(events), clock="wall")).captions()
    assert len(lines) == 3
    assert lines[2] == "step 2 of 2: ranks 0 and 1 take part in all_reduce of 4 B"


def test_messages_of_a_live_run_are_not_taken_for_the_collective_that_torch_did():
    events = (
        Event(0, "send", 1, (0,), nbytes=4, step=0, match=0),
        Event(1, "recv", 0, (0,), nbytes=4, step=0, match=0),
        *(Event(r, "all_reduce", nbytes=8, step=1) for r in (0, 1)),
    )
    found = animate(Trace("live", 2, events, "all_reduce", chunks=2, nbytes=8))
    assert (found.chunks, found.goal, found.bound) == (0, {}, None)
    assert found.title == "live run"
    assert animate(Trace("live", 2, events[2:], "all_reduce")).title == "all_reduce"


def test_a_schedule_without_a_size_counts_chunks():
    found = animate(pairwise_all_to_all(6))
    assert (found.nbytes, max(found.bytes_sent())) == (found.chunks, 5)


@pytest.mark.parametrize(
    ("nbytes", "words"),
    [(0, "0 B"), (999, "999 B"), (999_499, "999 kB"), (999_999, "1 MB"), (1_500_000_000_000, "1.5 TB")],
)
def test_sizes_in_words(nbytes, words):
    assert size(nbytes) == words


@pytest.mark.parametrize(
    ("schedule", "layout"),
    [
        (ring_all_reduce(8), "ring"),
        (ring_all_reduce(2), "line"),
        (binomial_broadcast(8), "tree"),
        (flat_all_reduce(6), "tree"),
        (recursive_doubling_all_reduce(8), "grid"),
        (recursive_doubling_all_reduce(16), "grid"),
    ],
    ids=str,
)
def test_the_layout_follows_the_pattern(schedule, layout):
    assert animate(schedule).layout == layout


def test_a_grid_has_the_columns_that_keep_links_straight():
    rows = {(4 * r + c, 4 * r + (c + 1) % 4) for r in range(2) for c in range(4)}
    down = {(c, c + 4) for c in range(4)}
    assert columns(8, rows | down) == 4
    assert columns(8, {(2 * r + a, 2 * s + a) for r in range(4) for s in range(4) for a in range(2)} | {(0, 1)}) == 2
    assert columns(7, {(0, 5), (1, 6)}) == 3
    assert pattern(8, rows | down) == "grid"


def test_patterns_of_links():
    assert pattern(5, {(a, b) for a in range(5) for b in range(5) if a != b}) == "all-to-all"
    assert pattern(5, {(r, r + 1) for r in range(4)}) == "line"
    assert pattern(8, {*((r, (r + 1) % 8) for r in range(8)), (0, 4)}) == "ring", "one stray message keeps the ring"


@pytest.mark.parametrize(
    ("collective", "nbytes"),
    [
        ("all_reduce", 1500),
        ("all_gather", 750),
        ("reduce_scatter", 750),
        ("broadcast", 1000),
        ("gather", 250),
        (None, None),
    ],
)
def test_lower_bounds_by_hand(collective, nbytes):
    found = bound(collective, 4, 1000)
    assert (found and found[1]) == nbytes


def test_no_algorithm_sends_less_than_the_lower_bound():
    for name, build in ALGORITHMS.items():
        for ranks in (2, 3, 5, 8):
            found = animate(build(ranks), 840 * ranks)
            if found.collective == "barrier":
                continue
            assert max(found.bytes_sent()) >= found.bound[1] - 1e-9, f"{name}({ranks})"
    ring = animate(ring_all_gather(8), 8000)
    assert max(ring.bytes_sent()) == ring.bound[1]


def test_the_payload_is_small_and_whole():
    data = animate(ring_all_reduce(8), 8 << 20).payload()
    assert len(data) < 10_000
    head = json.loads(zlib.decompress(data))
    assert {len(column) for column in head["transfers"].values()} == {112}
    assert len(head["captions"]) == 15


def test_many_messages_are_told_in_part():
    (_, first, *_) = animate(ring_all_reduce(64)).captions()
    assert first.endswith("; and 48 more")


def test_a_chunk_that_does_not_exist_is_played_as_bytes():
    events = (
        Event(0, "send", 1, (9,), nbytes=4, step=0, match=0),
        Event(1, "recv", 0, (9,), nbytes=4, step=0, match=0),
    )
    found = animate(Trace("wire", 2, events, "all_reduce", chunks=2, nbytes=8))
    assert found.transfers[0].chunks == ()
    assert found.states()[0] == found.states()[1]


def test_the_first_wrong_move_is_found():
    right = ring_all_reduce(4).trace(4096)
    wire = replace(right, kind="wire")
    assert animate(wire).first_wrong_move() is None
    first = [e for e in right.events if e.step == 0]
    again = [replace(e, step=1, match=e.match + 100, contrib=None) for e in first]
    twice = animate(Trace("wire", 4, (*first, *again), "all_reduce", chunks=4, nbytes=4096))
    assert twice.first_wrong_move() == (4, "c0 then holds rank 0 twice")
    overwrites = [replace(e, op="recv") if e.op == "reduce" else e for e in first]
    lost = animate(Trace("wire", 4, tuple(overwrites), "all_reduce", chunks=4, nbytes=4096))
    assert lost.first_wrong_move() == (0, "what c0 held of rank 1 is lost")
    unheard = Trace("wire", 2, (Event(0, "send", 1, nbytes=4, step=0),))
    assert animate(unheard).first_wrong_move() == (0, "nobody receives it")
    assert animate(replace(unheard, kind="live")).first_wrong_move() is None, "only a student's run is judged"


def test_a_critical_path_is_marked_and_said():
    """A run's messages of the path are found again among the transfers; a path of another run marks nothing."""
    found = simulate("all_reduce", "ring", 16, 64 << 20, preset("dgx-h100"))
    path = found.critical_path
    film = animate(path.marked(found.trace))
    assert film.path is not None
    marked = [film.transfers[i] for i in film.path.transfers]
    assert [(t.src, t.dst, t.start, t.end) for t in marked] == [
        (leg.peer, leg.rank, leg.start, leg.end) for leg in path.legs
    ]
    assert film.path.says == tuple(path.sentences())
    assert animate(found.trace).path is None
    other = simulate("all_reduce", "tree", 16, 64 << 20, preset("dgx-h100"))
    assert animate(path.marked(other.trace)).path.transfers == ()
    head = json.loads(zlib.decompress(film.payload()))
    assert len(head["path"]["transfers"]) == 30


def _call(rank, op, start, end, seq, *, blocking=True, nbytes=4, got=4, group="0", **more):
    what = {"nbytes": nbytes, "received_nbytes": got, "blocking": blocking, "group": group, "seq": seq, **more}
    return Event(rank, op, start=start, end=end, **what)


def _shown(events, ranks, **more):
    found = animate(Trace("wire", ranks, tuple(events), clock="virtual", **more))
    return found, [(b.rank, b.op, b.step, b.end_step, b.own) for b in found.bars]


def test_a_blocking_collective_is_one_step_and_an_asynchronous_one_has_a_wait_of_its_own():
    events = [_call(r, "all_reduce", 0.0, 2.0, 0, line=4) for r in range(2)]
    events += [Event(r, "wait", start=0.0, end=2.0, line=4, group="0", seq=0) for r in range(2)]
    events += [_call(r, "all_gather", 2.0, 6.0, 1, blocking=False, got=8, line=5) for r in range(2)]
    events += [Event(r, "compute", start=2.0, end=4.0, line=6, label="block 0 forward") for r in range(2)]
    events += [Event(r, "wait", start=4.0, end=6.0, line=7, group="0", seq=1) for r in range(2)]
    found, bars = _shown(events, 2)
    assert [bar for bar in bars if bar[0] == 0] == [
        (0, "all_reduce", 0, 0, False),
        (0, "all_gather", 1, 3, False),
        (0, "compute", 2, 2, False),
        (0, "wait", 3, 3, True),
    ]
    assert found.captions()[1:] == [
        "step 1 of 4: ranks 0 and 1 take part in all_reduce: each 4 B in, 4 B out (line 4)",
        "step 2 of 4: ranks 0 and 1 take part in all_gather: each 4 B in, 8 B out (line 5)",
        "step 3 of 4: ranks 0 and 1 compute block 0 forward (line 6)",
        "step 4 of 4: ranks 0 and 1 wait for all_gather (line 7)",
    ]


def test_who_comes_early_waits_in_the_steps_before_the_collective_and_not_in_one_of_its_own():
    late = [Event(0, "compute", start=0.0, end=3.0)]
    calls = [_call(r, "all_reduce", 3.0, 4.0, 0) for r in range(3)]
    waits = [Event(r, "wait", start=0.0, end=4.0, group="0", seq=0) for r in (1, 2)]
    found, bars = _shown([*waits, *late, *calls], 3)
    assert sorted(bars) == [
        (0, "all_reduce", 1, 1, False),
        (0, "compute", 0, 0, False),
        *[(r, op, step, step, False) for r in (1, 2) for op, step in (("all_reduce", 1), ("wait", 0))],
    ]
    assert [(b.start, b.end) for b in found.bars if b.op == "wait"] == [(0.0, 3.0)] * 2, (
        "up to the others' arrival only"
    )
    assert found.captions()[1] == "step 1 of 2: ranks 1 and 2 wait for the others; rank 0 computes"
    busy = [Event(r, "compute", start=0.0, end=1.0 + 2 * (r == 0)) for r in range(3)]
    waits = [Event(r, "wait", start=1.0, end=4.0, group="0", seq=0) for r in (1, 2)]
    found, _ = _shown([*busy, *waits, *calls], 3)
    assert found.steps == 2 and all(b.is_between for b in found.bars if b.op == "wait")
    assert found.captions()[2] == "step 2 of 2: all 3 ranks take part in all_reduce: each 4 B in, 4 B out"


def test_a_collective_that_never_ends_says_so():
    events = [_call(r, "all_reduce", 0.0, 2.0, 0) for r in range(3)]
    events += [_call(r, "all_reduce", None, None, 1, got=0) for r in (1, 2)]
    found, bars = _shown(events, 3)
    assert bars[3:] == [(r, "all_reduce", 1, None, False) for r in (1, 2)]
    assert found.captions()[2] == "step 2 of 2: ranks 1 and 2 take part in all_reduce, which never ends"


def test_a_collective_beside_messages_is_one_step_however_many_rounds_it_takes():
    events = [
        Event(0, "send", 1, nbytes=4, step=0, start=0.0, end=1.0, match=0),
        Event(1, "recv", 0, nbytes=4, step=0, start=0.0, end=1.0, match=0),
        *[_call(r, "all_reduce", 1.0, 5.0, 0, step=1) for r in range(3)],
        *[_call(r, "all_reduce", 5.0, 9.0, 1, step=5) for r in range(3)],
        *[Event(r, "wait", start=1.0 * (r < 2), end=5.0, group="0", seq=0) for r in range(3)],
        *[Event(r, "wait", start=5.0, end=9.0, group="0", seq=1) for r in range(3)],
    ]
    found, _ = _shown(events, 3)
    assert found.captions()[1:] == [
        "step 1 of 3: rank 0 sends 4 B to rank 1, which receives it; rank 2 waits for the others",
        "step 2 of 3: all 3 ranks take part in all_reduce: each 4 B in, 4 B out",
        "step 3 of 3: all 3 ranks take part in all_reduce: each 4 B in, 4 B out",
    ]


def test_a_run_on_the_wire_has_no_algorithm_in_its_title():
    sent = (Event(0, "send", 1, nbytes=4, step=0, match=0), Event(1, "recv", 0, nbytes=4, step=0, match=0))
    calls = tuple(_call(r, "all_to_all", 0.0, 1.0, 0) for r in range(2))

    def title(events, **more):
        return animate(Trace("wire", 2, events, algorithm="ring", **more)).title

    assert title(sent, collective="all_reduce", source="your star") == "all_reduce"
    assert title(calls, collective="all_to_all", source="your moe_top_k") == "your moe_top_k"
    assert title(calls, source="wire") == "wire run"


def test_the_still_picture_has_the_name_that_was_called():
    calls = tuple(_call(r, "all_gather_into_tensor", 0.0, 1.0, 0, label="all_gather_single") for r in range(2))
    drawn = still([animate(Trace("wire", 2, calls, clock="virtual"))])
    assert ">all_gather_single<" in drawn and ">all_gather<" not in drawn


def test_many_ranks_that_do_the_same_are_counted():
    events = [Event(0, "compute", start=0.0, end=3.0)]
    events += [Event(r, "wait", start=0.0, end=4.0, group="0", seq=0) for r in range(1, 16)]
    events += [_call(r, "all_reduce", 3.0, 4.0, 0, got=r + 1) for r in range(16)]
    found, _ = _shown(events, 16)
    assert found.captions()[1:] == [
        "step 1 of 2: rank 0 computes; 15 of 16 ranks wait for the others",
        "step 2 of 2: all 16 ranks take part in all_reduce: 4 B in, 1 B to 16 B out",
    ]
