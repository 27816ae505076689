"""What each test and fixture takes: seconds by the clock, and seconds of a processor with all the processes that it
starts.

`make test-record` runs everything, or what ARGS names, with this plug-in and writes what it took into
tests/durations.json, from which the tests take their order.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = "ALLRANKS_TEST_RECORD"
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Tree:
    """This process and those that descend from it, also after their parents are gone."""

    def __init__(self) -> None:
        self._ours: dict[int, str] = {}  # pid -> when it started, for a pid may be given again

    def cpu_s(self) -> float:
        """The processor time that they and their buried children have taken."""
        parents, started, ticks = {}, {}, {}
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal():
                try:
                    fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                pid = int(entry.name)
                parents[pid], started[pid] = int(fields[1]), fields[19]
                ticks[pid] = sum(map(int, fields[11:15]))
        me = os.getpid()
        ours = {pid for pid, when in self._ours.items() if started.get(pid) == when} | {me}
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        waiting = list(ours)
        while waiting:
            for child in children.get(waiting.pop(), ()):
                if child not in ours:
                    ours.add(child)
                    waiting.append(child)
        self._ours = {pid: started[pid] for pid in ours if pid in started}
        return sum(ticks.get(pid, 0) for pid in ours) * _TICK_S


class Recorder:
    """Writes one line for each test, and one for each fixture that takes time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=1)
        self._tree = Tree()
        self._last = self._tree.cpu_s()

    def _since(self) -> float:
        now = self._tree.cpu_s()
        taken, self._last = max(0.0, now - self._last), now
        return taken

    def _write(self, **values: object) -> None:
        self._file.write(json.dumps(values) + "\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: object) -> Iterator[None]:
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self._write(test=item.nodeid, wall_s=round(time.monotonic() - began, 4), cpu_s=round(self._since(), 3))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef, request: pytest.FixtureRequest) -> Iterator[None]:
        began = time.monotonic()
        before = self._tree.cpu_s()
        try:
            return (yield)
        finally:
            took = time.monotonic() - began
            if took > 0.05:
                cpu = max(0.0, self._tree.cpu_s() - before)
                self._write(
                    fixture=fixturedef.argname,
                    scope=fixturedef.scope,
                    of=request.node.nodeid,
                    file=fixturedef.baseid,
                    wall_s=round(took, 3),
                    cpu_s=round(cpu, 3),
                )


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid")
    if (folder := os.environ.get(RECORD)) and (worker or not config.getoption("numprocesses", None)):
        config.pluginmanager.register(Recorder(Path(folder) / f"{worker or 'main'}.jsonl"), "allranks-recorder")


# the kind of each folder; what is not named is plain Python
KINDS = {
    "browsers": ("browser", "site"),
    "notebooks": ("notebooks",),
    "known answers": ("exercises", "judge"),
    "submissions graded": ("grading", "hostile"),
    "ranks and other processes": ("ranks", "machine"),
    "wheels, kits, commands": ("course", "kit", "cli", "hub"),
}


def kind_of(file: str) -> str:
    """The kind of a test file, by its folder."""
    folder = Path(file).parts[1]
    return next((kind for kind, folders in KINDS.items() if folder in folders), "plain Python")


def summed_up(folder: Path) -> dict[str, dict]:
    """By test file: how many tests, `wall_s` and `cpu_s` in all, seconds of its `fixtures`, the mean seconds of each
    test function.
    """
    files: dict[str, dict] = {}
    functions: dict[tuple[str, str], list[float]] = {}
    made: dict[str, float] = {}  # what a test's own time holds of fixtures that others share
    lines = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    for line in lines:
        if "fixture" in line and line["scope"] != "function":
            file = line["of"].partition("::")[0] or line["file"]
            if file.endswith(".py"):
                made[file] = made.get(file, 0) + line["wall_s"]
    for line in lines:
        if "test" in line:
            file, _, name = line["test"].partition("::")
            entry = files.setdefault(file, {"count": 0, "wall_s": 0.0, "cpu_s": 0.0})
            entry["count"] += 1
            entry["wall_s"] += line["wall_s"]
            entry["cpu_s"] += line["cpu_s"]
            functions.setdefault((file, name.partition("[")[0]), []).append(line["wall_s"])
    for (file, function), took in functions.items():
        # the first test of a file also makes what all share, so the middle one of several tells more than the mean
        typical = sorted(took)[len(took) // 2] if len(took) > 1 else max(0.0, took[0] - made.get(file, 0))
        if typical >= 0.1:  # the rest is too little to matter, and changes with each run
            files[file].setdefault("tests", {})[function] = round(typical, 1)
    for file, entry in files.items():
        entry["fixtures"] = round(made.get(file, 0), 1)
        entry["wall_s"], entry["cpu_s"] = round(entry["wall_s"], 1), round(entry["cpu_s"], 1)
    return dict(sorted(files.items()))


def table(files: dict[str, dict]) -> str:
    """A row for each kind of test, as Markdown."""
    rows = ["| kind | files | tests | CPU, s | of it in shared fixtures, s |", "|---|---|---|---|---|"]
    for kind in (*KINDS, "plain Python"):
        its = [entry for file, entry in files.items() if kind_of(file) == kind]
        counted = sum(e["count"] for e in its), sum(e["cpu_s"] for e in its), sum(e["fixtures"] for e in its)
        rows.append(f"| {kind} | {len(its)} | {counted[0]:,} | {counted[1]:.0f} | {counted[2]:.0f} |")
    return "\n".join(rows)


if __name__ == "__main__":
    kept = Path(__file__).with_name("durations.json")
    # a run of some files says nothing of the others
    found = json.loads(kept.read_text(encoding="utf-8"))["files"] | summed_up(Path(sys.argv[1]))
    found = {file: found[file] for file in sorted(found) if Path(file).exists()}
    kept.write_text(json.dumps({"files": found}, indent=1) + "\n", encoding="utf-8")
    print(table(found))
