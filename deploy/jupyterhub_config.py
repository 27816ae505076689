"""JupyterHub for one shared machine: Unix users, nbgrader with its exchange, limits, idle culling. Works unchanged.

    sudo /opt/allranks/.venv/bin/jupyterhub -f /opt/allranks/deploy/jupyterhub_config.py

docs/jupyterhub.md has the administrator's steps. Only Unix groups decide what an account may do:

    allranks-students      may log in
    allranks-instructors   may log in, and may use the grader's server with formgrader
    allranks-admins        are also the hub's administrators

To change settings for a machine, use the environment variables below, or /etc/allranks/hub.py, a file like this one
that is read last.
"""

import asyncio
import contextlib
import grp
import ipaddress
import os
import pwd
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import tornado.httpserver
from allranks.machine.accounts_server import AccountsServer
from allranks.ranks.engines.strangers import listener
from jupyterhub.auth import PAMAuthenticator
from jupyterhub.spawner import LocalProcessSpawner
from jupyterhub.utils import subdomain_hook_idna

c = get_config()  # noqa: F821 - JupyterHub defines it

CHECKOUT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
COURSE = "allranks"  # autograder/nbgrader_config.py's course_id
STUDENTS, INSTRUCTORS, ADMINS = "allranks-students", "allranks-instructors", "allranks-admins"
SETTINGS = os.environ
GRADER = SETTINGS.get("ALLRANKS_HUB_GRADER", "allranks-grader")  # a Unix account without a password
STATE = Path(SETTINGS.get("ALLRANKS_HUB_STATE", "/var/lib/allranks/hub"))
EXCHANGE = Path(SETTINGS.get("ALLRANKS_HUB_EXCHANGE", "/var/lib/allranks/exchange"))
# not in /tmp, because with the systemd spawner each person has a separate /tmp. A hub that is not root has no folder
# that all accounts share, and can't use that spawner: then worlds use their default
LEASES = SETTINGS.get("ALLRANKS_LEASES") or ("/var/lib/allranks/leases" if os.geteuid() == 0 else "")
URL = SETTINGS.get(
    "ALLRANKS_HUB_URL", "http://127.0.0.1:8000"
)  # on loopback: docs/jupyterhub.md says how to put TLS in front
# The address that people type. Each person's pages have a name below it, because pages of one name can act as each other's visitor.
# Browsers know all names below localhost, so that a hub without a name of its own has these
ON_LOOPBACK = urlsplit(URL).hostname in ("127.0.0.1", "::1", "localhost")
PUBLIC = SETTINGS.get("ALLRANKS_HUB_PUBLIC_URL") or (
    f"http://hub.localhost:{urlsplit(URL).port or 80}" if ON_LOOPBACK else URL
)
NAMES = SETTINGS.get("ALLRANKS_HUB_NAMES", "wildcard")
MEMORY = SETTINGS.get("ALLRANKS_HUB_MEMORY", "6G")  # a person's
CORES = float(SETTINGS.get("ALLRANKS_HUB_CORES", "2"))  # likewise
IDLE_S = int(SETTINGS.get("ALLRANKS_HUB_IDLE_S", "3600"))  # without use: first kernels, then servers are ended
REFRESH_S = int(SETTINGS.get("ALLRANKS_HUB_REFRESH_S", "60"))  # how soon the hub sees a change of Unix groups
LOCAL = Path("/etc/allranks/hub.py")
# root's fork server, in which people's servers share memory: a socket in a folder that only root can change
MACHINE = Path(SETTINGS.get("ALLRANKS_HUB_MACHINE", "/var/lib/allranks/machine/socket"))
SHARE = SETTINGS.get("ALLRANKS_HUB_SHARE_MEMORY", "0") == "1" and os.geteuid() == 0
# the page of who uses which GPU: the account as which it runs, which needs no rights; empty: no page
GPU_PAGE = SETTINGS.get("ALLRANKS_HUB_GPU_PAGE", "nobody" if Path("/proc/driver/nvidia/version").exists() else "")
# below 1024, so that no other account can listen there and answer in the page's place
GPU_PAGE_PORT = int(SETTINGS.get("ALLRANKS_HUB_GPU_PAGE_PORT", "947" if os.geteuid() == 0 else "8947"))
LOGIN = SETTINGS.get("ALLRANKS_HUB_LOGIN", "pam")  # lti: people come from Canvas or Moodle (deploy/lti_login.py)
LAUNCHES = Path(
    SETTINGS.get("ALLRANKS_HUB_LTI_LAUNCHES", "/var/lib/allranks/lti/launches.json")
)  # who came, for the grader
METRICS_TOKEN = Path("/etc/allranks/prometheus.token")  # with it, Prometheus can read /hub/metrics


def account(name: str, purpose: str = "which owns the gradebook") -> pwd.struct_passwd:
    """The Unix account; exits with a message if there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        sys.exit(f"There is no Unix account {name!r}, {purpose}: useradd --create-home {name}")


def open_to_all(path: Path) -> None:
    """Exits with a message if other accounts can't read `path`, from which every server is started."""
    for directory in (*reversed(path.parents), path):
        if not directory.stat().st_mode & 0o001:
            sys.exit(f"Other accounts can't enter {directory}, and their servers are started from {path}: move it.")


def unix_groups(username: str) -> set[str]:
    """The names of the account's Unix groups; empty if there is no such account."""
    try:
        found = pwd.getpwnam(username)
    except KeyError:
        return set()
    names = set()
    for gid in os.getgrouplist(username, found.pw_gid):
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a number without a name
    return names


# ------------------------------------------------------------------------------------------------------- who is who


class UnixGroups:
    """The hub's groups follow the Unix groups, also while people are logged in."""

    def hub_groups(self, username: str) -> list[str]:
        """nbgrader's names of the account's groups in this course."""
        groups = unix_groups(username)
        names = {STUDENTS: f"nbgrader-{COURSE}", INSTRUCTORS: f"formgrade-{COURSE}"}
        return [hub for unix, hub in names.items() if unix in groups]

    def hub_admin(self, username: str) -> bool | None:
        """Whether the account is in the administrators' group; None if there is no such group."""
        try:
            grp.getgrnam(ADMINS)  # look it up by name: a directory service may not list its groups
        except KeyError:
            return None
        return ADMINS in unix_groups(username)

    async def refresh_user(self, user, handler=None):
        """The user's new groups; False, which logs the user out, if none allows to log in.

        JupyterHub calls it every `auth_refresh_age` seconds.
        """
        if user.name != GRADER and not unix_groups(user.name) & self.allowed_groups:
            user.sync_groups([])  # a token needs no new login, so take away what the groups allowed
            return False
        return {"name": user.name, "groups": self.hub_groups(user.name)}


class UnixAuthenticator(UnixGroups, PAMAuthenticator):
    """Checks passwords with PAM."""

    async def authenticate(self, handler, data):
        """PAM's answer, with the hub's groups."""
        name = await super().authenticate(handler, data)
        return name and {"name": name, "groups": self.hub_groups(name)}


if LOGIN == "pam":
    c.JupyterHub.authenticator_class = UnixAuthenticator
elif LOGIN == "lti":
    sys.path.insert(0, str(CHECKOUT / "deploy"))
    try:
        from lti_login import platform_login, platform_of
    except ModuleNotFoundError as lacking:
        sys.exit(f"ALLRANKS_HUB_LOGIN=lti needs {lacking.name}: pip install -c constraints.txt -e '.[hub]'")
    platform = platform_of(SETTINGS)
    gid = account(GRADER).pw_gid
    c.JupyterHub.authenticator_class = platform_login(UnixGroups, platform, SETTINGS, LAUNCHES, gid, STUDENTS)
    c.LTI13Authenticator.issuer = platform["issuer"]
    c.LTI13Authenticator.authorize_url = platform["authorize_url"]
    c.LTI13Authenticator.jwks_endpoint = platform["jwks"]
    c.LTI13Authenticator.client_id = {platform["client_id"]}
    c.LTI13Authenticator.uri_scheme = urlsplit(PUBLIC).scheme
else:
    sys.exit(f"ALLRANKS_HUB_LOGIN is {LOGIN!r}; it is pam or lti.")
c.Authenticator.manage_groups = True
c.Authenticator.auth_refresh_age = REFRESH_S
c.LocalAuthenticator.allowed_groups = {STUDENTS, INSTRUCTORS, ADMINS}
c.Authenticator.blocked_users = {"root"}
with contextlib.suppress(KeyError):  # with a group that does not exist, PAMAuthenticator refuses everyone
    grp.getgrnam(ADMINS)
    c.PAMAuthenticator.admin_groups = {ADMINS}
# PAM lets who typed a wrong password wait for seconds, and all others behind them
c.PAMAuthenticator.executor_threads = 256
c.PAMAuthenticator.open_sessions = False  # a server does not need a session, and many containers refuse it

# The grader is a separate account without login; it owns the gradebook and the submissions. With the role below
# instructors reach its server at /user/allranks-grader/formgrader; students can't.
account(GRADER)
open_to_all(CHECKOUT)
open_to_all(Path(sys.base_prefix).resolve())
reach = f"!user={GRADER}"
c.JupyterHub.load_roles = [
    {
        # JupyterHub's own role, less the right to make tokens and to share servers: a page that gets hold of a visitor's
        # cookie could make itself a key that outlives the visit
        "name": "user",
        "description": "use one's own server",
        "scopes": [
            f"{scope}!user"
            for scope in (
                "access:servers",
                "servers",
                "read:users",
                "users:activity",
                "read:tokens",
                "read:roles:users",
            )
        ],
    },
    {
        "name": "grader-account",
        "description": "makes the hub know the grader's account",
        "scopes": [],
        "users": [GRADER],
    },
    {
        "name": "instructor",
        "description": "start, use and stop the grader's server",
        "scopes": [f"{scope}{reach}" for scope in ("access:servers", "servers", "read:users:name")]
        if NAMES != "one"
        else [],
        "groups": [f"formgrade-{COURSE}"],
    },
    {
        "name": "idle-culler",
        "description": "end servers that nobody uses",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    },
]
# nbgrader asks the hub which courses its user is in
c.Spawner.server_token_scopes = [
    "access:servers!server",
    "users:activity!user",
    "read:users:name!user",
    "read:users:groups!user",
]

# --------------------------------------------------------------------------------------------------- where and what

STATE.mkdir(mode=0o700, parents=True, exist_ok=True)
STATE.chmod(0o700)
c.JupyterHub.bind_url = URL
c.JupyterHub.db_url = f"sqlite:///{STATE / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.ConfigurableHTTPProxy.command = [
    shutil.which("configurable-http-proxy")
    or sys.exit("JupyterHub needs its proxy: npm install -g configurable-http-proxy")
]


class HubServer(AccountsServer):
    """The hub's own web server: no account of the machine fills its memory or takes its connections from the others."""

    def initialize(self, *args, **kwargs):
        """As JupyterHub does, but it would read 100 MB before it asks who sends them, and wait an hour for the next byte."""
        bounds = {"max_body_size": 1 << 20, "body_timeout": 30.0, "idle_connection_timeout": 60.0}
        super().initialize(*args, **bounds, **kwargs)


tornado.httpserver.HTTPServer = HubServer  # JupyterHub has no setting for it
OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)  # what people's servers may have
resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES[1], OPEN_FILES[1]))
c.JupyterHub.cleanup_servers = False  # people's servers continue when the hub restarts
if LOGIN == "pam":
    c.JupyterHub.template_vars = {"announcement_login": "All Ranks: log in with your account on this machine."}

# ------------------------------------------------------------------------------------------------ names in browsers

# A person's server may answer with any page, and a browser lets a page do what its visitor may do under the same name.


def name_of(name: str, domain: str, kind: str) -> str:
    """The host under which a browser finds somebody's server. A service is the hub's own page, and has the hub's name."""
    if kind == "service":
        return domain
    if NAMES == "wildcard":
        return subdomain_hook_idna(name, domain, kind)
    return f"{'grader' if name == GRADER else 'people'}.{domain}"


def has_names_below(url: str) -> bool:
    """Whether there can be names below the address's: not below a number, nor below `localhost` itself, for cookies."""
    host = urlsplit(url).hostname or ""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return False
    return "." in host


if NAMES not in ("wildcard", "three", "one"):
    sys.exit(f"ALLRANKS_HUB_NAMES is {NAMES!r}; it is wildcard, three or one.")
if NAMES != "one" and not has_names_below(PUBLIC):
    sys.exit(
        f"{PUBLIC} can have no names below it. Set ALLRANKS_HUB_PUBLIC_URL to the address that people type, with a name; or, "
        "if there is none, ALLRANKS_HUB_NAMES=one: docs/jupyterhub.md, step 3."
    )
HOST = urlsplit(PUBLIC).hostname
if NAMES == "one":
    print(
        "WARNING: ALLRANKS_HUB_NAMES=one. Whoever opens a page of another person's server gives that person everything that the "
        "own account may do at this hub, a typed password too. Formgrader is off, so that no instructor's account does it for the "
        "gradebook. Give the hub a wildcard name: docs/jupyterhub.md, step 3.",
        file=sys.stderr,
    )
else:
    c.JupyterHub.subdomain_host = PUBLIC.rstrip("/")
    c.JupyterHub.subdomain_hook = name_of
    if NAMES == "three":
        print(
            f"WARNING: ALLRANKS_HUB_NAMES=three. All people's servers are at people.{HOST}: a student who opens a page of another "
            "student's server gives that student the own server. The hub and the grader's server have other names, and are safe "
            "from this. A wildcard name makes everybody safe: docs/jupyterhub.md, step 3.",
            file=sys.stderr,
        )
    elif PUBLIC.startswith("https://"):
        # a page can set cookies for the names above its own, but none that begins so
        c.JupyterHub.cookie_host_prefix_enabled = True

# nbgrader's exchange. nbgrader needs a root that all can write to. The sticky bit prevents others from moving the
# course's folder, and making the folder here prevents others from making it first.
EXCHANGE.mkdir(parents=True, exist_ok=True)
EXCHANGE.chmod(0o1777)
(EXCHANGE / COURSE).mkdir(exist_ok=True)
(EXCHANGE / COURSE).chmod(0o755)
os.chown(EXCHANGE / COURSE, account(GRADER).pw_uid, account(GRADER).pw_gid)

# GPU leases: each person's worlds lock their own files in this folder, as in /tmp.
if LEASES:
    Path(LEASES).mkdir(parents=True, exist_ok=True)
    if os.geteuid() in (0, Path(LEASES).stat().st_uid):
        Path(LEASES).chmod(0o1777)

# ------------------------------------------------------------------------------------------------ each one's server

GRADERS_SERVER = f"/hub/spawn/{GRADER}"  # it starts the server, or leads to the one that runs: to formgrader


def landing(handler):
    """Instructors come to formgrader after the login; everybody else to the own server, which is the hub's default.

    An instructor's own server is at /hub/home, as everybody's.
    """
    user = handler.current_user
    teaches = user is not None and any(group.name == f"formgrade-{COURSE}" for group in user.groups)
    return GRADERS_SERVER if teaches and NAMES != "one" else ""


c.JupyterHub.default_url = landing

# A script starts the server, as its user: it closes the home to others, copies the chapters, warms the engines.
c.Spawner.cmd = [sys.executable, str(CHECKOUT / "deploy" / "singleuser.py")]
c.Spawner.notebook_dir = "~/allranks"
c.Spawner.default_url = "/lab"  # where the map of the course is (utils/allranks/course/map/server.py)
c.Spawner.args = [
    # Unix sockets in a closed directory; any account of the machine could connect to ports on loopback
    "--KernelManager.transport=ipc",
    f"--MappingKernelManager.cull_idle_timeout={IDLE_S}",  # a kernel's world ends with it
    f"--MappingKernelManager.cull_interval={max(1, min(60, IDLE_S // 3))}",
    "--MappingKernelManager.cull_connected=True",  # a forgotten browser tab is not use
]
c.Spawner.mem_limit = MEMORY
c.Spawner.cpu_limit = CORES
c.Spawner.poll_interval = 3  # seconds in which the port of a server that has died still gets its person's requests
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120
c.Spawner.environment = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "ALLRANKS_EXCHANGE": str(EXCHANGE),
    **({"ALLRANKS_LEASES": LEASES} if LEASES else {}),
    **({"ALLRANKS_MACHINE_SOCKET": str(MACHINE)} if SHARE else {}),
}
c.Spawner.env_keep = ["LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "ALLRANKS_GPU_SHARES"]


def role_of(spawner) -> None:
    """Sets the environment variable that tells the script whose server it starts: the grader's or a learner's."""
    grader = spawner.user.name == GRADER
    spawner.environment = {**spawner.environment, "ALLRANKS_HUB_ROLE": "grader" if grader else "learner"}
    if grader:
        spawner.default_url = "/formgrader"
        spawner.mem_limit = spawner.cpu_limit = None  # the judge limits what it runs, rank by rank


c.Spawner.pre_spawn_hook = role_of


def on_a_port_of_their_own(spawner: type) -> type:
    """The spawner, which says that a server has started only when the person's own process listens on its port.

    Another account could listen there first: it would be sent the person's requests, with their cookies.
    """

    class Checked(spawner):
        async def start(self):
            """The server's address, once its process listens; raises RuntimeError if another account's does, or it has ended."""
            where = await super().start()
            if where is None:
                return where
            port = where[1] if isinstance(where, tuple) else urlsplit(where).port
            person = pwd.getpwnam(self.user.name).pw_uid if os.geteuid() == 0 else os.geteuid()
            while (found := listener(port)) is None and await self.poll() is None:
                await asyncio.sleep(0.05)
            if found is None:  # whoever has taken the port may listen from now on
                raise RuntimeError(f"the server of {self.user.name} has ended without listening on port {port}")
            if found != person:
                await self.stop(now=True)
                raise RuntimeError(f"uid {found} listens on port {port}, which is for the server of {self.user.name}")
            return where

    return Checked


class WithOwnOutput(LocalProcessSpawner):
    """Gives each server a log of its own: with the hub's, or root's terminal, a person could empty, forge or read it."""

    async def start(self):
        """The server's address."""
        logs = STATE / "servers"
        logs.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
        log = os.open(logs / f"{self.user.name}.log", flags, 0o600)
        self.popen_kwargs = {**self.popen_kwargs, "stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        try:
            return await super().start()
        finally:
            os.close(log)

    def make_preexec_fn(self, name):
        """What the server's process does first."""
        become = super().make_preexec_fn(name)

        def begin():
            resource.setrlimit(resource.RLIMIT_NOFILE, OPEN_FILES)
            become()

        return begin


# If systemd runs and jupyterhub-systemdspawner is installed, cgroups limit everything that a person runs. Otherwise the
# script sets the limits of a process: memory per process, cores, processes. These are weaker (docs/jupyterhub.md).
SPAWNER = SETTINGS.get("ALLRANKS_HUB_SPAWNER", "systemd" if Path("/run/systemd/system").is_dir() else "local")
if SPAWNER == "systemd":
    from systemdspawner import SystemdSpawner

    c.JupyterHub.spawner_class = on_a_port_of_their_own(SystemdSpawner)
    c.SystemdSpawner.isolate_tmp = True
    c.SystemdSpawner.isolate_devices = False  # GPUs are devices
    c.SystemdSpawner.disable_user_sudo = True
    c.SystemdSpawner.unit_name_template = "allranks-{USERNAME}-singleuser"
elif SPAWNER == "local":
    c.JupyterHub.spawner_class = on_a_port_of_their_own(WithOwnOutput)
    c.Spawner.environment["ALLRANKS_HUB_RLIMITS"] = "1"
else:
    sys.exit(f"ALLRANKS_HUB_SPAWNER is {SPAWNER!r}; it is systemd or local.")

# ------------------------------------------------------------------------------------------------------------- idle

c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [
            sys.executable,
            "-c",  # left alone it does not end at SIGINT, and the hub waits 30 s before it sends SIGTERM
            "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); from jupyterhub_idle_culler import main; main()",
            f"--timeout={IDLE_S}",
            f"--cull-every={max(1, min(60, IDLE_S // 3))}",
        ],
    }
]
# Who uses which GPU, and who waits: a page in the hub's menu. Its process may ask the hub who a visitor is, and nothing else; of
# root's rights it keeps the one to listen on its port.
if GPU_PAGE:
    program = [sys.executable, "-I", "-m", "allranks.machine.gpu_page.server"]
    if os.geteuid() == 0:
        page = account(GPU_PAGE, "as which the page of GPUs runs (ALLRANKS_HUB_GPU_PAGE)")
        port_only = "-all,+net_bind_service"
        drop = [f"--reuid={page.pw_uid}", f"--regid={page.pw_gid}", "--clear-groups", "--no-new-privs"]
        drop += [f"--inh-caps={port_only}", f"--ambient-caps={port_only}", f"--bounding-set={port_only}"]
        program = ["setpriv", *drop, *program]
    passed_on = ("CUDA_VISIBLE_DEVICES", "ALLRANKS_GPU_SHARES", "ALLRANKS_GPU_SOCKET", "ALLRANKS_INVENTORY")
    c.JupyterHub.services.append(
        {
            "name": "gpus",
            "url": f"http://127.0.0.1:{GPU_PAGE_PORT}",
            "command": program,
            "cwd": "/",
            "environment": {
                **{name: SETTINGS[name] for name in passed_on if name in SETTINGS},
                **({"ALLRANKS_LEASES": LEASES} if LEASES else {}),
            },
            "oauth_no_confirm": True,  # it is a part of the hub
        }
    )
    c.JupyterHub.load_roles.append(
        {
            "name": "gpu-page",
            "description": "see who uses which GPU",
            "scopes": ["access:services!service=gpus"],
            "groups": [f"nbgrader-{COURSE}", f"formgrade-{COURSE}"],
        }
    )
# A monitor's only right is to read the hub's figures. docs/jupyterhub.md says how it logs in.
if METRICS_TOKEN.is_file():
    if METRICS_TOKEN.stat().st_mode & 0o077:
        sys.exit(f"Others can read {METRICS_TOKEN}: chmod 600 {METRICS_TOKEN}")
    c.JupyterHub.services.append({"name": "prometheus", "api_token": METRICS_TOKEN.read_text().strip()})
    c.JupyterHub.load_roles.append(
        {
            "name": "metrics",
            "description": "read the hub's figures, and nothing else",
            "scopes": ["read:metrics"],
            "services": ["prometheus"],
        }
    )
c.JupyterHub.last_activity_interval = max(1, min(60, IDLE_S // 3))
c.JupyterHub.activity_resolution = max(1, min(30, IDLE_S // 3))

if LOCAL.is_file():
    load_subconfig(str(LOCAL))  # noqa: F821 - JupyterHub defines it

# One process of root's imports what all servers import, and forks them: docs/jupyterhub.md, "Memory". It has no secret: its
# environment is empty, for a fork could read the token that JupyterHub gives a service. Only who may log in can have a fork, and
# no account that teaches, administers or grades: all forks have the same addresses, so that one person's help an attack on another's.
if SHARE:
    MACHINE.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    MACHINE.parent.chmod(0o755)
    gids = []
    for name in sorted(c.LocalAuthenticator.allowed_groups - {INSTRUCTORS, ADMINS}):
        with contextlib.suppress(KeyError):
            gids.append(grp.getgrnam(name).gr_gid)
    who = ",".join(f"g{gid}" for gid in gids)
    kept = [
        f"{k}={v}" for k, v in {"LANG": "C.UTF-8", **SETTINGS}.items() if k in ("LANG", "LC_ALL", "LD_LIBRARY_PATH")
    ]
    environment = [f"PATH={BIN}:/usr/local/bin:/usr/bin:/bin", *kept]
    program = [sys.executable, "-I", "-m", "allranks.ranks.engines.forkserver.machine", str(MACHINE), who]
    c.JupyterHub.services.append({"name": "shared-memory", "command": ["env", "-i", *environment, *program]})
