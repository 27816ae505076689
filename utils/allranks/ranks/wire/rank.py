"""The process of one rank: takes programs over a socket, runs them, reports.

The entry point needs nothing but the descriptor of a socket to the router, so that any launcher can start it: a fork of
this process, the fork server (`allranks.ranks.wire.rank:main`), or a sandbox (`python -m allranks.ranks.wire.rank SOCKET OUTPUT`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import importlib.util
import linecache
import os
import random
import socket
import sys
from collections.abc import Mapping, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any, Unpack

import numpy.random  # not at the first draw: then each rank would import it
import torch
import torch.distributed as dist

from allranks.ranks.engines.alone import PACKAGE, refuse_imports, refuse_searches, remember_modules, without_the_course
from allranks.ranks.engines.cpu_only import see_no_gpu
from allranks.ranks.wire import (
    backend,
    values,
    window,  # noqa: F401  not at the first use: then each rank would import it
)
from allranks.ranks.wire.body import Body, CodecError
from allranks.ranks.wire.call_site import CallSites
from allranks.ranks.wire.codec import Channel
from allranks.ranks.wire.endpoint import Endpoint, Stopped
from allranks.ranks.wire.failures import FailureKind, Misuse, MisuseError
from allranks.ranks.wire.frames import FaultDetails, FrameKind, Request
from allranks.ranks.wire.leftovers import Leftovers, remember_functions
from allranks.ranks.wire.limits import Guard, NoGuard
from allranks.ranks.wire.messages import Program

_TEXT_NCHARS = 500
_MODULE = "__allranks__"  # a program's


class _Missing(Exception):
    """The program can't be loaded: (kind, message, line, name of the package that is missing or None)."""


class Rank:
    """Runs one program after another until the socket closes. Without `guarded` the programs are our own and have no limits."""

    def __init__(self, sock: socket.socket, guarded: bool = True) -> None:
        self.channel = Channel(sock, blocking=True)
        self.call_sites = CallSites("<program>")
        self.endpoint = Endpoint(self.channel, self.call_sites)
        self.guard = Guard(self.on_fault, self.on_write) if guarded else NoGuard()
        self.excepthook = sys.excepthook
        self.nccl: Any = None  # NCCL's rules for this run, if it is under them
        backend.register(self.endpoint, lambda: backend.WireGroup if self.nccl is None else self.nccl.group)

    def serve(self) -> None:
        """Says hello, then runs what comes."""
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # type: ignore[misc]  # Final for those who type it only
        leftovers = Leftovers()
        self.channel.send({"hello": os.getpid()})
        frame = self._serve_while(False, leftovers, None)
        while frame is not None:
            refuse_searches(self.guard.take_events)
            # once for all answers that come: to hide 200 modules and to put them back takes a tenth of a small run
            with without_the_course():
                frame = self._serve_while(True, leftovers, frame)
            if frame is not None:
                frame = self._serve_while(False, leftovers, frame)

    def _serve_while(
        self, alone: bool, leftovers: Leftovers, frame: tuple[Any, Body] | None
    ) -> tuple[Any, Body] | None:
        """Runs `frame` and what comes, as long as it is to run with or without the course; the first frame that is not, or None at the end."""
        while True:
            try:
                message, body = frame or self.channel.receive()
            except (EOFError, OSError):
                return None
            frame = None
            if "stop" not in message:
                if message["alone"] is not alone:
                    return message, body
                if alone:
                    refuse_imports()
                self.run(message, body, leftovers)
                if not self.endpoint.stopped:
                    continue
            self.endpoint.posted.clear()
            self.channel.send({"stopped": True, "changed": leftovers.found()})

    def run(self, job: dict, body, leftovers: Leftovers) -> None:
        """One run: loads the program, calls it, sends the results and what became of the arguments."""
        self.call_sites = self.endpoint.call_sites = CallSites(job["filename"], globals())
        memory = None if job.get("memory") is None else (job["memory"][0], job["memory"][1])
        self.endpoint.start(contiguous=job["contiguous"], ahead=job["ahead"], memory=memory)
        self.nccl = self.rules_of_nccl() if job["nccl"] else None
        try:
            fn, calls = values.unpack(job, body, trusting=True)
        except Exception as error:
            self.channel.send([self.describe(error)])
            return
        body.close()
        seed = job["seed"] * 1009 + job["rank"]
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        # torch.manual_seed asks every kind of accelerator too, here for nothing
        torch.default_generator.manual_seed(seed)
        # a store of its own is enough: nothing but the wire connects the ranks
        dist.init_process_group(backend.NAME, store=dist.HashStore(), rank=job["rank"], world_size=job["ranks"])
        results = []
        message: Mapping | None
        try:
            with self.guard.watching(job["cpu_s"], job["memory_bytes"]), self.nccl or contextlib.nullcontext():
                fn = self.load(fn)
                for number, args in enumerate(calls):
                    if number:
                        self.endpoint.posted.append({"do": FrameKind.CALL})
                    results.append(fn(*args))
            self.endpoint.mind_threads()
            left = [[_only_data(a) for a in args] for args in calls] if job["final_args"] else []
            message, body = values.pack({"do": FrameKind.DONE}, [results, left], guard=job["guard"])
        except Stopped:
            self.guard.active = False
            message, body = None, None
        except CodecError as error:
            message, body = self.fault(FailureKind.BAD_RESULT, str(error), (None, None)), None
        except BaseException as error:
            self.guard.active = False
            message, body = self.describe(error), None
        if self.endpoint.strayed is not None:
            message, body = self.fault(FailureKind.THREAD, "", self.endpoint.strayed), None
        if self.endpoint.stopped:
            message = None  # whatever the program made of being stopped
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        if message is not None:
            if leftovers.found():
                self.endpoint.posted.append({"do": FrameKind.CHANGED})
            self.endpoint.flush()
            self.channel.send([message], body)
        if dist.is_initialized():
            dist.destroy_process_group()
        sys.excepthook = self.excepthook
        sys.modules.pop(_MODULE, None)
        del fn, calls, results

    def rules_of_nccl(self):
        """NCCL's rules for one run."""
        from allranks.ranks.wire.nccl import (
            NcclRules,  # here, since most runs don't need it and it takes time to import
        )

        return NcclRules(self.endpoint)

    def load(self, fn):
        """The function to call; a Program is compiled and executed here."""
        if not isinstance(fn, Program):
            return fn
        linecache.cache[fn.filename] = (len(fn.source), None, fn.source.splitlines(keepends=True), fn.filename)
        try:
            code = _compiled(fn.source, fn.filename)
        except SyntaxError as error:
            raise _Missing(FailureKind.SYNTAX, error.msg, error.lineno, None) from None
        except ValueError as error:
            raise _Missing(FailureKind.SYNTAX, str(error), None, None) from None
        program = sys.modules[_MODULE] = ModuleType(_MODULE)  # a dataclass looks up there where it stands
        module = program.__dict__
        module["__file__"] = fn.filename
        try:
            exec(code, module)
        except ImportError as error:
            _, line = self.call_sites.of_traceback(error.__traceback__)
            raise _Missing(FailureKind.IMPORT, str(error), line, _missing_package(error)) from None
        if not callable(module.get(fn.function)):
            raise _Missing(FailureKind.NO_FUNCTION, f"the program defines no function {fn.function}", None, None)
        return module[fn.function]

    def fault(self, kind: FailureKind, message: str, where: Sequence, **more: Unpack[FaultDetails]) -> Request:
        """The report of a fault, as the last message of a run."""
        return {"do": FrameKind.FAULT, "kind": kind, "message": message[:_TEXT_NCHARS], "where": list(where), **more}

    def describe(self, error: BaseException) -> Request:
        """The report of what was raised."""
        where = self.call_sites.of_traceback(error.__traceback__)
        if isinstance(error, _Missing):
            kind, message, line, package = error.args
            named: FaultDetails = {"missing_name": package} if package else {}
            return self.fault(kind, message, (self.program_file(), line), **named)
        if isinstance(error, SystemExit):
            return self.fault(FailureKind.EXITED, str(error.code), where)
        text = _safe_text(error)
        # torch raises a plain RuntimeError when memory runs out: only its text tells
        if isinstance(error, MemoryError) or "can't allocate memory" in text or "Cannot allocate memory" in text:
            return self.fault(FailureKind.MEMORY, text, where)
        if self.nccl is not None and (broken := self.nccl.broken_by(error)) is not None:
            return self.fault(FailureKind.NCCL_RULE, text, where, **broken)
        kind = FailureKind.IMPORT if isinstance(error, ModuleNotFoundError) else FailureKind.EXCEPTION
        more: FaultDetails = {"error": type(error).__name__[:80]}
        if isinstance(error, NameError) and isinstance(error.name, str):
            more["missing_name"] = error.name[:80]
        if package := _missing_package(error):
            more["missing_name"] = package
        if isinstance(error, MisuseError):
            more["error"], more["misuse"] = "ValueError", error.misuse
        if itself := _refused_by_torch(error):
            text, more["misuse"] = itself, Misuse.OWN_RANK
        return self.fault(kind, text, where, **more)

    def program_file(self) -> str:
        """The file name of the program that runs."""
        return next(iter(self.call_sites.known))

    def on_fault(self, kind: FailureKind, frame: FrameType | None, computed_s: float | None) -> None:
        """A limit was reached, or a process was to be started: says where, and goes no further.

        A library that starts a process while it is imported, as plotting libraries do, is only refused.
        """
        if kind is FailureKind.FORKED and self._importing(frame):
            self.guard.active = True
            raise PermissionError(errno.EPERM, "a rank can't start another process")
        self.guard.active = False
        _, *where = self.call_sites.of_frame(frame)
        self.endpoint.halt(kind, "", where, computed_s=computed_s)

    def on_write(self, path: str, frame: FrameType) -> None:
        """A file was opened for writing."""
        _, *where = self.call_sites.of_frame(frame)
        if where[0] is not None and not self._importing(frame):
            self.endpoint.posted.append({"do": FrameKind.WRITE, "path": path[:_TEXT_NCHARS], "where": where})

    def _importing(self, frame: FrameType | None) -> bool:
        """Whether the student's line imports a library: what that writes meanwhile, such as a cache, is no message."""
        while frame is not None and not self.call_sites.is_students(frame.f_code.co_filename):
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                return True
            frame = frame.f_back
        return False


def _refused_by_torch(error: BaseException) -> str:
    """What torch refuses before the wire is asked, a blocking message to oneself, in the wire's words; "" of any other error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    code = last.tb_frame.f_code if last is not None else None
    if last is None or code is None or code.co_name != "_check_not_self_rank" or type(error) is not ValueError:
        return ""
    told = last.tb_frame.f_locals
    if code.co_filename != dist.distributed_c10d.__file__ or not isinstance(told.get("rank"), int):
        return ""
    does = "send to" if told.get("rank_type") == "destination" else "recv from"
    return f"{does} rank {told['rank']}, which is this rank itself: torch refuses that"


@functools.lru_cache(maxsize=1)
def _compiled(source: str, filename: str) -> CodeType:
    """The code of a program, which comes again with every case."""
    return compile(source, filename, "exec")


def _missing_package(error: BaseException) -> str | None:
    """The package that an import did not find; None for other errors, also for a module that a package lacks.

    The course's own is named too: an answer can't have its modules.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = name.partition(".")[0][:80] if isinstance(name, str) else None
    try:
        gone = package is not None and (package == PACKAGE or importlib.util.find_spec(package) is None)
        return package if gone else None
    except (ImportError, ValueError):
        return None


def _safe_text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:
        return "(its message can't be shown)"


def _only_data(value):
    """The argument as far as it can go back: what the wire does not carry becomes None."""
    if isinstance(value, list):
        return [_only_data(v) for v in value]
    if isinstance(value, tuple):
        return tuple(_only_data(v) for v in value)
    if isinstance(value, dict):
        return {k: _only_data(v) for k, v in value.items() if isinstance(k, str)}
    dense = isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided
    return value if dense or value is None or isinstance(value, bool | int | float | str) else None


def main(args: object, fds: list[int]) -> int:
    """Serves on the first descriptor until the router closes it; what is printed goes to the second.

    Both come with the process: a descriptor sent from here might be refused, since the kernel counts those under way by user.
    """
    torch.set_num_threads(1)
    see_no_gpu()
    gc.freeze()  # pages shared with the process that forked us stay shared
    # a judge that forks us lets its collector look seldom; here it looks as often as in every Python up to 3.13
    gc.set_threshold(700, 10, 10)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for standard in (1, 2):
        os.dup2(fds[1], standard)
    os.close(fds[1])
    Rank(socket.socket(fileno=fds[0])).serve()
    return 0


# in the process that forks the ranks
remember_functions()
remember_modules()

if __name__ == "__main__":
    main(None, [int(number) for number in sys.argv[1:]])
    os._exit(0)
