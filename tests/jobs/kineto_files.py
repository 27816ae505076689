"""Small profiles in torch's format, with answers that can be worked out by hand."""

import gzip
import json


class Profile:
    """Builds the profile of one rank; times are microseconds."""

    def __init__(self, rank=0, world=2, device="NVIDIA A100-SXM4-80GB", groups=None, **header):
        groups = groups if groups is not None else {"0": list(range(world))}
        config = [{"pg_name": n, "pg_desc": "d", "pg_size": len(r), "ranks": r} for n, r in groups.items()]
        self.groups, self.events, self.correlation = groups, [], 0
        info = {"backend": "nccl", "rank": rank, "world_size": world, "pg_count": len(groups), "pg_config": config}
        self.header = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": device}],
            "distributedInfo": info,
            **header,
        }

    def add(self, cat, name, ts, dur, tid=1, pid=100, **args):
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )
        return self

    def launch(self, at=None, tid=1):
        """The launch of the next kernel."""
        self.correlation += 1
        if at is not None:
            self.add("cuda_runtime", "cudaLaunchKernel", at, 1, tid=tid, correlation=self.correlation)
        return self.correlation

    def compute(self, start, end, launched=None, name="gemm"):
        at = start if launched is None else launched
        return self.add(
            "kernel", name, start, end - start, tid=7, pid=0, stream=7, device=0, correlation=self.launch(at)
        )

    def copy(self, start, end):
        correlation = self.launch(start)
        return self.add("gpu_memcpy", "Memcpy DtoD", start, end - start, stream=7, correlation=correlation)

    def step(self, number, start, end):
        return self.add("user_annotation", f"ProfilerStep#{number}", start, end - start)

    def call(self, op, start, end, elements=1000, out=None, group="0", launched=None, kernel=None, **args):
        """A kernel of NCCL's that says what it is."""
        name = kernel or "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
        said = {
            "Collective name": op, "In msg nelems": elements, "Out msg nelems": elements if out is None else out,
            "Group size": len(self.groups[group]), "dtype": "Float", "Process Group Name": group,
            "Process Group Ranks": str(self.groups[group]), **args,
        }  # fmt: skip
        correlation = self.launch(start if launched is None else launched)
        return self.add(
            "kernel", name, start, end - start, tid=20, stream=20, device=0, correlation=correlation, **said
        )

    def text(self):
        return json.dumps({**self.header, "traceEvents": self.events, "displayTimeUnit": "ms"})

    def save(self, path):
        text = self.text().encode()
        path.write_bytes(gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)
        return path


def job(folder, ranks, build, **header):
    """A folder with the profile of each rank, which `build(profile, rank)` fills."""
    for rank in range(ranks):
        profile = Profile(rank, ranks, **header)
        build(profile, rank)
        profile.save(folder / f"{rank}.json.gz")
    return folder
