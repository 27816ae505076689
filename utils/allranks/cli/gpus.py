"""`allranks gpus`: who uses which GPU, and who waits for one."""

from __future__ import annotations

import json
import time
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def command(as_json: bool) -> None:
    """Show who uses which GPU of this machine, for how long, and who waits for one."""
    from allranks.engines.devices import Inventory
    from allranks.engines.leases import Ledger

    inventory = Inventory.of_this_machine()
    gpus = inventory.gpus
    ledger = Ledger(gpus)
    holders, sharers, waiting = ledger.holders(), ledger.sharers(), ledger.waiting()
    if as_json:
        rows = [
            {
                **asdict(gpu),
                "holder": asdict(holder) if (holder := holders[gpu.uuid]) else None,
                "sharers": [asdict(holder) for holder in sharers[gpu.uuid]],
            }
            for gpu in gpus
        ]
        click.echo(json.dumps({"gpus": rows, "refused": inventory.refused, "waiting": [asdict(w) for w in waiting]}))
        return
    for why in inventory.refused:
        click.echo(why)
    if not gpus and inventory.refused:
        click.echo("Worlds run on the CPU, and nobody needs to wait.")
    elif not gpus:
        click.echo("No NVIDIA GPU is visible: worlds run on the CPU, and nobody needs to wait.")
    for gpu in gpus:
        alone = holders[gpu.uuid]
        words = [
            f"{h.user} (pid {h.pid}), {_minutes(h.until - time.time())}"
            for h in ([alone] if alone else sharers[gpu.uuid])
        ]
        shared = "" if alone or not words else "shared by "
        click.echo(f"{gpu.index:3}  {gpu.name}  {shared}{'; '.join(words) or 'free'}")
    for place, waiter in enumerate(waiting, start=1):
        wait = _minutes(time.time() - waiter.since)
        click.echo(f"waiting {place}: {waiter.user} for {waiter.gpus}, {wait} so far")


def _minutes(left_s: float) -> str:
    """The minutes left of somebody's time."""
    return f"{left_s / 60:.0f} min" if left_s >= 0 else f"over its slice by {-left_s / 60:.0f} min"
