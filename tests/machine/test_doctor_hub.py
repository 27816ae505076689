"""The hub's doctor: each check can pass, and each has a machine on which it warns or fails, and says how to fix it.

Against a real hub it runs in tests/hub/scene.py.
"""

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from allranks.machine.doctor import GIB, hub
from allranks.machine.doctor.hub import Server, Site
from allranks.ranks.engines.gpu_socket import GpuServiceError

ROOT = Path(__file__).resolve().parents[2]
ME = pwd.getpwuid(os.getuid()).pw_name
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="files must belong to root, as on a hub")


@pytest.fixture
def site(tmp_path):
    """A machine as it should be. The grader is this account."""
    checkout = tmp_path / "allranks"
    for folder in ("deploy", "solutions", ".git/refs/heads"):
        (checkout / folder).mkdir(parents=True)
    (checkout / "deploy/jupyterhub_config.py").write_text("")
    (checkout / "solutions").chmod(0o700)
    (checkout / ".git").chmod(0o700)
    (checkout / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (checkout / ".git/refs/heads/main").write_text("a" * 40 + "\n")
    place = Site(
        checkout, grader=ME, exchange=tmp_path / "exchange", state=tmp_path / "state", leases=tmp_path / "leases"
    )
    for folder, mode in (
        (place.exchange, 0o1777),
        (place.exchange / "allranks", 0o755),
        (place.exchange / "allranks/inbound", 0o733),
        (place.state, 0o700),
        (place.leases, 0o1777),
    ):
        folder.mkdir()
        folder.chmod(mode)
    return place


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The grader's home, with its clone."""
    clone = tmp_path / "home/allranks"
    (clone / "autograder").mkdir(parents=True)
    (clone / "autograder/nbgrader_config.py").write_text("")
    (clone / ".git").mkdir()
    (clone / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (clone / ".git/packed-refs").write_text("# pack-refs\n" + "a" * 40 + " refs/heads/main\n")
    (tmp_path / "home").chmod(0o700)
    mine = pwd.getpwuid(os.getuid())
    monkeypatch.setattr("pwd.getpwnam", lambda name: pwd.struct_passwd((*mine[:5], str(tmp_path / "home"), mine[6])))
    monkeypatch.setattr(hub, "_can_log_in", lambda name: False)
    return tmp_path / "home"


def test_a_machine_as_it_should_be_passes(site, home):
    people = {hub.STUDENTS: ["ana", "ben"], hub.INSTRUCTORS: ["ida"]}
    checks = [
        hub.root(site, 0),
        hub.accounts(site, people.__getitem__),
        hub.grader(site),
        hub.answers(site),
        hub.hub(site, lambda url: '{"version": "6.1.1"}'),
        hub.encryption(site),
        hub.ports(site, runs=False, taken=lambda port: None),
        hub.state(site),
        hub.exchange(site),
        hub.limits(site, [Server("ana", 6 << 30, 2.0, 2048)]),
        hub.names(replace(site, public_url="https://hub.example.org"), lambda host: "192.0.2.1"),
        hub.sockets(site, [("ana", 41001)], lambda ports: []),
        hub.gpus(site, [], lambda: None),
    ]
    assert [(check.name, check.status) for check in checks] == [(check.name, "pass") for check in checks]
    assert hub.accounts(site, people.__getitem__).found == "2 students, 1 instructors"


def changed(path: str, mode: int):
    return lambda site: (site.exchange.parent / path).chmod(mode)


def test_root_is_asked_for(site):
    assert (check := hub.root(site, 1000)).status == "warn" and "sudo" in check.fix


PEOPLE = {
    "nobody teaches": ({hub.STUDENTS: ["ana"], hub.INSTRUCTORS: []}, "warn", "usermod -aG allranks-instructors"),
    "no group": ({hub.STUDENTS: []}, "fail", "groupadd allranks-instructors"),
    "both": ({hub.STUDENTS: ["ana"], hub.INSTRUCTORS: ["ana"]}, "warn", "gpasswd -d ana"),
    "grader": ({hub.STUDENTS: [], hub.INSTRUCTORS: [ME, "ida"]}, "fail", "gpasswd"),
}


@pytest.mark.parametrize("case", PEOPLE)
def test_people(site, case):
    people, status, fix = PEOPLE[case]
    check = hub.accounts(site, people.__getitem__)
    assert check.status == status and fix in check.fix


FILES = {
    "home open": (hub.grader, changed("home", 0o755), "fail", "chmod 700"),
    "no clone": (hub.grader, lambda s: (s.exchange.parent / "home/allranks/autograder/nbgrader_config.py").unlink(), "fail", "step 2"),
    "not the grader's": (hub.grader, lambda s: os.chown(s.exchange.parent / "home/allranks", 12345, -1), "fail", "chown -R"),
    "another version": (hub.grader, lambda s: (s.checkout / ".git/HEAD").write_text("b" * 40), "warn", "pull"),
    "answers": (hub.answers, changed("allranks/solutions", 0o755), "warn", "chmod 700"),
    "state": (hub.state, changed("state", 0o750), "fail", "chmod 700"),
    "no state": (hub.state, lambda s: s.state.rmdir(), "warn", "first start"),
    "exchange not sticky": (hub.exchange, changed("exchange", 0o777), "fail", "chmod 1777"),
    "exchange of another": (hub.exchange, lambda s: os.chown(s.exchange, 12345, -1), "fail", "chown root"),
    "course open": (hub.exchange, changed("exchange/allranks", 0o777), "fail", "chmod 755"),
    "course of another": (hub.exchange, lambda s: os.chown(s.exchange / "allranks", 12345, -1), "fail", "chown"),
    "inbox listed": (hub.exchange, changed("exchange/allranks/inbound", 0o777), "fail", "chmod 733"),
    "checkout changed by others": (lambda s: hub.programs(s, Path("/usr")), changed("allranks/deploy", 0o777), "fail", "chmod go-w"),
    "checkout of another": (lambda s: hub.programs(s, Path("/usr")), lambda s: os.chown(s.checkout, 12345, -1), "fail", "chown root"),
    "leases": (lambda s: hub.gpus(s, [Path("/dev/null")], lambda: None), changed("leases", 0o777), "fail", "chmod 1777"),
    "checkout closed": (lambda s: hub.programs(s, Path("/usr")), changed("allranks", 0o700), "fail", "chmod o+x"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files(site, home, case):
    check, change, status, fix = FILES[case]
    if check.__name__ == "<lambda>" and "checkout" in case:
        for step in site.checkout.parents:  # pytest's own folders are closed to others
            if step.stat().st_uid == 0 and step.is_relative_to("/tmp") and step != Path("/tmp"):
                step.chmod(0o755)
        assert check(site).status == "pass"
    change(site)
    found = check(site)
    assert found.status == status and fix in found.fix, found


def test_a_hub_that_does_not_answer_and_ports_of_others(site):
    def refuse(url):
        raise ConnectionRefusedError(111, "Connection refused")

    assert "Connection refused" in hub.hub(site, refuse).found and hub.hub(site, lambda url: "<html>").status == "warn"
    other = hub.ports(site, runs=False, taken={8001: "node (pid 7)"}.get)
    assert other.status == "fail" and other.found.startswith("node (pid 7) listens on 8001")
    assert hub.ports(site, runs=True, taken={8001: "node (pid 7)"}.get).status == "pass"
    bare = Site(site.checkout, url="http://0.0.0.0:80")
    assert hub.encryption(bare).status == "fail" and "nginx" in hub.encryption(bare).fix
    assert hub.encryption(Site(site.checkout, url="https://0.0.0.0:443")).status == "pass"


def test_names_that_browsers_find(site):
    """One name for all gives accounts away; the name of each must be there; below localhost browsers know all."""

    def known(*names: str):
        return lambda host: host in names or (_ for _ in ()).throw(OSError("no such name"))

    public = replace(site, public_url="https://hub.example.org")
    assert hub.names(replace(public, names="one")).status == "fail"
    missing = hub.names(public, known("hub.example.org"))
    assert missing.status == "fail" and "allranks-doctor.hub.example.org" in missing.found
    three = replace(public, names="three")
    assert hub.names(three, known("people.hub.example.org")).status == "fail"
    assert hub.names(three, known("people.hub.example.org", "grader.hub.example.org")).status == "warn"
    assert hub.names(site, known()).status == "pass"


def test_a_port_that_takes_a_strangers_connection_is_named(site):
    """Tried by another account: one that greets, one that waits for a word, one that hangs up."""
    greets, waits, hangs_up = (socket.create_server(("127.0.0.1", 0)) for _ in range(3))
    ports = [s.getsockname()[1] for s in (greets, waits, hangs_up)]

    with greets, waits, hangs_up:
        for answer in (lambda: greets.accept()[0].sendall(b"hello"), lambda: hangs_up.accept()[0].close()):
            threading.Thread(target=answer, daemon=True).start()
        check = hub.sockets(site, [("ana", port) for port in ports], knock=knock_here)
    assert check.status == "warn"
    assert {int(port) for port in re.findall(r"ana: (\d+)", check.found)} == set(ports[:2])


def knock_here(ports) -> list[int]:
    """The doctor's own program, as this account: nobody may not read this Python."""
    command = [sys.executable, "-I", "-c", hub._KNOCK, *map(str, sorted(ports))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def test_who_listens_is_named():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as mine:
        assert f"(pid {os.getpid()})" in hub._who_listens(mine.getsockname()[1])


def program(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho {says}\n")
    (folder / name).chmod(0o755)


def test_a_processs_name_draws_nothing_on_roots_terminal():
    """Somebody takes a port of the hub's before it starts, with a name that a terminal obeys."""
    code = (
        "import ctypes, socket; ctypes.CDLL(None).prctl(15, b'\\x1b[2Jroot# \\a'); s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        told = hub._who_listens(int(process.stdout.readline()))
        process.stdin.close()
    assert told == f"?[2Jroot# ? (pid {process.pid})"


def test_the_proxy_and_its_node(site, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    assert hub.proxy(site, str(programs)).found.startswith("no node in")
    program(programs, "node", "v18.19.0")
    assert "no configurable-http-proxy" in hub.proxy(site, str(programs)).found
    program(programs, "configurable-http-proxy", "5.3.0")
    assert "Install Node 20" in hub.proxy(site, str(programs)).fix
    program(programs, "node", "v22.1.0")
    assert hub.proxy(site, str(programs)).status == "pass"
    (site.state / "proxy.pid").write_text(f"{os.getpid()}\n1700000000\n")
    stale = hub.proxy(site, str(programs))
    assert stale.status == "warn" and "another program now" in stale.found


def test_limits_are_the_kernels_word(site):
    assert hub.limits(site, []).status == "pass"
    assert "ben" in hub.limits(site, [Server("ana", GIB, 1, 100), Server("ben", None, 1, 100)]).found
    assert hub.limits(site, [Server(ME, None, None, None)]).found.startswith("no server runs")  # the grader has none
    assert "ALLRANKS_HUB_MEMORY" in hub.limits(site, [Server("ana", 1 << 50, 1, 100)]).fix
    code = (
        "import resource, os, time; resource.setrlimit(resource.RLIMIT_DATA, (1 << 30,) * 2);"
        "resource.setrlimit(resource.RLIMIT_NPROC, (99, 99)); os.sched_setaffinity(0, {0}); print(flush=True); time.sleep(60)"
    )
    command = ["/usr/bin/python3", "-c", code, "singleuser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, user=pwd.getpwnam("games").pw_uid) as process:
        process.stdout.readline()
        (found,) = [server for server in hub._servers() if server.user == "games"]
        process.kill()
    assert found.memory_bytes <= 1 << 30 and found.processes <= 99 and found.cores <= 1


def test_the_graders_sandbox(site, monkeypatch):
    asked = []

    def sandbox(user):
        asked.append(user)
        return hub.warned("sandbox", "no bubblewrap", "Only for grading: apt install bubblewrap")

    monkeypatch.setattr(hub, "sandbox", sandbox)
    check = hub.graders_sandbox(site)
    assert (asked, check.status, check.fix) == ([ME], "fail", "apt install bubblewrap")
    monkeypatch.undo()
    assert hub.graders_sandbox(Site(site.checkout, grader="no-such-account")).fix.startswith("useradd")


def test_the_gpu_service(site, tmp_path):
    node = tmp_path / "nvidia0"
    node.write_text("")
    node.chmod(0o660)
    good = {"gpus": [{}], "waiting": [], "warnings": [], "unleased": []}
    assert hub.gpus(site, [node], lambda: good).status == "pass"
    assert "advice" not in hub.gpus(site, [node], lambda: good).found
    absent = hub.gpus(site, [node], lambda: None)
    assert absent.status == "warn" and "systemctl enable --now allranks-gpus" in absent.fix
    assert "NVreg" in hub.gpus(site, [node], lambda: {**good, "warnings": ["set NVreg_..."]}).found
    assert "--end-unleased" in hub.gpus(site, [node], lambda: {**good, "unleased": [{}]}).fix

    def dead():
        raise GpuServiceError("It does not answer.")

    assert hub.gpus(site, [node], dead).status == "fail"
    node.chmod(0o666)
    assert "everybody can open" in hub.gpus(site, [node], lambda: good).found


def test_the_settings_are_read_as_the_hub_reads_them(tmp_path, monkeypatch):
    config = (ROOT / "deploy" / "jupyterhub_config.py").read_text()
    defaults = dict(re.findall(r'SETTINGS\.get\(\s*"(\w+)",\s*"([^"]+)"', config))
    site = Site.of({}, ROOT)
    assert (site.url, site.grader) == (defaults["ALLRANKS_HUB_URL"], defaults["ALLRANKS_HUB_GRADER"])
    assert (str(site.exchange), str(site.state)) == (defaults["ALLRANKS_HUB_EXCHANGE"], defaults["ALLRANKS_HUB_STATE"])
    assert str(site.leases) in config
    (tmp_path / "hub.env").write_text(
        '# ours\nALLRANKS_HUB_URL="https://hub.example.org"\nALLRANKS_HUB_STATE=/srv/hub\n'
    )
    monkeypatch.setattr(hub, "SETTINGS_FILE", tmp_path / "hub.env")
    monkeypatch.setenv("ALLRANKS_HUB_STATE", "/srv/other")
    found = Site.of_this_machine()
    assert (found.url, found.state) == ("https://hub.example.org", Path("/srv/other"))
    assert found.checkout == ROOT


def test_the_command_prints_every_check_and_a_broken_one(monkeypatch):
    done = subprocess.run(
        [sys.executable, "-m", "allranks.cli", "doctor", "--hub", "--json"], capture_output=True, text=True
    )
    checks = json.loads(done.stdout)["checks"]
    assert [check["name"] for check in checks][:3] == ["root", "accounts", "grader"] and len(checks) == len(hub.CHECKS)
    assert done.returncode == int(any(check["status"] == "fail" for check in checks))
    assert all(check["fix"] for check in checks if check["status"] != "pass")

    def broken(site):
        raise ZeroDivisionError("no")

    monkeypatch.setattr(hub, "CHECKS", (broken,))
    assert [(c.name, c.status) for c in hub.examine(Site(ROOT))] == [("broken", "fail")]
