"""`allranks doctor`: one line for each check, and how to fix what is wrong."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

MARKS = {
    "pass": click.style("pass", fg="green"),
    "warn": click.style("warn", fg="yellow"),
    "fail": click.style("FAIL", fg="red"),
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
@click.option("--hub", is_flag=True, help="Look at this machine's JupyterHub instead (docs/jupyterhub.md), as root.")
def command(as_json: bool, hub: bool) -> None:
    """Look for what is wrong with this machine and print how to fix it; exit code 1 if a check fails."""
    from allranks.machine import doctor
    from allranks.machine.doctor import hub as hubs

    checks = hubs.examine() if hub else doctor.examine()
    if as_json:
        click.echo(json.dumps({"checks": [asdict(check) for check in checks]}))
    else:
        for check in checks:
            click.echo(f"{MARKS[check.status]}  {check.name:15}  {check.found}")
            if check.fix:
                click.echo(f"{'':6}{'':15}  -> {check.fix}")
    raise SystemExit(int(any(check.status == "fail" for check in checks)))
