"""The rehearsal: a process that forks ranks runs a small answer, and is as before."""

import gc
import os
import signal
import threading

import torch.distributed as dist
from allranks import wire
from allranks.judge.in_rank.rehearsal import rehearse

SIGNALS = (signal.SIGPROF, signal.SIGXCPU, signal.SIGUSR1)


def in_a_fork(function):
    """What `function` returns in a process of its own, where it may change what it likes."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(write, "w") as answer:
            answer.write(repr(function()))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    assert os.waitpid(pid, 0)[1] == 0
    return said


def test_leaves_no_group_thread_handler_or_variable():
    def state():
        handlers = [signal.getsignal(number) for number in SIGNALS]
        return [dist.is_initialized(), threading.active_count(), handlers, {**os.environ}, os.listdir("/proc/self/fd")]

    def changed():
        gc.collect()  # a rehearsal does: what other tests have left may still hold descriptors
        before = state()
        rehearse()
        return [(old, new) for old, new in zip(before, state(), strict=True) if old != new], gc.get_freeze_count() > 0

    assert in_a_fork(changed) == "([], True)"


def test_ranks_forked_after_it_work_as_others():
    def total():
        import torch

        x = torch.full((3,), float(dist.get_rank()))
        dist.all_reduce(x)
        return x.tolist()

    def after():
        rehearse()
        rehearse()  # a second time too
        outcome = wire.run(total, ranks=3, launch="fork")
        return outcome.failure, outcome.results

    assert in_a_fork(after) == repr((None, [[3.0] * 3] * 3))
