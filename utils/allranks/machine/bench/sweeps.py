"""Measured collectives: sweeps over sizes on a live world, with nccl-tests' columns and definitions, and their fits.

- `size`: bytes of the full vector (all_gather, reduce_scatter, gather, scatter: of all ranks' parts together; all_to_all: of
  what one rank sends). `count`: elements that a rank passes for one part. Both as nccl-tests prints them.
- `time`: on the CPU, the mean over iterations and ranks, by clocks. On GPUs, what the slowest rank takes for a call, by two
  events around all calls of a pass. algbw = size / time. busbw = algbw times the collective's factor.
- in place: the output lies where the input does. `all_reduce`, `broadcast` and `reduce` of torch are always so.
- `wrong`: elements, over all ranks, that differ from the same result computed locally.
- `best`: the fastest iteration (on GPUs, pass), where each takes as long as its slowest rank. Fits and predictions use it, because
  other programs disturbed it least.

`seconds_of` times any calls, on the ranks that make them.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from allranks.base.errors import CourseError, capital
from allranks.base.progress import with_progress
from allranks.machine.bench.timers import HOST_WAITS, timer
from allranks.theory import cost
from allranks.theory.schedules import Schedule, ScheduleError, describe

if TYPE_CHECKING:
    import torch

    from allranks.machine.bench.timers import ClockTimer
    from allranks.ranks.world import World

# the collectives that can be measured
COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "gather", "scatter",
)  # fmt: skip
DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
OPS = ("sum", "prod", "min", "max", "avg")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ALWAYS_IN_PLACE = ("all_reduce", "broadcast", "reduce")  # torch's have one tensor
ALSO_IN_PLACE = ("all_gather", "reduce_scatter")  # a rank's part lies in the whole vector
IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
COLUMNS = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
IN_PLACE_COLUMNS = ("in-place time", "in-place algbw", "in-place busbw", "in-place #wrong")


class BenchError(CourseError):
    """A sweep that can't be measured; the message says why in one sentence.

    Example:
        >>> bench.sizes(64, 8)
        Traceback (most recent call last):
        ...
        allranks.machine.bench.sweeps.BenchError: The sizes go from 64 to 8 bytes; they start at 1 or more and don't shrink.
    """


@dataclass(frozen=True)
class Call:
    """One collective with its arguments, for `sweep`.

    `dtype` and `op` are names of torch ("float32"; "sum", "prod", "min", "max", "avg"). `algorithm` is one of the course's own, by
    its name in `schedules.find`; None is the backend's own. Raises BenchError for an unknown name and for an impossible pair.

    Example:
        >>> bench.Call("all_gather", dtype="bfloat16").itemsize
        2
    """

    collective: str = "all_reduce"
    dtype: str = "float32"
    op: str = "sum"
    root: int = 0
    algorithm: str | None = None

    def __post_init__(self) -> None:
        for what, value, known in (
            ("collective", self.collective, COLLECTIVES), ("dtype", self.dtype, DTYPES), ("op", self.op, OPS),
        ):  # fmt: skip
            if value not in known:
                raise BenchError(f"There is no {what} {value!r} to measure; there are {', '.join(known)}.")
        if self.op == "avg" and "int" in self.dtype:
            raise BenchError(f"avg of {self.dtype} is not a whole number; take a floating-point dtype.")
        if self.algorithm is not None:
            if self.collective in REDUCING and self.op != "sum":
                raise BenchError("The course's own algorithms add; take op sum, or leave the algorithm out.")
            try:
                describe(self.collective, self.algorithm)
            except ScheduleError as error:
                raise BenchError(f"{capital(str(error))}.") from None

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}.get(self.dtype, 4)

    def count(self, nbytes: int, ranks: int) -> int:
        """How many elements a rank passes for one part, if the size is at most `nbytes`."""
        elements = nbytes // self.itemsize
        return elements // ranks if self.collective in IN_PARTS else elements

    def nbytes(self, count: int, ranks: int) -> int:
        """The size in bytes, as nccl-tests defines it, of a call with `count` elements."""
        return count * self.itemsize * (ranks if self.collective in IN_PARTS else 1)

    def schedule(self, ranks: int) -> Schedule | None:
        """The schedule of the course's own algorithm; None for the backend's own."""
        if self.algorithm is None:
            return None
        known = describe(self.collective, self.algorithm)
        rooted = "root" in known.options and self.collective in ROOTED
        return known.build(ranks, root=self.root) if rooted else known.build(ranks)


@dataclass(frozen=True)
class Row:
    """One size of a sweep, with nccl-tests' columns. Times are in microseconds, bandwidths in 10^9 bytes a second.

    `time_us` is the mean, `best_us` and `median_us` are over iterations, each as long as its slowest rank; on GPUs they are over
    passes, and `time_us` is the slowest rank's too. `wrong` counts wrong elements. `in_place` has the time of the same call with
    its output where its input is, and the wrong elements of that; None if it was not measured. `root` is -1 and `redop` "none"
    if the collective has none.

    Example:
        >>> row = bench.Row(1024, 256, "float32", "sum", -1, 50.0, 0.02048, 0.03072, 0, 41.0, 48.0, 20)
        >>> row.best_us
        41.0
    """

    size: int
    count: int
    type: str
    redop: str
    root: int
    time_us: float
    algbw_gb_per_s: float
    busbw_gb_per_s: float
    wrong: int
    best_us: float
    median_us: float
    iterations: int
    in_place: tuple[float, int] | None = None


@dataclass(frozen=True)
class Sweep:
    """What `sweep` measured: the rows of one collective on one world, in the order of sizes.

    `about` names the torch version and the device.

    Example (needs ranks):
        >>> found = bench.sweep(world, bench.Call("all_reduce"), bench.sizes(8, 4096), iterations=2, warmups=1, passes=1)
        >>> found.ranks, len(found.rows), found.wrong
        (4, 10, 0)
        >>> found.fit().alpha_s.value < 1
        True
    """

    call: Call
    ranks: int
    backend: str
    rows: tuple[Row, ...]
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def algorithm(self) -> str:
        """The algorithm whose formula `fit` uses: the course's own if `call` names one, else the textbook's."""
        return self.call.algorithm or cost.TEXTBOOK[self.call.collective]

    @property
    def average_busbw_gb_per_s(self) -> float:
        """The mean of busbw over the rows, which nccl-tests prints last."""
        return statistics.fmean(row.busbw_gb_per_s for row in self.rows)

    @property
    def wrong(self) -> int:
        """The number of wrong elements of all rows."""
        return sum(row.wrong + (row.in_place[1] if row.in_place is not None else 0) for row in self.rows)

    @property
    def ways(self) -> tuple[str, ...]:
        """What was measured, as nccl-tests names its groups of columns: "out-of-place" and "in-place", or only one of them."""
        if self.call.collective in ALWAYS_IN_PLACE:
            return ("in-place",)
        return ("out-of-place", "in-place")[: 1 + any(row.in_place is not None for row in self.rows)]

    def figures(self, row: Row) -> list[tuple[float, float, float, int]]:
        """(time in us, algbw, busbw, wrong elements) of a row, in each of the `ways`."""
        found = [(row.time_us, row.algbw_gb_per_s, row.busbw_gb_per_s, row.wrong)]
        if row.in_place is not None:
            time_us, wrong = row.in_place
            algbw = cost.algbw_gb_per_s(row.size, time_us / 1e6)
            busbw = cost.busbw_gb_per_s(self.call.collective, self.ranks, row.size, time_us / 1e6)
            found.append((time_us, algbw, busbw, wrong))
        return found

    def fit(self, rows: Sequence[Row] | None = None) -> cost.Fit:
        """Alpha and beta from the best times of `rows`, by default of all. Raises CostError for fewer than three rows."""
        rows = self.rows if rows is None else rows
        times_s = [row.best_us / 1e6 for row in rows]
        return cost.fit(self.call.collective, self.ranks, [row.size for row in rows], times_s, self.algorithm)

    def prediction(self, fitted: cost.Fit | None = None) -> Prediction:
        """What a fit predicts for rows that it was not fitted on.

        Without `fitted`, the fit of every other row, for the rows between; with another world's fit, for all rows.
        """
        if fitted is None:
            fitted, unseen = self.fit(self.rows[::2]), self.rows[1::2]
        else:
            unseen = self.rows
        points = tuple((row.size, row.best_us / 1e6, fitted.seconds(row.size, self.ranks)) for row in unseen)
        return Prediction(fitted.ranks, self.ranks, points)

    def to_dict(self) -> dict[str, Any]:
        """The sweep as plain data; with a fit from three sizes on, and with a prediction from six."""
        found = {
            **asdict(self.call),
            "ranks": self.ranks,
            "backend": self.backend,
            **self.about,
            "rows": [asdict(row) for row in self.rows],
            "average_busbw_gb_per_s": self.average_busbw_gb_per_s,
            "wrong": self.wrong,
        }
        if len(self.rows) >= 3 and self.ranks > 1:
            fitted = self.fit()
            found["fit"] = asdict(fitted) | {"half_nbytes": fitted.half_nbytes}
        if len(self.rows) >= 6 and self.ranks > 1:
            found["prediction"] = self.prediction().to_dict()
        return found

    def to_csv(self) -> str:
        """The rows with nccl-tests' columns: size in bytes, time in microseconds, bandwidths in GB/s; then those in place, if measured."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow((*COLUMNS, *IN_PLACE_COLUMNS[: 4 * (len(self.ways) - 1)]))
        for r in self.rows:
            cells: list[object] = [r.size, r.count, r.type, r.redop, r.root]
            for time_us, algbw, busbw, wrong in self.figures(r):
                cells += [f"{time_us:.2f}", f"{algbw:.4f}", f"{busbw:.4f}", wrong]
            writer.writerow(cells)
        return text.getvalue()


@dataclass(frozen=True)
class Prediction:
    """Predicted times beside measured ones: `points` of (bytes, measured seconds, predicted seconds).

    Example:
        >>> bench.Prediction(fitted_ranks=2, ranks=4, points=((1024, 2e-5, 1e-5), (2048, 2e-5, 2e-5))).errors
        [0.5, 0.0]
    """

    fitted_ranks: int
    ranks: int
    points: tuple[tuple[int, float, float], ...]

    @property
    def errors(self) -> list[float]:
        """For each point, how far the prediction is off: `|predicted / measured - 1|`."""
        return [abs(predicted / measured - 1) for _, measured, predicted in self.points]

    @property
    def median_error(self) -> float:
        """The median of the errors."""
        return statistics.median(self.errors)

    @property
    def worst(self) -> tuple[int, float]:
        """(bytes, error) of the point with the largest error."""
        return max(
            ((point[0], error) for point, error in zip(self.points, self.errors, strict=True)), key=lambda w: w[1]
        )

    def to_dict(self) -> dict[str, Any]:
        """The prediction as plain data."""
        keys = ("bytes", "measured_s", "predicted_s")
        return {
            "fitted_ranks": self.fitted_ranks,
            "ranks": self.ranks,
            "median_error": self.median_error,
            "worst_bytes": self.worst[0],
            "worst_error": self.worst[1],
            "points": [dict(zip(keys, point, strict=True)) for point in self.points],
        }


def sizes(first: int, last: int, factor: int = 2) -> list[int]:
    """The sizes of a sweep in bytes: `first`, then `factor` times the one before, up to `last`. Raises BenchError.

    Example:
        >>> bench.sizes(8, 64)
        [8, 16, 32, 64]
    """
    if first < 1 or last < first:
        raise BenchError(f"The sizes go from {first} to {last} bytes; they start at 1 or more and don't shrink.")
    if factor < 2:
        raise BenchError(f"The factor between sizes is {factor}; it is 2 or more.")
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def sweep(
    world: World,
    call: Call,
    nbytes: Sequence[int],
    *,
    iterations: int = 20,
    warmups: int = 5,
    passes: int = 4,
    budget_s: float = 2.0,
    in_place: bool = False,
    progress: Callable[[], None] | None = None,
) -> Sweep:
    """Measures `call` on `world` for each size in `nbytes`; leaves out sizes too small for one element in each part.

    Each size is timed `iterations` times, less often if that would take longer than `budget_s` seconds. The iterations are
    spread over `passes` passes through all sizes, so that other programs disturb all sizes alike. With `in_place`, all_gather and
    reduce_scatter are measured a second time with their output where their input is. `progress` is called
    len(nbytes) * passes times; without it a bar shows after a second how far it has come. Raises BenchError, and what `world.run` raises.

    Example (needs ranks):
        >>> found = bench.sweep(world, bench.Call("broadcast"), [1024], iterations=2, warmups=1)
        >>> found.rows[0].size, found.rows[0].wrong
        (1024, 0)
    """
    if iterations < 1 or warmups < 0 or passes < 1:
        raise BenchError(
            f"There are {iterations} iterations, {warmups} warm-ups and {passes} passes; at least 1, 0 and 1 are needed."
        )
    if call.collective in ROOTED and not 0 <= call.root < world.ranks:
        raise BenchError(f"The root is {call.root}; it is one of the ranks 0 to {world.ranks - 1}.")
    schedule = call.schedule(world.ranks)
    counts = dict.fromkeys(count for size in nbytes if (count := call.count(size, world.ranks)))
    if not counts:
        raise BenchError(f"No size is large enough for one {call.dtype} element on each of {world.ranks} ranks.")
    found: dict[int, list[list[dict[str, Any]]]] = {count: [] for count in counts}
    both = in_place and schedule is None and call.collective in ALSO_IN_PLACE
    passes = min(passes, iterations)
    turns = [(number, count) for number in range(passes) for count in counts]
    shown = with_progress(turns, len(turns), f"timings of {call.collective}") if progress is None else turns
    for number, count in shown:
        share = iterations // passes + (number < iterations % passes)
        with world.undisturbed():
            parts = world.run(measure, call, schedule, count, share, warmups, budget_s / passes, not number, both)
        found[count].append(parts)
        if progress is not None:
            progress()
    for _ in range((len(nbytes) - len(counts)) * passes if progress is not None else 0):
        progress()
    rows = tuple(_row(call, count, world.ranks, parts) for count, parts in found.items())
    first = found[next(iter(counts))][0][0]
    return Sweep(call, world.ranks, world.backend, rows, {"torch": first["torch"], "device": first["device"]})


def _row(call: Call, count: int, ranks: int, parts: list[list[dict[str, Any]]]) -> Row:
    """The row of one size, from what `measure` returned: `parts[pass][rank]`."""
    size = call.nbytes(count, ranks)
    mean_s, slowest_s = _summary(parts, "times_s")
    there = None
    if "in_place_s" in parts[0][0]:
        there = _summary(parts, "in_place_s")[0] * 1e6, sum(rank["in_place_wrong"] for rank in parts[0])
    return Row(
        size=size,
        count=count,
        type=call.dtype,
        redop=call.op if call.collective in REDUCING else "none",
        root=call.root if call.collective in ROOTED else -1,
        time_us=mean_s * 1e6,
        algbw_gb_per_s=cost.algbw_gb_per_s(size, mean_s),
        busbw_gb_per_s=cost.busbw_gb_per_s(call.collective, ranks, size, mean_s),
        wrong=sum(rank["wrong"] for rank in parts[0]),
        best_us=min(slowest_s) * 1e6,
        median_us=statistics.median(slowest_s) * 1e6,
        iterations=sum(part[0].get("calls", len(part[0]["times_s"])) for part in parts),
        in_place=there,
    )


def _summary(parts: list[list[dict[str, Any]]], name: str) -> tuple[float, list[float]]:
    """(mean seconds, seconds of each iteration on its slowest rank); on GPUs the mean is the slowest rank's."""
    slowest_s = [max(times_s) for part in parts for times_s in zip(*(rank[name] for rank in part), strict=True)]
    if parts[0][0].get("events"):
        return statistics.fmean(slowest_s), slowest_s
    return statistics.fmean(time_s for part in parts for rank in part for time_s in rank[name]), slowest_s


# ------------------------------------------------------------------------------------------------------- on the ranks


def measure(
    call: Call,
    schedule: Schedule | None,
    count: int,
    iterations: int,
    warmups: int,
    budget_s: float,
    check: bool,
    in_place: bool = False,
) -> dict[str, Any]:
    """Runs on every rank: checks the result of one call, warms up, then times iterations.

    Returns their seconds ("times_s": of each, or by `events` their mean), how many `calls` they were, the number of this rank's
    `wrong` elements, the same in place ("in_place_s", "in_place_wrong"), torch's version, and the device.
    """
    import torch

    clock = timer()
    device = clock.device
    found = {
        "events": clock.events,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }
    for prefix, there in (("", False), ("in_place_", True))[: 1 + in_place]:
        found[f"{prefix}wrong"] = _checked(call, schedule, count, device, there) if check else 0
        times_s, calls = _measured(call, schedule, count, iterations, warmups, budget_s, clock, there)
        found[f"{prefix}s" if prefix else "times_s"] = times_s
        found[f"{prefix}calls"] = calls
    return found


def _numel(call: Call, count: int) -> int:
    """The elements of the full vector."""
    import torch.distributed as dist

    return count * dist.get_world_size() if call.collective in IN_PARTS else count


def _checked(call: Call, schedule: Schedule | None, count: int, device: torch.device, in_place: bool) -> int:
    """How many elements of one call's result on this rank are wrong."""
    import torch.distributed as dist

    ranks, rank, numel = dist.get_world_size(), dist.get_rank(), _numel(call, count)
    result = _runner(call, schedule, _data(call, rank, numel, device), ranks, rank, in_place)()
    return _wrong(call, result, ranks, rank, numel, device)


def _measured(
    call: Call,
    schedule: Schedule | None,
    count: int,
    iterations: int,
    warmups: int,
    budget_s: float,
    clock: ClockTimer,
    in_place: bool,
) -> tuple[list[float], int]:
    """(seconds, number of calls) of as many iterations as the budget allows; all ranks make the same number."""
    import torch
    import torch.distributed as dist

    # zeros, so that repeated sums don't grow
    vector = torch.zeros(_numel(call, count), dtype=getattr(torch, call.dtype), device=clock.device)
    once = _runner(call, schedule, vector, dist.get_world_size(), dist.get_rank(), in_place)
    last_s, launch_s = 0.0, HOST_WAITS
    for _ in range(max(1, warmups)):
        (last_s,) = clock.times_s(once, 1)
        launch_s = min(launch_s, clock.launch_s)
    slowest = torch.tensor([last_s, launch_s], dtype=torch.float64, device=clock.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    last_s, launch_s = slowest.tolist()
    calls = min(iterations, max(1, int(budget_s / max(last_s, 1e-9))))
    dist.barrier()
    clock.finish()
    return clock.times_s(once, calls, launch_s), calls


def seconds_of(*calls: Callable[[], object], iterations: int = 11, warmups: int = 1) -> list[float]:
    """How many seconds each of these calls takes: the median over iterations, each as long as its slowest rank.

    Every rank of the default group must call this, with the same number of calls; each call takes no arguments. All ranks
    get the same figures. An iteration times the calls one after the other, so that other programs disturb all of them alike.
    A barrier lets all ranks begin together. On GPUs an iteration makes a short call many times, between two events of the GPU, and
    all of them wait in its queue before the first begins: a clock around one call would measure its launch too. A call that waits
    on the host is timed with that; work on another stream must wait for the current one. So a call is made more often than
    `iterations` says, and must not use up what it is given. The first `warmups` iterations don't count. Raises BenchError if there
    is nothing to time.

    Example (needs ranks):
        >>> def time_it():
        ...     x = torch.ones(1024)
        ...     return bench.seconds_of(lambda: dist.all_reduce(x), lambda: dist.broadcast(x, src=0))
        >>> all_reduce_s, broadcast_s = world.run(time_it)[0]
        >>> all_reduce_s > 0
        True
    """
    return [statistics.median(times) for times in times_of(*calls, iterations=iterations, warmups=warmups)]


def times_of(
    *calls: Callable[[], object], iterations: int = 11, warmups: int = 1, group: Any = None
) -> list[list[float]]:
    """The seconds of every iteration of each of these calls, the shortest first, as `seconds_of` measures them: for their spread.

    Every rank of `group` (default: all ranks) must call this, with the same number of calls, and gets the same figures. Raises BenchError
    if there is nothing to time.

    Example (needs ranks):
        >>> def time_it():
        ...     x = torch.ones(1024)
        ...     return bench.times_of(lambda: dist.all_reduce(x), iterations=5)
        >>> (times,) = world.run(time_it)[0]
        >>> len(times), times[0] <= times[-1]
        (5, True)
    """
    import torch
    import torch.distributed as dist

    if not calls or iterations < 1 or warmups < 0:
        raise BenchError(
            f"There are {len(calls)} calls, {iterations} iterations and {warmups} warm-ups; at least 1, 1 and 0 are needed."
        )
    clock = timer(group)
    plan = [(1, HOST_WAITS)] * len(calls)
    times_s: list[list[float]] = []
    for number in range(warmups + iterations):
        if number == warmups and warmups and clock.events:
            plan = _in_blocks(calls, clock, group)
        times_s.append([])
        for call, (together, launch_s) in zip(calls, plan, strict=True):
            dist.barrier(group=group)
            clock.finish()
            times_s[-1] += clock.times_s(call, together, launch_s)
    slowest_s = torch.tensor(times_s[warmups:], dtype=torch.float64, device=clock.device)
    dist.all_reduce(slowest_s, op=dist.ReduceOp.MAX, group=group)
    return [sorted(column) for column in slowest_s.T.tolist()]


def _in_blocks(calls: Sequence[Callable[[], object]], clock: ClockTimer, group: Any) -> list[tuple[int, float]]:
    """(how many of each call to time together, what its launch takes): the same on all ranks, by one more call of each."""
    import torch
    import torch.distributed as dist

    found: list[list[float]] = [[], []]
    for call in calls:
        dist.barrier(group=group)
        clock.finish()
        found[0] += clock.times_s(call, 1)
        found[1].append(clock.launch_s)
    slowest = torch.tensor(found, dtype=torch.float64, device=clock.device)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
    once_s, launch_s = slowest.tolist()
    return [(clock.calls(seconds), launch) for seconds, launch in zip(once_s, launch_s, strict=True)]


def _data(call: Call, rank: int, numel: int, device: torch.device | str, start: int = 0) -> torch.Tensor:
    """Elements `start` to `start + numel` of the rank's input: small whole numbers, exact in every dtype.

    They differ between ranks; for products they are 1 and 2. The numbers repeat: copying a block is ten times as fast as
    computing each.
    """
    import torch

    period = 2 if call.op == "prod" else 5
    once = (torch.arange(start, start + period, device=device) + 3 * rank) % period + (call.op == "prod")
    block = once.to(getattr(torch, call.dtype)).repeat(2048)
    return block.repeat(-(-numel // len(block)))[:numel]


def _runner(
    call: Call, schedule: Schedule | None, vector: torch.Tensor, ranks: int, rank: int, in_place: bool = False
) -> Callable[[], torch.Tensor | None]:
    """A function that makes the call on `vector` (the full one) and returns its result; the outputs are allocated only once.

    With `in_place`, the whole output of all_gather is `vector`, and the output of reduce_scatter is a part of it.
    """
    import torch
    import torch.distributed as dist

    if schedule is not None:
        from allranks.machine.bench.executor import Executor

        execute = Executor(schedule)
        if call.collective in ("all_reduce", "broadcast"):  # in place, as the backend's own
            return lambda: execute(vector, out=vector)
        first = execute(vector)
        return lambda: execute(vector, out=first)
    op, root = getattr(dist.ReduceOp, {"prod": "product"}.get(call.op, call.op).upper()), call.root
    part = vector.numel() // ranks
    own = vector[rank * part : (rank + 1) * part]
    match call.collective:
        case "all_reduce":
            return lambda: (dist.all_reduce(vector, op=op), vector)[1]
        case "broadcast":
            return lambda: (dist.broadcast(vector, src=root), vector)[1]
        case "reduce":
            return lambda: (dist.reduce(vector, dst=root, op=op), vector if rank == root else None)[1]
        case "all_gather":
            out = vector if in_place else torch.empty_like(vector)
            return lambda: (dist.all_gather_single(out, own), out)[1]
        case "reduce_scatter":
            out = own if in_place else torch.empty_like(own)
            return lambda: (dist.reduce_scatter_single(out, vector, op=op), out)[1]
        case "all_to_all":
            out = torch.empty_like(vector)
            return lambda: (dist.all_to_all_single(out, vector), out)[1]
        case "gather":
            parts = list(torch.empty_like(vector).chunk(ranks)) if rank == root else None
            return lambda: (dist.gather(own, parts, dst=root), torch.cat(parts) if parts else None)[1]
        case _:
            out = torch.empty_like(own)
            parts = list(vector.chunk(ranks)) if rank == root else None
            return lambda: (dist.scatter(out, parts, src=root), out)[1]


def _wrong(call: Call, result: Any, ranks: int, rank: int, numel: int, device: torch.device | str) -> int:
    """How many elements of this rank's result differ from the same result computed locally."""
    import torch

    if call.collective in ("reduce", "gather") and rank != call.root:
        return 0
    part = numel // ranks
    mine = rank * part
    match call.collective:
        case "broadcast":
            wanted = _data(call, call.root, numel, device)
        case "scatter":
            wanted = _data(call, call.root, part, device, mine)
        case "all_gather" | "gather":
            wanted = torch.cat([_data(call, r, part, device, r * part) for r in range(ranks)])
        case "all_to_all":
            wanted = torch.cat([_data(call, r, part, device, mine) for r in range(ranks)])
        case "reduce_scatter":
            wanted = _reduced(call, ranks, part, device, mine)
        case _:
            wanted = _reduced(call, ranks, numel, device)
    if call.op == "avg" or (call.op == "prod" and call.dtype in ("float16", "bfloat16")):
        differ = ~torch.isclose(result.double(), wanted.double(), rtol=1e-2 if "16" in call.dtype else 1e-6)
    else:
        differ = result != wanted
    return int(torch.count_nonzero(differ))


def _reduced(call: Call, ranks: int, numel: int, device: torch.device | str, start: int = 0) -> torch.Tensor:
    """All ranks' inputs, reduced by the call's op, from element `start` on."""
    import torch

    total = _data(call, 0, numel, device, start)
    for other in range(1, ranks):
        more = _data(call, other, numel, device, start)
        match call.op:
            case "sum" | "avg":
                total += more
            case "prod":
                total *= more
            case "min":
                total = torch.minimum(total, more)
            case "max":
                total = torch.maximum(total, more)
    return total / ranks if call.op == "avg" else total
