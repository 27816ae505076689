"""Hand-in where people share no disk and have no accounts: a real hub with its proxy, the service as deploy/values.yaml starts it.

Roles, scopes and the service's environment are those of the chart's values; only ports, homes and who is in which group are this test's.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import nbformat
import psutil
import pytest
import requests
import yaml
from allranks.base.web_service import FairServer
from allranks.course import teaching
from allranks.course.exchange import store
from allranks.course.exchange.remote import HandInError, Remote, mirror
from allranks.ranks.engines import ports
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeError
from tornado.netutil import bind_sockets
from visitor import Visitor
from waiting import until

from autograder import by_service, pairs, privacy
from autograder.folder import config_of

pytest.importorskip("jupyterhub", reason="pip install -c constraints.txt -e '.[hub]'")
from allranks.course.exchange import server

pytestmark = [pytest.mark.live, pytest.mark.notebooks, pytest.mark.servers, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
VALUES = yaml.safe_load((ROOT / "deploy" / "values.yaml").read_text())["hub"]
LAB, NOTEBOOK = "lab03_all_reduce", "all_reduce.ipynb"
ADMIN = "a-token-of-this-test"
PEOPLE = {"allranks-students": ["ann", "bo"], "allranks-instructors": ["ida"]}
CONFIGURATION = """
c.JupyterHub.authenticator_class, c.Authenticator.allow_all = "dummy", True
c.JupyterHub.spawner_class, c.SimpleLocalProcessSpawner.home_dir_template = "simple", {homes!r}
c.Spawner.cmd, c.Spawner.args = [{python!r}, {script!r}], ["--allow-root"]
c.Spawner.environment = {environment!r}
c.Spawner.default_url, c.Spawner.notebook_dir = "/lab", "~/allranks"
c.Spawner.start_timeout = c.Spawner.http_timeout = 300
c.JupyterHub.bind_url, c.JupyterHub.hub_port = "http://127.0.0.1:{proxy}", {hub}
c.ConfigurableHTTPProxy.api_url, c.ConfigurableHTTPProxy.pid_file = "http://127.0.0.1:{api}", {pid!r}
c.ConfigurableHTTPProxy.command = ["setpriv", "--pdeathsig", "TERM", "configurable-http-proxy"]  # also of a hub that is just starting
c.JupyterHub.db_url, c.JupyterHub.cookie_secret = "sqlite:///:memory:", b"x" * 32
c.JupyterHub.load_groups = {{name: {{"users": users}} for name, users in {people!r}.items()}}
c.JupyterHub.custom_scopes, c.Spawner.server_token_scopes = {scopes!r}, {server_scopes!r}
c.JupyterHub.services = {services!r} + [{{"name": "test", "api_token": {admin!r}}}]
c.JupyterHub.load_roles = {roles!r} + [{{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "tokens"]}}]
"""


@dataclass
class Hub:
    """The running hub; `service` is where its pods find the service, `public` where everybody else does."""

    folder: Path
    url: str
    service: str
    public: str
    programs: list[subprocess.Popen]

    def call(self, method: str, path: str, **options) -> requests.Response:
        """A request to the hub's API by the test's own service."""
        headers = {"Authorization": f"token {ADMIN}"}
        answer = requests.request(method, f"{self.url}/hub/api/{path}", headers=headers, timeout=60, **options)
        assert answer.ok, answer.text
        return answer

    def token(self, who: str) -> str:
        """A token as the hub's page makes it."""
        return self.call("POST", f"users/{who}/tokens", json={}).json()["token"]

    def remote(self, who: str) -> Remote:
        """The service, asked by this person."""
        return Remote(self.public, self.token(who))

    def visitor(self, who: str) -> Visitor:
        """Somebody at the hub's pages and the own server."""
        return Visitor(who, self.token(who))


def started(folder: Path, name: str, command: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """A program that gets SIGTERM when these tests end, however they end: the hub ends its proxy and servers then."""
    with open(folder / f"{name}.log", "w") as log:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def test_what_was_started_ends_with_the_tests_that_are_killed(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; sys.path[:0] = sys.argv[1:]; import test_handin_service as tests; "
        "print(tests.started(Path('.'), 'sleep', ['sleep', '600'], {}).pid, flush=True); time.sleep(600)"
    )
    python = [sys.executable, "-c", program, *sys.path]
    with subprocess.Popen(python, stdout=subprocess.PIPE, cwd=tmp_path) as tests:
        one = psutil.Process(int(tests.stdout.readline()))
        until(lambda: one.name() == "sleep")
        tests.kill()
    until(lambda: not one.is_running() or one.status() == psutil.STATUS_ZOMBIE)


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[Hub]:
    """Hub, proxy and service; nobody's server is running yet."""
    if shutil.which("configurable-http-proxy") is None:
        pytest.skip("configurable-http-proxy is not installed: npm install -g configurable-http-proxy@5.3.0")
    folder = tmp_path_factory.mktemp("handin")
    held = ports.hold(4, "127.0.0.1")
    proxy, api, hub_port, handin = (one.getsockname()[1] for one in held)
    service = f"http://127.0.0.1:{handin}/services/handin/"
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
    python["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "utils", ROOT, ROOT / "autograder")))
    homes = folder / "homes"
    homes.mkdir()
    token = "b" * 64
    ((name, about),) = VALUES["services"].items()
    (folder / "hub.py").write_text(
        CONFIGURATION.format(
            homes=str(homes / "{username}"),
            python=sys.executable,
            script=str(ROOT / "deploy" / "singleuser.py"),
            environment={**python, "ALLRANKS_HANDIN_URL": service},
            proxy=proxy,
            hub=hub_port,
            api=api,
            pid=str(folder / "proxy.pid"),
            people=PEOPLE,
            scopes=VALUES["config"]["JupyterHub"]["custom_scopes"],
            server_scopes=VALUES["config"]["Spawner"]["server_token_scopes"],
            services=[{**about, "name": name, "api_token": token, "url": f"http://127.0.0.1:{handin}"}],
            roles=[{"name": role, **what} for role, what in VALUES["loadRoles"].items()],
            admin=ADMIN,
        )
    )
    (container,) = VALUES["extraContainers"]
    given = {one["name"]: one.get("value", token) for one in container["env"]}
    given |= {"JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{handin}", "ALLRANKS_HANDIN_FOLDER": str(folder / "class")}
    given["JUPYTERHUB_API_URL"] = f"http://127.0.0.1:{hub_port}/hub/api"
    for one in held:
        one.close()
    programs = []
    try:
        programs.append(started(folder, "service", [sys.executable, *container["command"][1:]], {**python, **given}))
        programs.append(
            started(
                folder,
                "hub",
                [sys.executable, "-m", "jupyterhub", "-f", str(folder / "hub.py")],
                {**python, "HOME": str(folder)},
            )
        )
        running = Hub(
            folder, f"http://127.0.0.1:{proxy}", service, f"http://127.0.0.1:{proxy}/services/handin/", programs
        )
        for address in (f"{running.url}/hub/api/", f"{running.public}me"):
            while True:  # pytest's own time limit bounds this
                assert all(one.poll() is None for one in programs), (folder / "hub.log").read_text()[-3000:]
                try:
                    if requests.get(address, timeout=5).status_code in (200, 401):
                        break
                except requests.RequestException:
                    pass
                time.sleep(0.2)
        for who in ("ann", "bo", "ida", "mal"):
            requests.post(f"{running.url}/hub/api/users/{who}", headers={"Authorization": f"token {ADMIN}"}, timeout=60)
        yield running
    finally:
        for program in reversed(programs):
            program.send_signal(signal.SIGTERM)
            try:
                program.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()


def teachers_folder(hub: Hub, folder: Path) -> Path:
    """A course on a machine that knows only the hub's address and a token."""
    folder.parent.mkdir(exist_ok=True)
    teaching.init(folder, (LAB,))
    (folder / "autograder" / "exchange.txt").write_text(f"{hub.public}\n")
    token = folder / "autograder" / "exchange_token.txt"
    token.touch(0o600)
    token.write_text(hub.token("ida"))
    return folder


def typed(course: Path, *command: str, well: bool = True) -> str:
    """What a command says in the teacher's folder, which has no account's settings and no disk of the hub's."""
    home = course.parent / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT / "utils", ROOT, ROOT / "autograder")))
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=course / "autograder",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == well, done.stdout[-4000:]
    return done.stdout


def enter(course: Path, student: str) -> None:
    """Puts a student into the gradebook."""
    with Gradebook(f"sqlite:///{course / 'autograder' / 'gradebook.db'}", "allranks") as gradebook:
        gradebook.update_or_create_student(student)


def answered(course: Path) -> str:
    """The lab with the teacher's answers in it."""
    right = nbformat.read(course / "solutions" / LAB / NOTEBOOK, as_version=4)
    sources = {c.metadata.nbgrader.grade_id: c.source for c in right.cells if "nbgrader" in c.metadata}
    released = nbformat.read(course / "labs" / LAB / NOTEBOOK, as_version=4)
    for cell in released.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = sources[cell.metadata.nbgrader.grade_id]
    return nbformat.writes(released)


def test_a_lab_goes_from_the_teacher_to_two_learners_and_back(hub, monkeypatch):
    course = teachers_folder(hub, hub.folder / "teacher" / "ml")
    monkeypatch.setattr("visitor.address", lambda path: f"{hub.url}{path}")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # a gradebook calls alembic
    people = {who: hub.visitor(who) for who in ("ann", "bo")}
    for visitor in people.values():
        hub.call("POST", f"users/{visitor.name}/server")
    typed(course, "nbgrader", "release_assignment", LAB)
    enter(course, "ann")
    about = {"course_id": "allranks", "assignment_id": LAB}
    homes = {who: hub.folder / "homes" / who for who in people}
    for who, visitor in people.items():
        visitor.wait_for_server()
        (one,) = visitor.call("GET", f"/user/{who}/assignments?course_id=allranks")["value"]
        assert (one["assignment_id"], one["status"]) == (LAB, "released"), one
        (one,) = visitor.call("POST", f"/user/{who}/assignments/fetch", json=about)["value"]
        assert one["status"] == "fetched"
        mine = homes[who] / "allranks" / "labs" / LAB / NOTEBOOK
        assert mine.read_bytes() == (course / "labs" / LAB / NOTEBOOK).read_bytes()
    page = people["ann"].ask("GET", "/user/ann/lab").text
    off = json.loads(re.search(r'"disabledExtensions": (\[.*?\])', page, re.DOTALL)[1])
    assert "@jupyter/nbgrader:formgrader" in off and "@jupyter/nbgrader:assignment-list" not in off, "the menu is there"
    mine = homes["ann"] / "allranks" / "labs" / LAB / NOTEBOOK
    mine.write_text("{ broken")
    said = people["ann"].call("POST", "/user/ann/assignments/submit", json=about)
    assert not said["success"] and "Nothing was handed in" in said["value"], said
    mine.write_text(answered(course))
    [_, one] = people["ann"].call("POST", "/user/ann/assignments/submit", json=about)["value"]
    assert (one["student_id"], len(one["submissions"])) == ("ann", 1)
    # bo by the command, and with a word on the time that is not true
    (homes["bo"] / "allranks" / "labs" / LAB / "timestamp.txt").write_text("2020-01-01 00:00:00.000000 UTC")
    said = asyncio.run(people["bo"].in_terminal(f"cd ~/allranks/labs && nbgrader submit {LAB}", "bo"))
    assert "Submitted as: allranks" in said, said
    listed = typed(course, "nbgrader", "list", "--inbound")
    assert re.findall(r"allranks (\w+) lab03_all_reduce 20", listed) == ["ann", "bo"], listed
    said = json.loads(typed(course, "allranks.cli", "course", "run", LAB, "--release", "--json").splitlines()[-1])
    assert any("does not know them: bo" in line for line in said["collected"]), (
        "who is not in the gradebook is not collected"
    )
    assert not (course / "autograder" / "submitted" / "bo").exists()
    (change,) = said["changes"]
    assert change["student"] == "ann" and change["after"] > 0, said
    stamp = one["submissions"][0]["timestamp"]
    assert (course / "autograder" / "submitted" / "ann" / LAB / "timestamp.txt").read_text() == stamp
    people["ann"].call("POST", "/user/ann/assignments/fetch_feedback", json=about)
    page = homes["ann"] / "allranks" / "labs" / LAB / "feedback" / stamp / "all_reduce.html"
    assert page.read_text() == (course / "autograder" / "feedback" / "ann" / LAB / "all_reduce.html").read_text()
    kept = {who: home / ".local" / "share" / "jupyter" / "nbgrader_exchange" for who, home in homes.items()}
    assert [who for who, folder in kept.items() if list(folder.glob("allranks/feedback/*.html"))] == ["ann"]
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in kept.values())
    enter(course, "bo")
    again = typed(course, "nbgrader", "collect", LAB, "--update")
    assert "No newer submission to collect: ann" in again and "Collecting submission: bo" in again
    counted = (course / "autograder" / "submitted" / "bo" / LAB / "timestamp.txt").read_text()
    assert counted[:4] != "2020", "the time is the service's"


def test_a_teacher_is_told_what_is_wrong_in_one_sentence(tmp_path, monkeypatch):
    """And nothing is graded when nothing could be collected."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "a server's, which does not teach")
    token = tmp_path / "exchange_token.txt"
    url = "https://hub.example.org/services/handin/"
    for address, said in (
        (url.replace("https", "http"), "is no address with https://"),
        ("https://hub.example.org", "its service is at https://hub.example.org/services/handin/"),
        (url, "Put a token of the hub"),
    ):
        with pytest.raises(HandInError, match=re.escape(said)):
            by_service.asked(address, str(token))
    token.write_text("t")
    token.chmod(0o644)
    with pytest.raises(HandInError, match="Others can read"):
        by_service.asked(url, str(token))
    token.chmod(0o600)
    for text in ("", "two words", "\N{LEFT DOUBLE QUOTATION MARK}t"):
        token.write_text(text)
        with pytest.raises(HandInError, match="holds no token of the hub"):
            by_service.asked(url, str(token))
    token.write_text("t")
    teaching.init(tmp_path / "ml", (LAB,))
    (tmp_path / "ml" / "autograder" / "exchange.txt").write_text("http://127.0.0.1:9/services/handin/")
    token.rename(tmp_path / "ml" / "autograder" / token.name)
    said = typed(tmp_path / "ml", "allranks.cli", "course", "run", LAB, well=False)
    assert said.startswith("Collecting failed, so nothing is graded. The hub's service"), said


# ------------------------------------------------------------------------------------------------------- attacks


def work(folder: Path, **files: str) -> Path:
    """A folder to hand in, with a notebook."""
    folder.mkdir(parents=True)
    for name, text in {NOTEBOOK: "{}", "submission_secret.txt": "s" * 64, **files}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def released(hub) -> str:
    """A lab that both have handed in, and ann has a page."""
    hub.remote("ida").release("lab99", work(hub.folder / "lab99"))
    for who in ("ann", "bo"):
        hub.remote(who).hand_in("lab99", work(hub.folder / "works" / who, secret=f"of {who}"))
    page = hub.folder / "page"
    page.mkdir()
    (page / f"{'a' * 32}.html").write_text("ann's page")
    hub.remote("ida").give_back("ann", page)
    return "lab99"


def everything(hub: Hub) -> dict[str, bytes]:
    """All that the service keeps."""
    folder = hub.folder / "class"
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and "drafts" not in p.parts
    }


def status(hub: Hub, who: str, method: str, path: str, **options) -> int:
    headers = {"Authorization": f"token {hub.token(who)}"}
    return requests.request(method, f"{hub.public}{path}", headers=headers, timeout=60, **options).status_code


def test_no_learner_reads_or_changes_what_is_anothers(hub, released):
    before = everything(hub)
    (stamp,) = hub.remote("ida").handed_in(released)[released]["ann"]
    page = f"{'a' * 32}.html"
    for path in (
        "handed_in",
        f"handed_in/{released}",
        f"handed_in/{released}/ann/{quote(stamp)}/secret",
        "people/ann",
        f"people/ann/pages/{page}",
    ):
        assert status(hub, "bo", "GET", path) == 403, path
    for path in ("people/ann", f"people/ann/pages/{page}"):
        assert status(hub, "bo", "DELETE", path) == 403, path
    assert status(hub, "bo", "GET", f"pages/{page}") == 404 and hub.remote("bo").pages() == {}
    assert hub.remote("ann").file("pages", page) == b"ann's page"
    mine, theirs = hub.remote("bo"), hub.remote("ann")
    draft = theirs._ask("POST", "drafts").json()["id"]
    for method, path in (("PUT", f"drafts/{draft}/x.ipynb"), ("POST", f"handed_in/{released}?draft={draft}")):
        assert status(hub, "bo", method, path, data=b"") == 409, path
    for path in (f"released/{released}", "pages/ann", "pages/bo"):
        assert status(hub, "bo", "POST", f"{path}?draft={mine._ask('POST', 'drafts').json()['id']}") == 403, path
    assert status(hub, "bo", "PUT", "drafts/%C3%A9/x", data=b"") == 409
    assert everything(hub) == before


def test_who_handed_in_is_who_the_hub_says(hub, released, tmp_path):
    forged = work(tmp_path / "ann", **{"timestamp.txt": "2020-01-01 00:00:00.000000 UTC", "student": "ann"})
    before = hub.remote("ida").handed_in(released)[released]
    stamp = hub.remote("bo").hand_in(released, forged)
    after = hub.remote("ida").handed_in(released)[released]
    assert after["ann"] == before["ann"] and set(after["bo"]) - set(before["bo"]) == {stamp}
    assert hub.remote("ida").file("handed_in", released, "bo", stamp, "timestamp.txt").decode() == stamp
    assert abs(time.time() - time.mktime(time.strptime(stamp[:19], "%Y-%m-%d %H:%M:%S")) + time.timezone) < 60


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "..%2Fx",
        "a/../../x",
        "%2e%2e/%2e%2e/x",
        "a//x",
        "%2Fetc%2Fx",
        ".",
        "a%00b",
        "a%0Ab",
        "a" * 300,
        "/".join("d" * 30),
    ],
)
def test_a_path_leads_out_of_no_folder(hub, released, path):
    before = everything(hub)
    draft = hub.remote("bo")._ask("POST", "drafts").json()["id"]
    where = urlsplit(hub.public)
    asking = http.client.HTTPConnection(where.hostname, where.port, timeout=60)  # which leaves the path as it is
    asking.request("PUT", f"{where.path}drafts/{draft}/{path}", b"x", {"Authorization": f"token {hub.token('bo')}"})
    assert asking.getresponse().status in (400, 404)
    assert status(hub, "bo", "GET", f"released/{released}/{path}") in (400, 404)
    assert status(hub, "ida", "GET", f"handed_in/{released}/ann/{path}/{NOTEBOOK}") in (400, 404)
    assert everything(hub) == before and [p for p in hub.folder.rglob("*") if p.name in ("x", "b")] == []


def begun(hub: Hub, token: str, path: str, nbytes: int, content: bytes) -> socket.socket:
    """A connection on which a file of `nbytes` is sent, of which `content` is there."""
    where = urlsplit(hub.service)
    sending = socket.create_connection((where.hostname, where.port), timeout=60)
    head = f"PUT {where.path}drafts/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: token {token}\r\n"
    sending.sendall(f"{head}Content-Length: {nbytes}\r\n\r\n".encode() + content)
    return sending


def handles(hub: Hub) -> list[os.stat_result]:
    """The files and connections that the service has open."""
    (pid,) = [program.pid for program in hub.programs if "exchange" in " ".join(program.args)]
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(path.stat())
    return found


def test_what_is_sent_can_be_read_and_collected_whatever_its_names(hub, released, tmp_path):
    """The longest and deepest that the service takes; and one learner's names stop no command about all."""
    longest = store.person("n" * store.MAX_PERSON_BYTES)
    assert len(f"{longest}+{'l' * 100}+{'t' * 30}".encode()) <= 255, "one name of a file"
    for name in ("\u754c" * 60, "\u754c" * 100, "n" * 101):
        with pytest.raises(store.Denied, match="in at most 100 bytes"):
            store.person(name)
    deep = "/".join(["d" * store.MAX_NAME_BYTES] * (store.MAX_DEPTH - 1) + [NOTEBOOK])
    bo = hub.remote("bo")

    def sent(*paths: str) -> str:
        draft = bo._ask("POST", "drafts").json()["id"]
        for path in paths:
            bo._ask("PUT", "drafts", draft, path, data=b"{}")
        return bo._ask("POST", "handed_in", released, params={"draft": draft}).json()["time"]

    stamp = sent(NOTEBOOK, deep)
    assert hub.remote("ida").file("handed_in", released, "bo", stamp, deep) == b"{}"
    course = teachers_folder(hub, tmp_path / "ml")
    assert stamp[:19] in typed(course, "nbgrader", "list", "--inbound")
    with pytest.raises(HandInError, match=r"timestamp\.txt is a folder"):
        sent(NOTEBOOK, "timestamp.txt/x")
    with pytest.raises(HandInError, match="lies in too many folders"):
        sent("d/" + deep)


def test_half_a_file_is_no_work(hub, released):
    """Nor is what a broken connection left of one: else a notebook is marked that nobody wrote."""
    token = hub.token("bo")
    mine = Remote(hub.public, token)
    draft = mine._ask("POST", "drafts").json()["id"]
    mine._ask("PUT", "drafts", draft, NOTEBOOK, data=b"{}")
    begun(hub, token, f"{draft}/more.ipynb", 9, b"half").close()
    time.sleep(1)
    with pytest.raises(HandInError, match="not all of it had been sent"):
        mine._ask("POST", "handed_in", released, params={"draft": draft})


def test_a_draft_that_another_replaces_leaves_no_bytes(hub, released):
    """A file without a name takes its place on the disk for as long as it is open."""
    token = hub.token("bo")
    mine = Remote(hub.service, token)
    held = []
    for _ in range(3):
        draft = mine._ask("POST", "drafts").json()["id"]
        held.append(begun(hub, token, f"{draft}/x.ipynb", 10_000_000, b"x" * 9_000_000))
    mine._ask("POST", "drafts")
    time.sleep(1)
    assert sum(one.st_size for one in handles(hub) if one.st_nlink == 0) == 0
    for one in held:
        one.close()


def test_a_full_volume_takes_nothing_more(tmp_path, monkeypatch):
    """Full of bytes, or of files."""
    kept = store.Store(tmp_path)
    for limit in ("MIN_FREE_BYTES", "MIN_FREE_FILES"):
        with monkeypatch.context() as patched, pytest.raises(store.Denied, match="The hub's disk takes no more"):
            patched.setattr(store, limit, 1 << 62)
            kept.open("bo", kept.begin("bo"), NOTEBOOK)
    kept.open("bo", kept.begin("bo"), NOTEBOOK).complete()


def test_a_list_is_whole_while_another_teacher_removes_what_is_in_it(tmp_path, monkeypatch):
    kept = store.Store(tmp_path)
    for who in ("ann", "bo"):
        work(tmp_path / "handed_in" / "lab99" / who / "now")
    walk, removing = os.walk, []

    def slow(folder: Path) -> Iterator:
        for found in walk(folder):
            if not removing:
                removing.append(threading.Thread(target=kept.forget, args=("ann",)))
                removing[0].start()
                removing[0].join(0.5)
            yield found

    monkeypatch.setattr(store.os, "walk", slow)
    assert set(kept.handed_in()["lab99"]) == {"ann", "bo"}
    removing[0].join()
    assert set(kept.handed_in()["lab99"]) == {"bo"}


def test_many_connections_of_one_take_the_service_from_nobody(hub, released):
    where = urlsplit(hub.service)
    held = []
    for _ in range(FairServer.most_of_source + 100):
        held.append(socket.create_connection((where.hostname, where.port), 60, ("127.0.0.2", 0)))
    assert hub.remote("ann").name() == "ann"
    assert len(handles(hub)) < FairServer.most_of_source + 50
    for one in held:
        one.close()
    token = hub.token("bo")
    draft = Remote(hub.service, token)._ask("POST", "drafts").json()["id"]
    held = [begun(hub, token, f"{draft}/{number}", 9, b"half") for number in range(server.MAX_AT_ONCE)]
    time.sleep(1)
    with pytest.raises(HandInError, match="more than 16 things at once"):
        hub.remote("bo").name()
    assert hub.remote("ann").name() == "ann"
    for one in held:
        one.close()
    time.sleep(1)
    assert hub.remote("bo").name() == "bo"


def test_who_does_not_read_an_answer_holds_no_connection(tmp_path, monkeypatch):
    """And one piece of the file in memory, of any number of them."""
    monkeypatch.setattr(server, "IDLE_S", 0.5)

    class Hub:  # which knows everybody
        access_scopes = frozenset({"in"})

        async def user_for_token(self, token: str, sync: bool) -> dict:
            return {"name": token, "kind": "user", "scopes": ["in"]}

        def check_scopes(self, *_) -> bool:
            return True

    kept = store.Store(tmp_path)
    (tmp_path / "pages" / "bo").mkdir()
    (tmp_path / "pages" / "bo" / "page").write_bytes(b"x" * (32 << 20))

    async def unread() -> None:
        serving = FairServer(server.application("/", kept, Hub()))
        (listening,) = server_sockets = bind_sockets(0, "127.0.0.1")
        serving.add_sockets(server_sockets)
        _, writer = await asyncio.open_connection(*listening.getsockname(), limit=1024)
        writer.write(b"GET /pages/page HTTP/1.1\r\nHost: x\r\nAuthorization: token bo\r\n\r\n")
        while not serving.connected["127.0.0.1"]:
            await asyncio.sleep(0.05)
        for _ in range(100):
            if not serving.connected["127.0.0.1"]:
                break
            await asyncio.sleep(0.1)
        assert not serving.connected["127.0.0.1"]
        writer.close()

    asyncio.run(unread())


def test_a_lab_that_is_gone_leaves_no_folder(tmp_path):
    """As after a restore from an older backup: nbgrader would offer an empty lab, or none at all."""
    (tmp_path / "lab98" / "pictures").mkdir(parents=True)
    (tmp_path / "lab98" / "pictures" / "ring.png").write_text("")
    mirror(Remote("http://127.0.0.1:9/", "t"), "released", {}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".versions"]


def test_bodies_that_are_too_large_are_not_read(hub, released):
    """500 MB for a service in whose pod the hub is: with and without a word on the size, and from nobody."""
    draft = hub.remote("bo")._ask("POST", "drafts").json()["id"]
    (pid,) = [program.pid for program in hub.programs if "exchange" in " ".join(program.args)]
    where = urlsplit(hub.service)
    token = hub.token("bo")
    for path, key in (
        (f"drafts/{draft}/x.ipynb", token),
        (f"drafts/{draft}/x.ipynb", "none"),
        ("drafts", token),
        ("nowhere", token),
    ):
        for size in ("Content-Length: 500000000", "Transfer-Encoding: chunked"):
            with socket.create_connection((where.hostname, where.port), timeout=60) as sending:
                head = f"PUT {where.path}{path} HTTP/1.1\r\nHost: x\r\nAuthorization: token {key}\r\n{size}\r\n\r\n"
                sending.sendall(head.encode())
                sent = 0
                piece = b"x" * (1 << 20)
                piece = b"100000\r\n" + piece + b"\r\n" if "chunked" in size else piece
                try:
                    while sent < 500:
                        sending.sendall(piece)
                        sent += 1
                except OSError:
                    pass
                assert sent < 80, (path, size)
    memory = Path(f"/proc/{pid}/status").read_text()
    assert int(re.search(r"VmHWM:\s+(\d+)", memory)[1]) < 300_000, "KB at most, of what values.yaml gives it"
    assert (
        sum(path.stat().st_size for path in (hub.folder / "class" / "drafts").rglob("*") if path.is_file()) <= 64 << 20
    )
    assert hub.remote("bo").hand_in(released, work(hub.folder / "works" / "after")), "and it goes on"


def test_a_learner_can_not_fill_the_volume(hub, released, monkeypatch, tmp_path):
    large = work(tmp_path / "large")
    with open(large / "data.bin", "wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(HandInError, match="more than 200 files or 64 MiB"):
        hub.remote("bo").hand_in(released, large)
    with open(large / "data.bin", "wb") as file:
        file.truncate(60 << 20)
    for _ in range(4):
        hub.remote("bo").hand_in(released, large)
    with pytest.raises(HandInError, match=r"more than 256 MiB\. Clear the outputs"):
        hub.remote("bo").hand_in(released, large)
    hub.remote("ida").forget("bo")
    many = work(tmp_path / "many", **{f"{n}.txt": "" for n in range(store.MAX_FILES)})
    with pytest.raises(HandInError, match="more than 200 files or 64 MiB"):
        hub.remote("bo").hand_in(released, many)
    draft = hub.remote("bo")._ask("POST", "drafts").json()["id"]
    with pytest.raises(HandInError, match="more than 200 files"):  # empty folders take room too
        for number in range(50):
            hub.remote("bo")._ask("PUT", "drafts", draft, f"{number}/a/b/c/d/e/f/g/h/i/x", data=b"")
    with pytest.raises(HandInError, match="lab98 is not released"):
        hub.remote("bo").hand_in("lab98", work(tmp_path / "one"))


def test_who_is_not_in_the_course_gets_nothing_and_a_token_taken_back_ends(hub, released, monkeypatch):
    for path in ("me", "released", f"released/{released}/{NOTEBOOK}", "pages", "handed_in"):
        assert status(hub, "mal", "GET", path) == 403, path
        for headers in ({}, {"Authorization": "token none"}, {"Cookie": f"token={hub.token('ann')}"}):
            assert requests.get(f"{hub.public}{path}", headers=headers, timeout=60).status_code == 401
        assert requests.get(f"{hub.public}{path}?token={hub.token('ann')}", timeout=60).status_code == 401
    assert requests.get(f"{hub.service}drafts/%ff/x?token=written-here", timeout=60).status_code == 400
    assert "written-here" not in (hub.folder / "service.log").read_text()
    made = hub.call("POST", "users/ann/tokens", json={}).json()
    ann = Remote(hub.public, made["token"])
    assert ann.name() == "ann"
    hub.call("DELETE", f"users/ann/tokens/{made['id']}")
    time.sleep(server.REMEMBER_S + 1)
    with pytest.raises(HandInError, match="does not know this token"):
        ann.name()
    weak = hub.call("POST", "users/ida/tokens", json={"scopes": ["access:services!service=handin"]}).json()["token"]
    with pytest.raises(HandInError, match="Only teachers"):
        Remote(hub.public, weak).handed_in()


def test_the_courses_rules_hold_when_collecting(hub, released, tmp_path, monkeypatch):
    """Only members, the newest work or the newest in time, and a request to mark again beside the work that it is about."""
    course = teachers_folder(hub, tmp_path / "ml")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # a gradebook calls alembic
    enter(course, "bo")
    hub.remote("ida").forget("bo")
    first, second = (hub.remote("bo").hand_in(released, work(tmp_path / n, work=n)) for n in ("first", "second"))

    def collect(**how) -> Path:
        config = config_of(course)
        config.CourseDirectory.assignment_id = released
        by_service.Collect(coursedir=CourseDirectory(config=config), config=config, **how).start()
        return course / "autograder" / "submitted" / "bo" / released

    monkeypatch.chdir(course / "autograder")
    kept = hub.folder / "class" / "handed_in" / released / "bo" / second
    (kept / "timestamp.txt").write_text("")  # lost with the power
    theirs = collect()
    assert (theirs / "work").read_text() == "second" and (theirs / "timestamp.txt").read_text() == second
    assert not (theirs.parents[1] / "ann" / released).exists(), "ann is in no gradebook"
    with Gradebook(f"sqlite:///{course / 'autograder' / 'gradebook.db'}", "allranks") as gradebook:
        gradebook.update_or_create_assignment(released, duedate=first)
    assert (collect(before_duedate=True) / "work").read_text() == "first"
    assert (collect(update=True) / "work").read_text() == "second"
    (course / "autograder" / "autograded" / "bo" / released).mkdir(parents=True)
    hub.remote("bo").hand_in(released, work(tmp_path / "third", work="third", **{"regrade.md": "why 3?"}))
    assert (collect(update=True) / "work").read_text() == "second" and (theirs / "regrade.md").read_text() == "why 3?"
    left = [path for path in Path(tempfile.gettempdir()).glob("allranks-*") if list(path.rglob("inbound"))]
    assert left == [], "no copy is left outside of the course's folder"


def test_a_service_that_stops_ends_collecting_and_one_work_does_not(hub, released, tmp_path, monkeypatch):
    """Else yesterday's work of some is marked as today's."""
    course = teachers_folder(hub, tmp_path / "ml")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # a gradebook calls alembic
    monkeypatch.chdir(course / "autograder")
    config = config_of(course)
    config.CourseDirectory.assignment_id = released
    read = Remote.file

    def stops(remote: Remote, *parts: str) -> bytes:
        remote.url = "http://127.0.0.1:9/" if "bo" in parts else remote.url
        return read(remote, *parts)

    def collected(how) -> list[str]:
        monkeypatch.setattr(Remote, "file", how)
        shutil.rmtree(course / "autograder" / "submitted", ignore_errors=True)
        by_service.Collect(coursedir=CourseDirectory(config=config), config=config).start()
        return sorted(path.name for path in (course / "autograder" / "submitted").iterdir())

    with pytest.raises(ExchangeError, match="does not answer"):
        collected(stops)
    assert collected(lambda remote, *parts: read(remote, *parts[:-1], "gone" if "ann" in parts else parts[-1])) == [
        "bo"
    ], "of ann there is no such file"
    assert collected(read) == ["ann", "bo"]


def test_a_work_has_the_time_of_its_last_byte(hub, released):
    """Who keeps a file open can't write it after the due date: nothing is taken before all of it is there."""
    mine = hub.remote("bo")
    draft = mine._ask("POST", "drafts").json()["id"]
    mine._ask("PUT", "drafts", draft, NOTEBOOK, data=b"{}")
    where = urlsplit(hub.service)
    with socket.create_connection((where.hostname, where.port), timeout=60) as sending:
        head = f"PUT {where.path}drafts/{draft}/later.ipynb HTTP/1.1\r\nHost: x\r\nAuthorization: token {hub.token('bo')}\r\n"
        sending.sendall(f"{head}Content-Length: 9\r\n\r\nhalf".encode())
        time.sleep(1)
        with pytest.raises(HandInError, match="not all of it had been sent"):
            mine._ask("POST", "handed_in", released, params={"draft": draft})


def test_a_student_gets_what_the_hub_keeps_and_it_is_removed(hub, released, tmp_path, monkeypatch):
    """`allranks course export` and `forget`, also of the page of a partner that names the student."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # a gradebook calls alembic
    course = teachers_folder(hub, tmp_path / "ml")
    ida = hub.remote("ida")
    hub.remote("bo").hand_in(released, work(tmp_path / "bo"))
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / f"{'b' * 32}.html").write_text("with ann")
    ida.give_back("bo", tmp_path / "pages")
    (course / "autograder" / "pairs" / released).mkdir(parents=True)
    pairs.write_state(course, released, {"bo": ("ann", "")})
    (stamp,) = ida.handed_in(released)[released]["ann"]
    told = privacy.export(course, "ann", tmp_path / "ann.zip").told()
    assert f"the hub's service: inbound/{released}/{stamp}/secret" in told
    assert any("a page of bo, a partner" in line for line in told)
    with zipfile.ZipFile(tmp_path / "ann.zip") as archive:
        assert archive.read(f"exchange/inbound/{released}/{stamp}/secret") == b"of ann"
        assert archive.read(f"exchange/feedback/{'a' * 32}.html") == b"ann's page"
        assert not [name for name in archive.namelist() if "b" * 32 in name]
    enter(course, "Ann Lee")  # which is no name at the hub
    assert privacy.held(course, "Ann Lee").at_hub == ()
    privacy.forget(course, privacy.held(course, "ann"))
    assert [name for name, content in everything(hub).items() if "ann" in name or b"ann" in content] == []
    assert ida.about("bo")["handed_in"], "bo's work is still there"


def test_all_of_it_is_this_accounts_alone(hub, released):
    modes = {path: path.stat().st_mode & 0o077 for path in (hub.folder / "class").rglob("*")}
    assert modes and not any(modes.values())
