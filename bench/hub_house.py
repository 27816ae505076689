"""What runs inside the house of tests/hub for the benches of the hub: a real JupyterHub with its people. Prints one
JSON line.

python bench/hub_house.py memory PEOPLE SHARE        SHARE: 1 as shipped, 0 with everybody's imports their own
python bench/hub_house.py load PEOPLE SUBMISSIONS
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TOLD = "told: "
QUIET_S = 15.0  # after the servers' start: what they import late is there
MACHINE = Path("/var/lib/allranks/machine/socket")
CHAPTER = "1_first_hours/04_all_reduce.ipynb"
LAB = "lab03_all_reduce"
LOGINS_S = 120.0 / 30  # thirty people log in within two minutes
FIRST_CELL = "import torch\nfrom allranks import World, check\nfrom allranks.show.player import Player"
START = "world = World(ranks=4)"
WORK = "%%ranks\nx = torch.ones(1 << 18)\ndist.all_reduce(x)\nx.sum().item()"


def play(*words: object, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any] | str:
    """Runs this file in the house, and returns what it found; a sentence where there can be no such house."""
    from bench.common import module  # in the house this file runs by itself

    house = module("tests/hub/house.py")
    if reason := house.what_is_missing():
        return reason
    command = [*house.COMMAND, __file__, *map(str, words)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.Popen(command, text=True, cwd=ROOT, **pipes)
    lines = []
    try:
        for line in done.stdout or ():
            if line.startswith(TOLD):
                progress(line.removeprefix(TOLD).strip())
            else:
                lines.append(line)
    finally:
        if sys.exc_info()[0] is not None:
            done.kill()  # and with it everything in the house
        done.wait()
    if done.returncode:
        raise RuntimeError("".join(lines)[-6000:])
    found: dict[str, Any] = json.loads(next(line for line in lines if line.startswith("{")))
    return found


def say(text: str) -> None:
    """Tells the bench outside what happens."""
    print(TOLD + text, flush=True)


def memory_of(pid: int) -> dict[str, float] | None:
    """The kernel's figures of a process, in MB; None if it has ended."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]:
            name, _, value = line.partition(":")
            found[name] = int(value.split()[0]) * 1024 / 1e6
    return found or None


def everybody(grader: int = -1) -> dict[str, float]:
    """The memory of all of the house's processes but this one and init, in MB.

    "anon" belongs to no file, and is exact; "file" is shared with what else runs on the machine; "grader" is what of
    "anon" the account `grader` has.
    """
    total = {"anon": 0.0, "file": 0.0, "grader": 0.0}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()) and (found := memory_of(int(name))):
            anonymous = found["Pss_Anon"] + found.get("Pss_Shmem", 0.0)
            total["anon"] += anonymous
            total["file"] += found["Pss_File"]
            with contextlib.suppress(OSError):
                total["grader"] += anonymous if os.stat(f"/proc/{name}").st_uid == grader else 0.0
    return total


def by_process(name: str, ranks: list[int]) -> list[tuple[str, float]]:
    """What each kind of a person's processes keeps for itself alone, in MB."""
    from running_hub import processes_of

    kinds: dict[str, list[float]] = {}
    for process in processes_of(name):
        line, found = " ".join(process.cmdline()), memory_of(process.pid)
        if not found:
            continue
        if process.pid in ranks:
            kind = "a rank"
        elif "singleuser.py" in line and "sharing" not in line:
            kind = "server, or what waits for it"
        elif "jupyterhub-singleuser" in line:
            kind = "server"
        elif process.name() == "ipykernel":
            kind = "kernel"
        elif "allranks.ranks.engines.forkserver" in " ".join(process.parent().cmdline()):
            shared_parent = "forkserver.machine" in " ".join(process.parent().cmdline())
            kind = "fork server" if shared_parent else "controller's processes"
        else:
            kind = "fork server" if "forkserver" in line else "other"
        kinds.setdefault(kind, []).append(found["Private_Dirty"] + found["Private_Clean"])
    return [(f"{kind} ({len(values)})", sum(values)) for kind, values in sorted(kinds.items())]


def _hub(people: int, **environment: str) -> tuple[Any, dict[str, str]]:
    from running_hub import Hub, make_accounts

    passwords = {f"p{number}": f"pass-word-{number}" for number in range(people)}
    make_accounts({name: (password, "allranks-students") for name, password in passwords.items()})
    hub = Hub(Path("/tmp/hub.log"))
    hub.start(**environment)
    if environment.get("ALLRANKS_HUB_SHARE_MEMORY") == "1":
        while not MACHINE.exists():
            time.sleep(0.2)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.settimeout(120)
            asking.connect(str(MACHINE))
            asking.recv(4096)  # it refuses root, once it has imported everything
    time.sleep(QUIET_S)
    return hub, passwords


def memory(people: int, share: str) -> dict[str, Any]:
    """What the hub and its people take: nobody, everybody logged in, with a notebook, with four ranks."""
    from visitor import Kernel, Visitor

    hub, passwords = _hub(people, ALLRANKS_HUB_SHARE_MEMORY=share)
    states = [("nobody", everybody())]
    visitors, up_s = [], []
    for name, password in passwords.items():
        say(f"{name} logs in")
        visitors.append(Visitor.log_in(name, password))
        began = time.monotonic()
        visitors[-1].start_server()
        visitors[-1].wait_for_server()
        up_s.append(time.monotonic() - began)
    time.sleep(QUIET_S)
    states.append(("logged in, no notebook", everybody()))
    ranks: list[int] = []

    async def go() -> None:
        kernels = [await Kernel(visitor, "chapters").open() for visitor in visitors]
        for kernel in kernels:
            await kernel.says(FIRST_CELL)
        await asyncio.sleep(2)
        states.append(("one notebook, the course imported", everybody()))
        for kernel in kernels:
            say(f"{kernel.visitor.name} starts ranks")
            pids = json.loads(await kernel.says(f"{START}\nprint(world.pids)"))
            ranks.extend(pids)
            await kernel.run(WORK)
        await asyncio.sleep(2)
        states.append(("four ranks after an all_reduce", everybody()))

    asyncio.run(go())
    processes = by_process("p0", ranks)
    began = time.monotonic()
    hub.stop()
    stopped_s = time.monotonic() - began
    began = time.monotonic()
    hub.start(ALLRANKS_HUB_SHARE_MEMORY=share)
    started_s = time.monotonic() - began
    survived = visitors[0].ask("GET", "/user/p0/api/status").status_code == 200
    hub.stop()
    return {
        "states": states,
        "processes": processes,
        "up_s": up_s,
        "stop_s": stopped_s,
        "start_s": started_s,
        "survived": survived,
    }


def load(people: int, submissions: int) -> dict[str, Any]:
    """People log in, one every four seconds, and each runs chapter 04; meanwhile the grader grades."""
    from running_hub import GRADER
    from visitor import Kernel, Visitor

    hub, passwords = _hub(people)
    course = _course(submissions) if submissions else None
    base = everybody()
    grader = pwd.getpwnam(GRADER).pw_uid
    peak = {"all": 0.0, "people": 0.0, "grader": 0.0}
    found: list[dict[str, Any]] = []

    async def person(number: int, name: str, password: str) -> None:
        await asyncio.sleep(number * LOGINS_S)
        about: dict[str, Any] = {"name": name, "failures": []}
        found.append(about)
        began = time.monotonic()
        try:
            me = await asyncio.to_thread(Visitor.log_in, name, password)
            await asyncio.to_thread(me.start_server)
            await asyncio.to_thread(me.wait_for_server, None, 300)
            about["server_s"] = time.monotonic() - began
            path = f"/user/{name}/api/contents/chapters/{CHAPTER}"
            cells = (await asyncio.to_thread(me.call, "GET", path))["content"]["cells"]
            kernel = await (await asyncio.to_thread(Kernel, me, "chapters")).open()
            for cell in (cell for cell in cells if cell["cell_type"] == "code"):
                outputs = await asyncio.wait_for(kernel.run(cell["source"]), 300)
                about.setdefault("first_cell_s", time.monotonic() - began)
                raised = [output.evalue for output in outputs if output.output_type == "error"]
                if raised and "raises-exception" not in cell["metadata"].get("tags", []):
                    about["failures"].append(f"{cell['id']}: {raised}")
            about["chapter_s"] = time.monotonic() - began
            say(f"{name} has run chapter 04")
        except Exception as error:  # counted, and the others go on
            about["failures"].append(f"{type(error).__name__}: {error}"[:400])

    async def grade() -> float | None:
        if course is None:
            return None
        command = [sys.executable, "-m", "allranks.cli", "grade", LAB, "--course", str(course)]
        began = time.monotonic()
        env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": f"/home/{GRADER}"}
        process = await asyncio.create_subprocess_exec(
            *("setpriv", f"--reuid={GRADER}", f"--regid={GRADER}", "--init-groups", *command),
            cwd=course / "autograder",
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"grading failed: {said.decode()[-3000:]}")
        return time.monotonic() - began

    async def watch() -> None:
        while True:
            now = await asyncio.to_thread(everybody, grader)
            people_mb = now["anon"] - now["grader"] - base["anon"]
            for name, value in (("all", now["anon"]), ("people", people_mb), ("grader", now["grader"])):
                peak[name] = max(peak[name], value)
            await asyncio.sleep(5)

    async def go() -> float | None:
        watching = asyncio.create_task(watch())
        grading = asyncio.create_task(grade())
        await asyncio.gather(*(person(number, *item) for number, item in enumerate(passwords.items())))
        graded_s = await grading
        watching.cancel()
        return graded_s

    graded_s = asyncio.run(go())
    grades = _scores(course) if course else []
    hub.stop()
    return {"people": found, "base_mb": base["anon"], "peak_mb": peak, "graded_s": graded_s, "grades": grades}


def _course(submissions: int) -> Path:
    """A course of the grader's with so many right submissions."""
    from running_hub import GRADER, run

    from bench import grading

    say(f"{submissions} submissions are made")
    course = Path("/home", GRADER, "load")
    grading._our_course(course)
    grading._hand_in(course, 1, submissions)
    run("chown", "-R", f"{GRADER}:", course)
    return course


def _scores(course: Path) -> list[float]:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{course / 'autograder' / 'gradebook.db'}") as book:
        return [submission.score for submission in book.assignment_submissions(LAB)]


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "hub")]
    what, people, more = sys.argv[1:]
    print(json.dumps(memory(int(people), more) if what == "memory" else load(int(people), int(more))), flush=True)
