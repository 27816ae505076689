# %% [markdown] name="title"
# # Lab 11: your own job
#
# **A job is slow, or it stands still. All you have is what each rank's profiler wrote. Which rank is to blame, what is the cause, and what shows it?**
#
# 1. `stands_still`: jobs that hang (medium, 20 minutes, 2 of the 8 points)
# 2. `one_rank_apart`: jobs that wait for one rank (hard, 40 minutes, 3 points)
# 3. `all_ranks_alike`: jobs that call too often, hide nothing, or are healthy (medium, 30 minutes, 3 points)
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `diagnose_job` | hard | 90 | 8 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok; no GPU is used. The chapter *Your own job* reads such files by hand; in this notebook you write the reader's rules as code. There are eight
# kinds of jobs, and **each kind that you tell right is one point**, whatever else is missing.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - A job is told right if cause, rank and evidence are all right.
# - `check` gives your function the same jobs each time. The grading draws other jobs, for each answer anew: other groups, sizes and clocks, another rank to
#   blame.
# - Your function sends no messages; each rank is given a job of its own.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
from collections import Counter, defaultdict
from statistics import median

from allranks import World, check
from allranks.planted import RECORDED, recorded

# %% nbgrader={"grade_id": "causes", "locked": true}
STRAGGLER = 1
DESYNC = 2
MISSING_RANK = 3
TINY_CALLS = 4
NO_OVERLAP = 5
WRONG_INTERFACE = 6
SKEWED_ALL_TO_ALL = 7
HEALTHY = 8

NOBODY = -1  # instead of a rank, where no single rank is to blame

# %% [markdown] name="a_job"
# ## A job
#
# A job is plain data, as a profiler's files hold it:
#
# - `job["world_size"]`: the number of ranks.
# - `job["files"]`: a list with one entry for each file, in any order. A rank may have no file: its process was killed, *or* its file was lost.
#
# A file has `"rank"`, `"host"`, and
#
# - `"compute"`: pairs `[start, end]` in which the rank computed, in order;
# - `"calls"`: the rank's collectives, in order of their start. A call has `"op"`, `"group"` (the same name on all ranks), `"ranks"` (the group's
#   members), `"seq"` (the number of the call within its group: the same on all its ranks), `"start_us"`, `"end_us"` (None: it never ended),
#   `"in_bytes"` and `"out_bytes"` (what this rank put in and got out).
#
# Calls of one rank may overlap, and two groups may have the same members: their names differ. Files don't begin at the same call.
#
# Eight jobs were recorded for you, on six live ranks: seven with a fault planted in them, and a healthy one. This is one of them:

# %% name="a_recorded_job"
job = recorded("straggler")
print(f"{job['world_size']} ranks, {len(job['files'])} files")
for file in job["files"]:
    print(f"rank {file['rank']} on {file['host']}: {len(file['calls'])} calls; the last one is {file['calls'][-1]}")

# %% [markdown] name="clocks"
# ## One clock
#
# Times are microseconds **on the clock of the file's host**: the clocks of two hosts may be a tenth of a second apart. You must bring all files to one
# clock before you can say who came last.
#
# **Predict:** two files hold the same all-reduces of the whole world. What differs by nearly the same time in each of these calls, and so tells how far
# the clocks are apart: their starts, or their ends?

# %% name="prediction"
prediction = "the starts"

# %% name="starts_and_ends"
first, last = job["files"][0], job["files"][-1]
for when in ("start_us", "end_us"):
    there = {call["seq"]: call[when] for call in first["calls"] if len(call["ranks"]) == job["world_size"]}
    apart = [
        c[when] - there[c["seq"]] for c in last["calls"] if len(c["ranks"]) == job["world_size"] and c["seq"] in there
    ]
    print(f"{when:8} differ by {min(apart) / 1e3:.1f} to {max(apart) / 1e3:.1f} ms")

# %% [markdown] name="ends"
# The ends. Each rank enters a call when *it* is ready. But all ranks leave an all-reduce of the whole world within some microseconds of each other,
# so if the ends of the same call differ by 111 ms, then so do the clocks. Take the median over several calls. See it on live ranks, which have one clock:

# %% name="start_world"
world = World()
world


# %% name="live_ends"
def entered_and_left():
    import time

    import torch
    import torch.distributed as dist

    x = torch.ones(1)
    dist.all_reduce(x)
    x.item()
    time.sleep(0.1 * dist.get_rank())
    start = time.monotonic()
    dist.all_reduce(x)
    x.item()  # read it, so that the call has ended on a GPU too
    return start, time.monotonic()


starts, ends = zip(*world.run(entered_and_left), strict=True)
print(f"the ends are closer than the starts: {max(ends) - min(ends) < max(starts) - min(starts)}")

# %% [markdown] name="matching"
# ## Matched calls
#
# Calls **match** if they have one group and one number. These two functions are given; all stages use what they return.


# %% nbgrader={"grade_id": "given", "locked": true}
def clock_shifts(files):
    """What to add to the times of each file, by rank, so that all have the first file's clock."""
    world = max((call["ranks"] for file in files for call in file["calls"]), key=len)
    ends = {
        file["rank"]: {c["seq"]: c["end_us"] for c in file["calls"] if c["ranks"] == world and c["end_us"] is not None}
        for file in files
    }
    first = ends[files[0]["rank"]]
    return {rank: median(first[seq] - mine[seq] for seq in mine.keys() & first.keys()) for rank, mine in ends.items()}


def matched_calls(files):
    """(group, seq) -> {rank: its call}, with all times on one clock."""
    shifts, matched = clock_shifts(files), defaultdict(dict)
    for file in files:
        by = shifts[file["rank"]]
        for call in file["calls"]:
            end = None if call["end_us"] is None else call["end_us"] + by
            moved = {**call, "start_us": call["start_us"] + by, "end_us": end}
            matched[call["group"], call["seq"]][file["rank"]] = moved
    return dict(matched)


# %% [markdown] name="order"
# A fault brings the signs of others with it: a rank with too many tokens is late too, and small calls hide nothing. So the stages ask in the order of this
# notebook, and **the first cause that holds is the answer**: `(cause, rank, evidence)`, with a constant from above, the rank to blame or `NOBODY`, and a
# number. A stage returns None if none of its causes holds; then the next stage asks. Some jobs are near a limit, but no figure that
# decides is nearer to its limit than 8 % of it.
#
# ## Stage 1: does it stand still?
#
# | the cause | holds if | rank | evidence | within |
# |---|---|---|---|---|
# | `DESYNC` | some calls never ended, and of matched calls one differs from most of the others: in its operation, or (all_to_all aside) in its `in_bytes` or `out_bytes` | whose call differs | the number (`seq`) of the first such call, on one clock | exact |
# | `MISSING_RANK` | some calls never ended, and matched calls don't differ | of the calls that never ended take the one that began first, on one clock: the member of its group without a file | that call's number | exact |
#
# Two files may be absent, of which one rank was alive: its file was only lost.


# %% nbgrader={"grade_id": "stands_still", "solution": true}
def stands_still(files, matched):
    """DESYNC or MISSING_RANK with rank and evidence, or None where all calls ended."""

    ### BEGIN SOLUTION
    waiting = [c for calls in matched.values() for c in calls.values() if c["end_us"] is None]
    if not waiting:
        return None
    odd = []
    for calls in matched.values():
        kind = {
            rank: (c["op"],) if c["op"] == "all_to_all" else (c["op"], c["in_bytes"], c["out_bytes"])
            for rank, c in calls.items()
        }
        most = Counter(kind.values()).most_common(1)[0][0]
        odd += [(calls[rank]["start_us"], rank, calls[rank]["seq"]) for rank in calls if kind[rank] != most]
    if odd:
        _, rank, seq = min(odd)
        return DESYNC, rank, seq
    first = min(waiting, key=lambda call: call["start_us"])
    (gone,) = set(first["ranks"]) - {file["rank"] for file in files}
    return MISSING_RANK, gone, first["seq"]
    ### END SOLUTION


# %% [markdown] name="stage_1_check"
# Now go to *All stages* below, run the cells there, and come back: `check` names the first job that is told wrong, and its squares show which kinds are
# told right. After this stage `desync` and `missing rank` are: **2 of 8 points.**
#
# ## Stage 2: is one rank apart?
#
# A matched call is **whole** if the files of all its group's ranks have it. Its **bytes** are the largest `in_bytes` or
# `out_bytes` of any of its ranks. It **moves bytes** from the latest start to the latest end of its ranks, on one clock. The **total time** is the sum over
# all files of the time from the file's first start to its last end, of calls and compute.
#
# | the cause | holds if | rank | evidence | within |
# |---|---|---|---|---|
# | `SKEWED_ALL_TO_ALL` | over all its all_to_all calls one rank gets at least 2 times as many bytes as the mean of the files | that rank | how many times as many | 1 % |
# | `WRONG_INTERFACE` | whole calls of at least 1,000,000 bytes *without* a rank move at least 2 times as many bytes a microsecond (all bytes over all time) as those *with* it | the one with the largest ratio | bytes a microsecond of the calls with it | 10 % |
# | `STRAGGLER` | the time that others wait for the rank that starts last, summed over the whole calls in which it is the last, is at least 15 % of the total time | the one with the largest sum | that sum, in µs | 5 % |


# %% nbgrader={"grade_id": "one_rank_apart", "solution": true}
def one_rank_apart(files, matched):
    """SKEWED_ALL_TO_ALL, WRONG_INTERFACE or STRAGGLER with rank and evidence, or None."""

    ### BEGIN SOLUTION
    got = {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"] == "all_to_all") for f in files}
    mean, hot = sum(got.values()) / len(got), max(got, key=got.get)
    if mean and got[hot] / mean >= 2:
        return SKEWED_ALL_TO_ALL, hot, got[hot] / mean
    whole = whole_calls(matched)
    large = [(set(calls), n, us) for calls, n, us in whole if n >= 1_000_000]
    slowest = (0, NOBODY, 0)
    for rank in got:
        mine, others = [x for x in large if rank in x[0]], [x for x in large if rank not in x[0]]
        if mine and others:
            speed = sum(n for _, n, _ in mine) / sum(us for _, _, us in mine)
            other = sum(n for _, n, _ in others) / sum(us for _, _, us in others)
            slowest = max(slowest, (other / speed, rank, speed))
    if slowest[0] >= 2:
        return WRONG_INTERFACE, slowest[1], slowest[2]
    lost = Counter()
    for calls, _, _ in whole:
        last = max(calls, key=lambda rank: calls[rank]["start_us"])
        lost[last] += sum(calls[last]["start_us"] - c["start_us"] for c in calls.values())
    for rank, us in lost.most_common(1):
        if us >= 0.15 * total_time(files):
            return STRAGGLER, rank, us
    return None


def whole_calls(matched):
    """(calls by rank, bytes, microseconds in which they move) of each whole call."""
    found = []
    for calls in matched.values():
        if len(calls) == len(next(iter(calls.values()))["ranks"]):
            nbytes = max(max(c["in_bytes"], c["out_bytes"]) for c in calls.values())
            moving = max(c["end_us"] for c in calls.values()) - max(c["start_us"] for c in calls.values())
            found.append((calls, nbytes, moving))
    return found


def total_time(files):
    total = 0
    for file in files:
        begun = [c["start_us"] for c in file["calls"]] + [start for start, _ in file["compute"]]
        ended = [c["end_us"] for c in file["calls"]] + [end for _, end in file["compute"]]
        total += max(ended) - min(begun)
    return total
    ### END SOLUTION


# %% [markdown] name="stage_2_check"
# Write helpers as you like, in this cell or in cells of their own. After this stage `check` has three kinds more: **5 of 8 points.**
#
# ## Stage 3: are all ranks alike?
#
# | the cause | holds if | rank | evidence | within |
# |---|---|---|---|---|
# | `TINY_CALLS` | whole calls of less than 65,536 bytes move bytes in at least 20 % of the total time (each call counts once for each of its ranks) | `NOBODY` | how many such calls there are, a matched call counted once | exact |
# | `NO_OVERLAP` | less than 10 % of the time in calls lies inside of compute, and the rest is at least 20 % of the total time (union of intervals, in each file, added) | `NOBODY` | that rest, in µs | 1 % |
# | `HEALTHY` | nothing above does | `NOBODY` | 0 | exact |
#
# A healthy job has small calls too, a rank that is often last by a little, one that is very late once, or a lost file.


# %% nbgrader={"grade_id": "all_ranks_alike", "solution": true}
def all_ranks_alike(files, matched):
    """TINY_CALLS, NO_OVERLAP or HEALTHY with NOBODY and the evidence."""

    ### BEGIN SOLUTION
    total = total_time(files)
    small = [(calls, us) for calls, n, us in whole_calls(matched) if n < 64 << 10]
    if sum(len(calls) * us for calls, us in small) >= 0.2 * total:
        return TINY_CALLS, NOBODY, len(small)
    exposed = talk = 0
    for file in files:
        comm = union((c["start_us"], c["end_us"]) for c in file["calls"])
        work = union(map(tuple, file["compute"]))
        exposed += length(union([*map(tuple, comm), *map(tuple, work)])) - length(work)
        talk += length(comm)
    if talk - exposed < 0.1 * talk and exposed >= 0.2 * total:
        return NO_OVERLAP, NOBODY, exposed
    return HEALTHY, NOBODY, 0


def union(intervals):
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


def length(intervals):
    return sum(end - start for start, end in intervals)
    ### END SOLUTION


# %% [markdown] name="task"
# ## All stages
#
# The diagnosis asks the stages in order. It is given, and it is what is marked.


# %% nbgrader={"grade_id": "diagnose_job", "locked": true}
def diagnose_job(job: dict) -> tuple[int, int, float]:
    """Returns (cause, rank, evidence) of a job from the traces of its ranks."""
    files = job["files"]
    matched = matched_calls(files)
    for stage in (stands_still, one_rank_apart, all_ranks_alike):
        told = stage(files, matched)
        if told is not None:
            return told
    return HEALTHY, NOBODY, 0


# %% name="check_diagnose_job"
check(diagnose_job)

# %% [markdown] name="try_recorded"
# The eight recorded jobs, with what you say and what was planted:

# %% name="on_recorded"
for name in RECORDED:
    job = recorded(name)
    cause, rank, evidence = diagnose_job(job)
    right = "right" if job.accepts(cause, rank, evidence) else "wrong"
    print(f"{name:18} cause {cause}, rank {rank:2}, evidence {float(evidence):12.1f}: {right}")

# %% [markdown] name="question"
# ## In words
#
# A colleague profiles rank 0 only, sees that its all-reduces take 40 % of each step, and asks for a faster network. Which two other causes would show the
# same on rank 0, and what would tell the three apart? Two to four sentences.

# %% [markdown] nbgrader={"grade_id": "one_rank", "grade": true, "solution": true, "points": 2}
# A straggler elsewhere: rank 0 waits inside of its calls. It shows in the others' files, on one clock: one rank enters late and its own calls are short,
# while from its entry on the bytes move fast. Or many tiny calls, or no overlap: the sizes, the number of calls and the compute beside them are in rank 0's own
# file; a bucket or an asynchronous call helps then. Only if all ranks enter together and large calls still move few bytes a microsecond is it the
# network. (1 point for two causes that look alike on one rank, 1 for a measurement that tells them apart.)

# %% [markdown] name="marking"
# ## Marking
#
# This cell gives the points: the exercise's points times the score that `check` gives. You can run it too.

# %% nbgrader={"grade_id": "diagnose_job-graded", "grade": true, "locked": true, "points": 8} allranks={"exercise": "diagnose_job"}
round(8 * check(diagnose_job).score, 2)

# %% [markdown] name="recap"
# One rank's file shows where *it* waits, never for whom. **Match the calls by group and number, bring the clocks together, ask who came last, and ask the
# causes before their consequences.** A missing file is a clue, not a proof. For the files of your own job, `allranks explain` asks the same questions.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
