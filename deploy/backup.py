"""Saves a hub into a folder, and restores it on an empty machine: database, cookie secret, settings, exchange, homes, gradebook, accounts, launches.

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
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

FORMAT = 3
MAX_SAID = 100_000  # bytes of what tar says of one folder
HOME_S = 3600  # for one home: its owner can stop the program that packs it, which has only the owner's rights
GROUPS = ("allranks-students", "allranks-instructors", "allranks-admins")
SETTINGS = Path("/etc/allranks")
NOT_SAVED = (".cache", ".jr")  # of a home: what can be made again, and sockets
GRADEBOOK = Path("allranks/autograder/gradebook.db")  # in the grader's home
LAUNCHES = "launches.json"  # who came from a platform, and whose an account is: deploy/lti_login.py
SECRETS = ("cookie_secret",)  # of the hub's folder, beside its database


class BackupError(Exception):
    """Nothing more was done; the message is one sentence that says what to do."""


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
    """Writes everything into a new folder; returns a line for each part, and for what could not be read. Raises BackupError."""
    from allranks.machine.doctor.hub import Site

    here = Site.of_this_machine()
    if folder.exists():
        raise BackupError(f"{folder} is there already: name a new folder.")
    database = here.state / "jupyterhub.sqlite"
    if not database.is_file():
        raise BackupError(
            f"{database} is not there: is this the hub's machine, and ALLRANKS_HUB_STATE in {SETTINGS}/hub.env?"
        )
    people = accounts(here.grader)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "homes").mkdir(mode=0o700, parents=True)
    unfinished.chmod(0o700)
    os.umask(0o077)
    (unfinished / "hub.sqlite").write_bytes(contents_of(database))
    for name in SECRETS:
        if (here.state / name).is_file():
            shutil.copyfile(here.state / name, unfinished / name)
    if here.launches.is_file():
        shutil.copyfile(here.launches, unfinished / LAUNCHES)
    told = pack(unfinished / "exchange.tar.gz", here.exchange)
    if SETTINGS.is_dir():
        told += pack(unfinished / "settings.tar.gz", SETTINGS)
    for name in people:
        where = Path(pwd.getpwnam(name).pw_dir)
        skipped = [*NOT_SAVED, *([f"{GRADEBOOK}*"] if name == here.grader else [])]
        if where.is_dir():
            told += pack(packed(unfinished, name), where, name, skipped)
            if name == here.grader and not packed(unfinished, name).is_file():
                raise BackupError(told[-1])
        if name == here.grader and (where / GRADEBOOK).is_file():
            done = subprocess.run(
                [sys.executable, __file__, "read-database", where / GRADEBOOK],
                check=True,
                stdout=subprocess.PIPE,
                **as_user(name),
            )
            (unfinished / "gradebook.sqlite").write_bytes(done.stdout)
    parts = {str(p.relative_to(unfinished)): digest(p) for p in sorted(unfinished.rglob("*")) if p.is_file()}
    when = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = {"format": FORMAT, "when": when, "grader": here.grader, "accounts": people, "parts": parts}
    manifest["places"] = {name: str(getattr(here, name)) for name in ("state", "exchange", "launches")}
    (unfinished / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    unfinished.rename(folder)
    return [*(f"{name}: {(folder / name).stat().st_size >> 10} KiB" for name in parts), *told]


def accounts(grader: str) -> dict[str, dict[str, Any]]:
    """The accounts of the hub: number, home, shell, groups, and the hash of the password."""
    from allranks.machine.doctor.hub import members

    groups = {}
    for group in GROUPS:
        with suppress(KeyError):  # a hub without administrators
            groups[group] = members(group)
    hashes = dict(line.split(":")[:2] for line in Path("/etc/shadow").read_text(encoding="utf-8").splitlines())
    found = {}
    for name in sorted({grader}.union(*groups.values())):
        if (who := account(name)) is None:
            continue  # a member whose account is gone
        theirs = [group for group, names in groups.items() if name in names]
        about = {"uid": who.pw_uid, "home": who.pw_dir, "shell": who.pw_shell, "groups": theirs}
        found[name] = about | {"full_name": who.pw_gecos, "password": hashes.get(name, "!")}
    return found


def contents_of(database: Path) -> bytes:
    """An SQLite database as it is at one moment, also while somebody writes."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as source:
        with closing(sqlite3.connect(":memory:")) as copy:
            source.backup(copy)
            return copy.serialize()


def pack(file: Path, folder: Path, owner: str | None = None, without: list[str] | tuple[str, ...] = ()) -> list[str]:
    """Packs a folder, with its owner's rights if one is named; links are packed as links, sockets not at all.

    What could not be read stops nothing, nor does a home whose owner ends the packing: one person would stop all others' backup.
    Returns a line for each. Holes of files are packed as such, since a file may be a hole of exabytes.
    """
    skip = [f"--exclude=./{name}" for name in without]
    options = ["--sparse", "--warning=no-file-ignored", "--ignore-failed-read"]
    program = ["tar", "--create", "--gzip", *options, "--directory", str(folder), *skip, "."]
    with open(file, "wb") as out, tempfile.TemporaryFile() as errors:
        code = ended(program, HOME_S if owner else None, stdout=out, stderr=errors, **(as_user(owner) if owner else {}))
        said = lines_of(errors)
    if code in (0, 1):  # 1: a file changed while it was read
        return [f"{folder}: {line}" for line in said]
    why = f"{folder} can't be packed: {said[0] if said else f'tar ended with {code}'}"
    if owner is None:
        raise BackupError(f"{why}.")
    file.unlink()
    return [f"{why}. It is NOT SAVED."]


def ended(program: list[str], most_s: float | None, **options: Any) -> int:
    """The exit code of a program with its children, which are killed after so many seconds."""
    with subprocess.Popen(program, start_new_session=True, **options) as running:
        try:
            return running.wait(most_s)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


def lines_of(errors: IO[bytes]) -> list[str]:
    """What tar said, at most so much of it: names, and with the owner's rights anything, may stand there."""
    errors.seek(0)
    text = errors.read(MAX_SAID).decode(errors="replace")
    return ["".join(c if c.isprintable() else "?" for c in line.removeprefix("tar: ")) for line in text.splitlines()]


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --------------------------------------------------------------------------------------------------------- restoring


def restore(folder: Path, dry_run: bool = False) -> list[str]:
    """Puts everything back; returns a line for each step. Raises BackupError before the first one if something is in the way."""
    manifest = checked(folder)
    state, exchange, launches = (Path(manifest["places"][name]) for name in ("state", "exchange", "launches"))
    people: dict[str, dict[str, Any]] = manifest["accounts"]
    homes = {name: home(name, about) for name, about in people.items() if packed(folder, name).is_file()}
    settings = [SETTINGS] if (folder / "settings.tar.gz").is_file() else []
    for path in (*settings, state, exchange, *homes.values()):
        if path.is_dir() and any(path.iterdir()):
            raise BackupError(f"{path} is not empty: restore on a machine without a hub, or move it away first.")
    told = [launches] if (folder / LAUNCHES).is_file() else []
    for path in told:
        if path.exists():
            raise BackupError(f"{path} is there already: restore on a machine without a hub, or move it away first.")
    for name, about in people.items():
        if account(name) is None and (taken := account(about["uid"])):
            raise BackupError(
                f"{name} had the number {about['uid']}, which is {taken.pw_name}'s here: give that account another one."
            )
    steps = [f"account {name}" for name in people] + [str(path) for path in (*settings, state, exchange, *told)]
    steps += [f"home of {name}" for name in homes]
    if dry_run:
        return steps
    for name, about in people.items():
        make_account(name, about)
    for path in settings:
        unpack(folder / "settings.tar.gz", path)
    unpack(folder / "exchange.tar.gz", exchange)
    for name, path in homes.items():
        try:
            unpack(packed(folder, name), path, name)
        except BackupError as error:  # one person's home stops nobody else's
            steps.append(f"NOT WHOLE: {error}")
    for path in told:
        write_launches(path, (folder / LAUNCHES).read_bytes(), manifest["grader"])
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    state.chmod(0o700)
    os.umask(0o077)
    shutil.copyfile(folder / "hub.sqlite", state / "jupyterhub.sqlite")
    for name in SECRETS:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, state / name)
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


def account(who: str | int) -> pwd.struct_passwd | None:
    """The account of this name or number; None if there is none."""
    with suppress(KeyError):
        return pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who)
    return None


def home(name: str, about: dict[str, Any]) -> Path:
    """The home of the account, which is there or will be made as it was."""
    there = account(name)
    return Path(there.pw_dir if there else about["home"])


def packed(folder: Path, name: str) -> Path:
    """The file of a backup that has the home of this account."""
    return folder / "homes" / f"{name}.tar.gz"


def make_account(name: str, about: dict[str, Any]) -> None:
    """Makes the account if it is missing, with its number and its password's hash, and puts it into its groups."""
    for group in about["groups"]:
        try:
            grp.getgrnam(group)
        except KeyError:
            subprocess.run(["groupadd", group], check=True)
    if account(name) is None:
        options = ["--create-home", "--home-dir", about["home"], "--uid", str(about["uid"]), "--shell", about["shell"]]
        subprocess.run(["useradd", *options, "--comment", about["full_name"], name], check=True)
        # by standard input: `ps` shows command lines to everybody
        subprocess.run(["chpasswd", "--encrypted"], input=f"{name}:{about['password']}\n", text=True, check=True)
    if about["groups"]:
        subprocess.run(["usermod", "--append", "--groups", ",".join(about["groups"]), name], check=True)


def write_launches(file: Path, contents: bytes, grader: str) -> None:
    """Writes who came, for root and the grader's group alone, as the hub does."""
    gid = pwd.getpwnam(grader).pw_gid
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(0o600)
    file.write_bytes(contents)
    for path, mode in ((file, 0o640), (file.parent, 0o750)):
        if os.geteuid() == 0:
            os.chown(path, 0, gid)
        path.chmod(mode)


def unpack(file: Path, folder: Path, owner: str | None = None) -> None:
    """Unpacks into a folder, which gets the mode that it had, with its owner's rights if one is named; root's parts keep their owners."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        if owner is not None:
            shutil.chown(folder, owner, pwd.getpwnam(owner).pw_gid)
    program = ["tar", "--extract", "--gzip", "--preserve-permissions", "--directory", str(folder)]
    with open(file, "rb") as source, tempfile.TemporaryFile() as errors:
        as_owner = as_user(owner) if owner else {}
        code = ended(program, HOME_S if owner else None, stdin=source, stderr=errors, **as_owner)
        said = lines_of(errors)
    if code != 0:
        raise BackupError(f"{folder} can't be written: {said[0] if said else f'tar ended with {code}'}.")


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
