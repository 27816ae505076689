"""Root's service that opens GPUs to their holders (`allranks gpus --serve`): leases that the kernel enforces.

A client connects to a Unix socket, asks one question in one line of JSON, and is known by its account, which the kernel tells
(SO_PEERCRED). A lease lasts as long as its connection and the process that opened it. Meanwhile an ACL lets the account open
the GPU's device nodes. After it, what the account still has open there is ended, and only then is the GPU free.
The queue is that of `allranks.ranks.engines.leases`: people take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import logging
import os
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from allranks.ranks.engines import gpu_nodes
from allranks.ranks.engines.credentials import credentials_of
from allranks.ranks.engines.devices import MAX_SHARES, DeviceError, Gpu
from allranks.ranks.engines.gpu_nodes import Before, Nodes
from allranks.ranks.engines.gpu_use import Use, use_of
from allranks.ranks.engines.leases import (
    SLICE_S,
    Holder,
    LeaseError,
    Waiter,
    account_name,
    check_count,
    gather,
    in_turn,
    waits,
)

GRACE_S = 60.0  # from the end of a slice, if somebody waits, until the GPUs are taken back
CLOSE_S = 0.3  # how long a process that has just lost its GPU may take to close it: NVML has it open for a moment
EVADE_S = 5.0  # after that, all processes of an account are ended, if some still have its GPU open
TICK_S = 1.0
LOOK_S = 2.0  # how often all processes are looked at
USE_S = 0.3  # a question for the state waits so long for how much of the GPUs is in use
OLD_USE_S = 15.0  # after that it counts for nothing
QUESTION_S = 10.0  # a client must have asked by then, and have read its answer
LINE_BYTES = 16384
UNREAD_BYTES = 65536  # a client that reads nothing is given up when so much waits for it
CONNECTIONS = 64  # of one account
FORESEEN = 100  # places of the queue whose waiting time is estimated
log = logging.getLogger("allranks.gpus")


class GpuServeError(DeviceError):
    """The service can't run; the message says why."""


@dataclass(frozen=True)
class Rules:
    """What the administrator chose.

    `always` are accounts that may open all GPUs at any time, such as that of a monitor. With `end_unleased`, processes
    that have a GPU open without a lease are ended, not only shown.
    """

    slice_s: float = SLICE_S
    grace_s: float = GRACE_S
    always: frozenset[int] = frozenset()
    end_unleased: bool = False


@dataclass(eq=False)
class _Client:
    """A connection that asked for a lease: it waits for one or has one."""

    uid: int
    pid: int
    number: int
    writer: asyncio.StreamWriter
    count: int
    shares: int | None
    slice_s: float
    uuids: frozenset[str]
    since: float = field(default_factory=time.time)
    gpus: tuple[Gpu, ...] = ()  # of its lease; empty while it waits
    until: float = 0.0
    over_since: float | None = None
    told: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of its ticket."""
        return str(self.number)

    @property
    def part(self) -> Fraction:
        """How much of each GPU it takes."""
        return Fraction(1, self.shares or 1)

    def say(self, words: Mapping[str, Any]) -> None:
        """Sends a line; gives the client up if it has not read the earlier ones."""
        transport = self.writer.transport
        if transport.get_write_buffer_size() > UNREAD_BYTES:
            transport.abort()
        elif not transport.is_closing():
            self.writer.write(json.dumps(words).encode() + b"\n")


class GpuService:
    """Leases of these GPUs, and their device nodes, which only root and the holders can open meanwhile."""

    def __init__(self, gpus: Iterable[Gpu], nodes: Nodes, rules: Rules = Rules(), watch: Watch | None = None) -> None:
        self.gpus, self.nodes, self.rules = tuple(gpus), nodes, rules
        self._watch = watch or Watch()
        self._uses = Counter(node for gpu in self.gpus for node in nodes[gpu.uuid])
        self._before: dict[Path, Before] = {}
        self._waiting: dict[str, _Client] = {}
        self._holding: list[_Client] = []
        self._closing: set[tuple[Path, int]] = set()  # nodes that an account has lost and may still have open
        self._last: dict[int, int] = {}  # when an account last had a GPU, in nanoseconds
        self._connections: Counter[int] = Counter()
        self._unleased: list[dict[str, Any]] = []
        self._use: dict[str, Use] = {}
        self._read_at = -OLD_USE_S
        self._reading: asyncio.Task[None] | None = None
        self._stopped = False
        self._faults: dict[Path, str] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, path: Path, ready: Callable[[], None] = lambda: None) -> None:
        """Serves on the socket `path` until it is cancelled; then the nodes are as they were before.

        Raises GpuServeError if this is not root, another service runs, or the nodes' file system keeps no ACLs.
        """
        if os.geteuid() != 0:
            raise GpuServeError("Only root can open and close device nodes: run `allranks gpus --serve` as root.")
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        listener = _listen(path)
        try:
            self._close_nodes()
            server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_BYTES, backlog=1024)
            log.info("%d GPUs are served on %s", len(self.gpus), path)
            for warning in self.warnings():
                log.warning(warning)
            ready()
            try:
                await asyncio.gather(self._tick(), self._look())
            finally:
                server.close()
        except (asyncio.CancelledError, DeviceError):  # after any other error the nodes stay closed
            self._stopped = True
            for node, was in self._before.items():
                with contextlib.suppress(OSError):
                    gpu_nodes.put_back(node, was)
            raise
        finally:
            path.unlink(missing_ok=True)
            listener.close()

    # ------------------------------------------------------------------------------------------------------- the nodes

    def _close_nodes(self) -> None:
        for node in self._uses:
            try:
                self._before[node] = gpu_nodes.before(node)
                gpu_nodes.open_to(node, self._allowed(node))
            except OSError as error:
                raise GpuServeError(f"The device node {node} can't be closed to others: {error.strerror}.") from None

    def _allowed(self, node: Path) -> set[int]:
        """The accounts that may open a node now."""
        holders = {c.uid for c in self._holding for gpu in c.gpus if node in self.nodes[gpu.uuid]}
        return holders | self.rules.always

    def _set_nodes(self) -> None:
        """Sets every node's ACL, also where somebody has changed it."""
        for node in self._uses:
            try:
                if gpu_nodes.open_to(node, self._allowed(node)):
                    log.debug("%s is open to %s", node, sorted(self._allowed(node)))
                self._faults.pop(node, None)
            except (OSError, DeviceError) as error:
                if node not in self._faults:
                    log.error("%s can't be closed to others: %s", node, error)
                self._faults[node] = f"{node} can't be closed to others: {error}"

    async def _clear(self, uid: int, nodes: set[Path]) -> None:
        """Ends what an account still has open on nodes that it has lost; returns when nothing is left."""
        began, wait_s = time.monotonic(), 0.02
        while True:
            waited_s = time.monotonic() - began
            ending = waited_s > CLOSE_S
            left = await asyncio.to_thread(gpu_nodes.openers, nodes, uid, ending)
            if not left:
                return
            if ending:
                for opener in left:
                    log.warning("%s's process %d still has %s open: ended", _name(uid), opener.pid, opener.node)
                    self._watch.ended()
            if waited_s > EVADE_S:
                log.warning("%s's processes begin faster than they can be ended: all of them are ended", _name(uid))
                await asyncio.to_thread(gpu_nodes.end_all, uid)
            await asyncio.sleep(wait_s)
            wait_s = min(1.0, 1.5 * wait_s)

    async def _look(self) -> None:
        """Sees every few seconds who has a GPU open without a lease."""
        guilty: set[tuple[int, int]] = set()  # seen the last time too: one whose lease has just ended is not unleased
        while True:
            found = await asyncio.to_thread(gpu_nodes.openers, list(self._uses))
            strays = [o for o in found if o.uid not in self._allowed(o.node) and (o.node, o.uid) not in self._closing]
            self._unleased = [
                {"user": _name(uid), "pid": pid, "gpus": sorted({g.uuid for g in self.gpus if set(self.nodes[g.uuid]) & its})}
                for pid, uid, its in _by_process(strays)
            ]  # fmt: skip
            self._watch.unleased(len(self._unleased))
            again, guilty = guilty, {(o.pid, o.uid) for o in strays}
            for pid, uid in guilty - again:
                log.warning("%s's process %d has a GPU open without a lease", _name(uid), pid)
            if self.rules.end_unleased:
                for pid, uid in guilty & again:
                    gpu_nodes.end(pid, uid)
                    self._watch.ended()
            await asyncio.sleep(LOOK_S)

    async def _look_at_use(self) -> None:
        """Reads how much of each GPU is in use: only root can, and only when somebody asks, since a look wakes a GPU that sleeps."""
        if (self._reading is None or self._reading.done()) and time.monotonic() - self._read_at > LOOK_S:
            self._reading = self._start(self._read_use())
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=USE_S)

    async def _read_use(self) -> None:
        self._use = await asyncio.to_thread(use_of, self.gpus)
        self._read_at = time.monotonic()

    # -------------------------------------------------------------------------------------------------------- the queue

    def _order(self) -> list[str]:
        held: Counter[int] = Counter()
        for client in self._holding:
            held[client.uid] += len(client.gpus)
        tickets = [(client.uid, client.number, name) for name, client in self._waiting.items()]
        return in_turn(tickets, held, self._last)

    def _free_for(self, client: _Client, gpu: Gpu) -> bool:
        """Whether a client could have a GPU, or its share of it, now."""
        if gpu.uuid not in client.uuids:
            return False
        for node, uid in self._closing:
            # another part of the same card does not wait, unless for its own user, whose new processes would be ended
            if node in self.nodes[gpu.uuid] and (uid == client.uid or self._uses[node] == 1):
                return False
        there = [other for other in self._holding if gpu in other.gpus]
        if not client.shares:
            return not there
        return all(c.shares for c in there) and sum((c.part for c in there), client.part) <= 1

    def _grant(self) -> None:
        """Gives GPUs to those whose turn it is."""
        while order := self._order():
            client = self._waiting[order[0]]
            gpus = self.gpus
            if client.shares:  # those with the fewest users first
                gpus = tuple(sorted(gpus, key=lambda gpu: sum(gpu in other.gpus for other in self._holding)))
            found = [gpu for gpu, _ in gather(gpus, client.count, functools.partial(self._free_for, client))]
            if len(found) < client.count:
                break
            del self._waiting[client.name]
            client.gpus, now = tuple(found), time.time()
            client.until = now + client.slice_s
            self._holding.append(client)
            self._last[client.uid] = time.time_ns()
            self._set_nodes()
            self._watch.granted(now - client.since)
            log.info("%s (pid %d) has %s", _name(client.uid), client.pid, _numbers(found))
            client.say({"granted": [gpu.uuid for gpu in found], "until": client.until})
        self._tell()

    def _tell(self) -> None:
        """Tells those who wait their place, and those who hold whether their time is over, if that has changed."""
        queue = [self._waiting[name] for name in self._order()]
        leases = [[(c.until, float(c.part)) for c in self._holding if gpu in c.gpus] for gpu in self.gpus]
        seconds = waits([(c.count, c.shares) for c in queue[:FORESEEN]], leases, self.rules.slice_s)
        for place, (client, wait_s) in enumerate(itertools.zip_longest(queue, seconds), start=1):
            words = {"place": place, "seconds": wait_s if wait_s is None else 10 * round(wait_s / 10)}
            if words != client.told:
                client.told = words
                client.say(words)
        for client in self._holding:
            over = time.time() > client.until and bool(self._waiting)
            if over != (client.over_since is not None):
                client.over_since = time.monotonic() if over else None
                client.say({"over": over})

    async def _tick(self) -> None:
        while True:
            self._set_nodes()
            for client in list(self._holding):
                if client.over_since is not None and time.monotonic() - client.over_since > self.rules.grace_s:
                    self._end(client, "the time was over and others wait")
            self._grant()
            self._watch.queue(len(self._waiting), Counter(gpu.uuid for c in self._holding for gpu in c.gpus))
            await asyncio.sleep(TICK_S)

    def _end(self, client: _Client, why: str) -> None:
        """Takes a lease back against its holder's will."""
        log.warning("%s (pid %d) loses %s: %s", _name(client.uid), client.pid, _numbers(client.gpus), why)
        client.say({"ended": why})
        self._start(self._take_back(client))

    async def _take_back(self, client: _Client) -> None:
        """Ends a lease, and returns when its GPUs are free."""
        self._waiting.pop(client.name, None)
        if client not in self._holding or self._stopped:
            return
        self._holding.remove(client)
        self._last[client.uid] = time.time_ns()
        self._set_nodes()
        mine = {node for gpu in client.gpus for node in self.nodes[gpu.uuid]}
        lost = {node for node in mine if client.uid not in self._allowed(node)} if client.uid != 0 else set()
        closing = {(node, client.uid) for node in lost} - self._closing
        self._closing |= closing
        try:
            await self._clear(client.uid, {node for node, _ in closing})
        finally:
            self._closing -= closing
        log.info("%s (pid %d) has given back %s", _name(client.uid), client.pid, _numbers(client.gpus))
        self._grant()

    # --------------------------------------------------------------------------------------------------- the connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one client. Whatever it sends or does not send harms only itself."""
        pid, uid, _ = credentials_of(writer.get_extra_info("socket"))
        self._connections[uid] += 1
        try:
            if self._connections[uid] > CONNECTIONS and uid != 0:
                raise LeaseError(f"This account has {CONNECTIONS} connections to the GPU service already.")
            question = _read(await asyncio.wait_for(reader.readline(), QUESTION_S))
            if question.get("ask") == "state":
                await self._look_at_use()
                writer.write(json.dumps(self.state()).encode() + b"\n")
            elif question.get("ask") == "lease":
                await self._lease(self._asked(question, uid, pid, writer), reader)
            else:
                raise LeaseError("The GPU service answers questions for the state and for a lease.")
        except (LeaseError, ValueError) as error:
            words = str(error) if isinstance(error, LeaseError) else "The question is not one line of JSON."
            writer.write(json.dumps({"error": words}).encode() + b"\n")
        except (TimeoutError, OSError):
            pass
        finally:
            self._connections[uid] -= 1
            await _bid_farewell(writer)

    def _asked(self, question: dict[str, Any], uid: int, pid: int, writer: asyncio.StreamWriter) -> _Client:
        """The client that a question makes; raises LeaseError if the question can't be granted."""
        count, shares, slice_s = question.get("count"), question.get("shares"), question.get("slice_s", SLICE_S)
        uuids = question.get("gpus")
        if not isinstance(uuids, list) or not all(isinstance(uuid, str) for uuid in uuids):
            raise LeaseError("The question names no GPUs.")
        mine = frozenset(uuids) & {gpu.uuid for gpu in self.gpus}
        if type(count) is not int:
            raise LeaseError("The question names no number of GPUs.")
        check_count(count, len(mine))
        if shares is not None and (type(shares) is not int or not 1 <= shares <= MAX_SHARES):
            raise LeaseError(f"The number of shares is a whole number from 1 to {MAX_SHARES}.")
        if type(slice_s) not in (int, float) or not 0 <= slice_s:
            raise LeaseError("The time of a lease is a number of seconds.")
        slice_s = min(slice_s, self.rules.slice_s)
        return _Client(uid, pid, next(self._numbers), writer, count, shares, slice_s, mine)

    async def _lease(self, client: _Client, reader: asyncio.StreamReader) -> None:
        """Lets a client wait and have its lease until it closes the connection, or its process ends."""
        gone = asyncio.Event()
        with _told_of_end(client.pid, gone):
            self._waiting[client.name] = client
            try:
                self._grant()
                ended, closed = asyncio.ensure_future(gone.wait()), asyncio.ensure_future(_until_closed(reader))
                try:
                    await asyncio.wait({ended, closed}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ended.cancel()
                    closed.cancel()
            finally:
                # the GPUs are taken back also if this task is cancelled
                await asyncio.shield(self._start(self._take_back(client)))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def state(self) -> dict[str, Any]:
        """Everything that everybody may know, as JSON can say it."""
        alone: dict[str, dict[str, Any] | None] = {gpu.uuid: None for gpu in self.gpus}
        sharers: dict[str, list[dict[str, Any]]] = {gpu.uuid: [] for gpu in self.gpus}
        for client in self._holding:
            holder = asdict(Holder(_name(client.uid), client.pid, client.until - client.slice_s, client.until))
            for gpu in client.gpus:
                if client.shares:
                    sharers[gpu.uuid].append(holder)
                else:
                    alone[gpu.uuid] = holder
        order = [self._waiting[name] for name in self._order()]
        return {
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "holders": alone,
            "sharers": sharers,
            "waiting": [asdict(Waiter(_name(c.uid), c.pid, c.count, c.since, c.shares)) for c in order],
            "unleased": self._unleased,
            "clearing": sorted({g.uuid for g in self.gpus if any(n in self.nodes[g.uuid] for n, _ in self._closing)}),
            "use": self._use if time.monotonic() - self._read_at < OLD_USE_S else {},
            "slice_s": self.rules.slice_s,
            "warnings": self.warnings(),
        }

    def warnings(self) -> list[str]:
        """What keeps the service from closing the GPUs well, one sentence each."""
        found = list(self._faults.values())
        if gpu_nodes.driver_opens():
            found.append(
                "The NVIDIA driver's own program opens the GPUs to everybody again, for up to a second each time: set "
                "NVreg_ModifyDeviceFiles=0 (docs/gpus.md)."
            )
        return found


class Watch:
    """What is told about the service's work while it runs; this one tells nobody. `allranks gpus --metrics` has another."""

    def granted(self, waited_s: float) -> None:
        """A lease began."""

    def ended(self) -> None:
        """A process was ended."""

    def unleased(self, processes: int) -> None:
        """So many processes have a GPU open without a lease."""

    def queue(self, waiting: int, leases: Mapping[str, int]) -> None:
        """So many wait, and each GPU has so many leases (a GPU that has none is left out)."""


def _listen(path: Path) -> socket.socket:
    """The service's socket, which everybody may connect to."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        raise GpuServeError(f"A GPU service runs already: {path} answers.")
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        listener.close()
        raise GpuServeError(f"The socket {path} can't be made: {error.strerror}.") from None
    return listener


def _read(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except RecursionError:
        raise ValueError from None
    if not isinstance(found, dict):
        raise ValueError
    return found


async def _until_closed(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(256):
            pass


async def _bid_farewell(writer: asyncio.StreamWriter) -> None:
    """Closes a connection when the client has read its answer, or has had the time to."""
    with contextlib.suppress(TimeoutError, OSError):
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), QUESTION_S)
    writer.transport.abort()


@contextlib.contextmanager
def _told_of_end(pid: int, gone: asyncio.Event) -> Any:
    """Sets the event when a process ends: a child of it may have inherited the connection."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # it has ended, or lives where its number is not known
        if pid > 0:
            gone.set()
        yield
        return
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(handle)
        gone.set()

    loop.add_reader(handle, ended)
    try:
        yield
    finally:
        loop.remove_reader(handle)
        os.close(handle)


def _by_process(openers: Iterable[gpu_nodes.Opener]) -> list[tuple[int, int, set[Path]]]:
    found: dict[tuple[int, int], set[Path]] = {}
    for opener in openers:
        found.setdefault((opener.pid, opener.uid), set()).add(opener.node)
    return [(pid, uid, nodes) for (pid, uid), nodes in found.items()]


@functools.lru_cache(maxsize=1024)
def _name(uid: int) -> str:
    return account_name(uid) or "?"


def _numbers(gpus: Iterable[Gpu]) -> str:
    return ", ".join(f"GPU {gpu.index}" for gpu in gpus)
