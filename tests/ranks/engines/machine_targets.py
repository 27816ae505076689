"""What a fork of the machine's fork server does in test_machine.py: tells who and what it is."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import tempfile
import time
import types
from pathlib import Path, PurePath
from typing import Any


def report(args: Any, fds: list[int]) -> None:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    try:
        os.setuid(0)
        back = "is root again"
    except PermissionError:
        back = "stays"
    umask = os.umask(0)
    said = {
        "args": args,
        "uids": os.getresuid(),
        "gids": os.getresgid(),
        "groups": os.getgroups(),
        "back": back,
        "rights": [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")],
        "bound": int(status["CapBnd"], 16),
        "no_new_privs": int(status["NoNewPrivs"]),
        "umask": umask,
        "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
        "cores": sorted(os.sched_getaffinity(0)),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "cwd": os.getcwd(),
        "env": dict(os.environ),
        "temporary": tempfile.gettempdir(),
        "mounts": os.readlink("/proc/self/ns/mnt"),
        "groups_of_control": Path("/proc/self/cgroup").read_bytes().decode().strip("\n").split("\n"),
        "leads": os.getsid(0) == os.getpid(),
        "owner": os.stat("/proc/self/status").st_uid,
        "sockets": sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:") for fd in _descriptors()),
    }
    os.write(fds[0], json.dumps(said).encode())


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")]


def stay(args: Any, fds: list[int]) -> None:
    os.write(fds[0], json.dumps(os.getpid()).encode())
    os.close(fds[0])
    time.sleep(600)


def kept(args: Any, fds: list[int]) -> None:
    """Tells each text in modules, with the names that lead to it, that has one of `args["words"]` in it, or a number of root's."""
    found = []
    for where, text in _texts():
        plain = text.hex() if isinstance(text, bytes) else str(text).replace("-", "")
        if any(word in str(text) or word in plain for word in args["words"]):
            found.append(f"{where}: {str(text)[:100]}")
    for name, module in list(sys.modules.items()):
        numbers = [
            key for key, value in vars(module).items() if key.strip("_") in ("uid", "euid", "gid") and value == 0
        ]
        found += [f"{name}.{key} is root's" for key in numbers]
    with open(fds[0], "w", encoding="utf-8") as told:
        told.write(json.dumps(found))


def _texts() -> Any:
    """Each text, bytes and path that a module holds: its variables, classes, functions' defaults, whatever they refer to."""
    seen = {id(sys.modules.get("__main__")), id(vars(sys.modules["__main__"])), id(os.environ)}
    waiting: list[tuple[str, object]] = list(sys.modules.items())
    while waiting:
        where, thing = waiting.pop()
        if id(thing) in seen:
            continue
        kind = type(thing)
        if issubclass(kind, (str, bytes, PurePath)):
            yield where, thing
            continue
        seen.add(id(thing))
        if kind is dict:
            waiting += [(f"{where}.{key}" if isinstance(key, str) else where, value) for key, value in thing.items()]
            waiting += [(f"a name in {where}", key) for key in thing]
        elif kind is types.CodeType:
            waiting += [(where, constant) for constant in thing.co_consts]
        else:
            named = kind is types.FunctionType or isinstance(thing, type)
            where = f"{thing.__module__}.{thing.__qualname__}" if named else where
            waiting += [
                (where if kind is types.ModuleType else f"{where}<{kind.__name__}>"[-150:], one)
                for one in gc.get_referents(thing)
            ]
