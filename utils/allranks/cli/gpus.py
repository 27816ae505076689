"""`allranks gpus`: who uses which GPU, and who waits; with --serve, root's service that opens GPUs to holders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import click

from allranks.cli._shared import CommandError


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--take", type=click.IntRange(1), metavar="N", help="Wait for N GPUs and run COMMAND on them.")
@click.option("--serve", is_flag=True, help="As root: open each GPU only to its holder, until stopped (docs/gpus.md).")
@click.option(
    "--slice", "minutes", type=click.FloatRange(0), help="--serve: the minutes of a lease while others wait [20]."
)
@click.option("--grace", type=click.FloatRange(0), help="--serve: seconds after that before GPUs are taken back [60].")
@click.option("--allow", multiple=True, metavar="ACCOUNT", help="--serve: an account that may always open all GPUs.")
@click.option("--end-unleased", is_flag=True, help="--serve: end processes that have a GPU open without a lease.")
@click.option(
    "--metrics",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="--serve: figures for Prometheus on this port of 127.0.0.1.",
)
@click.argument("command", nargs=-1)  # fmt: skip
def command(
    as_json: bool,
    take: int | None,
    serve: bool,
    minutes: float | None,
    grace: float | None,
    allow: tuple[str, ...],
    end_unleased: bool,
    metrics: int | None,
    command: tuple[str, ...],
) -> None:
    """Show who uses which GPU of this machine, for how long, and who waits for one.

    With --take, run a program on GPUs of its own: `allranks gpus --take 2 -- torchrun --nproc-per-node 2 train.py`.
    """
    if not serve and (minutes is not None or grace is not None or allow or end_unleased or metrics is not None):
        raise CommandError("--slice, --grace, --allow, --end-unleased and --metrics belong to --serve.")
    if sum((serve, take is not None, as_json)) > 1:
        raise CommandError("--serve, --take and --json can't be combined.")
    if bool(command) != (take is not None):
        raise CommandError(
            "--take N needs a command, and a command needs --take N: allranks gpus --take 1 -- python train.py"
        )
    if serve:
        _serve(minutes, grace, allow, end_unleased, metrics)
    elif take is not None:
        raise SystemExit(_run(take, command))
    else:
        _show(as_json)


def _show(as_json: bool) -> None:
    from allranks.ranks.engines.gpu_state import gpu_state

    state = gpu_state()
    if as_json:
        click.echo(json.dumps(state))
        return
    gpus, now = state["gpus"], time.time()
    for why in state["refused"]:
        click.echo(why)
    if not gpus and state["refused"]:
        click.echo("Worlds run on the CPU, and nobody needs to wait.")
    elif not gpus:
        click.echo("No NVIDIA GPU is visible: worlds run on the CPU, and nobody needs to wait.")
    for gpu in gpus:
        alone = gpu["holder"]
        words = [
            f"{h['user']} (pid {h['pid']}), {_minutes(h['until'] - now)}"
            for h in ([alone] if alone else gpu["sharers"])
        ]
        shared = "" if alone or not words else "shared by "
        click.echo(f"{gpu['index']:3}  {gpu['name']}  {shared}{'; '.join(words) or 'free'}{_in_use(gpu)}")
    for place, waiter in enumerate(state["waiting"], start=1):
        wait = _minutes(now - waiter["since"])
        foreseen = (
            "" if waiter["wait_s"] is None else f", about {max(1, round(waiter['wait_s'] / 60))} min more at most"
        )
        click.echo(f"waiting {place}: {waiter['user']} for {waiter['gpus']}, {wait} so far{foreseen}")
    index = {gpu["uuid"]: gpu["index"] for gpu in gpus}
    for stray in state["unleased"]:
        where = ", ".join(str(index.get(uuid, uuid)) for uuid in stray["gpus"])
        click.echo(f"without a lease: {stray['user']} (pid {stray['pid']}) has GPU {where} open")
    for warning in state["warnings"]:
        click.echo(warning)


def _in_use(gpu: dict[str, Any]) -> str:
    """How much of a GPU is in use, if the driver says so."""
    used, busy = gpu["memory_used_bytes"], gpu["busy_percent"]
    memory = "" if used is None else f"  {used / 2**30:.1f} of {gpu['memory_bytes'] / 2**30:.0f} GiB"
    return memory + ("" if busy is None else f", {busy} % busy")


def _run(count: int, command: tuple[str, ...]) -> int:
    """Runs a command on GPUs of its own; its exit status."""
    from allranks.ranks.engines.devices import Inventory
    from allranks.ranks.engines.served_leases import ledger_of

    said: set[int] = set()

    def told(place: int, seconds: float | None) -> None:
        if place not in said:
            said.add(place)
            estimate = "" if seconds is None else f", about {max(1, round(seconds / 60))} min at most"
            click.echo(f"waiting for {count} free GPUs: place {place} in the queue{estimate}", err=True)

    ledger = ledger_of(Inventory.of_this_machine().gpus)
    with ledger.acquire(count, told=told) as lease:
        uuids = ",".join(gpu.uuid for gpu in lease.gpus)
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": uuids, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        try:
            program = subprocess.Popen(command, env=env)
        except OSError as error:
            raise CommandError(f"{command[0]} can't be run: {error.strerror}.") from None
        while True:
            try:
                status = program.wait(1)
                break
            except subprocess.TimeoutExpired:
                if lease.over:
                    program.terminate()
            except KeyboardInterrupt:  # the program got it too
                continue
        if lease.lost:
            raise CommandError(f"The GPUs were taken back: {lease.lost}.")
    return status if status >= 0 else 128 - status


def _serve(
    minutes: float | None, grace: float | None, allow: tuple[str, ...], end_unleased: bool, port: int | None
) -> None:
    from allranks.ranks.engines import gpu_nodes, gpu_socket
    from allranks.ranks.engines.devices import Inventory
    from allranks.ranks.engines.gpu_service import GRACE_S, GpuServeError, GpuService, Rules
    from allranks.ranks.engines.leases import SLICE_S

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if os.geteuid() != 0:
        raise GpuServeError("Only root can open and close device nodes: run `allranks gpus --serve` as root.")
    rules = Rules(
        SLICE_S if minutes is None else 60 * minutes,
        GRACE_S if grace is None else grace,
        frozenset(map(_account, allow)),
        end_unleased,
    )
    if not os.environ.get("ALLRANKS_INVENTORY"):
        for node in gpu_nodes.make_missing():
            logging.info("%s was missing: made", node)
    have = Inventory.of_the_driver()
    gpus = have.gpus
    if not gpus:
        raise GpuServeError(" ".join(have.refused) or "There is no NVIDIA GPU here that the service could open.")
    watch = None
    if port is not None:
        try:
            from allranks.ranks.engines.gpu_metrics import Metrics
        except ModuleNotFoundError:
            raise GpuServeError(
                "--metrics needs prometheus_client, which JupyterHub brings: pip install prometheus_client"
            ) from None
        watch = Metrics(gpus)
        logging.info("figures for Prometheus: http://127.0.0.1:%d/metrics", watch.serve(port))
    service = GpuService(gpus, gpu_nodes.nodes_of(gpus), rules, watch)

    async def until_stopped() -> None:
        running = asyncio.ensure_future(service.run(Path(os.environ.get(gpu_socket.SOCKET_ENV) or gpu_socket.SOCKET)))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(until_stopped())


def _account(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise CommandError(f"There is no account {name!r} on this machine.") from None


def _minutes(left_s: float) -> str:
    """The minutes left of somebody's time."""
    return f"{left_s / 60:.0f} min" if left_s >= 0 else f"over its slice by {-left_s / 60:.0f} min"
