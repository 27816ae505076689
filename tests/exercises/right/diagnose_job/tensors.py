import torch

SMALL, LARGE = 1 << 16, 10**6


class Reading:
    """A job on one clock: its calls as tensors of starts and ends, a row a call, a column a rank."""

    def __init__(self, job):
        self.p, self.files = job["world_size"], job["files"]
        self.written = [file["rank"] for file in self.files]
        keys = sorted({(c["group"], c["seq"]) for file in self.files for c in file["calls"]})
        place = {key: i for i, key in enumerate(keys)}
        self.start = torch.full((len(keys), self.p), float("nan"), dtype=torch.float64)
        self.end, self.nbytes = self.start.clone(), torch.zeros(len(keys), self.p, dtype=torch.float64)
        self.calls = [{} for _ in keys]
        self.seq = [seq for _, seq in keys]
        for file in self.files:
            for c in file["calls"]:
                i, r = place[c["group"], c["seq"]], file["rank"]
                self.start[i, r] = c["start_us"]
                self.end[i, r] = float("nan") if c["end_us"] is None else c["end_us"]
                self.nbytes[i, r] = max(c["in_bytes"], c["out_bytes"])
                self.calls[i][r] = c
        self.team = torch.zeros(len(keys), self.p, dtype=torch.bool)
        for i, calls in enumerate(self.calls):
            self.team[i, next(iter(calls.values()))["ranks"]] = True
        world = self.team.all(1)
        first = self.end[world][:, self.written[0], None]
        shift = torch.nanmedian(self.end[world] - first, 0).values
        self.start, self.end = self.start - shift, self.end - shift

    def whole(self):
        return ((self.team == ~self.start.isnan()) & (self.team == ~self.end.isnan())).all(1)


def hung(reading):
    found = []
    for i, calls in enumerate(reading.calls):
        signs = {
            r: c["op"] + ("" if c["op"] == "all_to_all" else f" {c['in_bytes']} {c['out_bytes']}")
            for r, c in calls.items()
        }
        for r, sign in signs.items():
            if 2 * list(signs.values()).count(sign) < len(signs):
                found.append((reading.start[i, r].item(), r, reading.seq[i]))
    if found:
        return 2, min(found)[1], min(found)[2]
    open_ = ~reading.start.isnan() & reading.end.isnan()
    starts = torch.where(open_, reading.start, torch.inf).amin(1)
    i = int(starts.argmin())
    absent = [r for r in range(reading.p) if reading.team[i, r] and r not in reading.written]
    return 3, absent[0], reading.seq[i]


def length(intervals):
    """The length of a union."""
    total, reach = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


def diagnose_job(job):
    reading = Reading(job)
    if any(c["end_us"] is None for file in reading.files for c in file["calls"]):
        return hung(reading)
    load = torch.zeros(reading.p, dtype=torch.float64)
    for file in reading.files:
        load[file["rank"]] = sum(c["out_bytes"] for c in file["calls"] if c["op"] == "all_to_all")
    ratio = load.max() / (load.sum() / len(reading.files))
    if ratio >= 2:
        return 7, int(load.argmax()), ratio

    whole = reading.whole()
    start, end, team = reading.start[whole], reading.end[whole], reading.team[whole]
    nbytes = reading.nbytes[whole].amax(1)
    arrival = torch.where(team, start, -torch.inf)
    moving = torch.where(team, end, -torch.inf).amax(1) - arrival.amax(1)
    large = nbytes >= LARGE
    slow = []
    for r in reading.written:
        mine, others = large & team[:, r], large & ~team[:, r]
        if mine.any() and others.any():
            speed = nbytes[mine].sum() / moving[mine].sum()
            slow.append(((nbytes[others].sum() / moving[others].sum() / speed).item(), r, speed.item()))
    if slow and max(slow)[0] >= 2:
        return 6, max(slow)[1], max(slow)[2]

    spans = 0.0
    for file in reading.files:
        times = [t for c in file["calls"] for t in (c["start_us"], c["end_us"])] + [
            t for w in file["compute"] for t in w
        ]
        spans += max(times) - min(times)
    waits = torch.where(team, arrival.amax(1, keepdim=True) - start, 0.0).sum(1)
    lost = torch.zeros(reading.p, dtype=torch.float64).index_add(0, arrival.argmax(1), waits)
    if lost.max() >= 0.15 * spans:
        return 1, int(lost.argmax()), float(lost.max())
    small = nbytes < SMALL
    if (moving * team.sum(1))[small].sum() >= 0.2 * spans:
        return 4, -1, int(small.sum())

    talk = exposed = 0.0
    for file in reading.files:
        calls = [(c["start_us"], c["end_us"]) for c in file["calls"]]
        work = [tuple(w) for w in file["compute"]]
        talk += length(calls)
        exposed += length(calls + work) - length(work)
    if exposed > 0.9 * talk and exposed >= 0.2 * spans:
        return 5, -1, exposed
    return 8, -1, 0.0
