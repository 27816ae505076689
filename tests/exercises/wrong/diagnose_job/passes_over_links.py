"""Asks no link, so that what a slow link brings about is taken for the cause.

Must get: the cause is WRONG_INTERFACE, which holds if whole calls of at least 1,000,000 bytes
"""

from collections import Counter, defaultdict
from statistics import median

STRAGGLER, DESYNC, MISSING_RANK, TINY_CALLS, NO_OVERLAP, WRONG_INTERFACE, SKEWED_ALL_TO_ALL, HEALTHY = range(1, 9)
NOBODY = -1


def union(intervals):
    out = []
    for a, b in sorted(intervals):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


def length(u):
    return sum(b - a for a, b in u)


def overlap(u, v):
    i = j = 0
    t = 0
    while i < len(u) and j < len(v):
        a, b = max(u[i][0], v[j][0]), min(u[i][1], v[j][1])
        if a < b:
            t += b - a
        if u[i][1] < v[j][1]:
            i += 1
        else:
            j += 1
    return t


def clocks(job):
    files = job["files"]
    host = {f["rank"]: f["host"] for f in files}
    ends = defaultdict(dict)
    for f in files:
        for c in f["calls"]:
            if c["op"] == "all_reduce" and c["end_us"] is not None and len(c["ranks"]) == job["world_size"]:
                ends[c["group"], c["seq"]][f["rank"]] = c["end_us"]
    offset = {files[0]["host"]: 0.0} if files else {}
    todo = set(host.values()) - set(offset)
    while todo:
        found = None
        for h in sorted(todo):
            d = []
            for e in ends.values():
                mine = [t for r, t in e.items() if host[r] == h]
                known = [t - offset[host[r]] for r, t in e.items() if host[r] in offset]
                if mine and known:
                    d.append(median(mine) - median(known))
            if d:
                offset[h] = median(d)
                found = h
                break
        if found is None:
            for h in todo:
                offset[h] = 0.0
            break
        todo.discard(found)
    return offset


def diagnose_job(job):
    files = job["files"]
    off = clocks(job)
    have = {f["rank"] for f in files}
    match = defaultdict(dict)
    for f in files:
        o = off[f["host"]]
        for c in f["calls"]:
            d = dict(c, start=c["start_us"] - o, end=None if c["end_us"] is None else c["end_us"] - o)
            match[c["group"], c["seq"]][f["rank"]] = d
    stuck = [
        (min(c["start"] for c in m.values()), k) for k, m in match.items() if any(c["end"] is None for c in m.values())
    ]
    if stuck:
        odd = []
        for k, m in match.items():
            if len(m) < 2:
                continue
            for key in ("op", "bytes"):

                def val(c, key=key):
                    return c["op"] if key == "op" else (c["in_bytes"], c["out_bytes"])

                if key == "bytes" and any("all_to_all" in c["op"] for c in m.values()):
                    continue
                cnt = Counter(val(c) for c in m.values())
                if len(cnt) > 1:
                    top = cnt.most_common(1)[0][0]
                    who = [r for r, c in m.items() if val(c) != top]
                    odd.append((min(c["start"] for c in m.values()), k, who[0]))
                    break
        if odd:
            _, k, who = min(odd)
            return DESYNC, who, k[1]
        _, k = min(stuck)
        ranks = next(iter(match[k].values()))["ranks"]
        gone = [r for r in ranks if r not in have]
        return MISSING_RANK, (gone[0] if gone else NOBODY), k[1]
    # skew
    got = {f["rank"]: sum(c["out_bytes"] for c in f["calls"] if c["op"].startswith("all_to_all")) for f in files}
    mean = sum(got.values()) / len(got)
    if mean:
        r = max(got, key=got.get)
        if got[r] >= 2 * mean:
            return SKEWED_ALL_TO_ALL, r, got[r] / mean
    whole = [m for m in match.values() if set(m) == set(next(iter(m.values()))["ranks"])]

    def nbytes(m):
        return max(max(c["in_bytes"], c["out_bytes"]) for c in m.values())

    def took(m):
        return max(c["end"] for c in m.values()) - max(c["start"] for c in m.values())

    big = [m for m in whole if nbytes(m) >= 1_000_000]
    best = None
    for r in have:
        w = [m for m in big if r in m]
        o = [m for m in big if r not in m]
        if w and o:
            bw = sum(map(nbytes, w)) / sum(map(took, w))
            bo = sum(map(nbytes, o)) / sum(map(took, o))
            if bo / bw >= 2 and (best is None or bo / bw > best[0]):
                best = bo / bw, r, bw
    if False:
        return WRONG_INTERFACE, best[1], best[2]
    total = 0
    rest = inside = calls_t = 0
    for f in files:
        iv = [(c["start_us"], c["end_us"]) for c in f["calls"]]
        cv = [tuple(x) for x in f["compute"]]
        if not iv + cv:
            continue
        total += max(b for _, b in iv + cv) - min(a for a, _ in iv + cv)
        ui, uc = union(iv), union(cv)
        calls_t += length(ui)
        inside += overlap(ui, uc)
    rest = calls_t - inside
    wait = Counter()
    for m in whole:
        r = max(m, key=lambda r: m[r]["start"])
        wait[r] += sum(m[r]["start"] - c["start"] for c in m.values())
    if wait:
        r = max(wait, key=wait.get)
        if wait[r] >= 0.15 * total:
            return STRAGGLER, r, wait[r]
    tiny = [m for m in whole if nbytes(m) < 65536]
    if sum(took(m) * len(m) for m in tiny) >= 0.2 * total:
        return TINY_CALLS, NOBODY, len(tiny)
    if inside < 0.1 * calls_t and rest >= 0.2 * total:
        return NO_OVERLAP, NOBODY, rest
    return HEALTHY, NOBODY, 0
