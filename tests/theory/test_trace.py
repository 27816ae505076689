"""The trace: refuses what contradicts itself, survives a file, opens in Perfetto."""

import json

import pytest
from allranks.theory.schedules import ring_all_reduce
from allranks.theory.trace import Event, Trace, TraceError


@pytest.fixture
def ring():
    return ring_all_reduce(ranks=4).trace(nbytes=4096)


def test_a_saved_trace_comes_back_equal(ring, tmp_path):
    ring.save(tmp_path / "ring.json")
    assert Trace.load(tmp_path / "ring.json") == ring


def test_messages_join_sends_to_receives(ring):
    messages = ring.messages()
    assert len(messages) == 24
    assert all(m.dst == (m.src + 1) % 4 and m.nbytes == 1024 and m.delivered for m in messages)


def test_a_send_that_nobody_took_is_not_delivered():
    trace = Trace(kind="wire", ranks=2, events=(Event(0, "send", 1, nbytes=8, match=0),))
    assert [m.delivered for m in trace.messages()] == [False]


def test_chrome_export_has_a_lane_a_rank_and_paired_arrows(ring, tmp_path):
    ring.to_chrome(tmp_path / "ring.chrome.json")
    rows = json.loads((tmp_path / "ring.chrome.json").read_text())["traceEvents"]
    assert [r["args"]["name"] for r in rows if r["ph"] == "M"] == [f"rank {i}" for i in range(4)]
    assert sorted(r["id"] for r in rows if r["ph"] == "s") == sorted(r["id"] for r in rows if r["ph"] == "f")
    assert sum(r["ph"] == "X" for r in rows) == 48


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "dream"}, "kind is 'dream'"),
        ({"clock": "sundial"}, "clock is 'sundial'"),
        ({"ranks": 0}, "at least one rank"),
        ({"events": (Event(5, "send", 0),)}, "rank 5 is not among the 2 ranks"),
        ({"events": (Event(0, "send", 1, start=2.0, end=1.0),)}, "before its start"),
        ({"events": (Event(0, "send", 1, start=0.0, end=float("nan")),)}, "from 0.0 to nan s; both must be finite"),
    ],
)
def test_what_contradicts_itself_is_refused(change, reason):
    with pytest.raises(TraceError, match=reason):
        Trace(**({"kind": "wire", "ranks": 2} | change))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"version": 99}, "version 99"),
        ({"version": 1, "kind": "wire", "ranks": 2, "events": [{"rank": 0, "op": "send", "colour": 1}]}, "colour"),
        ({"version": 1, "kind": "wire", "ranks": 2, "events": [{"rank": 0}]}, "an event does not fit: .*'op'"),
        ({"version": 1, "kind": "wire", "ranks": 2, "mood": 1, "events": []}, "header does not fit"),
    ],
)
def test_a_foreign_file_is_refused_with_its_reason(data, reason):
    with pytest.raises(TraceError, match=reason):
        Trace.from_dict(data)
