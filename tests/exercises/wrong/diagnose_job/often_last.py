"""Blames the rank that is last most often.

Must get: the rank that is last most often may cost next to nothing
"""

from collections import Counter, defaultdict
from statistics import median

STRAGGLER, DESYNC, MISSING_RANK, TINY_CALLS, NO_OVERLAP, WRONG_INTERFACE, SKEWED_ALL_TO_ALL, HEALTHY = range(1, 9)
NOBODY = -1


def clocks(job):
    """How far each file's clock is ahead, from the ends of the all-reduces of the whole world."""
    ends = defaultdict(dict)
    for file in job["files"]:
        for call in file["calls"]:
            if call["op"] == "all_reduce" and len(call["ranks"]) == job["world_size"] and call["end_us"] is not None:
                ends[call["group"], call["seq"]][file["host"]] = call["end_us"]
    hosts = sorted({file["host"] for file in job["files"]})
    ahead = {hosts[0]: 0.0}
    for host in hosts[1:]:
        apart = [at[host] - at[hosts[0]] for at in ends.values() if host in at and hosts[0] in at]
        ahead[host] = median(apart) if apart else 0.0
    return ahead


def matched(job):
    ahead = clocks(job)
    found = defaultdict(dict)
    for file in job["files"]:
        shift = ahead[file["host"]]
        for call in file["calls"]:
            end = None if call["end_us"] is None else call["end_us"] - shift
            found[call["group"], call["seq"]][file["rank"]] = {
                **call,
                "start_us": call["start_us"] - shift,
                "end_us": end,
            }
    return found


def size(call):
    return max(call["in_bytes"], call["out_bytes"])


def union(spans):
    joined = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    return joined


def odd_one(calls):
    def kind(call):
        return (call["op"], None if call["op"] == "all_to_all" else size(call))

    kinds = {rank: kind(call) for rank, call in calls.items()}
    usual, _ = Counter(kinds.values()).most_common(1)[0]
    return [rank for rank, what in kinds.items() if what != usual]


def stuck(job, found):
    begun = sorted((seq for seq in found), key=lambda key: min(c["start_us"] for c in found[key].values()))
    for key in begun:
        odd = odd_one(found[key])
        if odd:
            return DESYNC, odd[0], key[1]
    have = {file["rank"] for file in job["files"]}
    for key in begun:
        calls = found[key].values()
        if any(c["end_us"] is None for c in calls):
            gone = [r for r in next(iter(calls))["ranks"] if r not in have]
            return MISSING_RANK, gone[0], key[1]
    raise ValueError("nobody is missing")


def diagnose_job(job):
    found = matched(job)
    if any(c["end_us"] is None for calls in found.values() for c in calls.values()):
        return stuck(job, found)
    gets = {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"] == "all_to_all") for f in job["files"]}
    mean = sum(gets.values()) / len(gets)
    most = max(gets, key=gets.get)
    if mean and gets[most] >= 2 * mean:
        return SKEWED_ALL_TO_ALL, most, gets[most] / mean
    whole = []
    for calls in found.values():
        if set(calls) == set(next(iter(calls.values()))["ranks"]):
            last = max(calls, key=lambda r: calls[r]["start_us"])
            begin = calls[last]["start_us"]
            whole.append(
                {
                    "ranks": set(calls),
                    "bytes": max(map(size, calls.values())),
                    "moves": max(c["end_us"] for c in calls.values()) - begin,
                    "last": last,
                    "waits": sum(begin - c["start_us"] for c in calls.values()),
                }
            )
    large = [c for c in whole if c["bytes"] >= 1_000_000]
    ratios = {}
    for rank in gets:
        with_it = [c for c in large if rank in c["ranks"]]
        without = [c for c in large if rank not in c["ranks"]]
        if with_it and without:
            speed = sum(c["bytes"] for c in with_it) / sum(c["moves"] for c in with_it)
            other = sum(c["bytes"] for c in without) / sum(c["moves"] for c in without)
            ratios[rank] = (other / speed, speed)
    if ratios:
        worst = max(ratios, key=ratios.get)
        if ratios[worst][0] >= 2:
            return WRONG_INTERFACE, worst, ratios[worst][1]
    total = 0.0
    for file in job["files"]:
        spans = [*file["compute"], *((c["start_us"], c["end_us"]) for c in file["calls"])]
        total += max(e for _, e in spans) - min(s for s, _ in spans)
    waits = Counter()
    often = Counter()
    for call in whole:
        waits[call["last"]] += call["waits"]
        often[call["last"]] += 1
    late = often.most_common(1)[0][0]
    sum_us = waits[late]
    if sum_us >= 0.15 * total:
        return STRAGGLER, late, sum_us
    small = [c for c in whole if c["bytes"] < 65_536]
    if sum(c["moves"] * len(c["ranks"]) for c in small) >= 0.2 * total:
        return TINY_CALLS, NOBODY, len(small)
    inside = exposed = 0.0
    for file in job["files"]:
        calls = union((c["start_us"], c["end_us"]) for c in file["calls"])
        work = union(file["compute"])
        both = sum(max(0, min(b, d) - max(a, c)) for a, b in calls for c, d in work)
        inside += both
        exposed += sum(b - a for a, b in calls) - both
    if inside < 0.1 * (inside + exposed) and exposed >= 0.2 * total:
        return NO_OVERLAP, NOBODY, exposed
    return HEALTHY, NOBODY, 0
