"""Sweeps: nccl-tests' columns by hand, every collective on real ranks, and what a fit foretells."""

import csv
import importlib
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from allranks import World, bench, cost
from allranks.machine.bench import BenchError, Call, Row, Sweep, sweeps, timers


def a_sweep(times, call=None, ranks=4):
    """A sweep with made-up times in seconds, {size: seconds}."""
    call = call or Call()
    rows = [
        Row(n, n // 4, "float32", "sum", -1, t * 1e6, n / t / 1e9, 1.5 * n / t / 1e9, 0, t * 1e6, t * 1e6, 20)
        for n, t in times.items()
    ]
    return Sweep(call, ranks, "gloo", tuple(rows))


@pytest.mark.parametrize(
    ("collective", "size", "count"),
    [  # nccl-tests 2.19.6, GetCollByteCount and GetBw of each test: count is what one rank gives the call for one part
        ("all_reduce", 4096, 1024), ("broadcast", 4096, 1024), ("reduce", 4096, 1024), ("all_gather", 4096, 256),
        ("reduce_scatter", 4096, 256), ("all_to_all", 4096, 256), ("gather", 4096, 256), ("scatter", 4096, 256),
    ],
)  # fmt: skip
def test_size_and_count_are_nccl_tests(collective, size, count):
    call = Call(collective)
    assert call.count(size, 4) == count
    assert call.nbytes(count, 4) == size
    assert call.nbytes(call.count(size + 3, 4), 4) == size


@pytest.mark.parametrize(("collective", "factor"), [("all_reduce", 1.5), ("all_gather", 0.75), ("broadcast", 1.0)])
def test_rows_follow_the_definitions(collective, factor):
    """Two passes on four ranks; time is the mean of all, best the fastest of the slowest ranks' iterations."""
    fast, slow = {"times_s": [0.001, 0.003], "wrong": 1}, {"times_s": [0.002, 0.002], "wrong": 2}
    row = sweeps._row(Call(collective), 1000, 4, [[fast, slow, slow, slow], [slow, slow, slow, slow]])
    nbytes = 16000 if collective == "all_gather" else 4000
    assert row.size == nbytes and row.count == 1000
    assert row.time_us == pytest.approx(2000)
    assert row.algbw_gb_per_s == pytest.approx(nbytes / 0.002 / 1e9)
    assert row.busbw_gb_per_s == pytest.approx(factor * row.algbw_gb_per_s)
    assert (row.best_us, row.median_us, row.iterations) == pytest.approx((2000, 2000, 4))
    assert row.wrong == 7
    assert (row.redop, row.root) == {"all_reduce": ("sum", -1), "all_gather": ("none", -1), "broadcast": ("none", 0)}[
        collective
    ]


def test_the_csv_has_nccl_tests_columns():
    rows = list(csv.reader(io.StringIO(a_sweep({1024: 0.001, 2048: 0.002}).to_csv())))
    assert rows[0] == ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"]
    assert rows[1] == ["1024", "256", "float32", "sum", "-1", "1000.00", "0.0010", "0.0015", "0"]


def test_in_place_columns_are_those_of_nccl_tests():
    part = {"times_s": [0.002], "wrong": 0, "in_place_s": [0.001], "in_place_wrong": 3, "events": True, "calls": 20}
    other = {**part, "times_s": [0.001], "in_place_s": [0.0005], "in_place_wrong": 1}
    row = sweeps._row(Call("all_gather"), 1000, 2, [[part, other]])
    assert row.iterations == 20 and row.time_us == pytest.approx(2000), "on GPUs: the slowest rank's"
    found = replace(a_sweep({1024: 0.001}, Call("all_gather"), ranks=2), rows=(row,))
    assert found.ways == ("out-of-place", "in-place") and found.wrong == 4
    assert found.figures(row) == [pytest.approx((2000, 0.004, 0.002, 0)), pytest.approx((1000, 0.008, 0.004, 4))]
    head, cells = csv.reader(io.StringIO(found.to_csv()))
    assert head[9:] == ["in-place time", "in-place algbw", "in-place busbw", "in-place #wrong"]
    assert cells[9:] == ["1000.00", "0.0080", "0.0040", "4"]
    assert a_sweep({1024: 0.001}).ways == ("in-place",), "torch's all_reduce has one tensor"


class Gpu:
    """torch.cuda's events on a pretended stream: work takes its time there, and a launch takes the host's."""

    LAUNCH_S, SYNC_S = 20e-6, 50e-6

    def __init__(self, monkeypatch):
        self.host_s = self.stream_s = self.waited_s = 0.0
        self.launched, gpu = 0, self

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                self.at_s = gpu.stream_s = max(gpu.stream_s, gpu.host_s)

            def synchronize(self):
                gpu.host_s = max(gpu.host_s, self.at_s) + gpu.SYNC_S

            def elapsed_time(self, end):
                return 1e3 * (end.at_s - self.at_s)

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: self.spins(cycles / timers.CYCLES_A_S))
        monkeypatch.setattr(dist, "get_backend", lambda group=None: "gloo" if group == "of gloo" else "nccl")
        monkeypatch.setattr(dist, "get_world_size", lambda: 1)
        monkeypatch.setattr(dist, "get_rank", lambda: 0)
        monkeypatch.setattr(dist, "barrier", lambda **_: None)
        monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: None)
        monkeypatch.setattr(timers.on_rank, "wait_for_gpu", lambda: None)
        monkeypatch.setattr(timers.time, "perf_counter", lambda: self.host_s)
        monkeypatch.setattr(timers.time, "thread_time", lambda: self.host_s - self.waited_s)
        # the figures of ranks are compared in a tensor, which here is the CPU's
        for name in ("tensor", "zeros"):
            make = getattr(torch, name)
            monkeypatch.setattr(torch, name, lambda *a, make=make, **options: make(*a, **{**options, "device": "cpu"}))

    def spins(self, seconds):
        self.stream_s = max(self.stream_s, self.host_s) + seconds

    def all_reduce(self, seconds):
        self.host_s += self.LAUNCH_S
        self.stream_s = max(self.stream_s, self.host_s) + seconds
        self.launched += 1

    def by_gloo(self, seconds):
        """The host waits, and the GPU does nothing."""
        self.host_s += seconds
        self.waited_s += seconds


def test_on_a_gpu_many_calls_are_timed_between_two_events(monkeypatch):
    """A clock around one call would measure its launch and the wait: 75 us here, for a kernel of 30."""
    gpu = Gpu(monkeypatch)
    clock = timers.timer()
    assert clock.device == torch.device("cuda", 0) and clock.events
    (mean_s,) = clock.times_s(lambda: gpu.all_reduce(30e-6), 100)
    assert gpu.launched == 100 and mean_s == pytest.approx(30e-6, rel=0.01)
    assert (clock.calls(20e-6), clock.calls(1e-6), clock.calls(0.5), clock.calls(0.0)) == (100, 100, 1, 100)
    assert timers.ClockTimer(torch.device("cpu")).calls(1e-6) == 1


def test_a_call_shorter_than_its_launch_is_timed_without_it(monkeypatch):
    """Launches of 20 us one after the other would be the time of kernels of 5: all wait in the queue before the first begins."""
    gpu = Gpu(monkeypatch)
    assert bench.seconds_of(lambda: gpu.all_reduce(5e-6), iterations=3) == [pytest.approx(5e-6, rel=0.01)]
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: gpu.all_reduce(5e-6))
    (mean_s,), _ = sweeps._measured(Call("all_reduce"), None, 1, 50, 2, 1.0, timers.timer(), False)
    assert mean_s == pytest.approx(5e-6, rel=0.01)


def test_a_call_that_waits_on_the_host_is_timed_with_that(monkeypatch):
    """A sleep, or gloo: beside a busy GPU it would seem to take no time."""
    gpu = Gpu(monkeypatch)
    assert bench.seconds_of(lambda: gpu.by_gloo(80e-6), iterations=3) == [pytest.approx(80e-6, rel=0.01)]


def test_a_gloo_group_of_ranks_on_gpus_is_timed_by_clocks(monkeypatch):
    gpu = Gpu(monkeypatch)
    clock = timers.timer("of gloo")
    assert (clock.events, clock.device) == (False, torch.device("cpu"))
    times = bench.times_of(lambda: gpu.by_gloo(80e-6), iterations=3, group="of gloo")
    assert times == [pytest.approx([80e-6] * 3)]


def test_seconds_of_times_short_calls_in_blocks_on_a_gpu(monkeypatch):
    gpu = Gpu(monkeypatch)
    quick, long = bench.seconds_of(lambda: gpu.all_reduce(40e-6), lambda: gpu.all_reduce(0.1), iterations=3, warmups=1)
    assert quick == pytest.approx(40e-6, rel=0.05) and long == pytest.approx(0.1, rel=0.01)
    calls = math.ceil(timers.BLOCK_S / 60e-6)  # a launch and the kernel, as the warm-up saw them
    assert gpu.launched == 2 * 2 + 3 * (calls + 1)


@pytest.mark.live
def test_in_place_calls_come_out_right_on_real_ranks():
    with World(ranks=2, backend="gloo") as world:
        for name in sweeps.ALSO_IN_PLACE:
            found = bench.sweep(world, Call(name), [1024], iterations=2, warmups=1, passes=1, in_place=True)
            assert found.wrong == 0 and found.rows[0].in_place[0] > 0
        only = bench.sweep(world, Call("all_to_all"), [1024], iterations=2, warmups=1, passes=1, in_place=True)
        assert only.rows[0].in_place is None and only.ways == ("out-of-place",)


def test_a_fit_foretells_sizes_and_worlds_that_it_has_not_seen():
    sizes = bench.sizes(8, 1 << 20)
    four, seven = (
        a_sweep({n: cost.price("all_reduce", "ring", p, n, 5e-6, 1e-9) for n in sizes}, ranks=p) for p in (4, 7)
    )
    held = four.prediction()
    assert [size for size, _, _ in held.points] == sizes[1::2]
    assert held.median_error < 1e-9
    carried = seven.prediction(four.fit())
    assert (carried.fitted_ranks, carried.ranks, len(carried.points)) == (4, 7, len(sizes))
    assert carried.median_error < 1e-9


def test_errors_of_a_prediction_are_relative_and_the_worst_is_named():
    found = bench.Prediction(4, 4, ((8, 1.0, 1.5), (16, 2.0, 1.0), (32, 1.0, 1.1)))
    assert found.errors == pytest.approx([0.5, 0.5, 0.1])
    assert found.median_error == pytest.approx(0.5)
    assert found.worst == (8, pytest.approx(0.5))


def test_sizes():
    assert bench.sizes(8, 100) == [8, 16, 32, 64]
    assert bench.sizes(10, 1000, 10) == [10, 100, 1000]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Call("all_redoce"), "There is no collective 'all_redoce' to measure; there are all_reduce,"),
        (lambda: Call("barrier"), "There is no collective 'barrier' to measure"),
        (lambda: Call(dtype="float"), "There is no dtype 'float'"),
        (lambda: Call(op="xor"), "There is no op 'xor'"),
        (lambda: Call(dtype="int32", op="avg"), "avg of int32"),
        (lambda: Call(algorithm="nope"), "There is no algorithm 'nope' for all_reduce"),
        (lambda: Call(algorithm="ring", op="max"), "The course's own algorithms add"),
        (lambda: bench.sizes(0, 10), "The sizes go from 0 to 10 bytes"),
        (lambda: bench.sizes(10, 5), "The sizes go from 10 to 5 bytes"),
        (lambda: bench.sizes(1, 5, 1), "The factor between sizes is 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(make, words):
    with pytest.raises(BenchError, match=words):
        make()


@pytest.mark.parametrize("op", sweeps.OPS)
@pytest.mark.parametrize("dtype", sweeps.DTYPES)
def test_what_is_wanted_is_what_torch_gives(op, dtype):
    if op == "avg" and "int" in dtype:
        return
    call = Call(dtype=dtype, op=op)
    parts = torch.stack([sweeps._data(call, r, 30, "cpu") for r in range(4)]).double()
    whole = {
        "sum": parts.sum(0),
        "avg": parts.mean(0),
        "prod": parts.prod(0),
        "min": parts.amin(0),
        "max": parts.amax(0),
    }[op]
    assert torch.equal(sweeps._reduced(call, 4, 30, "cpu").double(), whole)


def test_a_wrong_element_is_counted():
    call = Call()
    result = sweeps._reduced(call, 4, 30, "cpu")
    assert sweeps._wrong(call, result, 4, 0, 30, "cpu") == 0
    result[3] += 1
    result[29] = float("nan")
    assert sweeps._wrong(call, result, 4, 0, 30, "cpu") == 2


@pytest.mark.live
def test_every_collective_comes_out_right_on_real_ranks():
    few = {"iterations": 2, "warmups": 1, "passes": 1}
    with World(ranks=3, backend="gloo") as world:
        for collective in bench.COLLECTIVES:
            calls = 0

            def count():
                nonlocal calls
                calls += 1

            found = bench.sweep(world, Call(collective, root=1), [8, 100, 5000], progress=count, **few)
            assert calls == 3
            assert found.wrong == 0 and all(r.time_us > 0 and r.iterations == 2 for r in found.rows)
            assert [r.size for r in found.rows][-1] == (4992 + 8 * (collective not in sweeps.IN_PARTS))
            assert len(found.rows) == (2 if collective in sweeps.IN_PARTS else 3)
        for op, dtype in (
            ("max", "int64"),
            ("avg", "float32"),
            ("prod", "float64"),
            ("min", "uint8"),
            ("sum", "bfloat16"),
        ):
            assert bench.sweep(world, Call("all_reduce", dtype, op), [1000], **few).wrong == 0
        for collective, algorithm in (("all_reduce", "rabenseifner"), ("all_to_all", "bruck"), ("reduce", "binomial")):
            found = bench.sweep(world, Call(collective, root=2, algorithm=algorithm), [32, 4096, 8192], **few)
            assert found.wrong == 0
            assert found.fit().algorithm == algorithm
        with pytest.raises(BenchError, match="The root is 3; it is one of the ranks 0 to 2"):
            bench.sweep(world, Call("broadcast", root=3), [8])
        with pytest.raises(BenchError, match="No size is large enough"):
            bench.sweep(world, Call("all_gather"), [8])


def taking_turns(iterations, warmups):
    """Runs on every rank: two calls, of which the second is slow on rank 1 only, and the first at first."""
    import time

    import torch.distributed as dist
    from allranks import bench

    turns = []

    def quick():
        time.sleep(0 if turns else 0.5)
        turns.append("quick")

    def slow_on_one():
        time.sleep(0.1 if dist.get_rank() == 1 else 0)
        turns.append("slow")

    return bench.seconds_of(quick, slow_on_one, iterations=iterations, warmups=warmups), turns


@pytest.mark.live
def test_calls_are_timed_in_turns_on_the_slowest_rank():
    with World(ranks=3, backend="gloo") as world:
        found = world.run(taking_turns, 3, 1)
        assert [turns for _, turns in found] == [["quick", "slow"] * 4] * 3
        figures = [seconds for seconds, _ in found]
        assert figures[0] == figures[1] == figures[2], "every rank gets the same figures"
        quick, slow = figures[0]
        assert 0 < quick and slow >= 0.1
        (first, _), _ = world.run(taking_turns, 1, 0)[0]
        assert first >= 0.5 > quick, "a warm-up doesn't count"


@pytest.mark.parametrize(
    ("calls", "how", "words"),
    [
        ((), {}, "There are 0 calls, 11 iterations and 1 warm-ups; at least 1, 1 and 0 are needed"),
        ((print,), {"iterations": 0}, "1 calls, 0 iterations"),
        ((print,), {"warmups": -1}, "-1 warm-ups"),
    ],
)
def test_nothing_to_time_is_refused(calls, how, words):
    with pytest.raises(BenchError, match=words):
        bench.seconds_of(*calls, **how)


@pytest.mark.live
def test_the_times_of_a_sub_group_are_those_of_its_slowest_rank():
    def program():
        import time

        import torch.distributed as dist

        group = dist.new_group([0, 2])
        pauses = iter([0.0, 0.2, 0.0, 0.1])  # the first is a warm-up
        if dist.get_rank() == 1:
            return None
        return bench.times_of(
            lambda: time.sleep(next(pauses) if dist.get_rank() == 2 else 0), iterations=3, group=group
        )

    with World(ranks=3, backend="gloo") as world:
        first, outside, last = world.run(program)
    assert outside is None and first == last
    (times,) = first
    assert all(seconds >= pause for seconds, pause in zip(times, (0, 0.1, 0.2), strict=True)), "the shortest first"


@pytest.mark.live
def test_the_bench_of_predictions_says_how_far_off_it_was(monkeypatch):
    """`python -m bench predict`, small: a fit on half of the sizes foretells the rest, and another world."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3]))
    predict = importlib.import_module("bench.predict")

    monkeypatch.setattr(predict, "OTHER_RANKS", 3)
    monkeypatch.setattr(predict, "LAST", 8 << 10)
    monkeypatch.setattr(predict, "ALGORITHMS", ("ring",))
    result = predict.run(1, lambda _: None)
    assert [row[:4] for row in result.rows] == [
        ("ring", "2 ranks, half", "2 ranks, rest", "5"),
        ("ring", "3 ranks, half", "3 ranks, rest", "5"),
        ("ring", "2 ranks", "3 ranks", "11"),
    ]
    assert all(0 <= float(row[4].rstrip("%")) <= float(row[5].rstrip("%")) for row in result.rows)
    assert result.notes[0].endswith("Wrong elements: 0.")


@pytest.mark.live
def test_clocks_wait_for_the_queue_under_nccls_rules():
    """There a call returns before it is done, as on a GPU; and a sweep's own tensors are on the rank's device."""

    def program():
        import time

        import torch.distributed as dist

        def late():
            x = torch.ones(4)
            if dist.get_rank() == 0:
                time.sleep(0.3)
            dist.all_reduce(x)

        return bench.seconds_of(late, iterations=1)[0]

    with World(ranks=2, rules="nccl") as world:
        assert all(seconds >= 0.3 for seconds in world.run(program))
        assert bench.sweep(world, Call("all_gather"), [1024], iterations=2, warmups=1).rows[0].wrong == 0
