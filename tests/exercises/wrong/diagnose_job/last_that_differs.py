"""Takes the last call that differs.

Must get: several calls differ: the first of them tells
"""

from collections import Counter, defaultdict
from statistics import median

STRAGGLER, DESYNC, MISSING_RANK, TINY_CALLS, NO_OVERLAP, WRONG_INTERFACE, SKEWED_ALL_TO_ALL, HEALTHY = range(1, 9)
NOBODY = -1


def shifts_of(files):
    """What to add to the times of each file so that all have the first file's clock."""
    world = max((call["ranks"] for file in files for call in file["calls"]), key=len)
    ends = {
        file["rank"]: {c["seq"]: c["end_us"] for c in file["calls"] if c["ranks"] == world and c["end_us"] is not None}
        for file in files
    }
    first = ends[files[0]["rank"]]
    return {rank: median(first[seq] - mine[seq] for seq in mine.keys() & first.keys()) for rank, mine in ends.items()}


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
        _, rank, seq = max(odd)
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


def diagnose_job(job):
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
