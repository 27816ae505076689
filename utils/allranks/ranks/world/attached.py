"""A world on ipyparallel's engines that were started elsewhere: by Slurm, over SSH, or on another machine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from allranks.ranks.engines import nodes
from allranks.ranks.engines import rank as on_rank
from allranks.ranks.engines.devices import MAX_RANKS, Placement
from allranks.ranks.world.cluster import START_TIMEOUT_S, Engines, WorldError


class Attached(Engines):
    """Engines that a cluster or connection file of ipyparallel names.

    This class joins them into a group, and never ends them.
    """

    ours = False
    afterwards = "These engines were started elsewhere, so they can't be replaced from here: restart them there, then World.attach again."

    def __init__(self, file: str | Path, backend: str | None) -> None:
        super().__init__(Placement(backend or "gloo", (), (), 1, local=False), "attached")
        self.file, self.backend = Path(file).expanduser(), backend

    def _start(self, progress: Callable[[str], None]) -> None:
        import ipyparallel as ipp

        deadline = time.monotonic() + START_TIMEOUT_S
        progress(f"reaching the engines of {self.file.name}")
        self._client = connect(ipp, self.file)
        self._meet(progress, deadline, _controller_address(self.file))

    def _meet(self, progress: Callable[[str], None], deadline: float, controller: str) -> None:
        """Numbers the engines that the client knows, and joins them into one group.

        `controller` is the controller's address.
        """
        ids = sorted(self._client.ids)
        if not ids:
            raise WorldError(f"The cluster of {self.file} has no engines yet; wait until they are registered.")
        if len(ids) > MAX_RANKS:
            raise WorldError(f"The cluster of {self.file} has {len(ids)} engines; a world takes {MAX_RANKS}.")
        seats = [nodes.Seat(**found) for found in self._ask(ids, nodes.look, [(i,) for i in ids], deadline)]
        ordered = nodes.number(seats)
        backend = self.backend or nodes.choose_backend(ordered)
        env = nodes.environment(ordered, backend)
        self._views = [self._client[seat.engine_id] for seat in ordered]
        threads = max(1, min(s.cores // sum(o.host == s.host for o in ordered) for s in ordered))
        self.placement = Placement(backend, (None,) * len(ordered), tuple(env), threads, local=False)
        first = ordered[0].engine_id
        (address,) = self._ask([first], nodes.address_towards, [(controller,)], deadline)
        (port,) = self._ask([first], nodes.hold_port, [(address,)], deadline)
        self._ask([s.engine_id for s in ordered], nodes.set_interface, [(address,)] * len(ordered), deadline)
        self._import()
        deadline = time.monotonic() + START_TIMEOUT_S
        progress(f"{len(ordered)} ranks on {len({s.host for s in ordered})} nodes meet ({backend})")
        joined = [
            view.apply_async(on_rank.join, r, len(ordered), backend, f"tcp://{address}:{port}", env[r], threads, None)
            for r, view in enumerate(self._views)
        ]
        described = self._gather(joined, deadline, "joined")
        self.described = [
            {**d, "device": f"{d['device']} on {s.host}"} for d, s in zip(described, ordered, strict=True)
        ]

    def _ask(self, ids: list[int], function, arguments: list[tuple], deadline: float) -> list:
        replies = [self._client[i].apply_async(function, *a) for i, a in zip(ids, arguments, strict=True)]
        return self._gather(replies, deadline, "answered")

    def _gather(self, replies: list, deadline: float, verb: str) -> list:
        for number, reply in enumerate(replies):
            while not reply.ready():
                if self._cancelled or time.monotonic() > deadline:
                    raise WorldError(f"Not all {len(replies)} engines had {verb} after {START_TIMEOUT_S:.0f} s.")
                reply.wait(0.05)
            if not reply.successful():
                self._refused(number, reply)
        return [reply.get() for reply in replies]

    def watch(self, rank: int) -> Path:
        """A path that does not exist: the rank may be on another machine, so there is no socket."""
        return Path("/nonexistent")

    def stacks(self, rank: int) -> Path:
        """A path that does not exist, for the same reason."""
        return Path("/nonexistent")

    def dead(self) -> dict[int, str]:
        """The ranks whose engine is no longer registered at the controller."""
        if self._client is None or not self.described:
            return {}
        there = set(self._client.ids)
        lost = {r: v.targets for r, v in enumerate(self._views) if v.targets not in there}
        return {rank: "is no longer known to the controller" for rank in lost}

    def renew(self) -> None:
        """Disconnects from the engines: we can't replace them, and an engine that hangs would not answer any more."""
        self.stop()

    def _stop(self) -> None:
        self._let_go()


def connect(ipp, file: Path):
    """A client of the cluster that a cluster file or a connection file names. Raises WorldError if none answers."""
    if not file.is_file():
        raise WorldError(f"There is no cluster file {file}; ipyparallel writes it when the cluster starts.")
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if "engines" in data or "cluster" in data:
            return ipp.Cluster.from_file(str(file)).connect_client_sync()
        return ipp.Client(str(file), timeout=30)
    except (ValueError, KeyError, OSError, TimeoutError) as error:
        raise WorldError(f"The cluster of {file} can't be reached: {error}") from None


def _controller_address(file: Path) -> str:
    """The address at which engines reach the controller, from the cluster file or the connection file."""
    data = json.loads(file.read_text(encoding="utf-8"))
    if "interface" not in data:
        client = (data.get("controller") or {}).get("state", {}).get("connection_info", {}).get("client")
        data = client or {"interface": "tcp://127.0.0.1"}
    host = data.get("location") if "*" in data["interface"] or "0.0.0.0" in data["interface"] else None
    return host or data["interface"].split("://")[1]
