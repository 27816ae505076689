"""The pool: what goes in and out, isolation from run to run, and that nothing is left behind."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial

import psutil
import pytest
import torch
import torch.distributed as dist
from allranks.ranks.wire import FailureKind, Program, Ranks, Rules, WireError, launch, run
from allranks.ranks.wire.values import whole
from waiting import gone, until


def mine():
    return {p.pid for p in psutil.Process().children(recursive=True) if not gone(p.pid)}


def identity(*args):
    return args[0] if args else None


def deadlock(*_):
    dist.recv(torch.zeros(1), 1 - dist.get_rank())


def test_no_process_and_no_descriptor_is_left(opened):
    run(identity, 2)
    before, open_before = mine(), opened()
    for body in (identity, deadlock):
        run(body, 2)
    run(Program("import os\ndef f(): os._exit(4)", "f"), 2)
    run(Program("def f():\n while True: pass", "f"), 2, cpu_s=0.2)
    with Ranks(3) as pool:
        pool.run(identity, 3)
        pids = pool.pids
        assert len(pids) == 3
        assert set(pids) <= mine()
    with pytest.raises(ZeroDivisionError), Ranks(2) as pool:
        pool.start()
        raise ZeroDivisionError
    forgotten = Ranks(2)
    forgotten.start()
    del forgotten
    assert mine() <= before  # another test's may end meanwhile
    assert opened() <= open_before


def test_ranks_die_with_the_process_that_made_them(tmp_path):
    code = (
        "import os, sys, time\nfrom allranks.wire import Ranks\npool = Ranks(2)\npool.start()\n"
        "print(*pool.pids, flush=True)\ntime.sleep(100)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in process.stdout.readline().split()]
    assert len(pids) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: all(map(gone, pids)))


def test_a_pool_goes_on_after_every_kind_of_end(pool):
    pool.start(2)
    for source in ("raise ValueError", "import sys; sys.exit()", "import os; os._exit(1)", "return [1]"):
        pool.run(Program(f"def f():\n    {source}", "f"), 2)
        assert pool.run(identity, 2, (7,)).results == [7, 7]


def test_deadlocked_ranks_are_unwound_and_used_again():
    with Ranks(2) as pool:
        pool.start()
        before = pool.pids
        for _ in range(3):
            assert pool.run(deadlock, 2).deadlock is not None
        assert pool.pids == before


def test_a_rank_that_dies_between_two_runs_is_replaced():
    with Ranks(2) as pool:
        pool.start()
        victim = psutil.Process(pool.pids[1])
        victim.kill()
        until(lambda: victim.status() == psutil.STATUS_ZOMBIE)
        assert pool.run(identity, 2, (1,)).results == [1, 1]


def test_each_run_has_a_fresh_world(pool):
    def leave_something():
        dist.new_group([0, 1])
        dist.isend(torch.zeros(1), 1 - dist.get_rank())
        return dist.get_world_size()

    for p in (2, 4, 3):
        outcome = pool.run(leave_something, p) if p == 2 else pool.run(identity, p, (0,))
        assert [e.index for e in outcome.log] == ([0, 0] if p == 2 else [])
    outcome = pool.run(
        Program("import torch.distributed as d\ndef f(): return [d.get_rank(), d.get_world_size()]", "f"), 5
    )
    assert outcome.results == [[r, 5] for r in range(5)]


def test_globals_do_not_survive_a_run(pool):
    source = "seen = []\ndef f():\n    seen.append(1)\n    return len(seen)"
    assert [pool.run(Program(source, "f"), 1).results[0] for _ in range(3)] == [1, 1, 1]


def test_a_program_may_define_dataclasses(pool):
    """They look up their module, and find it."""
    source = "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\ndef f():\n    return A(1).x"
    assert pool.run(Program(source, "f"), 2).results == [1, 1]
    assert pool.run(lambda: "__allranks__" in sys.modules, 2).results == [False, False]


def test_each_rank_sees_its_own_arguments_only(pool):
    rows = torch.arange(12.0).reshape(3, 4)
    outcome = pool.run(lambda t: [t, t.untyped_storage().nbytes()], 3, per_rank=[(rows[r],) for r in range(3)])
    for r in range(3):
        assert torch.equal(outcome.results[r][0], rows[r])
        assert outcome.results[r][1] == 16


def test_values_of_every_kind_pass(pool):
    value = {
        "t": (1, 2.5, True, None, "ä\n"),
        "l": [torch.zeros(0, 3), torch.tensor(4, dtype=torch.int8), [float("inf")]],
        "big": 2**80,
    }
    outcome = pool.run(identity, 1, (value,))
    assert outcome.failure is None
    got = outcome.results[0]
    assert got["t"] == value["t"]
    assert got["big"] == 2**80
    assert got["l"][0].shape == (0, 3)
    assert got["l"][1].dtype == torch.int8
    assert got["l"][2] == [float("inf")]


def test_final_arguments_show_what_became_of_the_inputs(pool):
    def change(t, u, fn, scale):
        t += fn(scale)

    t, u = torch.zeros(3), torch.ones(2)
    outcome = pool.run(change, 2, per_rank=[(t, u, abs, -r) for r in (1, 2)])
    assert [a[0].tolist() for a in outcome.final_args] == [[1, 1, 1], [2, 2, 2]]
    assert outcome.final_args[0][2] is abs
    assert outcome.final_args[1][3] == -2
    assert t.tolist() == [0, 0, 0]


def test_a_view_comes_back_with_its_guard(pool):
    def write(t):
        t.zero_()
        t.as_strided((1,), (1,), 0).fill_(-1)

    base = torch.arange(1.0, 13)
    view = base.as_strided((2, 3), (1, 2), 3)
    outcome = pool.run(write, 1, (view,), guard=True)
    back = outcome.final_args[0][0]
    assert back.stride() == (1, 2)
    assert back.storage_offset() == 3
    assert whole(back).tolist() == [-1, 2, 3, 0, 0, 0, 0, 0, 0, 10, 11, 12]


@pytest.mark.parametrize(
    "view",
    [torch.arange(12).reshape(3, 4).t(), torch.arange(12)[::3], torch.arange(3).expand(2, 3), torch.arange(8)[2:5]],
    ids=["transposed", "strided", "expanded", "offset"],
)
def test_strides_are_kept_without_the_neighbours(pool, view):
    outcome = pool.run(lambda t: [t.clone(), list(t.stride()), t.storage_offset(), whole(t).sum()], 1, (view,))
    clone, stride, offset, total = outcome.results[0]
    assert torch.equal(clone, view)
    assert stride == list(view.stride())
    assert offset == 0
    assert int(total) == sum(set(view.flatten().tolist()))


def test_parameters_keep_their_gradients(pool):
    def step(parameters):
        for p in parameters:
            dist.all_reduce(p.grad)
            p.data -= p.grad
        return [isinstance(p, torch.nn.Parameter) and p.requires_grad for p in parameters]

    made = []
    for r in range(2):
        p = torch.nn.Parameter(torch.zeros(3))
        p.grad = torch.full((3,), float(r + 1))
        made.append(([p],))
    outcome = pool.run(step, 2, per_rank=made)
    assert outcome.results == [[True], [True]]
    assert outcome.final_args[0][0][0].tolist() == [-3, -3, -3]
    assert outcome.final_args[1][0][0].grad.tolist() == [3, 3, 3]


def test_several_calls_in_one_run(pool):
    def add(t):
        dist.all_reduce(t)
        return t.item()

    per_rank = [[(torch.tensor(float(r + k)),) for k in range(3)] for r in range(2)]
    outcome = pool.run(add, 2, per_rank=per_rank, calls=3)
    assert outcome.results == [[1.0, 3.0, 5.0]] * 2
    assert [e.call for e in outcome.log if e.rank == 0] == [0, 1, 2]
    assert outcome.final_args[1][0].item() == 5
    assert [a[0].item() for a in outcome.all_final_args[0]] == [1, 3, 5]


def test_arguments_need_not_come_back():
    def adds(t):
        t += 1
        return t.sum().item()

    with Ranks(2) as pool:
        jobs = [[(torch.zeros(2),)] * 2] * 2
        less = pool.run(adds, per_rank=jobs, calls=2, final_args=False)
        assert (less.results, less.all_final_args, less.final_args) == ([[2.0, 2.0]] * 2, [[], []], [None, None])
        assert pool.run(adds, per_rank=jobs, calls=2).final_args[1][0].tolist() == [1, 1]


def test_random_numbers_follow_the_seed_and_differ_by_rank(pool):
    source = "import torch, random\ndef f(): return [float(torch.rand(1)), random.random()]"
    first, again, other = (pool.run(Program(source, "f"), 2, seed=s).results for s in (1, 1, 2))
    assert first == again != other
    assert first[0] != first[1]


def test_a_partial_names_the_students_lines(pool):
    def answer(t):
        raise IndexError("mine")

    def drive(fn, t):
        return fn(t)

    failure = pool.run(partial(drive, answer), 1, (1,)).failure
    assert failure.source_line == 'raise IndexError("mine")'


@pytest.mark.parametrize("ranks", [0, -1, 65, 10_000, True, 2.0, "4"])
def test_impossible_numbers_of_ranks(ranks):
    with pytest.raises(WireError, match="whole number from 1 to 64"):
        run(identity, ranks)


def test_wrong_arguments_are_named(pool):
    with pytest.raises(WireError, match="delivery"):
        pool.run(identity, 2, delivery="lucky")
    with pytest.raises(WireError, match="per_rank has 1"):
        pool.run(identity, 2, per_rank=[(1,)])
    with pytest.raises(WireError, match="from 1 to 8"):
        pool.run(identity, 9)
    with pytest.raises(ValueError, match="all_reduc"):
        Rules(allow={"all_reduc"})
    with pytest.raises(ValueError, match="peers"):
        Rules(peers="mesh")
    closed = Ranks(1)
    closed.close()
    with pytest.raises(WireError, match="closed"):
        closed.run(identity)


def test_an_interrupt_ends_the_ranks(program, tmp_path):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # others may have left theirs in this process
    try:
        interrupt(program, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(program, tmp_path):
    with Ranks(2) as pool:
        pool.start()
        runs = tmp_path / "runs"

        def send():
            until(runs.exists)
            os.kill(os.getpid(), signal.SIGINT)

        sender = threading.Thread(target=send)
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            pool.run(program(f"import time\nopen({str(runs)!r}, 'w').close()\nwhile True:\n    time.sleep(1)"), 2)
        sender.join()
        assert pool.pids == []
        assert pool.run(identity, 2, (5,), wall_s=30).results == [5, 5]


def test_ranks_from_the_fork_server():
    """As in a notebook, whose kernel has threads and can't be forked."""
    before = mine()
    with Ranks(2, launch="forkserver") as pool:
        outcome = pool.run(lambda t: [t * 2, os.getppid() != os.getpid()], 2, (torch.ones(2),))
        assert outcome.failure is None
        assert outcome.results[1][0].tolist() == [2, 2]
        assert pool.run(deadlock, 2).deadlock.cycle == (0, 1)
        assert pool.run(Program("import os\ndef f(): os._exit(3)", "f"), 1).failure.kind is FailureKind.EXITED
        pids = set(pool.pids)
        assert pids
        assert pids <= mine()
    assert not pids & mine()
    from allranks.ranks.engines.forkserver.client import ForkServer

    ForkServer.ensure().close()
    assert mine() <= before  # another test's parent may end meanwhile


@pytest.mark.parametrize("launch", ["fork", "forkserver"])
def test_ranks_see_no_gpu(monkeypatch, launch):
    """With a torch for CUDA the first backward starts CUDA on all GPUs that it sees, also of others, within the rank's limits."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with Ranks(2, launch=launch) as pool:
        assert pool.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"]).results == ["", ""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_a_spawner_of_the_callers_own():
    """Any launcher will do that gives the rank a socket: here a new interpreter, as a sandbox would start."""

    class Fresh:
        def spawn(self, target, *, args=None, env=None, fds=()):
            assert target == "allranks.ranks.wire.rank:main"
            process = subprocess.Popen([sys.executable, "-m", "allranks.ranks.wire.rank", *map(str, fds)], pass_fds=fds)
            process.kill = lambda sig=signal.SIGKILL: process.send_signal(sig)
            return process

    outcome = run(identity, 1, (torch.ones(3),), spawner=Fresh())
    assert outcome.failure is None
    assert outcome.results[0].tolist() == [1, 1, 1]


def test_a_rank_starts_where_the_process_that_forks_can_not_import_the_compiler():
    class Poor:
        asked = []  # noqa: RUF012 - one test's own

        def spawn(self, target, *, args=None, env=None, fds=()):
            self.asked.append(target)
            if target != launch.TARGET:
                raise ImportError("no folder can be made here")
            return launch.fork(list(fds))

    with Ranks(2, spawner=Poor()) as pool:
        pool.import_compiler()
        assert pool.run(identity, 2, (1,)).results == [1, 1]
    assert Poor.asked == [launch.WITH_COMPILER, launch.TARGET, launch.TARGET]


def test_a_rank_that_does_not_start_is_named():
    class Broken:
        def spawn(self, target, *, args=None, env=None, fds=()):
            return subprocess.Popen([sys.executable, "-c", "pass"])

    with pytest.raises(WireError, match="Rank 0 ended before it was ready"):
        run(identity, 2, spawner=Broken())


@pytest.mark.parametrize("launch", ["fork", "forkserver"])
def test_ranks_have_what_they_need_from_the_process_that_forks_them(launch):
    code = (
        "import sys\nfrom allranks.wire import Program, Ranks\n"
        'loaded = Program(\'import sys\\ndef f(): return [n in sys.modules for n in ("numpy.random", "sympy", "torch._dynamo")]\', \'f\')\n'
        f"with Ranks(3, launch={launch!r}) as pool:\n"
        "    first, pids = pool.run(loaded, 2).results, pool.pids\n"
        "    pool.import_autograd()\n"
        "    second, again = pool.run(loaded, 2).results, pool.pids\n"
        "    pool.import_compiler()\n"
        "    third, last = pool.run(loaded, 3).results, pool.pids\n"
        "    pool.import_autograd()\n"  # they have it
        "    print(first, second, third, set(pids) & set(again) | set(again) & set(last), pool.pids == last)\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "ALLRANKS_FORKSERVER"}  # that one has more
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    plain, with_autograd, with_all = [True, False, False], [True, True, False], [True] * 3
    assert done.stdout.strip() == f"{[plain] * 2} {[with_autograd] * 2} {[with_all] * 3} set() True", done.stderr


LEFT = {
    "torch.set_default_dtype(torch.float64)": "torch.zeros(1).dtype == torch.float32",
    "torch.set_default_device('meta')": "torch.zeros(1).device.type == 'cpu'",
    "torch.set_grad_enabled(False)": "torch.is_grad_enabled()",
    "torch.use_deterministic_algorithms(True)": "not torch.are_deterministic_algorithms_enabled()",
    "dist.isend = None": "dist.isend is not None",
    "torch.Tensor.__iadd__ = lambda one, other: one": "float(operator.iadd(torch.ones(1), 1)) == 2",
    "torch.Tensor.clone = torch.Tensor.detach": "torch.Tensor.clone is not torch.Tensor.detach",
    "builtins.range = lambda *_: []": "len(range(2)) == 2",
    "del builtins.sum": "sum([1]) == 1",
    "math.ceil = math.floor": "math.ceil(0.5) == 1",
    "sys.modules['torch'] = None": "sys.modules['torch'] is torch",
    "sys.setrecursionlimit(77)": "sys.getrecursionlimit() > 77",
    "os.chdir('/')": "os.getcwd() != '/'",
    "warnings.simplefilter('error')": "warnings.warn('seen') is None",
    "numpy.seterr(all='raise')": "numpy.geterr()['over'] != 'raise'",
    "sys.stdout.close()": "not sys.stdout.closed",
}
HEAD = "import builtins, math, numpy, operator, os, sys, torch, warnings\nimport torch.distributed as dist\n\n"


@pytest.mark.parametrize("end", ["returns", "raises", "waits"])
@pytest.mark.parametrize("change", LEFT)
def test_what_a_program_changes_in_its_process_does_not_meet_the_next_program(change, end):
    ends = {
        "returns": "pass",
        "raises": "1 / 0",
        "waits": "dist.recv(torch.zeros(1, device='cpu'), 1 - dist.get_rank())",
    }
    with Ranks(2) as pool:
        assert pool.run(Program(f"{HEAD}def f(): return {LEFT[change]}", "f"), 2).results == [True, True]
        changes = f"{HEAD}def f():\n    recv = dist.recv\n    {change}\n    {ends[end].replace('dist.recv', 'recv')}"
        pool.run(Program(changes, "f"), 2)
        outcome = pool.run(Program(f"{HEAD}def f(): return {LEFT[change]}", "f"), 2)
        assert outcome.results == [True, True], outcome.failure


def test_a_rank_that_is_as_it_was_stays():
    usual = f"{HEAD}torch.manual_seed(3)\nwith torch.no_grad():\n    ONE = torch.ones(1)\n\ndef f():\n    import copy, io, json\n    "
    usual += "torch.save(ONE, io.BytesIO())\n    copy.deepcopy(ONE)\n    "
    usual += "with torch.inference_mode():\n        dist.all_reduce(ONE.clone())\n    torch.helper = dist.get_rank()"
    with Ranks(2) as pool:
        pool.start()
        pids = pool.pids
        assert pool.run(Program(usual, "f"), 2).failure is None
        assert pool.pids == pids
