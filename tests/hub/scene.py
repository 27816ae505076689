"""The hub's scene, act by act: each test goes on from where the one before it ended. Played by house.py only."""

import asyncio
import grp
import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import psutil
import pytest
import requests
from allranks.base import rundir
from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator, LocalAuthenticator, PAMAuthenticator
from jupyterhub.proxy import ConfigurableHTTPProxy
from jupyterhub.spawner import Spawner
from running_hub import GRADER, Hub, make_accounts, processes_of, ranks_of, run
from systemdspawner import SystemdSpawner
from traitlets.config.loader import PyFileConfigLoader
from visitor import HUB, Kernel, Visitor, address

ROOT = Path(__file__).resolve().parents[2]
LAB, NOTEBOOK = "lab03_all_reduce", "all_reduce"
PASSWORDS = {"ana": "first-pass-9", "ben": "second-pass-8", "ida": "third-pass-7", "eve": "fourth-pass-6"}
GROUPS = {"ana": "allranks-students", "ben": "allranks-students", "ida": "allranks-instructors", "eve": None}

GPUS = Path("/etc/allranks/gpus.json")  # pretend ones, for the page
TOKEN = "a-token-for-prometheus-of-32-letters"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The accounts, the grader's clone, and the hub."""
    make_accounts({name: (PASSWORDS[name], GROUPS[name]) for name in PASSWORDS})
    for path, text in ((Path("/etc/allranks/prometheus.token"), TOKEN), (Path("/etc/allranks/hub.env"), "")):
        path.touch(mode=0o600)
        path.write_text(text)
    hub = Hub(tmp_path_factory.mktemp("hub") / "hub.log")
    GPUS.write_text(
        json.dumps({"gpus": [{"uuid": f"GPU-{i}", "name": "Pretend", "memory_bytes": 1 << 30} for i in range(2)]})
    )
    page = {"ALLRANKS_HUB_GPU_PAGE": "nobody", "ALLRANKS_INVENTORY": str(GPUS)}
    hub.start(ALLRANKS_HUB_REFRESH_S="2", ALLRANKS_HUB_SHARE_MEMORY="1", **page)
    yield hub
    print(hub.log.read_text()[-15000:])
    if hub.process.poll() is None:
        hub.stop()


@pytest.fixture
def ana(hub) -> Visitor:
    return hub.people["ana"]


@pytest.fixture
def ben(hub) -> Visitor:
    return hub.people["ben"]


@pytest.fixture
def ida(hub) -> Visitor:
    return hub.people["ida"]


def test_log_in(hub):
    """PAM's passwords, and the Unix groups: a wrong password and an account of neither group are turned away."""
    with pytest.raises(PermissionError):
        Visitor.log_in("ana", PASSWORDS["ben"])
    with pytest.raises(PermissionError):
        Visitor.log_in("eve", PASSWORDS["eve"])
    for name in ("ana", "ben", "ida"):
        hub.people[name] = Visitor.log_in(name, PASSWORDS[name])
    groups = {name: person.call("GET", f"/hub/api/users/{name}")["groups"] for name, person in hub.people.items()}
    assert groups == {"ana": ["nbgrader-allranks"], "ben": ["nbgrader-allranks"], "ida": ["formgrade-allranks"]}


@pytest.mark.parametrize("spawner", ["local", "systemd"])
def test_every_setting_is_one(hub, monkeypatch, spawner):
    """A misspelt setting is ignored by JupyterHub; the systemd spawner, which can't run here, gets its limits at least."""
    monkeypatch.setenv("ALLRANKS_HUB_SPAWNER", spawner)
    config = PyFileConfigLoader("jupyterhub_config.py", path=str(ROOT / "deploy")).load_config()
    classes = (
        JupyterHub,
        ConfigurableHTTPProxy,
        Authenticator,
        LocalAuthenticator,
        PAMAuthenticator,
        Spawner,
        SystemdSpawner,
    )
    known = {cls.__name__: cls for cls in classes}
    unknown = [f"{s}.{key}" for s in config for key in config[s] if key not in known[s].class_trait_names(config=True)]
    assert not unknown
    server = SystemdSpawner(config=config, user=SimpleNamespace(name="ana", id=1, url="/"))
    assert (server.mem_limit, server.cpu_limit, server.notebook_dir) == (6 << 30, 2.0, "~/allranks")
    assert issubclass(config.JupyterHub.spawner_class, SystemdSpawner) == (spawner == "systemd")
    leases = Path(server.environment["ALLRANKS_LEASES"])  # not in /tmp, of which such a server has its own
    assert not leases.is_relative_to("/tmp") and leases.stat().st_mode & 0o7777 == 0o1777
    graders = SystemdSpawner(config=config, user=SimpleNamespace(name=GRADER, id=2, url="/"))
    graders.pre_spawn_hook(graders)
    assert (graders.mem_limit, graders.cpu_limit, graders.default_url) == (None, None, "/formgrader")
    server.pre_spawn_hook(server)
    assert (server.mem_limit, server.cpu_limit) == (6 << 30, 2.0)
    assert server.unit_name == {"systemd": "allranks-ana-singleuser", "local": "jupyter-ana-singleuser"}[spawner]


def test_settings_that_depend_on_the_machine(hub, monkeypatch, tmp_path):
    """Administrators of a directory service that lists no groups; another folder for leases; a hub that isn't root."""

    def load():
        return PyFileConfigLoader("jupyterhub_config.py", path=str(ROOT / "deploy")).load_config()

    assert "admin_groups" not in load().PAMAuthenticator, "nobody could log in"
    monkeypatch.setattr("grp.getgrall", list)
    monkeypatch.setattr("grp.getgrnam", lambda name: name)
    assert load().PAMAuthenticator.admin_groups == {"allranks-admins"}
    monkeypatch.setattr("os.geteuid", lambda: pwd.getpwnam(GRADER).pw_uid)
    assert "ALLRANKS_LEASES" not in load().Spawner.environment
    monkeypatch.setenv("ALLRANKS_LEASES", str(tmp_path / "leases"))
    assert load().Spawner.environment["ALLRANKS_LEASES"] == str(tmp_path / "leases")
    assert (tmp_path / "leases").is_dir()


def test_servers_start_as_their_users(ana, ben, ida):
    ana.start_server()
    ben.start_server()
    ida.start_server(GRADER)
    for person, whose in ((ana, "ana"), (ben, "ben"), (ida, GRADER)):
        person.wait_for_server(whose)
        assert any("singleuser" in " ".join(p.cmdline()) for p in processes_of(whose))
        assert Path("/home", whose).stat().st_mode & 0o777 == 0o700


def test_servers_share_the_memory_of_one_process_of_roots(ana, ben):
    """Each server and each fork server is a fork, keeps little for itself, and has nothing of root's."""
    (machine,) = (p for p in psutil.process_iter() if "allranks.ranks.engines.forkserver.machine" in p.cmdline())
    assert machine.uids().real == 0 and "JUPYTERHUB_API_TOKEN" not in machine.environ()
    who = f"g{grp.getgrnam('allranks-students').gr_gid}"
    assert machine.cmdline()[4] == who, "who teaches or grades shares nothing with students"
    for name in ("ana", "ben"):
        forks = [p for p in processes_of(name) if p.ppid() == machine.pid]
        titles = sorted(" ".join(p.cmdline())[:46] for p in forks)
        assert titles == ["jupyterhub-singleuser (All Ranks)", "python -m allranks.ranks.engines.forkserver /t"]
        for process in forks:
            kept = process.memory_full_info().uss
            shared = process.memory_info().rss - kept
            assert shared > 2 * kept, f"{process.cmdline()[0]} keeps {kept >> 20} MiB and shares {shared >> 20}"
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert "CapEff:\t0000000000000000" in status
            assert set(process.uids()) == {pwd.getpwnam(name).pw_uid}


def test_a_file_can_be_deleted_and_labs_settings_are_in_the_home(ana):
    """Programs look up the home when they are imported, which root's process did: for Lab's settings and workspaces."""
    mine, home = "/user/ana", Path("/home/ana")
    ana.call("PUT", f"{mine}/api/contents/chapters/old.txt", json={"type": "file", "format": "text", "content": "old"})
    assert ana.ask("DELETE", f"{mine}/api/contents/chapters/old.txt").status_code == 204
    assert not (home / "allranks/chapters/old.txt").exists()
    theme = "@jupyterlab/apputils-extension:themes"
    dark = json.dumps({"theme": "JupyterLab Dark"})
    assert ana.ask("PUT", f"{mine}/lab/api/settings/{theme}", json={"raw": dark}).status_code == 204
    assert ana.call("GET", f"{mine}/lab/api/settings/{theme}")["settings"] == {"theme": "JupyterLab Dark"}
    layout = {"data": {}, "metadata": {"id": "mine"}}
    assert ana.ask("PUT", f"{mine}/lab/api/workspaces/mine", json=layout).status_code == 204
    for kept in ("user-settings", "workspaces"):
        assert any(path.owner() == "ana" for path in (home / ".jupyter/lab" / kept).rglob("*.jupyterlab-*"))


def test_a_servers_cookie_goes_to_that_server_only(ana, ben):
    """It holds the right to use the server: sent to another person's server too, it would be theirs."""
    for person in (ana, ben):
        with requests.Session() as browser:
            browser.cookies.update(person.session.cookies)
            assert browser.get(address(f"/user/{person.name}/lab"), timeout=60).ok
            paths = {cookie.name: cookie.path for cookie in browser.cookies}
        assert paths[f"jupyterhub-user-{person.name}"] == f"/user/{person.name}/"
        assert {name for name, path in paths.items() if path == "/"} <= {"jupyterhub-session-id"}


def test_the_hubs_doctor_finds_nothing_wrong(ana, ben):
    """Each check on the hub as it runs here, with two students' servers and the grader's."""
    done = subprocess.run(
        [sys.executable, "-m", "allranks.cli", "doctor", "--hub", "--json"], capture_output=True, text=True
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert [check for check in checks.values() if check["status"] == "fail"] == [] and done.returncode == 0
    warned = {name for name, check in checks.items() if check["status"] == "warn"}
    assert warned <= {"answers", "gpu service"}, [
        checks[name] for name in warned
    ]  # the checkout's own files stay open here
    assert checks["hub"]["found"].startswith("JupyterHub 6.1.1 answers") and "8081" in checks["ports"]["found"]
    assert checks["limits"]["found"].startswith("2 servers, each with at most 6 GiB")


def test_a_monitor_reads_the_hubs_figures_and_nothing_else(ana):
    monitor = {"Authorization": f"Bearer {TOKEN}"}
    figures = requests.get(f"{HUB}/hub/metrics", headers=monitor, timeout=30)
    assert figures.status_code == 200 and "jupyterhub_server_spawn_duration_seconds_count" in figures.text
    assert requests.get(f"{HUB}/hub/api/users", headers=monitor, timeout=30).status_code == 403
    assert requests.get(f"{HUB}/hub/metrics", timeout=30).status_code == 403
    assert ana.ask("GET", "/hub/metrics").status_code == 403


# takes a lease of so many pretend GPUs, and says so
HOLD = """
import sys, time
from allranks.ranks.engines.devices import Inventory
from allranks.ranks.engines.leases import Ledger
with Ledger(Inventory.of_this_machine().gpus).acquire(int(sys.argv[1])):
    print("have", flush=True)
    time.sleep(600)
"""
GPU_ENV = {"ALLRANKS_INVENTORY": str(GPUS), "PATH": os.environ["PATH"], "HOME": "/"}


def as_account(name: str, *command: object, **options) -> subprocess.Popen:
    program = ["setpriv", f"--reuid={name}", "--clear-groups", sys.executable, *map(str, command)]
    return subprocess.Popen(program, env=GPU_ENV, cwd="/", text=True, stdout=subprocess.PIPE, **options)


@pytest.fixture
def a_lease_and_a_queue(hub):
    """Ana has one of two GPUs, and Ben waits for both; neither says so under the own name."""
    with as_account("ana", "-c", HOLD, 1) as holder:
        assert holder.stdout.readline() == "have\n"
        with as_account("ben", "-c", HOLD, 2) as waiter:
            yield
            waiter.kill()
        holder.kill()


def without_estimates(state: dict) -> dict:
    """They get shorter from one reading to the next."""
    return {**state, "newcomer_s": 0, "waiting": [{**one, "wait_s": 0} for one in state["waiting"]]}


def test_the_page_of_gpus_shows_all_who_are_logged_in_the_same(a_lease_and_a_queue, ana, ben):
    """It is what `allranks gpus --json` says to every account. Without a login there is only the way to it."""
    deadline = time.monotonic() + 30
    while not (seen := ana.call("GET", "/services/gpus/state"))["state"]["waiting"]:
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
    assert [gpu["holder"] and gpu["holder"]["user"] for gpu in seen["state"]["gpus"]] == ["ana", None]
    assert [(one["user"], one["gpus"]) for one in seen["state"]["waiting"]] == [("ben", 2)]
    assert 0 < seen["state"]["waiting"][0]["wait_s"] <= 1200 and seen["age_s"] < 5 and seen["error"] is None
    bens = ben.call("GET", "/services/gpus/state")
    assert (seen["you"], bens["you"]) == ("ana", "ben")
    with as_account("eve", "-m", "allranks.cli", "gpus", "--json") as shown:
        said = without_estimates(json.loads(shown.stdout.read()))
    assert without_estimates(seen["state"]) == without_estimates(bens["state"]) == said
    nobody = requests.get(f"{HUB}/services/gpus/state", timeout=30)
    assert nobody.status_code == 403 and "state" not in nobody.json()
    for path in ("/services/gpus", "/services/gpus/"):
        led = requests.get(f"{HUB}{path}", timeout=30)
        assert led.url.startswith(f"{HUB}/hub/login?next=") and "ben" not in led.text
    assert "/services/gpus/" in ana.session.get(f"{HUB}/hub/home", timeout=30).text, "it is in the hub's menu"


def test_the_page_of_gpus_in_a_browser(a_lease_and_a_queue):
    """Two people log in by the hub's form, and see who they are; the hub asks neither for a confirmation."""
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from jupyter_lab import chromium_program, running_chromium
    from playwright.sync_api import expect

    if chromium_program() is None:
        print("no Chromium or Chrome is installed: the page was not looked at")
        return
    words = {"ana": "You have GPU 0.", "ben": "You are next. Your turn: in about 20 min, or earlier."}
    with running_chromium() as browser:
        for name, verdict in words.items():
            page = browser.new_context().new_page()
            asked, errors = set(), []
            page.on("request", lambda request, asked=asked: asked.add(request.url.split("/")[2]))
            page.on("pageerror", lambda error, errors=errors: errors.append(str(error)))
            page.goto(f"{HUB}/services/gpus/")
            page.fill("input[name=username]", name)
            page.fill("input[name=password]", PASSWORDS[name])
            page.press("input[name=password]", "Enter")
            expect(page.locator("h1")).to_have_text(verdict)
            expect(page.locator(".gpu .free")).to_have_count(1)
            expect(page.locator("#queue li")).to_have_count(1)
            expect(page.locator("#old")).to_be_hidden()
            assert asked == {HUB.split("/")[2]} and not errors


def test_the_page_of_gpus_has_no_rights(hub, ana):
    """Its process is nobody's, holds no secret but a token that opens nothing, and nobody else can listen in its place."""
    (page,) = (p for p in psutil.process_iter() if "allranks.machine.gpu_page.server" in p.cmdline())
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{page.pid}/status").read_text().splitlines())
    assert {*status["Uid"].split()} == {str(pwd.getpwnam("nobody").pw_uid)} and status["Groups"].strip() == ""
    port_only = f"{1 << 10:016x}"  # CAP_NET_BIND_SERVICE
    assert status["CapEff"] == status["CapBnd"] == port_only and status["NoNewPrivs"] == "1"
    environment = page.environ()
    assert "CONFIGPROXY_AUTH_TOKEN" not in environment and TOKEN not in environment.values()
    its = {"Authorization": f"token {environment['JUPYTERHUB_API_TOKEN']}"}
    for path in ("users", "users/ana", "proxy", "services", "groups"):
        assert requests.get(f"{HUB}/hub/api/{path}", headers=its, timeout=30).status_code in (403, 404), path
    listen = "import socket; socket.socket().bind(('127.0.0.2', 947))"
    with as_account("ana", "-c", listen, stderr=subprocess.PIPE) as taking:
        assert "PermissionError" in taking.stderr.read()


def test_nobody_gets_into_anothers_server(ana, ben, ida):
    for person, whose in ((ana, "ben"), (ben, "ana"), (ana, GRADER), (ida, "ana")):
        assert person.ask("GET", f"/user/{whose}/api/contents").status_code == 403
        assert person.ask("DELETE", f"/hub/api/users/{whose}/server").status_code in (403, 404)


def test_a_terminal_knows_the_courses_commands(ana, ida):
    """Its shell is no login shell, for which a machine's /etc/profile sets PATH anew."""
    for person, whose in ((ana, "ana"), (ida, GRADER)):
        said = asyncio.run(asyncio.wait_for(person.in_terminal("command -v allranks; pwd", whose), 30))
        assert str(Path(sys.executable).with_name("allranks")) in said


def test_formgrader_is_for_instructors(ana, ida):
    assert ida.ask("GET", f"/user/{GRADER}/formgrader/manage_assignments").status_code == 200
    assert ana.ask("GET", f"/user/{GRADER}/formgrader/manage_assignments").status_code == 403
    assert ana.ask("POST", f"/user/{GRADER}/formgrader/api/assignment/{LAB}/release").status_code == 403
    assert ana.ask("GET", "/user/ana/formgrader/manage_assignments").status_code == 404
    assert ana.ask("GET", "/user/ana/courses").status_code == 200  # the rest of nbgrader is there


def test_an_instructor_lands_in_formgrader(ana, ida):
    """After the login, with the cookies of a browser."""

    def leads_to(person: Visitor, path: str) -> str:
        return person.session.get(f"{HUB}{path}", allow_redirects=False, timeout=60).headers["Location"]

    assert leads_to(ida, "/hub/") == f"/hub/spawn/{GRADER}"
    assert leads_to(ida, f"/hub/spawn/{GRADER}").startswith(address(f"/user/{GRADER}/"))
    assert ida.ask("GET", f"/user/{GRADER}/").headers["Location"].rstrip("?") == f"/user/{GRADER}/formgrader"
    assert GRADER not in leads_to(ana, "/hub/")
    form = {"username": "ida", "password": PASSWORDS["ida"]}
    with requests.Session() as fresh:
        fresh.get(f"{HUB}/hub/login", timeout=60).raise_for_status()
        form["_xsrf"] = [cookie.value for cookie in fresh.cookies if cookie.name == "_xsrf"][-1]
        logged_in = fresh.post(f"{HUB}/hub/login", data=form, allow_redirects=False, timeout=60)
    assert logged_in.headers["Location"] == f"/hub/spawn/{GRADER}"


# What a person's kernel can do to files and processes: by name, "reached", or the error that the kernel of the machine gave.
REACH = """
import os, signal, socket, glob
def reach(what):
    try:
        what()
    except OSError as error:
        return type(error).__name__
    return "reached"
def connect(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(path)
print(json.dumps({
    "home": reach(lambda: os.listdir(HOME)),
    "notebook": reach(lambda: open(HOME + "/allranks/chapters/1_first_hours/00_start_here.ipynb").close()),
    "run directory": reach(lambda: os.listdir(RUN)),
    "fork server's socket": reach(lambda: connect(FORKSERVER, socket.SOCK_SEQPACKET)),
    "kernel's socket": reach(lambda: connect(SHELL, socket.SOCK_STREAM)),
    "signal": reach(lambda: os.kill(RANK, 0)),
    "environment": reach(lambda: open(f"/proc/{RANK}/environ").read()),
    "memory": reach(lambda: open(f"/proc/{RANK}/mem").close()),
    "gradebook": reach(lambda: open("/home/allranks-grader/allranks/autograder/gradebook.db").close()),
    "hub's state": reach(lambda: os.listdir("/var/lib/allranks/hub")),
}))
"""


def test_a_chapter_live_in_both_at_once(ana, ben):
    """Chapter 00 runs from both students' homes at the same time; each kernel's ranks are that user's, out of reach."""
    asyncio.run(asyncio.wait_for(both_at_once(ana, ben), 150))


async def both_at_once(ana: Visitor, ben: Visitor) -> None:
    meet = asyncio.Barrier(2)
    seen: dict[str, list[int]] = {}

    async def play(me: Visitor) -> None:
        name = me.name
        notebook = me.call("GET", f"/user/{name}/api/contents/chapters/1_first_hours/00_start_here.ipynb")["content"]
        kernel = await Kernel(me, "chapters").open()
        printed = {}
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                continue
            outputs = await kernel.run(cell["source"])
            raised = [o.evalue for o in outputs if o.output_type == "error"]
            may_raise = "raises-exception" in cell["metadata"].get("tags", [])
            assert bool(raised) == may_raise, f"{name}, {cell['id']}: {raised}"
            printed[cell["id"]] = "".join(o.data.get("text/plain", "") for o in outputs if "data" in o)
            if cell["id"] == "start_world":
                seen[name] = json.loads(await kernel.says("import json; print(json.dumps(world.pids))"))
                limits = json.loads(await kernel.says(LIMITS))
                assert limits == {"cores": min(2, os.cpu_count()), "data": 6 << 30, "core": 0}
                assert (await kernel.says(RANKS_LIMITS)).split() == [str(int(0.8 * (6 << 30) / 4))] * 4
                await meet.wait()  # now both worlds are there
                for owner in ("ana", "ben"):
                    uid = pwd.getpwnam(owner).pw_uid
                    assert len(seen[owner]) == 4 and set(seen[owner]) <= ranks_of(owner)
                    assert {psutil.Process(pid).uids().real for pid in seen[owner]} == {uid}
                    await try_to_reach(kernel, me, owner, seen[owner][0])
                await meet.wait()
        assert printed["reveal_sum"].splitlines()[0] == "you didn't say; it was 10"
        assert printed["reveal_messages"].splitlines()[0] == "you didn't say; it was 6"
        assert not ranks_of(name) & set(seen[name])  # the chapter's last cell ended them
        # a world that nobody uses ends by itself
        await kernel.says("world = World(ranks=2, idle_minutes=0.03)")
        deadline = time.monotonic() + 30
        while ranks_of(name):
            assert time.monotonic() < deadline, "the idle world did not stop"
            await asyncio.sleep(0.2)
        assert "stopped itself" in await kernel.says("print(world.why_stopped)")
        me.call("DELETE", f"/user/{name}/api/kernels/{kernel.id}")

    await asyncio.gather(play(ana), play(ben))


LIMITS = """
import json, os, resource
print(json.dumps({"cores": len(os.sched_getaffinity(0)), "data": resource.getrlimit(resource.RLIMIT_DATA)[1],
                  "core": resource.getrlimit(resource.RLIMIT_CORE)[1]}))
"""


RANKS_LIMITS = """
def most():
    import resource
    return resource.getrlimit(resource.RLIMIT_DATA)[0]
print(*world.run(most))
"""


async def try_to_reach(kernel: Kernel, me: Visitor, owner: str, rank: int) -> None:
    home = Path("/home", owner)
    shell = next((home / ".jr").glob("*-ipc-1"))
    forkserver = Path(next(part for part in psutil.Process(rank).cmdline() if part.endswith(".sock")))
    names = {
        "HOME": str(home),
        "RUN": str(forkserver.parent),
        "FORKSERVER": str(forkserver),
        "SHELL": str(shell),
        "RANK": rank,
    }
    found = json.loads(
        await kernel.says("\n".join(f"{k} = {v!r}" for k, v in names.items()) + "\nimport json\n" + REACH)
    )
    closed = {"gradebook": "PermissionError", "hub's state": "PermissionError"}
    expected = "reached" if me.name == owner else "PermissionError"
    assert found == {name: expected for name in found} | closed, f"{me.name} at {owner}'s"


def test_release(ida, ana):
    """The instructor's two buttons; then the lab is in the students' lists."""
    assert ida.call("POST", f"/user/{GRADER}/formgrader/api/assignment/{LAB}/assign")["success"]
    released = ida.call("POST", f"/user/{GRADER}/formgrader/api/assignment/{LAB}/release")
    assert released["success"], released
    listed = ana.call("GET", "/user/ana/assignments?course_id=allranks")
    assert [a["assignment_id"] for a in listed["value"] if a["status"] == "released"] == [LAB]


def test_submit(ana, ben):
    """Ana hands in right answers, Ben the notebook as he got it."""
    course = {"course_id": "allranks", "assignment_id": LAB}
    for person in (ana, ben):
        mine = f"/user/{person.name}"
        assert person.call("POST", f"{mine}/assignments/fetch", data=course)["success"]
        path = f"{mine}/api/contents/labs/{LAB}/{NOTEBOOK}.ipynb"
        notebook = person.call("GET", path)["content"]
        assert "NotImplementedError" in json.dumps(notebook) and "BEGIN SOLUTION" not in json.dumps(notebook)
        if person is ana:
            right = nbformat.read(ROOT / "solutions" / LAB / f"{NOTEBOOK}.ipynb", as_version=4)
            answers = {
                c.metadata.nbgrader.grade_id: c.source
                for c in right.cells
                if c.metadata.get("nbgrader", {}).get("solution")
            }
            for cell in notebook["cells"]:
                grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
                cell["source"] = answers.get(grade_id, cell["source"])
            person.call("PUT", path, json={"type": "notebook", "content": notebook})
        submitted = person.call("POST", f"{mine}/assignments/submit", data=course)
        assert submitted["success"], submitted
    inbound = Path("/var/lib/allranks/exchange/allranks/inbound")
    assert sorted(folder.name.split("+")[0] for folder in inbound.iterdir()) == ["ana", "ben"]
    for name in ("ana", "ben"):  # and neither can see what is in there, or among the gradebook's files
        assert subprocess.run(
            ["setpriv", f"--reuid={name}", "--clear-groups", "ls", inbound], capture_output=True, check=False
        ).returncode
        assert subprocess.run(
            ["setpriv", f"--reuid={name}", "--clear-groups", "ls", f"/home/{GRADER}"], capture_output=True, check=False
        ).returncode


def test_collect_from_the_machines_shell(ida):
    """`nbgrader collect` finds the exchange in any shell of the machine, which has none of the hub's variables."""
    done = subprocess.run(
        [
            *("setpriv", f"--reuid={GRADER}", f"--regid={GRADER}", "--clear-groups"),
            *(sys.executable, "-m", "nbgrader", "collect", LAB, "--student=ana"),
        ],
        cwd=f"/home/{GRADER}/allranks/autograder",
        env={"HOME": f"/home/{GRADER}", "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and f"Collecting submission: ana {LAB}" in done.stdout, done.stdout
    submitted = Path(f"/home/{GRADER}/allranks/autograder/submitted")
    assert [path.name for path in submitted.iterdir()] == ["ana"]
    assert (submitted / "ana" / LAB / f"{NOTEBOOK}.ipynb").owner() == GRADER


def test_grade(ida):
    """Collected and graded by buttons in formgrader, by the trusted step, as the grader's account, not root."""
    at = f"/user/{GRADER}/formgrader/api"
    assert ida.call("POST", f"{at}/assignment/{LAB}/collect")["success"]
    for student in ("ana", "ben"):
        graded = ida.call("POST", f"{at}/submission/{LAB}/{student}/autograde")
        assert graded["success"], graded
    scores = {s["student"]: s["code_score"] for s in ida.call("GET", f"{at}/submissions/{LAB}")}
    most = ida.call("GET", f"{at}/assignment/{LAB}")["max_code_score"]
    assert scores == {"ana": most, "ben": 0} and most == 13
    graded = Path(f"/home/{GRADER}/allranks/autograder/autograded/ana/{LAB}/{NOTEBOOK}.ipynb")
    assert graded.owner() == GRADER


def test_feedback(ida, ana, ben):
    """Given back to each; neither has the other's."""
    at = f"/user/{GRADER}/formgrader/api/assignment/{LAB}"
    assert ida.call("POST", f"{at}/generate_feedback")["success"]
    assert ida.call("POST", f"{at}/release_feedback")["success"]
    pages = {}
    for person in (ana, ben):
        mine = f"/user/{person.name}"
        course = {"course_id": "allranks", "assignment_id": LAB}
        assert person.call("POST", f"{mine}/assignments/fetch_feedback", data=course)["success"]
        home = Path("/home", person.name, "allranks")
        (page,) = (home / "labs" / LAB / "feedback").rglob("*.html")
        assert page.owner() == person.name
        pages[person.name] = person.call("GET", f"{mine}/api/contents/{page.relative_to(home)}")["content"]
    assert "<strong>13</strong> of 15 points" in pages["ana"] and "<strong>0</strong> of 15 points" in pages["ben"]


def test_restart_and_idle(hub, ana, ida):
    """A restart of the hub interrupts nobody; a server that nobody uses is ended, with everything that ran in it.

    Whom the administrator has taken out of the instructors' Unix group can't start the grader's server any more, whatever token
    they hold. One that runs remembers them for up to five minutes, as JupyterHub's servers do.
    """
    before = {p.pid for p in processes_of("ana")}
    run("usermod", "--groups", "", "ida")
    hub.stop()
    hub.start(ALLRANKS_HUB_IDLE_S="3", ALLRANKS_HUB_REFRESH_S="2", ALLRANKS_HUB_SHARE_MEMORY="1")
    assert before & {p.pid for p in processes_of("ana")}, "ana's server went with the hub"
    assert ida.ask("POST", f"/hub/api/users/{GRADER}/server").status_code in (403, 404)
    deadline = time.monotonic() + 90
    while left := [p for name in ("ana", "ben", GRADER) for p in processes_of(name)]:
        assert time.monotonic() < deadline, f"still there: {[' '.join(p.cmdline())[:100] for p in left]}"
        time.sleep(0.5)
    assert ida.ask("GET", f"/user/{GRADER}/formgrader/manage_assignments").status_code != 200


def test_nothing_is_left(hub):
    hub.stop()
    mine = {os.getpid(), os.getppid()}
    left = [p for p in psutil.process_iter() if p.pid not in mine and p.status() != psutil.STATUS_ZOMBIE]
    assert not left, [" ".join(p.cmdline())[:100] for p in left]
    for name in ("ana", "ben"):
        run_dir = Path(f"/tmp/allranks-{pwd.getpwnam(name).pw_uid}")
        rundir.sweep(
            run_dir
        )  # as their next server does: a kernel that was killed while it stopped a world leaves its files
        assert not list(run_dir.iterdir()), list(run_dir.iterdir())
