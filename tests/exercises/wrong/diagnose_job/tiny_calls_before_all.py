"""Asks for small calls before everything else but the hang.

Must get: ask them in the list's order
"""

from collections import Counter, defaultdict
from statistics import median

STRAGGLER, DESYNC, MISSING_RANK, TINY_CALLS, NO_OVERLAP, WRONG_INTERFACE, SKEWED_ALL_TO_ALL, HEALTHY = range(1, 9)
NOBODY = -1


def offsets(job):
    files = job["files"]
    ends = []
    for f in files:
        ends.append(
            {
                (c["group"], c["seq"]): c["end_us"]
                for c in f["calls"]
                if len(c["ranks"]) == job["world_size"] and c["op"] == "all_reduce" and c["end_us"] is not None
            }
        )
    by_host = defaultdict(list)
    for f, e in zip(files, ends, strict=False):
        common = [e[k] - ends[0][k] for k in e if k in ends[0]]
        if common:
            by_host[f["host"]].append(median(common))
    return {h: median(v) for h, v in by_host.items()}


def union(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


def diagnose_job(job):
    shift = offsets(job)
    calls = defaultdict(dict)
    have = {f["rank"] for f in job["files"]}
    total = 0.0
    hung = []
    for f in job["files"]:
        o = shift.get(f["host"], 0)
        times = [t for a, b in f["compute"] for t in (a, b)]
        for c in f["calls"]:
            d = dict(c, start=c["start_us"] - o, end=None if c["end_us"] is None else c["end_us"] - o)
            calls[c["group"], c["seq"]][f["rank"]] = d
            times += [t for t in (c["start_us"], c["end_us"]) if t is not None]
            if c["end_us"] is None:
                hung.append(d)
        if times:
            total += max(times) - min(times)
    if hung:
        odd = []
        for (_g, seq), by in calls.items():
            sig = {
                r: (c["op"],) if c["op"].startswith("all_to_all") else (c["op"], c["in_bytes"], c["out_bytes"])
                for r, c in by.items()
            }
            ((top, _),) = Counter(sig.values()).most_common(1)
            bad = [r for r in sig if sig[r] != top]
            if bad:
                odd.append((min(c["start"] for c in by.values()), seq, bad[0]))
        if odd:
            _, seq, r = min(odd)
            return DESYNC, r, seq
        first = min(hung, key=lambda c: c["start"])
        gone = [r for r in first["ranks"] if r not in have]
        return MISSING_RANK, gone[0], first["seq"]
    whole = []
    for by in calls.values():
        any_call = next(iter(by.values()))
        if set(by) == set(any_call["ranks"]):
            size = max(max(c["in_bytes"], c["out_bytes"]) for c in by.values())
            moves = max(c["end"] for c in by.values()) - max(c["start"] for c in by.values())
            whole.append((by, size, moves))
    tiny = [(len(by), moves) for by, size, moves in whole if size < 65536]
    if sum(k * m for k, m in tiny) >= 0.2 * total:
        return TINY_CALLS, NOBODY, len(tiny)
    got = {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"].startswith("all_to_all")) for f in job["files"]}
    mean = sum(got.values()) / len(got)
    if mean:
        r = max(got, key=got.get)
        if got[r] >= 2 * mean:
            return SKEWED_ALL_TO_ALL, r, got[r] / mean
    best = None
    for r in have:
        yes, no = [0, 0], [0, 0]
        for by, size, moves in whole:
            if size >= 1_000_000:
                x = yes if r in by else no
                x[0] += size
                x[1] += moves
        if yes[1] > 0 and no[1] > 0:
            ratio = (no[0] / no[1]) / (yes[0] / yes[1])
            if ratio >= 2 and (best is None or ratio > best[0]):
                best = ratio, r, yes[0] / yes[1]
    if best:
        return WRONG_INTERFACE, best[1], best[2]
    late = Counter()
    for by, _, _ in whole:
        last = max(by, key=lambda q: by[q]["start"])
        late[last] += sum(by[last]["start"] - c["start"] for c in by.values())
    if late:
        r, us = late.most_common(1)[0]
        if us >= 0.15 * total:
            return STRAGGLER, r, us
    inside = all_time = 0.0
    for f in job["files"]:
        cs = union([(c["start_us"], c["end_us"]) for c in f["calls"]])
        ws = union([tuple(x) for x in f["compute"]])
        all_time += sum(b - a for a, b in cs)
        inside += sum(max(0, min(b, d) - max(a, c)) for a, b in cs for c, d in ws)
    if inside < 0.1 * all_time and all_time - inside >= 0.2 * total:
        return NO_OVERLAP, NOBODY, all_time - inside
    return HEALTHY, NOBODY, 0
