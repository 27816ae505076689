# %% [markdown] name="title"
# # Lab 11: your own job
#
# **A job is slow, or it stands still. All you have is what each rank's profiler wrote. Which rank is to blame, what is the cause, and what shows it?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `diagnose_job` | hard | 90 | 8 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok; no GPU is used. The chapter *Your own job* reads such files by hand; in this notebook you write the reader's rules as code.

# %% [markdown] name="rules"
# **How it is marked.** Your function gets jobs with other groups, other sizes, other clocks, and another rank to blame. `check` gives it the same jobs
# each time. The grading draws other jobs, for each answer anew, so an answer that you know by heart earns nothing there. Cause, rank and evidence
# must all be right. Your function sends no messages; each rank is given a job of its own.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
from collections import Counter, defaultdict
from statistics import median

from allranks import World, check
from allranks.profiles import RECORDED, recorded

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
# `diagnose_job(job)` is given plain data, as a profiler's files hold it:
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
# Calls of one rank may overlap, and two groups may have the same members: their names differ.
#
# Times are microseconds **on the clock of the file's host**: the clocks of two hosts may be a tenth of a second apart. Files don't begin at the same call.
#
# Eight jobs were recorded for you, on six live ranks: seven with a fault planted in them, and a healthy one. This is the one with a straggler:

# %% name="a_recorded_job"
job = recorded("straggler")
print(f"{job['world_size']} ranks, {len(job['files'])} files")
for file in job["files"]:
    print(f"rank {file['rank']} on {file['host']}: {len(file['calls'])} calls; the last one is {file['calls'][-1]}")

# %% [markdown] name="longest"
# ## Who is the straggler?
#
# **Predict:** look at the time that each rank spends in collectives. Is the straggler the rank with the most, or with the least?

# %% name="prediction"
prediction = "the most"

# %% name="time_in_calls"
for file in job["files"]:
    in_calls = sum(call["end_us"] - call["start_us"] for call in file["calls"])
    print(f"rank {file['rank']}: {in_calls / 1e3:6.0f} ms in collectives")
print(f"the rank that was made slow: {job.answer.blamed}")

# %% [markdown] name="shortest"
# A collective begins when a rank enters it, and nobody leaves an all-reduce before the last rank has come. So the others *wait inside the call*, and the
# straggler's own calls are the shortest. What counts is when a rank **enters** a call, compared with the others: for this you need one clock.
#
# **One clock.** All ranks leave an all-reduce of the whole world within some microseconds of each other. If the ends of the same call differ by
# 111 ms, then so do the clocks. Take the median over several calls.

# %% name="ends"
first, last = job["files"][0], job["files"][-1]
ends = {call["seq"]: call["end_us"] for call in first["calls"] if len(call["ranks"]) == job["world_size"]}
apart = [call["end_us"] - ends[call["seq"]] for call in last["calls"] if len(call["ranks"]) == job["world_size"]]
print(f"ends of the same calls, {last['host']} minus {first['host']}, in us:", [round(us) for us in apart])

# %% [markdown] name="a_live_job"
# ## The same on live ranks
#
# Each rank waits a little and joins an all-reduce; rank 1 waits longer. Which rank has the shortest call?

# %% name="start_world"
world = World()
world


# %% name="live_straggler"
def entered_and_left():
    import time

    import torch
    import torch.distributed as dist

    dist.barrier()
    time.sleep(0.2 if dist.get_rank() == 1 else 0.05)
    x = torch.ones(1)
    start = time.perf_counter()
    dist.all_reduce(x)
    value = x.item()  # read it, so that the call has ended on a GPU too
    return round(1e3 * (time.perf_counter() - start)), value


took = [ms for ms, _ in world.run(entered_and_left)]
print(f"the shortest call is rank {took.index(min(took))}'s; all of them, in ms: {took}")

# %% [markdown] name="contract"
# ## The contract
#
# Your function returns `(cause, rank, evidence)`: one of the causes above, the rank to blame or `NOBODY`, and a number. Calls **match** if they have one
# group and one number. A matched call is **whole** if the files of all its group's ranks have it. Its **bytes** are the largest `in_bytes` or
# `out_bytes` of any of its ranks. It **moves bytes** from the latest start to the latest end of its ranks, on one clock. The **total time** is the sum over
# all files of the time from the file's first start to its last end, of calls and compute.
#
# A fault brings the signs of others with it: a rank with too many tokens is late too, and small calls hide nothing. So ask in this order, and
# **the first that holds is the cause** (return its constant from the top of this notebook, not its row):
#
# | the cause | holds if | rank | evidence | within |
# |---|---|---|---|---|
# | `DESYNC` | some calls never ended, and of matched calls one differs from most of the others: in its operation, or (all_to_all aside) in its `in_bytes` or `out_bytes` | whose call differs | the number (`seq`) of the first such call, on one clock | exact |
# | `MISSING_RANK` | some calls never ended, and matched calls don't differ | the member without a file of the group whose call began first, on one clock, of those that never ended | that call's number | exact |
# | `SKEWED_ALL_TO_ALL` | over all its all_to_all calls one rank gets at least 2 times as many bytes as the mean of the files | that rank | how many times as many | 1 % |
# | `WRONG_INTERFACE` | whole calls of at least 1,000,000 bytes *without* a rank move at least 2 times as many bytes a microsecond (all bytes over all time) as those *with* it | the one with the largest ratio | bytes a microsecond of the calls with it | 10 % |
# | `STRAGGLER` | the time that others wait for the rank that starts last, summed over the whole calls in which it is the last, is at least 15 % of the total time | the one with the largest sum | that sum, in µs | 5 % |
# | `TINY_CALLS` | whole calls of less than 65,536 bytes move bytes in at least 20 % of the total time (each call counts once for each of its ranks) | `NOBODY` | how many such calls there are, a matched call counted once | exact |
# | `NO_OVERLAP` | less than 10 % of the time in calls lies inside of compute, and the rest is at least 20 % of the total time (union of intervals, in each file, added) | `NOBODY` | that rest, in µs | 1 % |
# | `HEALTHY` | nothing above does | `NOBODY` | 0 | exact |
#
# Some jobs are near a limit, but no figure that decides is nearer to its limit than 8 % of it. A healthy job has small calls too, a rank that is often last by a little, one that is very late once, or a lost file. And in
# a job that stands still, two files may be absent, of which one rank was alive.

# %% [markdown] name="task"
# ## Your diagnosis
#
# Write helpers as you like, in cells of their own or inside of the function. A plan that works: bring all files to one clock; match the calls; ask the causes in order.


# %% nbgrader={"grade_id": "diagnose_job", "solution": true}
def diagnose_job(job: dict) -> tuple[int, int, float]:
    """Returns (cause, rank, evidence) of a job from the traces of its ranks."""

    ### BEGIN SOLUTION
    def shifts_of(files):
        """What to add to the times of each file so that all have the first file's clock."""
        world = max((call["ranks"] for file in files for call in file["calls"]), key=len)
        ends = {
            file["rank"]: {
                c["seq"]: c["end_us"] for c in file["calls"] if c["ranks"] == world and c["end_us"] is not None
            }
            for file in files
        }
        first = ends[files[0]["rank"]]
        return {
            rank: median(first[seq] - mine[seq] for seq in mine.keys() & first.keys()) for rank, mine in ends.items()
        }

    def matched_calls(files, shifts):
        """(group, seq) -> {rank: call}, on one clock."""
        matched = defaultdict(dict)
        for file in files:
            by = shifts[file["rank"]]
            for call in file["calls"]:
                end = None if call["end_us"] is None else call["end_us"] + by
                matched[call["group"], call["seq"]][file["rank"]] = {
                    **call,
                    "start_us": call["start_us"] + by,
                    "end_us": end,
                }
        return matched

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

    def hang(files, matched):
        odd = []
        for calls in matched.values():
            kind = {
                rank: (c["op"],) if c["op"] == "all_to_all" else (c["op"], c["in_bytes"], c["out_bytes"])
                for rank, c in calls.items()
            }
            usual = Counter(kind.values()).most_common(1)[0][0]
            odd += [(calls[rank]["start_us"], rank, calls[rank]["seq"]) for rank in calls if kind[rank] != usual]
        if odd:
            _, rank, seq = min(odd)
            return DESYNC, rank, seq
        written = {file["rank"] for file in files}
        waiting = [c for calls in matched.values() for c in calls.values() if c["end_us"] is None]
        first = min(waiting, key=lambda call: call["start_us"])
        (gone,) = set(first["ranks"]) - written
        return MISSING_RANK, gone, first["seq"]

    def skew(files):
        got = {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"] == "all_to_all") for f in files}
        mean = sum(got.values()) / len(got)
        if not mean:
            return 0, NOBODY
        hot = max(got, key=got.get)
        return got[hot] / mean, hot

    files = job["files"]
    matched = matched_calls(files, shifts_of(files))
    if any(call["end_us"] is None for file in files for call in file["calls"]):
        return hang(files, matched)
    ratio, hot = skew(files)
    if ratio >= 2:
        return SKEWED_ALL_TO_ALL, hot, ratio
    whole = []
    for calls in matched.values():
        if len(calls) == len(next(iter(calls.values()))["ranks"]):
            nbytes = max(max(c["in_bytes"], c["out_bytes"]) for c in calls.values())
            last = max(c["start_us"] for c in calls.values())
            moving = max(c["end_us"] for c in calls.values()) - last
            whole.append((calls, nbytes, moving))
    large = [(set(calls), n, us) for calls, n, us in whole if n >= 1_000_000]
    slowest = (0, NOBODY, 0)
    for file in files:
        rank = file["rank"]
        mine, others = [x for x in large if rank in x[0]], [x for x in large if rank not in x[0]]
        if mine and others:
            speed = sum(n for _, n, _ in mine) / sum(us for _, _, us in mine)
            other = sum(n for _, n, _ in others) / sum(us for _, _, us in others)
            slowest = max(slowest, (other / speed, rank, speed))
    if slowest[0] >= 2:
        return WRONG_INTERFACE, slowest[1], slowest[2]
    spans = {}
    for file in files:
        begun = [c["start_us"] for c in file["calls"]] + [start for start, _ in file["compute"]]
        ended = [c["end_us"] for c in file["calls"]] + [end for _, end in file["compute"]]
        spans[file["rank"]] = max(ended) - min(begun)
    total = sum(spans.values())
    lost = Counter()
    for calls, _, _ in whole:
        last = max(calls, key=lambda rank: calls[rank]["start_us"])
        lost[last] += sum(calls[last]["start_us"] - c["start_us"] for c in calls.values())
    for rank, us in lost.most_common(1):
        if us >= 0.15 * total:
            return STRAGGLER, rank, us
    small = [(calls, us) for calls, n, us in whole if n < 64 << 10]
    if sum(len(calls) * us for calls, us in small) >= 0.2 * total:
        return TINY_CALLS, NOBODY, len(small)
    exposed = talk = 0
    for file in files:
        comm = union((c["start_us"], c["end_us"]) for c in file["calls"])
        work = union(map(tuple, file["compute"]))
        both = length(union([*map(tuple, comm), *map(tuple, work)]))
        exposed += both - length(work)
        talk += length(comm)
    if talk - exposed < 0.1 * talk and exposed >= 0.2 * total:
        return NO_OVERLAP, NOBODY, exposed
    return HEALTHY, NOBODY, 0
    ### END SOLUTION


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

# %% name="stop_world"
world.stop()
