"""What is wrong with a machine that runs the course's JupyterHub, and how to fix it: `allranks doctor --hub`, as root.

As in `allranks.doctor`, each check takes what it judges as arguments. The settings are those of docs/jupyterhub.md.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from allranks.base.errors import CourseError
from allranks.machine.doctor import GIB, Check, failed, passed, results_of, sandbox, warned
from allranks.ranks.engines import gpu_socket

STUDENTS, INSTRUCTORS = "allranks-students", "allranks-instructors"
COURSE = "allranks"
SETTINGS_FILE = Path("/etc/allranks/hub.env")
API_PORTS = (8001, 8081)  # the proxy's and the hub's own, on loopback
OLDEST_NODE = 20
# where the hub's unit looks for programs, besides its own Python's folder
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Site:
    """Where the hub of this machine keeps what: its settings, as deploy/jupyterhub_config.py reads them."""

    checkout: Path
    url: str = "http://127.0.0.1:8000"
    grader: str = "allranks-grader"
    exchange: Path = Path("/var/lib/allranks/exchange")
    state: Path = Path("/var/lib/allranks/hub")
    launches: Path = Path("/var/lib/allranks/lti/launches.json")
    leases: Path = Path("/var/lib/allranks/leases")
    names: str = "wildcard"
    public_url: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str], checkout: Path | None = None) -> Site:
        """The site that these settings (of hub.env) make, with the defaults for what they leave out.

        `checkout` is the folder that the running course was installed from; without it, it is found.
        """
        names = {
            "url": "ALLRANKS_HUB_URL",
            "grader": "ALLRANKS_HUB_GRADER",
            "exchange": "ALLRANKS_HUB_EXCHANGE",
            "state": "ALLRANKS_HUB_STATE",
            "launches": "ALLRANKS_HUB_LTI_LAUNCHES",
            "leases": "ALLRANKS_LEASES",
            "names": "ALLRANKS_HUB_NAMES",
            "public_url": "ALLRANKS_HUB_PUBLIC_URL",
        }
        site = cls(checkout or Path(__file__).resolve().parents[4])
        for field, name in names.items():
            if value := settings.get(name):
                site = replace(site, **{field: type(getattr(site, field))(value)})
        return site

    @classmethod
    def of_this_machine(cls) -> Site:
        """The site of hub.env, over which the environment's own settings win."""
        settings = {}
        with contextlib.suppress(OSError):
            for line in SETTINGS_FILE.read_text(encoding="utf-8").splitlines():
                name, found, value = line.partition("=")
                if found and not line.lstrip().startswith("#"):
                    settings[name.strip()] = " ".join(shlex.split(value))
        return cls.of({**settings, **os.environ})


def root(site: Site, uid: int | None = None) -> Check:
    """Whether this is root, who alone sees all that the other checks look at."""
    if (os.geteuid() if uid is None else uid) != 0:
        return warned("root", "this is another account: some checks see too little", "sudo allranks doctor --hub")
    return passed("root", "every check sees what it needs")


def accounts(site: Site, look_up: Callable[[str], list[str]] | None = None) -> Check:
    """Whether there are the groups of students and instructors, and nobody is in both."""
    look_up = look_up or members
    there: dict[str, list[str]] = {}
    for group in (STUDENTS, INSTRUCTORS):
        try:
            there[group] = look_up(group)
        except KeyError:
            return failed("accounts", f"there is no group {group}", f"groupadd {group}")
    students, instructors = set(there[STUDENTS]), set(there[INSTRUCTORS])
    found = f"{len(students)} students, {len(instructors)} instructors"
    if both := sorted(students & instructors):
        return warned("accounts", f"{found}; in both groups: {', '.join(both)}", f"gpasswd -d {both[0]} {STUDENTS}")
    if site.grader in students | instructors:
        return failed(
            "accounts", f"the grader {site.grader} is in a group of people", f"gpasswd -d {site.grader} GROUP"
        )
    if not instructors:
        return warned("accounts", found, f"usermod -aG {INSTRUCTORS} NAME")
    return passed("accounts", found)


def members(group: str) -> list[str]:
    """The accounts in a group, also those whose primary group it is. Raises KeyError if there is no such group."""
    found = grp.getgrnam(group)
    first = [person.pw_name for person in pwd.getpwall() if person.pw_gid == found.gr_gid]
    return [*found.gr_mem, *first]


def grader(site: Site) -> Check:
    """Whether the grader's account is there, closed to others, without a login, and has a clone of the same version."""
    try:
        account = pwd.getpwnam(site.grader)
    except KeyError:
        return failed("grader", f"there is no account {site.grader}", f"useradd --create-home {site.grader}")
    home = Path(account.pw_dir)
    clone = home / "allranks"
    try:
        mode = stat.S_IMODE(home.stat().st_mode)
        if mode & 0o077:
            return failed(
                "grader", f"others can enter {home} (mode {mode:o}), where the secret is", f"chmod 700 {home}"
            )
        if not (clone / "autograder" / "nbgrader_config.py").is_file():
            return failed("grader", f"{clone} is no clone of the course", "docs/jupyterhub.md, step 2")
        strangers = [p for p in (clone, clone / "autograder") if p.stat().st_uid != account.pw_uid]
    except OSError as error:
        return failed("grader", f"{error.filename}: {error.strerror}", "docs/jupyterhub.md, step 2")
    if strangers:
        return failed("grader", f"{strangers[0]} is not {site.grader}'s", f"chown -R {site.grader}: {clone}")
    if _can_log_in(site.grader):
        return warned("grader", f"{site.grader} has a password", f"passwd --lock {site.grader}")
    mine, its = _commit(site.checkout), _commit(clone)
    if mine and its and mine != its:
        return warned(
            "grader",
            f"{clone} is at {its[:9]}, the checkout at {mine[:9]}",
            f"sudo -u {site.grader} -H git -C {clone} pull",
        )
    return passed("grader", f"{clone}, closed to others")


def _can_log_in(name: str) -> bool:
    """Whether an account has a password; False where that can't be read."""
    with contextlib.suppress(OSError):
        for line in Path("/etc/shadow").read_text(encoding="utf-8").splitlines():
            fields = line.split(":")
            if fields[0] == name:
                return bool(fields[1]) and fields[1][0] not in "!*"
    return False


def _commit(checkout: Path) -> str | None:
    """The commit of a checkout, from git's files: git itself might run what another account has put there."""
    with contextlib.suppress(OSError):
        git = checkout / ".git"
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref: ")
        if name == head:
            return head
        if (git / name).is_file():
            return (git / name).read_text(encoding="utf-8").strip()
        for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
            if line.endswith(f" {name}"):
                return line.split()[0]
    return None


def programs(site: Site, python: Path | None = None) -> Check:
    """Whether all accounts can run the checkout and its Python, and only root can change them: root runs them too."""
    python = Path(sys.base_prefix).resolve() if python is None else python
    places = [site.checkout, site.checkout / "deploy", site.checkout / "deploy" / "jupyterhub_config.py"]
    for path in (*places, Path(sys.prefix), python):
        for step in (*reversed(path.parents), path):
            try:
                found = step.stat()
            except OSError as error:
                return failed("programs", f"{step}: {error.strerror}", "docs/jupyterhub.md, step 1")
            if step.is_dir() and not found.st_mode & 0o001:
                return failed(
                    "programs",
                    f"other accounts can't enter {step}, and their servers are started from {path}",
                    f"Install the course elsewhere, or: chmod o+x {step}",
                )
            sticky = step.is_dir() and found.st_mode & stat.S_ISVTX
            if found.st_uid != 0 or (found.st_mode & 0o022 and not sticky):
                return failed(
                    "programs",
                    f"accounts other than root can change {step}, which root runs",
                    f"chown root: {step}; chmod go-w {step}",
                )
    return passed("programs", f"{site.checkout} and {python}: everybody reads them, root alone changes them")


def answers(site: Site) -> Check:
    """Whether students can read the answers of labs in the checkout."""
    names = [name for name in ("solutions", "tests", ".git") if (site.checkout / name).exists()]
    open_ones = [name for name in names if (site.checkout / name).stat().st_mode & 0o007]
    if open_ones:
        return warned(
            "answers",
            f"everybody can read {', '.join(open_ones)} of {site.checkout}",
            f"After the grader's clone: chmod 700 {' '.join(str(site.checkout / name) for name in open_ones)}",
        )
    return passed("answers", f"closed: {', '.join(names)}" if names else "not in the checkout")


def hub(site: Site, ask: Callable[[str], str] | None = None) -> Check:
    """Whether the hub answers."""
    ask = ask or _get
    try:
        version = json.loads(ask(f"{site.url.rstrip('/')}/hub/api/"))["version"]
    except (OSError, ValueError, KeyError) as error:
        return warned(
            "hub", f"{site.url} gives no answer: {error}", "systemctl status allranks-hub; journalctl -u allranks-hub"
        )
    return passed("hub", f"JupyterHub {version} answers on {site.url}")


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def encryption(site: Site) -> Check:
    """Whether passwords cross a network only encrypted: the hub is on loopback, or speaks TLS."""
    parts = urlsplit(site.url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        return failed(
            "encryption",
            f"{site.url} sends passwords over the network as they are",
            "Leave ALLRANKS_HUB_URL at 127.0.0.1 and put nginx or Caddy before it; docs/jupyterhub.md, step 3",
        )
    return passed("encryption", "TLS" if parts.scheme == "https" else "on loopback only")


def names(site: Site, resolve: Callable[[str], object] | None = None) -> Check:
    """Whether each person's pages have a name of their own in browsers, which the machine that asks can find."""
    resolve = resolve or socket.gethostbyname
    fix = "docs/jupyterhub.md, step 3: ALLRANKS_HUB_PUBLIC_URL and a wildcard name"
    if site.names == "one":
        return failed("names", "who opens another person's page gives that person the own account", fix)
    host = urlsplit(site.public_url or "http://hub.localhost").hostname or ""
    below = ["allranks-doctor"] if site.names == "wildcard" else ["people", "grader"]
    for name in below if host != "localhost" and not host.endswith(".localhost") else ():  # browsers know those
        try:
            resolve(f"{name}.{host}")
        except OSError:
            return failed("names", f"there is no {name}.{host}, so browsers find no server", fix)
    if site.names == "three":
        return warned("names", "students' pages share one name: they can act for each other's visitors", fix)
    return passed("names", f"each person's pages have a name below {host}")


def sockets(
    site: Site,
    there: Iterable[tuple[str, int]] | None = None,
    knock: Callable[[Iterable[int]], list[int]] | None = None,
) -> Check:
    """Whether another account gets into the TCP ports of people's servers and kernels: each is tried as `nobody`.

    `there` are people's ports, as (user, port); `knock` gives the ports that did not hang up.
    """
    people = {port: user for user, port in (_ports_of_people() if there is None else there)}
    if not people:
        return passed("sockets", "no server runs; ask again when somebody has logged in")
    open_ones = (knock or _knock_as_nobody)(sorted(people))
    if open_ones:
        found = ", ".join(f"{people[port]}: {port}" for port in open_ones)
        return warned(
            "sockets",
            f"other accounts can connect to {found}, and send what fills the memory of the process there",
            "Restart these servers, which may be older than the course; a port that is no server's is a program of its person.",
        )
    return passed("sockets", f"{len(people)} ports of people's servers hang up on other accounts")


def _ports_of_people() -> list[tuple[str, int]]:
    uids = {pwd.getpwnam(server.user).pw_uid: server.user for server in _servers()}
    found = []
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.pid is not None:
            with contextlib.suppress(psutil.Error):
                uid = psutil.Process(one.pid).uids().real
                if uid in uids:
                    found.append((uids[uid], one.laddr.port))
    return sorted(set(found))


# prints each port that does not hang up within five seconds
_KNOCK = """
import socket, sys
for port in map(int, sys.argv[1:]):
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as s:
            s.settimeout(5)
            if s.recv(1):
                print(port)
    except TimeoutError:
        print(port)
    except OSError:
        pass
"""


def _knock_as_nobody(ports: Iterable[int]) -> list[int]:
    command = ["setpriv", "--reuid=nobody", "--clear-groups", sys.executable, "-I", "-c", _KNOCK, *map(str, ports)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, cwd="/")
    return [int(line) for line in done.stdout.split()]


def ports(site: Site, runs: bool | None = None, taken: Callable[[int], str | None] | None = None) -> Check:
    """Whether the hub has its ports, or can have them. `taken` says who listens on a port; None: nobody."""
    taken = taken or _who_listens
    runs = hub(site).status == "pass" if runs is None else runs
    wanted = (urlsplit(site.url).port or (443 if site.url.startswith("https") else 80), *API_PORTS)
    held = {port: who for port in wanted if (who := taken(port))}
    if runs:
        return passed("ports", ", ".join(f"{port}: {who}" for port, who in held.items()) or "the hub answers")
    if held:
        port, who = next(iter(held.items()))
        return failed(
            "ports",
            f"{who} listens on {port}, and the hub does not answer",
            "End it, or choose other ports: docs/jupyterhub.md, step 3",
        )
    return passed("ports", f"{', '.join(map(str, wanted))} are free")


def _who_listens(port: int) -> str | None:
    for one in psutil.net_connections("tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
            with contextlib.suppress(psutil.Error, TypeError):
                name = psutil.Process(one.pid).name()  # whoever runs it chose it, and root reads it
                return f"{''.join(c if c.isprintable() else '?' for c in name)} (pid {one.pid})"
            return "a process"
    return None


def proxy(site: Site, path: str | None = None) -> Check:
    """Whether JupyterHub's proxy and a Node that runs it are installed, and no stale note of its pid misleads the hub."""
    path = f"{Path(sys.executable).parent}:{PROGRAMS}" if path is None else path
    program, node = shutil.which("configurable-http-proxy", path=path), shutil.which("node", path=path)
    if not program or not node:
        missing = "configurable-http-proxy" if node else "node"
        return failed(
            "proxy",
            f"no {missing} in {path}",
            "npm install -g configurable-http-proxy@5.3.0; docs/jupyterhub.md, step 1",
        )
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20)
    version = done.stdout.strip().lstrip("v")
    if not version or int(version.split(".")[0]) < OLDEST_NODE:
        return failed(
            "proxy", f"{node} is {version or 'broken'}", f"Install Node {OLDEST_NODE} or newer: docs/jupyterhub.md"
        )
    with contextlib.suppress(OSError, ValueError):
        pid = int((site.state / "proxy.pid").read_text().splitlines()[0])
        with contextlib.suppress(psutil.Error):
            if "configurable-http-proxy" not in " ".join(psutil.Process(pid).cmdline()):
                return warned(
                    "proxy",
                    f"{site.state / 'proxy.pid'} names pid {pid}, which is another program now: the hub may end it",
                    f"rm {site.state / 'proxy.pid'}",
                )
    return passed("proxy", f"{program} with Node {version}")


def state(site: Site) -> Check:
    """Whether the hub's database and secrets are closed to others."""
    if not site.state.exists():
        return warned("hub's state", f"{site.state} is not there yet", "The hub makes it at its first start.")
    found = site.state.stat()
    if found.st_uid != 0 or found.st_mode & 0o077:
        return failed(
            "hub's state", f"others can enter {site.state}", f"chown root: {site.state}; chmod 700 {site.state}"
        )
    return passed("hub's state", f"{site.state}, root's alone")


def exchange(site: Site) -> Check:
    """Whether people can hand in labs, and can't move or replace what belongs to the course."""
    course = site.exchange / COURSE
    if not course.exists():
        return warned("exchange", f"{course} is not there yet", "The hub makes it at its first start.")
    top, its = site.exchange.stat(), course.stat()
    mode = stat.S_IMODE(top.st_mode)
    if top.st_uid != 0 or mode != 0o1777:
        return failed(
            "exchange",
            f"{site.exchange} has mode {mode:o} and owner {_name(top.st_uid)}: with another than 1777 and root, "
            "people can't hand in, or can move the course's folder away",
            f"chown root: {site.exchange}; chmod 1777 {site.exchange}",
        )
    try:
        owner = pwd.getpwnam(site.grader).pw_uid
    except KeyError:
        owner = -1
    if its.st_uid != owner or its.st_mode & 0o022:
        return failed(
            "exchange",
            f"{course} has mode {stat.S_IMODE(its.st_mode):o} and owner {_name(its.st_uid)}",
            f"chown {site.grader}: {course}; chmod 755 {course}",
        )
    inbox = course / "inbound"
    if inbox.exists() and inbox.stat().st_mode & 0o044:
        return failed("exchange", f"everybody can list {inbox}: names of submissions are secret", f"chmod 733 {inbox}")
    return passed("exchange", f"{course}, the grader's; everybody can hand in, nobody can list")


@dataclass(frozen=True)
class Server:
    """A person's running server: what it may use. None: no limit."""

    user: str
    memory_bytes: int | None
    cores: float | None
    processes: int | None


def limits(site: Site, servers: Iterable[Server] | None = None) -> Check:
    """Which limits the running servers have, by the kernel's word, not the configuration's."""
    found = [s for s in (_servers() if servers is None else servers) if s.user != site.grader]
    if not found:
        return passed("limits", "no server runs; ask again when somebody has logged in")
    without = sorted({s.user for s in found if s.memory_bytes is None or s.processes is None})
    if without:
        return warned(
            "limits",
            f"{len(found)} servers; without a limit of memory or processes: {', '.join(without)}",
            "Use the systemd spawner: pip install -c constraints.txt -e '.[hub]', and docs/jupyterhub.md, Limits",
        )
    least = min(found, key=lambda s: s.memory_bytes or 0)
    cores = {round(s.cores, 1) for s in found if s.cores}
    words = f"{len(found)} servers, each with at most {max(s.memory_bytes or 0 for s in found) / GIB:.3g} GiB"
    words += f", {max(cores):g} cores" if cores else ""
    total, there = sum(s.memory_bytes or 0 for s in found), psutil.virtual_memory().total
    if (least.memory_bytes or 0) > there:
        return warned("limits", f"{words}: one of them can use the whole memory", "Set ALLRANKS_HUB_MEMORY lower.")
    return passed("limits", f"{words}; together {total / GIB:.3g} of the machine's {there / GIB:.3g} GiB")


def _servers() -> list[Server]:
    found: dict[int, Server] = {}
    for process in psutil.process_iter(["pid", "uids", "cmdline"]):
        words = " ".join(process.info["cmdline"] or ())
        if "singleuser" not in words or not process.info["uids"] or process.info["uids"].real == 0:
            continue
        with contextlib.suppress(psutil.Error, OSError):
            if "singleuser" in " ".join(psutil.Process(process.ppid()).cmdline()):
                continue  # a child of one that is counted
            uid = process.info["uids"].real
            # with shared memory a process of the hub waits, without limits, for the fork that is the server
            if uid not in found or "jupyterhub-singleuser" in words:
                found[uid] = _limits_of(process.info["pid"], uid)
    return list(found.values())


def _limits_of(pid: int, uid: int) -> Server:
    """The limits of a process, from its control group where that has some, else its own."""
    memory, cores, tasks = _of_group(pid)
    own = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        own[line[:26].strip()] = line[26:].split()[0]  # the soft limit; "unlimited" is no number
    allowed, all_cores = len(os.sched_getaffinity(pid)), psutil.cpu_count() or 1
    return Server(
        _name(uid),
        memory or _whole(own.get("Max data size", "")),
        cores or (allowed if allowed < all_cores else None),
        tasks or _whole(own.get("Max processes", "")),
    )


def _of_group(pid: int) -> tuple[int | None, float | None, int | None]:
    """(bytes, cores, processes) that the control group of a process has at most."""
    with contextlib.suppress(OSError, ValueError):
        name = Path(f"/proc/{pid}/cgroup").read_text().strip().splitlines()[-1].partition("::")[2]
        group = Path("/sys/fs/cgroup") / name.lstrip("/")
        if name.strip("/"):
            quota, _, period = _value(group / "cpu.max").partition(" ")
            cores = int(quota) / int(period) if quota.isdigit() else None
            return _whole(_value(group / "memory.max")), cores, _whole(_value(group / "pids.max"))
    return None, None, None


def _value(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def graders_sandbox(site: Site) -> Check:
    """Whether the grader's account can make the sandbox without which nothing is graded."""
    try:
        found = sandbox(user=site.grader)
    except KeyError:
        return failed("sandbox", f"there is no account {site.grader}", f"useradd --create-home {site.grader}")
    if found.status == "pass":
        return passed("sandbox", f"{site.grader} can make it")
    return failed("sandbox", found.found, found.fix.removeprefix("Only for grading: "))


def gpus(
    site: Site,
    nodes: Iterable[Path] | None = None,
    service: Callable[[], Mapping[str, list[object]] | None] | None = None,
) -> Check:
    """Whether GPUs can be opened only by those who have leased them. `service` says what the GPU service says; None: none."""
    nodes = sorted(Path("/dev").glob("nvidia[0-9]*")) if nodes is None else list(nodes)
    try:
        said = (service or _service)()
    except CourseError as error:
        return failed("gpu service", str(error), "systemctl restart allranks-gpus; journalctl -u allranks-gpus")
    if said is None and not nodes:
        return passed("gpu service", "no GPU here, and none is needed")
    if said is None:
        return _leases_by_locks(site, len(nodes))
    wide = [str(node) for node in nodes if node.stat().st_mode & 0o007]
    if wide:
        return failed("gpu service", f"everybody can open {', '.join(wide)}", "systemctl restart allranks-gpus")
    if said["warnings"]:
        return warned("gpu service", str(said["warnings"][0]), "docs/gpus.md, 'GPUs that only their holder can open'")
    if said["unleased"]:
        return warned(
            "gpu service",
            f"{len(said['unleased'])} processes have a GPU open without a lease",
            "`allranks gpus` shows them; --end-unleased in ALLRANKS_GPU_OPTIONS ends them, --allow ACCOUNT permits them",
        )
    return passed("gpu service", f"{len(said['gpus'])} GPUs open only to their holders; {len(said['waiting'])} wait")


def _service() -> Mapping[str, list[object]] | None:
    path = gpu_socket.where()
    return None if path is None else gpu_socket.state(path)


def _leases_by_locks(site: Site, count: int) -> Check:
    advice = "systemctl enable --now allranks-gpus makes leases binding: docs/gpus.md"
    if site.leases.exists():
        found = site.leases.stat()
        if found.st_uid != 0 or stat.S_IMODE(found.st_mode) != 0o1777:
            return failed(
                "gpu service",
                f"leases are kept in {site.leases}, whose mode is {stat.S_IMODE(found.st_mode):o} and owner {_name(found.st_uid)}",
                f"chown root: {site.leases}; chmod 1777 {site.leases}",
            )
    return warned(
        "gpu service", f"it does not run: who does not ask for a lease can use any of the {count} GPUs", advice
    )


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


CHECKS: tuple[Callable[[Site], Check], ...] = (
    root, accounts, grader, programs, answers, hub, encryption, names, ports, proxy, state, exchange, limits, sockets,
    graders_sandbox, gpus,
)  # fmt: skip


def examine(site: Site | None = None) -> list[Check]:
    """Runs every check of the hub; their results, in order. A check that raises counts as failed."""
    return results_of(CHECKS, site or Site.of_this_machine())
