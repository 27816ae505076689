"""Saves a hub into a folder, and restores it on an empty machine: database, cookie secret, settings, exchange, homes, gradebook, accounts.

    sudo /opt/allranks/.venv/bin/python /opt/allranks/deploy/backup.py save /backup/2026-11-27
    sudo /opt/allranks/.venv/bin/python /opt/allranks/deploy/backup.py restore /backup/2026-11-27

The hub may run while it is saved: databases are copied by SQLite, as they are at one moment. Each home is read and written with the rights
of its owner, so that a link which somebody puts there leads root nowhere. The folder holds password hashes and everybody's work: only root
can open it. `restore` overwrites nothing: it stops where something is there already.
"""

from __future__ import annotations

import argparse
import grp
import hashlib
import json
import os
import pwd
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FORMAT = 1
GROUPS = ("allranks-students", "allranks-instructors", "allranks-admins")
SETTINGS = Path("/etc/allranks")
HUB_ENV = SETTINGS / "hub.env"  # what the hub's unit reads before it starts
NOT_SAVED = (".cache", ".jr")  # of a home: what can be made again, and sockets
GRADEBOOK = Path("allranks/autograder/gradebook.db")  # in the grader's home
SECRETS = ("cookie_secret",)  # of the hub's folder, beside its database


class BackupError(Exception):
    """Nothing more was done; the message is one sentence that says what to do."""


def place(name: str, default: str) -> Path:
    """A path that the hub's settings name, as deploy/jupyterhub_config.py reads them."""
    lines = HUB_ENV.read_text(encoding="utf-8").splitlines() if HUB_ENV.is_file() else []
    found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return Path(os.environ.get(name) or found.get(name, "").strip("\"' ") or default)


def places() -> dict[str, Path]:
    """Where the hub keeps its state, and the exchange."""
    return {
        "state": place("ALLRANKS_HUB_STATE", "/var/lib/allranks/hub"),
        "exchange": place("ALLRANKS_HUB_EXCHANGE", "/var/lib/allranks/exchange"),
    }


def grader() -> str:
    """The account that owns the gradebook."""
    return str(place("ALLRANKS_HUB_GRADER", "allranks-grader"))


def as_user(name: str) -> dict[str, Any]:
    """What makes a child process one of this account, with none of root's rights."""
    who = pwd.getpwnam(name)
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": who.pw_dir, "LANG": "C.UTF-8"}
    groups = os.getgrouplist(name, who.pw_gid)
    return {
        "user": who.pw_uid,
        "group": who.pw_gid,
        "extra_groups": groups,
        "env": environment,
        "umask": 0o077,
        "cwd": "/",
    }


# ------------------------------------------------------------------------------------------------------------ saving


def save(folder: Path) -> list[str]:
    """Writes everything into a new folder; returns a line for each part. Raises BackupError."""
    there = places()
    if folder.exists():
        raise BackupError(f"{folder} is there already: name a new folder.")
    database = there["state"] / "jupyterhub.sqlite"
    if not database.is_file():
        raise BackupError(f"{database} is not there: is this the hub's machine, and ALLRANKS_HUB_STATE in {HUB_ENV}?")
    people = accounts()
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "homes").mkdir(mode=0o700, parents=True)
    unfinished.chmod(0o700)
    os.umask(0o077)
    (unfinished / "hub.sqlite").write_bytes(contents_of(database))
    for name in SECRETS:
        if (there["state"] / name).is_file():
            shutil.copyfile(there["state"] / name, unfinished / name)
    pack(unfinished / "exchange.tar.gz", there["exchange"])
    if SETTINGS.is_dir():
        pack(unfinished / "settings.tar.gz", SETTINGS)
    for name in people:
        home = Path(pwd.getpwnam(name).pw_dir)
        skipped = [*NOT_SAVED, *([f"{GRADEBOOK}*"] if name == grader() else [])]
        if home.is_dir():
            pack(unfinished / "homes" / f"{name}.tar.gz", home, name, skipped)
        if name == grader() and (home / GRADEBOOK).is_file():
            done = subprocess.run(
                [sys.executable, __file__, "read-database", home / GRADEBOOK],
                check=True,
                stdout=subprocess.PIPE,
                **as_user(name),
            )
            (unfinished / "gradebook.sqlite").write_bytes(done.stdout)
    parts = {str(p.relative_to(unfinished)): digest(p) for p in sorted(unfinished.rglob("*")) if p.is_file()}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {"format": FORMAT, "when": when, "grader": grader(), "accounts": people, "parts": parts}
    (unfinished / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    unfinished.rename(folder)
    return [f"{name}: {(folder / name).stat().st_size >> 10} KiB" for name in parts]


def accounts() -> dict[str, dict[str, Any]]:
    """The accounts of the hub: number, home, shell, groups, and the hash of the password."""
    names = {grader(): ""}
    for group in GROUPS:
        try:
            names |= dict.fromkeys(grp.getgrnam(group).gr_mem, "")
        except KeyError:
            continue
    hashes = dict(line.split(":")[:2] for line in Path("/etc/shadow").read_text(encoding="utf-8").splitlines())
    found = {}
    for name in sorted(names):
        try:
            who = pwd.getpwnam(name)
        except KeyError:
            continue  # a member whose account is gone
        theirs = [group for group in GROUPS if name in _members(group)]
        about = {"uid": who.pw_uid, "home": who.pw_dir, "shell": who.pw_shell, "groups": theirs}
        found[name] = about | {"full_name": who.pw_gecos, "password": hashes.get(name, "!")}
    return found


def _members(group: str) -> list[str]:
    try:
        return grp.getgrnam(group).gr_mem
    except KeyError:
        return []


def contents_of(database: Path) -> bytes:
    """An SQLite database as it is at one moment, also while somebody writes."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as source:
        with closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            return copy.serialize()


def pack(file: Path, folder: Path, owner: str | None = None, without: list[str] | tuple[str, ...] = ()) -> None:
    """Packs a folder, with its owner's rights if one is named; links are packed as links, sockets not at all."""
    skip = [f"--exclude=./{name}" for name in without]
    program = ["tar", "--create", "--gzip", "--warning=no-file-ignored", "--directory", str(folder), *skip, "."]
    with open(file, "wb") as out:
        done = subprocess.run(
            program, stdout=out, stderr=subprocess.PIPE, check=False, **(as_user(owner) if owner else {})
        )
    if done.returncode > 1:  # 1: a file changed while it was read
        raise BackupError(f"{folder} can't be packed: {done.stderr.decode(errors='replace').strip().splitlines()[0]}.")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --------------------------------------------------------------------------------------------------------- restoring


def restore(folder: Path, dry_run: bool = False) -> list[str]:
    """Puts everything back; returns a line for each step. Raises BackupError before the first one if something is in the way."""
    manifest = checked(folder)
    if (folder / "settings.tar.gz").is_file() and not dry_run and not any_in(SETTINGS):
        unpack(folder / "settings.tar.gz", SETTINGS, 0o755)  # first: it says where the rest belongs
    there = places()
    people: dict[str, dict[str, Any]] = manifest["accounts"]
    for path in (there["state"], there["exchange"]):
        if any_in(path):
            raise BackupError(f"{path} is not empty: restore on a machine without a hub, or move it away first.")
    for name, about in people.items():
        if any_in(Path(about["home"]) / "allranks"):
            raise BackupError(f"{about['home']}/allranks is not empty: move it away first.")
        taken = next((who.pw_name for who in pwd.getpwall() if who.pw_uid == about["uid"]), name)
        if taken != name and name not in [who.pw_name for who in pwd.getpwall()]:
            raise BackupError(
                f"{name} had the number {about['uid']}, which is {taken}'s here: give that account another one."
            )
    steps = [f"account {name}" for name in people] + [str(path) for path in there.values()]
    steps += [f"home of {name}" for name in people if (folder / "homes" / f"{name}.tar.gz").is_file()]
    if dry_run:
        return steps
    for name, about in people.items():
        make_account(name, about)
    there["state"].mkdir(mode=0o700, parents=True, exist_ok=True)
    there["state"].chmod(0o700)
    os.umask(0o077)
    shutil.copyfile(folder / "hub.sqlite", there["state"] / "jupyterhub.sqlite")
    for name in SECRETS:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, there["state"] / name)
    unpack(folder / "exchange.tar.gz", there["exchange"], 0o1777)
    for name in people:
        file = folder / "homes" / f"{name}.tar.gz"
        if file.is_file():
            unpack(file, Path(pwd.getpwnam(name).pw_dir), 0o700, name)
    if (folder / "gradebook.sqlite").is_file():
        name = manifest["grader"]
        target = Path(pwd.getpwnam(name).pw_dir) / GRADEBOOK
        with open(folder / "gradebook.sqlite", "rb") as source:
            subprocess.run(
                [sys.executable, __file__, "write-database", target], stdin=source, check=True, **as_user(name)
            )
        steps.append(str(target))
    return steps


def checked(folder: Path) -> dict[str, Any]:
    """The manifest. Raises BackupError if the folder is none of ours, or a part of it is damaged."""
    try:
        manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        version, parts = manifest["format"], dict(manifest["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackupError(f"{folder} is no folder that `backup.py save` wrote.") from None
    if version != FORMAT:
        raise BackupError(
            f"{folder} has format {version}, and this program reads {FORMAT}: take its own version of the course."
        )
    for name, was in parts.items():
        if not (folder / name).is_file() or digest(folder / name) != was:
            raise BackupError(f"{folder / name} is missing or damaged: take another backup.")
    return manifest


def any_in(path: Path) -> bool:
    """Whether something is in a folder."""
    return path.is_dir() and any(path.iterdir())


def make_account(name: str, about: dict[str, Any]) -> None:
    """Makes the account if it is missing, with its number and its password's hash, and puts it into its groups."""
    for group in about["groups"]:
        if group not in [one.gr_name for one in grp.getgrall()]:
            subprocess.run(["groupadd", group], check=True)
    if name not in [who.pw_name for who in pwd.getpwall()]:
        options = ["--create-home", "--home-dir", about["home"], "--uid", str(about["uid"]), "--shell", about["shell"]]
        subprocess.run(["useradd", *options, "--comment", about["full_name"], name], check=True)
        # by standard input: `ps` shows command lines to everybody
        subprocess.run(["chpasswd", "--encrypted"], input=f"{name}:{about['password']}\n", text=True, check=True)
    if about["groups"]:
        subprocess.run(["usermod", "--append", "--groups", ",".join(about["groups"]), name], check=True)


def unpack(file: Path, folder: Path, mode: int, owner: str | None = None) -> None:
    """Unpacks into a folder, with its owner's rights if one is named; root's parts keep their owners by name."""
    folder.mkdir(parents=True, exist_ok=True)
    if owner is None:
        folder.chmod(mode)
    program = ["tar", "--extract", "--gzip", "--preserve-permissions", "--directory", str(folder)]
    with open(file, "rb") as source:
        done = subprocess.run(
            program, stdin=source, stderr=subprocess.PIPE, check=False, **(as_user(owner) if owner else {})
        )
    if done.returncode != 0:
        raise BackupError(f"{folder} can't be written: {done.stderr.decode(errors='replace').strip().splitlines()[0]}.")


def main(words: list[str]) -> int:
    """The command line."""
    if words[:1] == ["read-database"]:  # these two run as the grader
        sys.stdout.buffer.write(contents_of(Path(words[1])))
        return 0
    if words[:1] == ["write-database"]:
        Path(words[1]).write_bytes(sys.stdin.buffer.read())
        return 0
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["save", "restore"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--dry-run", action="store_true", help="With restore: check the backup and the machine, write nothing."
    )
    given = parser.parse_args(words)
    try:
        if os.geteuid() != 0:
            raise BackupError("Accounts and homes are root's to read: use sudo.")
        if given.what == "save":
            lines = save(given.folder.absolute())
        else:
            lines = restore(given.folder.absolute(), given.dry_run)
    except BackupError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"It ended in the middle ({error}): start again with empty folders.", file=sys.stderr)
        return 1
    print("\n".join(lines))
    print("Nothing was written." if given.dry_run else "Done.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
