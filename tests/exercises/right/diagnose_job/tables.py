from itertools import groupby


def diagnose_job(job):
    files = {file["rank"]: file for file in job["files"]}
    everybody = list(range(job["world_size"]))
    # the clock of each file against that of the lowest rank: the mean over all calls of the whole world that both ended
    lowest = min(files)
    clock = {}
    for rank, file in files.items():
        gaps = []
        for mine in file["calls"]:
            for theirs in files[lowest]["calls"]:
                same = mine["group"] == theirs["group"] and mine["seq"] == theirs["seq"]
                if same and mine["ranks"] == everybody and mine["end_us"] and theirs["end_us"]:
                    gaps.append(mine["end_us"] - theirs["end_us"])
        gaps.sort()
        clock[rank] = gaps[len(gaps) // 2]
    rows = []
    for rank, file in files.items():
        for c in file["calls"]:
            end = None if c["end_us"] is None else c["end_us"] - clock[rank]
            rows.append((c["group"], c["seq"], c["start_us"] - clock[rank], end, rank, c))
    rows.sort(key=lambda row: (row[0], row[1], row[2]))
    calls = [list(several) for _, several in groupby(rows, key=lambda row: row[:2])]

    never = [row for row in rows if row[3] is None]
    if never:
        for several in sorted(calls, key=lambda several: several[0][2]):
            for row in several:
                alike = sum(_same(row[5], other[5]) for other in several)
                if alike < len(several) - alike:
                    return 2, row[4], row[1]
        first = min(never, key=lambda row: row[2])
        return 3, next(r for r in first[5]["ranks"] if r not in files), first[1]

    tokens = {
        rank: sum(c["out_bytes"] for c in file["calls"] if c["op"] == "all_to_all") for rank, file in files.items()
    }
    if sum(tokens.values()):
        ratio = max(tokens.values()) * len(tokens) / sum(tokens.values())
        if ratio >= 2:
            return 7, max(tokens, key=lambda rank: tokens[rank]), ratio

    whole = [several for several in calls if len(several) == len(several[0][5]["ranks"])]
    best = None
    for rank in files:
        with_rank, without = [0, 0.0], [0, 0.0]
        for several in whole:
            n = _nbytes(several)
            if n >= 1e6:
                tally = with_rank if rank in several[0][5]["ranks"] else without
                tally[0] += n
                tally[1] += _moving(several)
        if with_rank[0] and without[0]:
            speed = with_rank[0] / with_rank[1]
            ratio = without[0] / without[1] / speed
            if best is None or ratio > best[0]:
                best = ratio, rank, speed
    if best and best[0] >= 2:
        return 6, best[1], best[2]

    total = 0.0
    for file in files.values():
        times = [t for c in file["calls"] for t in (c["start_us"], c["end_us"])]
        times += [t for pair in file["compute"] for t in pair]
        total += max(times) - min(times)
    cost = dict.fromkeys(files, 0.0)
    for several in whole:
        last = several[-1]  # they are in order of their starts
        cost[last[4]] += sum(last[2] - row[2] for row in several)
    worst = max(cost, key=lambda rank: cost[rank])
    if cost[worst] / total >= 0.15:
        return 1, worst, cost[worst]

    small = [several for several in whole if _nbytes(several) < 65536]
    if sum(len(several) * _moving(several) for several in small) / total >= 0.2:
        return 4, -1, len(small)

    alone = both = 0.0
    for file in files.values():
        more = _sweep(file)
        alone, both = alone + more[0], both + more[1]
    if both < 0.1 * (alone + both) and alone / total >= 0.2:
        return 5, -1, alone
    return 8, -1, 0


def _same(a, b):
    return a["op"] == b["op"] and (
        a["op"] == "all_to_all" or (a["in_bytes"], a["out_bytes"]) == (b["in_bytes"], b["out_bytes"])
    )


def _nbytes(several):
    return max(row[5][name] for row in several for name in ("in_bytes", "out_bytes"))


def _moving(several):
    return max(row[3] for row in several) - max(row[2] for row in several)


def _sweep(file):
    """Microseconds in which there is communication alone, and communication and compute at once."""
    edges = [(c["start_us"], 0, 1) for c in file["calls"]] + [(c["end_us"], 0, -1) for c in file["calls"]]
    edges += [(start, 1, 1) for start, _ in file["compute"]] + [(end, 1, -1) for _, end in file["compute"]]
    edges.sort()
    open_, found, before = [0, 0], [0.0, 0.0], edges[0][0]
    for at, kind, change in edges:
        if open_[0]:
            found[1 if open_[1] else 0] += at - before
        open_[kind] += change
        before = at
    return found
