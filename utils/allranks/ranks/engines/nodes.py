"""Ranks on several nodes: which engine is which rank, on which host, and which network they use.

Some of these functions run on the engines; their docstrings say so.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any

from allranks.ranks.engines import ports
from allranks.ranks.engines.devices import GPU_INDEX_ENV, DeviceError, Inventory, visible

_held: list[socket.socket] = []  # on an engine: it holds the port of the rendezvous


@dataclass(frozen=True)
class Seat:
    """One engine: its id at the controller, its host, and what that host has.

    `rank` is None if the launcher set none. `refused` says why torch can't use GPUs that the host has besides `gpus`.
    """

    engine_id: int
    host: str
    gpus: tuple[str, ...]
    cores: int
    nccl: tuple[int, ...] | None
    rank: int | None
    refused: tuple[str, ...] = ()


def look(engine_id: int) -> dict[str, Any]:
    """The fields of this engine's `Seat`, as plain data. Runs on an engine."""
    have = Inventory.of_this_machine()
    said = os.environ.get("RANK", "")
    return {
        "engine_id": engine_id,
        "host": os.environ.get("ALLRANKS_HOST") or socket.gethostname(),
        "gpus": tuple(gpu.uuid for gpu in have.gpus),
        "cores": have.cores,
        "nccl": have.nccl,
        "rank": int(said) if said.isdigit() else None,
        "refused": have.refused,
    }


def number(seats: list[Seat]) -> list[Seat]:
    """The seats in the order of their ranks: as the launcher numbered them, else sorted by host."""
    by_rank = {seat.rank: seat for seat in seats if seat.rank is not None}
    if by_rank.keys() == set(range(len(seats))):
        return [by_rank[rank] for rank in range(len(seats))]
    return sorted(seats, key=lambda seat: (seat.host, seat.engine_id))


def environment(ordered: list[Seat], backend: str) -> list[dict[str, str]]:
    """The environment variables of each rank, in the order of ranks.

    Raises DeviceError if a node has too few GPUs.
    """
    found: list[dict[str, str]] = []
    here: Counter[str] = Counter()
    on_host = Counter(seat.host for seat in ordered)
    for rank, seat in enumerate(ordered):
        local = here[seat.host]
        here[seat.host] += 1
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(len(ordered)),
            "LOCAL_WORLD_SIZE": str(on_host[seat.host]),
            "CUDA_VISIBLE_DEVICES": "",
        }
        if backend == "nccl":
            seen = [other.gpus for other in ordered if other.host == seat.host]
            if len(seen) > 1 and len(set().union(*seen)) == sum(map(len, seen)):
                mine, place = seat.gpus[:1], 0  # the launcher (a batch system) gave each engine its own GPUs
            else:
                mine, place = seat.gpus[: on_host[seat.host]], local
            if place >= len(mine):
                raise DeviceError(
                    f"{seat.host} has {len(seat.gpus)} GPUs for {on_host[seat.host]} ranks: start one engine for each GPU, or "
                    f"attach with backend='gloo'. {' '.join(seat.refused)}".rstrip()
                )
            shown, index = visible(mine)[place]
            env |= {"CUDA_VISIBLE_DEVICES": shown, GPU_INDEX_ENV: str(index)}
        found.append(env)
    return found


def choose_backend(seats: list[Seat]) -> str:
    """nccl if every node has a GPU for each of its ranks, else gloo."""
    on_host: dict[str, list[Seat]] = {}
    for seat in seats:
        on_host.setdefault(seat.host, []).append(seat)
    enough = all(
        len(set().union(*(seat.gpus for seat in here))) >= len(here) and all(seat.gpus and seat.nccl for seat in here)
        for here in on_host.values()
    )
    return "nccl" if enough else "gloo"


def address_towards(host: str) -> str:
    """The address of this machine on the network that leads to `host`. Runs on an engine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing: the kernel only chooses the route
        address: str = probe.getsockname()[0]
        return address


def interface_of(address: str) -> str | None:
    """The name of the network interface that has this address; None if none has it. Runs on an engine."""
    import psutil

    name: str
    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address == address for a in addresses):
            return name
    return None


def hold_port(address: str) -> int:
    """A free port of `address`, which no other process is given until the next call. Runs on an engine."""
    before, _held[:] = list(_held), ports.hold(1, address)
    for holder in before:
        holder.close()
    port: int = _held[0].getsockname()[1]
    return port


def set_interface(towards: str) -> str | None:
    """Makes gloo and NCCL use the network that leads to `towards`; the interface's name. Runs on an engine."""
    name = interface_of(address_towards(towards))
    if name is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = name
        os.environ["NCCL_SOCKET_IFNAME"] = f"={name}"  # without "=" eno1 also stands for eno12399, another network
    return name
