"""ipyparallel launchers that fork engines and the controller from the fork server: `Cluster(engines="warm")`."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

import psutil
import zmq
from ipyparallel import util
from ipyparallel.cluster.launcher import (
    ControllerLauncher,
    EngineLauncher,
    LocalControllerLauncher,
    LocalEngineSetLauncher,
    LocalProcessLauncher,
)
from jupyter_client.session import Session
from traitlets import Bool, Dict, Instance

from allranks.ranks.engines.forkserver.client import ForkServer
from allranks.ranks.engines.forkserver.mailbox import Child
from allranks.ranks.engines.rank import STACKS_ENV

RANKS_ENV = "ALLRANKS_ENGINES"  # tells the controller how many engines to expect


class WarmLauncher(LocalProcessLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """Forks a process from the fork server, which also reports when and how the process ends."""

    target = ""
    child = Instance(Child, allow_none=True)

    def start(self) -> int:
        """Forks the process and returns its pid."""
        self.child = ForkServer.ensure().spawn(
            self.target, args={"argv": self.args[1:]}, env=self.get_env(), log=self.output_file, cwd=self.work_dir
        )
        self.pid = self.child.pid
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended already; `child` knows how
            self.process = psutil.Process(self.pid)
        self.notify_start(self.pid)
        self._start_waiting()
        return self.pid

    def _wait(self) -> None:
        if self.child is None:  # the launcher was read from a cluster file: another process forked the child
            super()._wait()
            return
        while not self._stop_waiting.is_set() and self.state == "running":
            if self.child.wait(self.poll_seconds) is not None:
                break
        data = {"exit_code": self.child.poll(), "pid": self.pid, "identifier": self.identifier}
        self.loop.add_callback(lambda: self.notify_stop(data))

    def poll(self) -> int | None:
        """The exit code, or None while the process runs."""
        return super().poll() if self.child is None else self.child.poll()

    def signal(self, sig: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.child is None:
            super().signal(sig)
        else:
            self.child.kill(sig)

    async def stop(self) -> None:
        """Kills the process at once: a rank that hangs ignores SIGTERM, and has nothing to save."""
        if self.state == "running":
            self.signal(9)
            await self.join(timeout=self.stop_seconds_until_kill)


class WarmControllerLauncher(WarmLauncher, ControllerLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """Forks ipyparallel's controller."""

    target = "allranks.ranks.engines.controller:run"

    def find_args(self) -> list[str]:
        """The controller's arguments; the first is the program's name."""
        return ["ipcontroller", *self.cluster_args, *self.controller_args]

    def get_env(self) -> dict[str, str]:
        """The environment, with CurveZMQ switched on: other users of the machine could connect to loopback too."""
        return {"IPP_ENABLE_CURVE": "1", RANKS_ENV: str(self.parent.n), **super().get_env()}

    async def stop(self) -> None:
        """Sends SIGTERM, so that the controller removes its connection files; after 2 s, sends SIGKILL."""
        if self.state == "running":
            self.signal(15)
            if self.child is not None and self.child.wait(2) is None:
                self.signal(9)
            await self.join(timeout=self.stop_seconds_until_kill)


class CurveControllerLauncher(LocalControllerLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """ipyparallel's own controller with CurveZMQ switched on, for systems where forking is unsafe."""

    def get_env(self) -> dict[str, str]:
        """The environment, with encryption and authentication switched on."""
        return {"IPP_ENABLE_CURVE": "1", **super().get_env()}


class WarmEngineLauncher(WarmLauncher, EngineLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """Forks one engine.

    It needs no nanny process: the fork server reports exits, and signals go directly to the engine.
    """

    target = "allranks.ranks.engines.rank:engine"

    def find_args(self) -> list[str]:
        """The engine's arguments; the first is the program's name. They ask for an id that equals the rank."""
        return [
            "ipengine",
            *self.cluster_args,
            *self.engine_args,
            f"--IPEngine.id={self.identifier}",
            "--IPEngine.enable_nanny=False",
            "--IPEngine.timeout=30",
            "--IPEngine.max_heartbeat_misses=0",  # no limit: a late beat must not end it; the fork server's end does
            "--HistoryManager.enabled=False",
        ]

    def get_env(self) -> dict[str, str]:
        """The environment, with the variables that differ from rank to rank."""
        return {
            **super().get_env(),
            "RANK": self.identifier,
            "LOCAL_RANK": self.identifier,
            STACKS_ENV: os.path.join(self.profile_dir, "log", f"stacks-{self.identifier}"),
        }


class WarmEngineSetLauncher(LocalEngineSetLauncher):  # type: ignore[misc]  # ipyparallel has no types
    """Forks a set of engines, one for each rank."""

    launcher_class = WarmEngineLauncher
    delay = 0.0
    announce = Bool(True, help="tell the hub when an engine has ended, so that the hub forgets it at once")
    ranks = Dict(help="the launcher of every engine, by rank; `launchers` holds only those that still run")

    def start(self, n: int) -> list[int]:
        """Forks `n` engines and returns their pids."""
        self.environment["WORLD_SIZE"] = self.environment["LOCAL_WORLD_SIZE"] = str(n)
        pids: list[int] = super().start(n)
        self.ranks = dict(self.launchers)
        return pids

    def _notice_engine_stopped(self, data: dict[str, Any]) -> None:
        if self.announce:
            unregister(self.environment.get("IPP_CONNECTION_INFO"), int(data["identifier"]))
        if data["identifier"] in self.launchers:
            super()._notice_engine_stopped(data)


def unregister(connection_info: str | None, engine_id: int) -> None:
    """Tells the hub that an engine has ended, as ipyparallel's nanny does; else the hub waits for ten missed beats."""
    if not connection_info:
        return
    info = json.loads(connection_info)
    session = Session(
        key=info["key"].encode(),
        signature_scheme=info["signature_scheme"],
        packer=info["pack"],
        unpacker=info["unpack"],
    )
    server = info["curve_serverkey"].encode() if info.get("curve_serverkey") else None
    public, secret = zmq.curve_keypair() if server else (None, None)
    peer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    peer.LINGER = 1000
    util.connect(
        peer,
        f"{info['interface']}:{info['registration']}",
        curve_serverkey=server,
        curve_publickey=public,
        curve_secretkey=secret,
    )
    session.send(peer, "unregistration_request", content={"id": engine_id})
    peer.close()
