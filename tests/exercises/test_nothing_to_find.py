"""An answer finds neither the judge nor the other ranks' inputs, in the functions below it, in the heap or in the course's files."""

import sys
import textwrap
from types import ModuleType

import pytest
from allranks.exercises import get
from allranks.judge.judging import MAX_RANKS, judge_text
from allranks.ranks.wire import Ranks

HEAD = """
import gc, sys, threading, traceback
import torch
import torch.distributed as dist

def below(frame):
    found = []
    while frame is not None:
        found += [name for name in frame.f_locals if name in ("exercise", "runner", "setups", "hidden")]
        if frame.f_code.co_name in ("judge", "_cases", "without_the_course"):
            found.append(frame.f_code.co_name)
        frame = frame.f_back
    return found

def raised():
    try:
        raise ValueError
    except ValueError as error:
        return error.__traceback__.tb_frame

def started():
    yield

def ring_shift(tensor, k):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous().clone()
    if k % p:
        got = torch.empty_like(mine)
        works = [dist.isend(mine, (rank + k) % p), dist.irecv(got, (rank - k) % p)]
        for work in works:
            work.wait()
        mine = got
"""
SEARCHES = {
    "frames": "assert not below(sys._getframe())",
    "traceback": "assert not below(raised())",
    "generator": "g = started(); next(g); assert not below(g.gi_frame)",
    "threads": "assert threading.enumerate() == [threading.main_thread()]",
    "modules": "assert not [n for n in sys.modules if n.startswith(('allranks.exercises', 'allranks.judge.judging'))]",
    "package": "assert not hasattr(sys.modules['allranks.judge'], 'judging') and not hasattr(sys.modules['allranks'], 'exercises')",
}
REFUSED = {
    "gc.get_objects()": "gc.get_objects()",
    "gc.get_referrers()": "gc.get_referrers(mine)",
    "gc.get_referents()": "gc.get_referents(sys._getframe())",
    "gc.unfreeze()": "gc.unfreeze()",
    "sys._current_frames()": "sys._current_frames()",
    "sys._current_exceptions()": "sys._current_exceptions()",
}
FINDERS = "sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != 'allranks.ranks.engines.alone']"
FILES = {
    "import": f"{FINDERS}; import allranks.exercises",
    "file": "import allranks.wire as w; open(w.__file__.replace('wire', 'exercises')).read()",
    "working directory": "import os, allranks.wire as w; os.chdir(os.path.dirname(w.__file__)); open('../../judge/judging.py').read()",
}
HONEST = """
import inspect, linecache, logging
inspect.stack(); inspect.getsource(ring_shift); gc.collect(); gc.get_stats(); sys._getframe()
traceback.extract_stack(); logging.getLogger("mine").debug("here")
started_thread = threading.Thread(target=lambda: None); started_thread.start(); started_thread.join()
x = torch.ones(3, requires_grad=True); (x * x).sum().backward()
"""


@pytest.fixture(scope="module")
def pool():
    """Forked from here: in the fork are this process's exercises, judge and inputs."""
    with Ranks(MAX_RANKS, launch="fork") as ranks:
        yield ranks


def verdict(pool, body, **options):
    text = HEAD + textwrap.indent(body.strip("\n"), "    ") + "\n    return mine\n"
    return judge_text(get("ring_shift"), text, pool=pool, **options)


@pytest.mark.parametrize("search", SEARCHES)
def test_nothing_of_the_judge_is_there(pool, search):
    assert verdict(pool, SEARCHES[search]).passed


def test_a_hidden_module_without_a_file_of_the_package_is_not_there(monkeypatch):
    """Such as one that was loaded from somewhere else."""
    monkeypatch.setitem(sys.modules, "allranks.exercises.from_elsewhere", ModuleType("from_elsewhere"))
    with Ranks(MAX_RANKS, launch="fork") as ranks:
        assert verdict(ranks, SEARCHES["modules"]).passed


@pytest.mark.parametrize("what", REFUSED)
def test_a_search_of_the_heap_is_refused_in_plain_words(pool, what):
    found = verdict(pool, REFUSED[what])
    assert found.score == 0
    assert f"raised SearchError: {what} can't be called when an answer is checked" in found.reason


@pytest.mark.parametrize("way", FILES)
def test_the_files_of_hidden_modules_are_refused(pool, way):
    found = verdict(pool, FILES[way])
    assert found.score == 0
    assert "is not there when an answer is checked" in found.reason


def test_the_driver_may_search_but_finds_only_what_the_rank_made(pool):
    body = (
        "from allranks.ranks.engines.alone import objects_made_here\n"
        "assert not [o for o in objects_made_here() if type(o).__module__.startswith(('allranks.judge.', 'allranks.exercises'))]"
    )
    assert verdict(pool, body).passed


def test_an_answers_memory_is_collected_as_everywhere(pool):
    """The judge's own collector looks seldom while it judges, and its ranks are forks of it."""
    assert verdict(pool, "assert gc.get_threshold() == (700, 10, 10)").passed


def test_what_an_honest_answer_looks_at_stays(pool):
    assert verdict(pool, HONEST).passed


@pytest.mark.parametrize("taking", (FINDERS, "sys.meta_path.append(sys.meta_path.pop(0))"))
def test_what_an_answer_takes_away_is_there_again_in_its_next_case(pool, taking):
    """The modules stay hidden from one case to the next; so must stay what refuses to import them."""
    text = "import sys\nFIRST = type(sys.meta_path[0])\n" + HEAD
    body = f"assert FIRST.__module__ == 'allranks.ranks.engines.alone'\n{SEARCHES['modules']}\n{taking}"
    found = judge_text(get("ring_shift"), text + textwrap.indent(body, "    ") + "\n    return mine\n", pool=pool)
    assert found.passed, found.text()
