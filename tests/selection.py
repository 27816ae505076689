"""Which tests a run takes, and in which order.

`make test` is for a change (ALLRANKS_TESTS=change): the core, then what the change can reach, nearest first, until the
time for it is used up; where nothing has passed here yet, as in a fresh clone, the core and one of everything. `make
test-more` (ALLRANKS_TESTS=more) takes of what a fresh clone leaves out as much as fits in its time, another part for
each commit. `make test-all` takes everything but servers and what is nightly. A file or folder that is named runs
whole. tests/house/test_suite.py holds that each test has a command.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import random
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import reach
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parents[1]
DURATIONS = Path(__file__).with_name("durations.json")
PASSED = "tests-passed.json"  # in pytest's cache: what each file held when `make test` last passed
# seconds by the clock, on two cores, for one of everything; for what a change reaches, beside the core, and more for
# each further file; and for a part of the rest
TIME_S = 280
CHANGE_S, FILE_S = 40, 10
MORE_S = 120
SHARED = "ALLRANKS_TEST_SHARED"
UNKNOWN_S = 0.05  # of a test that is not in the record
_WORD = re.compile(r"\w+")


def in_the_core(item: pytest.Item) -> bool:
    return item.get_closest_marker("core") is not None


def command_of(item: pytest.Item) -> str:
    """The least command that runs this test whatever has changed."""
    if item.get_closest_marker("servers"):
        return "make test-servers"
    if item.get_closest_marker("nightly") or (item.path.parent.name == "notebooks" and "[solved" in item.name):
        return "make test-nightly"
    return "make test" if in_the_core(item) else "make test-all"


@dataclass(frozen=True)
class Durations:
    """Seconds that tests took in a recorded run."""

    files: Mapping[str, Mapping] = field(default_factory=dict)

    @classmethod
    def read(cls) -> Durations:
        return cls(json.loads(DURATIONS.read_text(encoding="utf-8"))["files"]) if DURATIONS.exists() else cls()

    def of(self, item: pytest.Item) -> float:
        """One test, without what its file makes once for all."""
        known = self.files.get(file_of(item), {}).get("tests", {})
        return known.get(item.nodeid.partition("::")[2].partition("[")[0], UNKNOWN_S)

    def shared(self, file: str) -> float:
        """What a file makes once for all its tests."""
        return self.files.get(file, {}).get("fixtures", 0.0)

    def whole(self, file: str) -> float:
        """A file with all its tests."""
        return self.files.get(file, {}).get("wall_s", UNKNOWN_S)


@functools.cache
def needs_chromium(path: Path) -> bool:
    """Whether a file of tests drives a browser."""
    return bool(re.search(r"\b(chromium|new_page|plain_page)\b", path.read_text(encoding="utf-8")))


def scope_of(nodeid: str) -> str:
    """What runs in one worker: a file, or all files that need a browser."""
    file = nodeid.partition("::")[0]
    return "browser" if needs_chromium(ROOT / file) else file


class ByFile(LoadScopeScheduling):
    """A file runs whole in one worker; all that need a browser run in the same one, so that there is one Chromium
    and one JupyterLab.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    return ByFile(config, log)


def file_of(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT))


@dataclass(frozen=True)
class Plan:
    """What changed and how far each file is from it. `wide`: one of everything, too; `more`: what a wide plan leaves
    out.
    """

    wide: bool
    why: str
    near: Mapping[str, int] = field(default_factory=dict)
    graph: reach.Graph | None = None
    more: str = ""

    def time_s(self) -> float:
        """How long its tests may take, beside the core."""
        changed = sum(far == 0 for far in self.near.values())
        return TIME_S if self.wide else min(TIME_S, CHANGE_S + FILE_S * changed)

    @classmethod
    def make(cls, before: Mapping[str, str] | None, since: str | None = None) -> Plan:
        """What has changed since the files were as in `before`, or since a revision of git."""
        if since:
            changed = _changed_since(since)
        elif before is None:
            return cls(True, "no run has passed here yet, so the core and one of everything")
        else:
            now = reach.digests()
            changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        graph = reach.Graph()
        wide = sorted(set(changed) & set(reach.EVERYTHING))
        why = f"{len(changed)} file{'s' * (len(changed) != 1)} changed, so the core and what that reaches"
        if wide:
            why += f", and one of everything because of {', '.join(wide)}"
        return cls(bool(wide), why, graph.distances(changed), graph)

    def distance(self, item: pytest.Item) -> int:
        """How far a test is from the change: 0 where its own file or one of its parameters changed."""
        if self.graph is None:
            return reach.FAR
        file = file_of(item)
        function, _, parameters = item.name.partition("[")
        used = self.graph.of_test(file, function, _WORD.findall(parameters))
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        paths = [getattr(one, "path", one) for one in given]  # a known answer names its file
        answers = {
            str(path.relative_to(ROOT)) for path in paths if isinstance(path, Path) and path.is_relative_to(ROOT)
        }
        far = [self.near.get(name, reach.FAR) for name in (file, *answers)]
        return min([*far, *(self.near.get(name, reach.FAR) + 1 for name in used)])


def _changed_since(revision: str) -> list[str]:
    """The files that differ from a revision of git, and new ones."""
    asked = (["diff", "--name-only", "-z", revision], ["ls-files", "-z", "--others", "--exclude-standard"])
    found = (subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True) for words in asked)
    return sorted({name for done in found for name in done.stdout.split("\0") if name})


def choose(plan: Plan, items: list[pytest.Item], durations: Durations, workers: int) -> list[pytest.Item]:
    """The core, then the rest of the plan, nearest first and quickest first, until the time of all workers is used
    up.
    """
    first = [item for item in items if in_the_core(item)]
    rest = [(far, item) for item in items if (far := plan.distance(item)) < reach.FAR]
    if plan.wide:
        rest += [(reach.FAR, item) for item in one_of_everything(items)]
    rest.sort(key=lambda pair: (pair[0], durations.of(pair[1])))
    first += [item for far, item in rest if far == 0]
    chosen = _as_fits(first, [item for far, item in rest if far], durations, plan.time_s() * workers)
    if not plan.more:
        return [item for item in items if id(item) in chosen]
    others = [item for item in items if id(item) not in chosen]
    order = random.Random(plan.more)
    turn = {file: order.random() for file in sorted(set(map(file_of, others)))}
    others.sort(key=lambda item: turn[file_of(item)])
    chosen = _as_fits([], others, durations, MORE_S * workers)
    return [item for item in items if id(item) in chosen]


def _as_fits(always: list[pytest.Item], more: list[pytest.Item], durations: Durations, left_s: float) -> set[int]:
    """The ids of the first tests, and of as many others, in their order, as the time allows."""
    chosen = set(map(id, always))
    begun = set(map(file_of, always))
    for item in more:
        file = file_of(item)
        cost = durations.of(item) + (0 if file in begun else durations.shared(file))
        if id(item) not in chosen and cost <= left_s:
            chosen.add(id(item))
            begun.add(file)
            left_s -= cost
    return chosen


def one_of_everything(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Of each test function the first set of parameters."""
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    return list(first.values())


def in_order(plan: Plan | None, items: list[pytest.Item], durations: Durations) -> list[pytest.Item]:
    """File by file: those near a change first, then those that take longest, so that no worker is left alone at the
    end.
    """
    together: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        together[scope_of(item.nodeid)].append(item)

    def turn(scope: str) -> tuple[int, float]:
        its = together[scope]
        far = min(map(plan.distance, its)) if plan and plan.graph else 0
        files = set(map(file_of, its))
        whole = durations.whole if plan is None else durations.shared
        return min(far, 2), -sum(map(whole, files)) - (sum(map(durations.of, its)) if plan else 0)

    return [item for scope in sorted(together, key=turn) for item in sorted(together[scope], key=file_of)]


_PLAN = pytest.StashKey[Plan]()


def pytest_configure(config: pytest.Config) -> None:
    """Makes the plan, for all workers."""
    mode = os.environ.get("ALLRANKS_TESTS")
    if hasattr(config, "workerinput") or not mode:
        return
    if mode == "more":
        plan = Plan(True, "a part of what `make test` leaves out in a fresh clone", more=_revision())
    else:
        kept = _record(config)
        before = json.loads(kept.read_text(encoding="utf-8")) if kept and kept.exists() else None
        plan = Plan.make(before, os.environ.get("SINCE"))
    config.stash[_PLAN] = plan
    Path(os.environ[SHARED], "plan.pickle").write_bytes(pickle.dumps(plan))


def _record(config: pytest.Config) -> Path | None:
    """Where it is kept what passed here, if pytest keeps anything."""
    return config.cache.mkdir("allranks") / PASSED if hasattr(config, "cache") else None


def _revision() -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "without git"


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"tests: {config.stash[_PLAN].why}; `make test-all` runs all" if _PLAN in config.stash else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations = Durations.read()
    everything = [Path(argument).resolve() for argument in config.args] == [ROOT / "tests"]
    planned = Path(os.environ[SHARED], "plan.pickle")
    plan = pickle.loads(planned.read_bytes()) if everything and planned.exists() else None
    chosen = list(items)
    if everything and not os.environ.get("ALLRANKS_NIGHTLY"):
        others = {"make test-nightly"} if config.option.markexpr else {"make test-nightly", "make test-servers"}
        chosen = [item for item in items if command_of(item) not in others or (plan and _answer_near(plan, item))]
    if plan is not None:
        chosen = choose(plan, chosen, durations, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    kept = {id(item) for item in chosen}
    if left_out := [item for item in items if id(item) not in kept]:
        config.hook.pytest_deselected(items=left_out)
    items[:] = in_order(plan, chosen, durations) if everything else chosen


def _answer_near(plan: Plan, item: pytest.Item) -> bool:
    """Whether this is a known answer of an exercise that changed: then it is no longer nightly."""
    return item.path.name == "test_answers.py" and plan.distance(item) <= 1


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """After a run that passed, remembers what was tried; a part of the tests by -k or -m tells too little for that."""
    config = session.config
    narrowed = config.option.keyword or config.option.markexpr
    planned = _PLAN in config.stash and not config.stash[_PLAN].more
    kept = _record(config)
    if kept and planned and exitstatus == 0 and not narrowed and not os.environ.get("SINCE"):
        kept.write_text(json.dumps(reach.digests(), indent=0), encoding="utf-8")
