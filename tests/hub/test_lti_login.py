"""Launches from a platform: a hub's own process with deploy/lti_login.py, and a platform that signs, both over real HTTP.

The hub has no proxy and starts no server, so that this runs wherever JupyterHub is installed; accounts are those of this machine.
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
from allranks.ranks.engines import ports
from shipped import answer_of

pytest.importorskip("ltiauthenticator", reason="pip install -c constraints.txt -e '.[hub]'")
jwt = pytest.importorskip("jwt")
from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: E402

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
AGS = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"
LEARNER = "http://purl.imsglobal.org/vocab/lis/v2/membership#Learner"
CLIENT, COURSE = "tool-17", "course-2"
ACCOUNT = "nobody"  # of every Linux
CONFIGURATION = """
import sys
sys.path.insert(0, {deploy!r})
import lti_login
from jupyterhub.proxy import Proxy

class NoProxy(Proxy):
    should_start = False
    async def add_route(self, routespec, target, data): pass
    async def delete_route(self, routespec): pass
    async def get_all_routes(self): return {{}}

class Groups:
    def hub_groups(self, username): return ["nbgrader-allranks"]
    def hub_admin(self, username): return None

lti_login.subprocess.run = lambda command, **options: open({made!r}, "a").write(" ".join(command) + "\\n") and type("Done", (), {{"returncode": 0}})
settings = {settings!r}
platform = lti_login.platform_of(settings)
c.JupyterHub.authenticator_class = lti_login.platform_login(Groups, platform, settings, lti_login.Path({launches!r}), {gid}, "allranks-students")
c.Authenticator.manage_groups = c.Authenticator.allow_all = True
c.LTI13Authenticator.issuer, c.LTI13Authenticator.authorize_url = platform["issuer"], platform["authorize_url"]
c.LTI13Authenticator.jwks_endpoint, c.LTI13Authenticator.client_id = platform["jwks"], {{platform["client_id"]}}
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.hub_port, c.JupyterHub.bind_url = {port}, "http://127.0.0.1:{port}"
c.JupyterHub.db_url, c.JupyterHub.cookie_secret = "sqlite:///:memory:", b"x" * 32
c.JupyterHub.default_url = "/hub/home"
"""


class Platform:
    """A platform that sends people to the hub: its key, and the claims of the next launch."""

    def __init__(self) -> None:
        self.key = self.signs = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.more: dict[str, object] = {}
        keys = {
            "keys": [
                jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
                | {"kid": "k", "use": "sig", "alg": "RS256"}
            ]
        }

        class Keys(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(keys).encode())

            def log_message(self, *words: object) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def token(self, nonce: str) -> str:
        """A signed launch of a learner, with the claims that a test changes."""
        now = int(time.time())
        services = {
            AGS: {"lineitems": f"{self.address}/lineitems"},
            "https://purl.imsglobal.org/spec/lti-nrps/claim/namesroleservice": {
                "context_memberships_url": f"{self.address}/members"
            },
        }
        claims = {
            "iss": self.address,
            "aud": CLIENT,
            "sub": "u-7",
            "iat": now,
            "exp": now + 60,
            "nonce": nonce,
            **services,
        }
        claims |= {"given_name": "Ada", "family_name": "Ito", "email": "ada@example.org"}
        claims |= {
            f"{CLAIM}message_type": "LtiResourceLinkRequest",
            f"{CLAIM}version": "1.3.0",
            f"{CLAIM}deployment_id": "1",
        }
        claims |= {f"{CLAIM}resource_link": {"id": "1"}, f"{CLAIM}context": {"id": COURSE, "label": "ml"}}
        claims |= {f"{CLAIM}target_link_uri": "http://hub/hub/", f"{CLAIM}ext": {"user_username": ACCOUNT}}
        claims |= {f"{CLAIM}roles": [LEARNER], **self.more}
        return jwt.encode(claims, self.signs, algorithm="RS256", headers={"kid": "k"})


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Iterator[tuple[Platform, str, Path, Path]]:
    """The platform, the hub's address, the file of launches, and the file with the accounts that were to be made."""
    folder = tmp_path_factory.mktemp("lti")
    launches, made = folder / "lti" / "launches.json", folder / "made.txt"
    platform = Platform()
    [held] = ports.hold(1, "127.0.0.1")
    port = held.getsockname()[1]
    settings = {"ALLRANKS_HUB_LTI": f"moodle {platform.address}", "ALLRANKS_HUB_LTI_CLIENT": CLIENT}
    settings |= {"ALLRANKS_HUB_LTI_COURSE": COURSE, "ALLRANKS_HUB_LTI_MAKE_ACCOUNTS": "1"}
    about = {
        "deploy": str(DEPLOY),
        "made": str(made),
        "settings": settings,
        "launches": str(launches),
        "gid": os.getgid(),
        "port": port,
    }
    (folder / "hub.py").write_text(CONFIGURATION.format(**about))
    with open(folder / "hub.log", "w") as log:
        program = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "jupyterhub", "-f", "hub.py"]
        hub = subprocess.Popen(
            program, cwd=folder, stdout=log, stderr=log
        )  # it ends with these tests, however they end
    address = f"http://127.0.0.1:{port}"
    try:
        while True:  # pytest's own time limit bounds this
            assert hub.poll() is None, (folder / "hub.log").read_text()
            try:
                if requests.get(f"{address}/hub/api/", timeout=30).ok:
                    break
            except requests.RequestException:
                time.sleep(0.1)
        yield platform, address, launches, made
    finally:
        hub.terminate()
        hub.wait()
        held.close()
        platform.server.shutdown()


def launched(
    scene, browser: requests.Session | None = None, **more: object
) -> tuple[requests.Session, requests.Response, dict[str, str]]:
    """A launch from the click to the hub's answer: the browser, the answer, and the form that the platform's page sent."""
    platform, hub, *_ = scene
    browser = browser or requests.Session()
    platform.more = more
    asked = {"iss": platform.address, "login_hint": "7", "target_link_uri": f"{hub}/hub/", "client_id": CLIENT}
    to_platform = browser.get(f"{hub}/hub/lti13/oauth_login?{urlencode(asked)}", allow_redirects=False)
    assert to_platform.status_code == 302, to_platform.text
    query = {key: values[0] for key, values in parse_qs(urlsplit(to_platform.headers["Location"]).query).items()}
    assert query["redirect_uri"] == f"{hub}/hub/lti13/oauth_callback" and query["response_mode"] == "form_post"
    form = {"id_token": platform.token(query["nonce"]), "state": query["state"]}
    return browser, browser.post(query["redirect_uri"], data=form, allow_redirects=False), form


def said(answer: requests.Response) -> str:
    """The error that the page shows."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def test_a_launch_opens_the_account_that_the_platform_names(scene):
    browser, answer, _ = launched(scene)
    assert answer.status_code == 302, said(answer)
    assert f'user: "{ACCOUNT}"' in browser.get(f"{scene[1]}/hub/home").text
    browser, answer, _ = launched(
        scene, **{f"{CLAIM}roles": ["http://purl.imsglobal.org/vocab/lis/v2/membership#Instructor"]}
    )
    assert answer.status_code == 302 and f'user: "{ACCOUNT}"' in browser.get(f"{scene[1]}/hub/home").text


def test_a_launch_is_told_to_the_grader_alone(scene):
    launched(scene)
    platform, _, file, _ = scene
    told = json.loads(file.read_text())
    assert told["people"] == {
        ACCOUNT: {"sub": "u-7", "given_name": "Ada", "family_name": "Ito", "email": "ada@example.org"}
    }
    services = {"line_items": f"{platform.address}/lineitems", "members": f"{platform.address}/members"}
    where = {
        "name": "Moodle",
        "client_id": CLIENT,
        "token_url": f"{platform.address}/mod/lti/token.php",
        "course": COURSE,
    }
    assert told["platform"] == {**where, **services}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o750, 0o640]


def test_a_launch_of_another_course_or_without_a_name_is_refused(scene):
    _, other, _ = launched(scene, **{f"{CLAIM}context": {"id": "course-3"}})
    assert other.status_code == 403 and f"you come from 'course-3': ALLRANKS_HUB_LTI_COURSE is {COURSE}." in said(other)
    _, nameless, _ = launched(
        scene, **{f"{CLAIM}ext": {}, f"{CLAIM}custom": {"user_username": "root"}, "user_username": "root"}
    )
    assert nameless.status_code == 403 and "does not tell your user name" in said(nameless)


def test_an_account_stays_with_the_person_who_came_first_until_root_lets_it_go(scene):
    file = scene[2]
    assert launched(scene)[1].status_code == 302
    before = file.read_bytes()
    browser, answer, _ = launched(scene, sub="u-666", email="eve@example.org")
    assert answer.status_code == 403 and f"The account '{ACCOUNT}' is another person's of Moodle" in said(answer)
    assert "user:" not in browser.get(f"{scene[1]}/hub/home", allow_redirects=False).text
    _, answer, _ = launched(scene, **{f"{CLAIM}ext": {"user_username": "daemon"}})
    assert answer.status_code == 403 and f"You came as '{ACCOUNT}', and now Moodle names you 'daemon'" in said(answer)
    _, answer, _ = launched(scene, sub="")
    assert answer.status_code == 403 and "does not tell your number" in said(answer)
    assert file.read_bytes() == before
    done = roots_command(file, "forget", ACCOUNT)
    assert done.returncode == 0 and json.loads(file.read_text())["people"] == {}, done.stderr
    assert (
        stat.S_IMODE(file.stat().st_mode) == 0o640
        and stat.S_IMODE(file.with_name("launches.json.lock").stat().st_mode) == 0o600
    )
    assert roots_command(file, "forget", ACCOUNT).stderr == f"{file} has no '{ACCOUNT}'.\n"
    assert launched(scene, sub="u-666")[1].status_code == 302
    assert json.loads(file.read_text())["people"][ACCOUNT]["sub"] == "u-666"
    assert launched(scene)[1].status_code == 403
    roots_command(file, "forget", ACCOUNT)


def roots_command(file: Path, *words: str) -> subprocess.CompletedProcess:
    """What root types at the hub's machine."""
    program = [sys.executable, str(DEPLOY / "lti_login.py"), *words]
    settings = {**os.environ, "ALLRANKS_HUB_LTI_LAUNCHES": str(file), "PYTHONPATH": str(DEPLOY.parent / "utils")}
    return subprocess.run(program, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("damage", ["", '{"people": {}}', '{"platform": {}, "people": {"ada": "u-7"}}'])
def test_a_file_that_does_not_say_whose_an_account_is_lets_nobody_in(scene, damage):
    file = scene[2]
    assert launched(scene)[1].status_code == 302
    before = file.read_bytes()
    try:
        file.write_text(damage)
        _, answer, _ = launched(scene)
        assert answer.status_code == 500 and f"{file} can't be read" in said(answer) and file.read_text() == damage
        told = json.loads(before)
        told["platform"]["token_url"] = "https://another.example.org/mod/lti/token.php"
        file.write_text(json.dumps(told))
        _, answer, _ = launched(scene)
        assert answer.status_code == 403 and f"{file} is of another platform (https://another.example.org/" in said(
            answer
        )
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("name", ["NO\u212aBODY", "no\u0131body", "\u017fys", "no\u200bbody", "no\0body"])
def test_a_name_with_letters_that_become_others_is_refused(scene, name):
    """`lower` makes a k of the Kelvin sign: whoever may choose a name would choose another's account."""
    _, answer, _ = launched(scene, **{f"{CLAIM}ext": {"user_username": name}})
    assert answer.status_code == 403 and "can be no account's name" in said(answer)


@pytest.mark.parametrize("claim", ["context", "resource_link", "roles", "ext", "custom"])
def test_a_claim_of_another_form_is_no_fault_of_the_hubs(scene, claim):
    for form in ("course-2", ["course-2"], 2, {"id": 2}):
        assert launched(scene, **{f"{CLAIM}{claim}": form})[1].status_code in (302, 400, 403), form


def test_a_launch_without_services_leaves_those_of_its_course(scene):
    file = scene[2]
    launched(scene)
    before = json.loads(file.read_text())["platform"]
    for form in (None, "elsewhere", {"lineitems": ["elsewhere"]}):
        assert launched(scene, **{AGS: form})[1].status_code == 302
        assert json.loads(file.read_text())["platform"] == before
    told = json.loads(file.read_text())
    told["platform"]["course"] = "course-1"  # whose columns the address names
    file.write_text(json.dumps(told))
    launched(scene, **{AGS: None})
    assert "line_items" not in json.loads(file.read_text())["platform"]
    launched(scene)
    assert json.loads(file.read_text())["platform"] == before


def test_a_forged_or_repeated_launch_is_refused(scene):
    platform, hub, *_ = scene
    browser, answer, form = launched(scene)
    assert answer.status_code == 302
    for who in (browser, requests.Session()):  # the form that somebody saw, sent again
        assert who.post(f"{hub}/hub/lti13/oauth_callback", data=form, allow_redirects=False).status_code == 400
    wrong = (
        {"aud": "another-tool"},
        {"iss": "https://evil.example.org"},
        {"nonce": "mine"},
        {"exp": 1},
        {f"{CLAIM}version": "1.1"},
    )
    assert {launched(scene, **claims)[1].status_code for claims in wrong} <= {400, 401}
    platform.signs = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    try:
        browser, answer, _ = launched(scene)
    finally:
        platform.signs = platform.key
    assert answer.status_code == 400 and "user:" not in browser.get(f"{hub}/hub/home", allow_redirects=False).text


def test_an_account_is_made_for_learners_with_plain_names_only(scene):
    made = scene[3]
    made.unlink(missing_ok=True)
    teacher = {f"{CLAIM}roles": ["http://purl.imsglobal.org/vocab/lis/v2/membership#Instructor"]}
    new = "zoe-of-no-machine"
    with pytest.raises(KeyError):
        pwd.getpwnam(new)
    accounts = {who.pw_name for who in pwd.getpwall()}
    a_group = next(one.gr_name for one in grp.getgrall() if one.gr_name not in accounts)
    for claims in (
        teacher | {f"{CLAIM}ext": {"user_username": new}},
        {f"{CLAIM}roles": LEARNER, f"{CLAIM}ext": {"user_username": new}},
        {f"{CLAIM}ext": {"user_username": "-g root"}},
        {f"{CLAIM}ext": {"user_username": "ada.lovelace"}},
        {f"{CLAIM}ext": {"user_username": a_group}},
    ):
        _, answer, _ = launched(scene, sub="u-8", **claims)
        assert answer.status_code == 403, said(answer)
    assert f"'{a_group}' can be no new account's name" in said(answer)
    assert launched(scene)[1].status_code == 302  # an account that is there stays as it is
    assert not made.exists()
    _, answer, _ = launched(scene, sub="u-8", **{f"{CLAIM}ext": {"user_username": new}})
    assert made.read_text() == f"useradd --create-home --shell /bin/bash --groups allranks-students {new}\n"
    assert answer.status_code == 403 and f"There is no account '{new}'" in said(answer)  # here useradd is a pretence


def test_who_comes_without_a_launch_reads_where_to_go(scene):
    assert "Open the course in Moodle" in requests.get(f"{scene[1]}/hub/login").text


ADMINS = """
import asyncio, grp, json
from types import SimpleNamespace

config = shipped()
group = SimpleNamespace(gr_name="allranks-admins", gr_gid=70000, gr_mem=[])
real = grp.getgrnam, grp.getgrgid, os.getgrouplist
context = "https://purl.imsglobal.org/spec/lti/claim/context"
name = "https://purl.imsglobal.org/spec/lti/claim/ext"
roles = "https://purl.imsglobal.org/spec/lti/claim/roles"
of_lis = "http://purl.imsglobal.org/vocab/lis/v2/membership#"
launch = {"sub": "u-7", context: {"id": "course-2"}, name: {"user_username": "nobody"}}
said = []
for there, inside in ((True, True), (True, False), (False, False)):
    def by_name(asked):
        if asked != group.gr_name:
            return real[0](asked)
        if not there:
            raise KeyError(asked)
        return group
    grp.getgrnam = by_name
    grp.getgrgid = lambda gid: group if gid == group.gr_gid else real[1](gid)
    os.getgrouplist = lambda who, gid: [*real[2](who, gid), *([group.gr_gid] if inside else [])]
    authenticator = config.JupyterHub.authenticator_class(config=config, allow_all=True)
    for role in ("Instructor", "Learner"):
        try:
            came = {**launch, roles: [of_lis + role]}
            said.append(asyncio.run(authenticator.get_authenticated_user(None, came))["admin"])
        except Exception as error:
            said.append(error.log_message)
print(json.dumps(said))
"""


def test_the_shipped_hubs_administrators_are_those_of_the_unix_group(tmp_path):
    """In the group, not in it, and without such a group: then what JupyterHub knew stays. A learner gets no such account."""
    settings = {"ALLRANKS_HUB_LOGIN": "lti", "ALLRANKS_HUB_LTI": "moodle https://moodle.example.org"}
    settings |= {"ALLRANKS_HUB_LTI_CLIENT": CLIENT, "ALLRANKS_HUB_LTI_COURSE": COURSE}
    done = answer_of(ADMINS, tmp_path, settings)
    assert done.returncode == 0 and [*json.loads(done.stdout)] == [
        *(True, "The account 'nobody' is a teacher's, and Moodle says that you learn here."),
        *(False, False, None, None),
    ], done.stderr


def test_settings_that_lack_are_one_sentence():
    program = "import sys; sys.path.insert(0, sys.argv[1]); import lti_login; lti_login.platform_of({'ALLRANKS_HUB_LTI': 'moodle'})"
    done = subprocess.run([sys.executable, "-c", program, str(DEPLOY)], capture_output=True, text=True, check=False)
    assert (
        done.returncode == 1 and done.stderr.startswith("ALLRANKS_HUB_LOGIN=lti needs") and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize("name", ["", "_CLIENT", "_COURSE", "_MAKE_ACCOUNTS"])
def test_a_comment_behind_a_setting_is_named(name):
    """systemd takes it for a part of the value."""
    settings = {"ALLRANKS_HUB_LTI": "moodle https://moodle.example.org", "ALLRANKS_HUB_LTI_CLIENT": "tool-17"}
    name = f"ALLRANKS_HUB_LTI{name}"
    settings[name] = f"{settings.get(name, '1')}          # or: canvas"
    program = "import ast, sys; sys.path.insert(0, sys.argv[1]); import lti_login; lti_login.platform_of(ast.literal_eval(sys.argv[2]))"
    command = [sys.executable, "-c", program, str(DEPLOY), repr(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith(f"{name} has something behind its value"), done.stderr


def test_the_pages_settings_are_values_for_systemd():
    """Its EnvironmentFile has no comments behind a value."""
    page = (DEPLOY.parent / "docs" / "jupyterhub.md").read_text()
    lines = re.findall(r"^ALLRANKS_\w+=.*$", page, re.MULTILINE)
    assert len(lines) >= 5 and [line for line in lines if "#" in line] == []
