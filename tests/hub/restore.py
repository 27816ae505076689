"""A hub with accounts, work and marks is saved while it runs, the machine is emptied, and the hub is restored. Played by house.py only."""

import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import nbformat
import pytest
from running_hub import GRADER, Hub, make_accounts, run
from visitor import HUB, Visitor

ROOT = Path(__file__).resolve().parents[2]
LAB, NOTEBOOK = "lab03_all_reduce", "all_reduce"
PASSWORDS = {"ana": "first-pass-9", "ida": "third-pass-7", "pia": "fourth-pass-5"}
GROUPS = {"ana": "allranks-students", "ida": "allranks-instructors", "pia": None}  # the primary group
# the exchange is not where it is by default: hub.env says so
STATE, EXCHANGE, SETTINGS = (Path(p) for p in ("/var/lib/allranks/hub", "/var/lib/handed-in/here", "/etc/allranks"))
LAUNCHES = Path("/var/lib/allranks/lti/launches.json")  # where the hub writes it unless hub.env says otherwise
CAME = {  # the account stays this person's
    "platform": {"name": "Moodle", "client_id": "c-1", "token_url": "https://moodle.example.org/token", "course": "2"},
    "people": {"ana": {"sub": "u-7", "given_name": "Ana", "email": "ana@example.org"}},
}
BACKUP = Path("/var/lib/backup/first")
COURSE = Path("/home") / GRADER / "allranks"


def as_(name: str, *command: object, cwd: Path = Path("/")) -> str:
    """Runs a command as this account."""
    who = pwd.getpwnam(name)
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": who.pw_dir,
        "PYTHONPATH": f"{ROOT}/utils",
    }
    done = subprocess.run(
        [str(part) for part in command],
        user=who.pw_uid,
        group=who.pw_gid,
        extra_groups=[],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def backup(*words: object) -> subprocess.CompletedProcess:
    program = [sys.executable, ROOT / "deploy" / "backup.py", *words]
    return subprocess.run([str(part) for part in program], capture_output=True, text=True, check=False)


def tree(folder: Path) -> dict[str, tuple]:
    """Every file's kind, mode, owner by name, and contents; not of caches, sockets and databases, which are compared by their rows."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if inside.parts[0] in (".cache", ".jr") or path.name.startswith(
            ("gradebook.db", "jupyterhub.sqlite", "proxy.pid")
        ):
            continue
        about = path.lstat()
        kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
        what = (
            os.readlink(path)
            if kind == "link"
            else hashlib.sha256(path.read_bytes()).hexdigest()
            if kind == "file"
            else ""
        )
        mode = 0 if kind == "link" else stat.S_IMODE(about.st_mode)
        found[str(inside)] = (kind, mode, pwd.getpwuid(about.st_uid).pw_name, what)
    return found


def launches() -> tuple[dict, list[tuple[int, str, str]]]:
    """What the file of launches says, and of its folder and of it: mode, owner and group by name."""
    about = [path.stat() for path in (LAUNCHES.parent, LAUNCHES)]
    who = [(s.st_mode & 0o7777, pwd.getpwuid(s.st_uid).pw_name, grp.getgrgid(s.st_gid).gr_name) for s in about]
    return json.loads(LAUNCHES.read_text(encoding="utf-8")), who


def rows(database: Path) -> dict[str, list]:
    """Every row of every table."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as book:
        tables = [name for (name,) in book.execute("select name from sqlite_master where type = 'table'")]
        return {name: sorted(map(str, book.execute(f'select * from "{name}"'))) for name in tables}


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> dict:
    """The hub is used, saved while it runs, and everything is taken away; what there was."""
    make_accounts({name: (PASSWORDS[name], GROUPS[name]) for name in PASSWORDS})
    run("usermod", "--gid", "allranks-students", "pia")
    run("groupdel", "pia")
    (SETTINGS / "hub.env").write_text(f"ALLRANKS_HUB_EXCHANGE={EXCHANGE}\n", encoding="utf-8")
    hub = Hub(tmp_path_factory.mktemp("hub") / "hub.log")
    hub.start(ALLRANKS_HUB_EXCHANGE=str(EXCHANGE))
    try:
        ana = Visitor.log_in("ana", PASSWORDS["ana"])
        home = Path("/home/ana")
        as_("ana", "mkdir", "-p", home / "allranks" / "labs" / LAB, home / ".cache")
        notebook = nbformat.read(ROOT / "solutions" / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
        work = home / "allranks" / "labs" / LAB / f"{NOTEBOOK}.ipynb"
        nbformat.write(notebook, work)
        (home / ".cache" / "large").write_bytes(b"x" * 1000)
        os.symlink("/etc/shadow", home / "allranks" / "everybody's passwords")
        closed, roots = home / "closed", home / "roots"
        for path, mode in ((closed, 0o000), (roots, 0o600)):
            path.write_text("not for ana's rights", encoding="utf-8")
            path.chmod(mode)
        run("chown", "-hR", "ana:", home)
        os.chown(roots, 0, 0)
        words = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        inbound = EXCHANGE / "allranks" / "inbound"
        inbound.mkdir()
        inbound.chmod(0o1777)
        folder = inbound / f"ana+{LAB}+{words}"
        as_("ana", "mkdir", folder)
        as_("ana", "cp", work, folder)
        as_("ana", sys.executable, "-c", f"open({str(folder / 'timestamp.txt')!r}, 'w').write({words!r})")
        (COURSE / "autograder" / "exchange.txt").write_text(str(EXCHANGE))
        inside = COURSE / "autograder"
        run("chown", "-R", f"{GRADER}:", COURSE)
        python = (sys.executable, "-m")
        as_(GRADER, *python, "nbgrader", "generate_assignment", LAB, "--force", cwd=inside)
        as_(GRADER, *python, "nbgrader", "db", "student", "add", "ana", cwd=inside)
        said = as_(GRADER, *python, "allranks.cli", "course", "run", LAB, "--no-feedback", "--json", cwd=inside)
        assert json.loads(said)["changes"][0]["after"] == 13, said
        LAUNCHES.parent.mkdir(parents=True)
        LAUNCHES.write_text(json.dumps(CAME), encoding="utf-8")
        for path, mode in ((LAUNCHES.parent, 0o750), (LAUNCHES, 0o640)):  # as lti_login.py makes them
            os.chown(path, 0, pwd.getpwnam(GRADER).pw_gid)
            path.chmod(mode)
        done = backup("save", BACKUP)
        assert done.returncode == 0, done.stderr
        closed.unlink()
        roots.unlink()
        kept = {
            "session": ana,
            "said": done.stdout,
            "homes": {name: tree(Path("/home") / name) for name in (*PASSWORDS, GRADER)},
            "exchange": tree(EXCHANGE),
            "settings": tree(SETTINGS),
            "launches": launches(),
            "gradebook": rows(inside / "gradebook.db"),
            "users": rows(STATE / "jupyterhub.sqlite")["users"],
            "numbers": {name: pwd.getpwnam(name).pw_uid for name in (*PASSWORDS, GRADER)},
        }
    finally:
        hub.stop()
        print(hub.log.read_text()[-3000:])
    for name in (*PASSWORDS, GRADER):
        run("userdel", "--remove", "--force", name)
    for folder in (STATE, EXCHANGE, SETTINGS, LAUNCHES.parent):
        shutil.rmtree(folder)
    for group in set(filter(None, GROUPS.values())):
        run("groupdel", group)
    assert not list(Path("/home").glob("an*")) and not STATE.exists()
    return kept


def test_the_backup_is_roots_alone_and_no_link_led_anywhere(before):
    assert all(path.stat().st_mode & 0o077 == 0 for path in (BACKUP, *BACKUP.rglob("*")))
    listed = run("tar", "-tvzf", BACKUP / "homes" / "ana.tar.gz")
    assert "everybody's passwords -> /etc/shadow" in listed and ".cache/large" not in listed


def test_each_home_is_read_with_its_owners_rights_and_what_these_do_not_open_is_named(before):
    listed = run("tar", "-tzf", BACKUP / "homes" / "ana.tar.gz")
    for name in ("closed", "roots"):
        assert f"./{name}" not in listed
        assert re.search(rf"^/home/ana: \./{name}: .*Permission denied$", before["said"], flags=re.M), before["said"]


def test_a_second_backup_does_not_overwrite_the_first(before):
    done = backup("save", BACKUP)
    assert done.returncode == 2 and done.stderr == f"{BACKUP} is there already: name a new folder.\n"


def test_a_damaged_backup_is_refused_before_anything_is_written(before, tmp_path):
    shutil.copytree(BACKUP, tmp_path / "copy")
    with open(tmp_path / "copy" / "hub.sqlite", "r+b") as file:
        file.seek(100)
        file.write(b"?")
    done = backup("restore", tmp_path / "copy")
    assert done.returncode == 2 and "hub.sqlite is missing or damaged" in done.stderr
    assert not STATE.exists() and not SETTINGS.exists()


def test_what_is_there_already_is_named_before_anything_is_written(before):
    for folder in (SETTINGS, STATE, EXCHANGE, Path("/home/pia")):
        folder.mkdir(parents=True)
        (folder / "mine").write_text("here before", encoding="utf-8")
        for options in ([], ["--dry-run"]):
            done = backup("restore", BACKUP, *options)
            assert done.returncode == 2 and done.stderr.startswith(f"{folder} is not empty: "), (folder, done.stderr)
            assert [path.name for path in folder.iterdir()] == ["mine"]
        shutil.rmtree(folder)
        assert not any(path.exists() for path in (SETTINGS, STATE, EXCHANGE, Path("/home/pia")))
    assert not set(PASSWORDS) & {who.pw_name for who in pwd.getpwall()}


def test_nothing_is_lost_on_an_empty_machine(before, tmp_path):
    dry = backup("restore", BACKUP, "--dry-run")
    assert dry.returncode == 0 and dry.stdout.endswith("Nothing was written.\n"), dry.stderr
    assert {str(SETTINGS), str(STATE), str(EXCHANGE), str(LAUNCHES), "home of pia"} <= set(dry.stdout.splitlines())
    assert not STATE.exists() and not LAUNCHES.exists() and "ana" not in [who.pw_name for who in pwd.getpwall()]
    done = backup("restore", BACKUP)
    assert done.returncode == 0, done.stderr
    assert {name: pwd.getpwnam(name).pw_uid for name in before["numbers"]} == before["numbers"]
    for name, was in before["homes"].items():
        assert tree(Path("/home") / name) == was, name
    assert tree(EXCHANGE) == before["exchange"] and tree(SETTINGS) == before["settings"]
    assert rows(COURSE / "autograder" / "gradebook.db") == before["gradebook"]
    assert launches() == before["launches"] == (CAME, [(0o750, "root", GRADER), (0o640, "root", GRADER)])
    assert json.loads(as_(GRADER, "cat", LAUNCHES)) == CAME
    assert (EXCHANGE.stat().st_mode & 0o7777, STATE.stat().st_mode & 0o7777) == (0o1777, 0o700)
    again = backup("restore", BACKUP)
    assert again.returncode == 2 and "is not empty" in again.stderr
    hub = Hub(tmp_path / "hub.log")
    hub.start(ALLRANKS_HUB_EXCHANGE=str(EXCHANGE))
    try:
        # the cookie of before is still a login, the password is the same, and so is the number that the hub has for ana
        page = before["session"].session.get(f"{HUB}/hub/home", allow_redirects=False)
        assert page.status_code == 200, page.headers
        assert Visitor.log_in("ida", PASSWORDS["ida"]).call("GET", "/hub/api/users/ida")["groups"] == [
            "formgrade-allranks"
        ]
        names = [row.split(",")[1].strip(" '") for row in rows(STATE / "jupyterhub.sqlite")["users"]]
        assert {row.split(",")[1].strip(" '") for row in before["users"]} <= set(names)
    finally:
        hub.stop()
        print(hub.log.read_text()[-3000:])
    # the grader goes on: what is graded stays so, and new work is graded with the same secret
    said = as_(
        GRADER,
        sys.executable,
        "-m",
        "allranks.cli",
        "course",
        "run",
        LAB,
        "--no-feedback",
        "--json",
        cwd=COURSE / "autograder",
    )
    assert json.loads(said)["changes"] == []
