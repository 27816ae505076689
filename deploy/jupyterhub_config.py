"""JupyterHub for one shared machine: real users, nbgrader with its exchange, limits, idle culling. Runs as shipped.

    sudo /opt/allranks/.venv/bin/jupyterhub -f /opt/allranks/deploy/jupyterhub_config.py

docs/jupyterhub.md has the administrator's steps. Who is who is decided by Unix groups, and by nothing else:

    allranks-students      may log in
    allranks-instructors   may log in, and into the grader's server, where formgrader is
    allranks-admins        are also the hub's administrators

What differs between machines is set by the environment variables below, or in /etc/allranks/hub.py, a file of the
same kind that is read last.
"""

import contextlib
import grp
import os
import pwd
import shutil
import sys
from pathlib import Path

from jupyterhub.auth import PAMAuthenticator

c = get_config()  # noqa: F821 - JupyterHub puts it here

CHECKOUT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
COURSE = "allranks"  # autograder/nbgrader_config.py's course_id
STUDENTS, INSTRUCTORS, ADMINS = "allranks-students", "allranks-instructors", "allranks-admins"
SETTINGS = os.environ
GRADER = SETTINGS.get("ALLRANKS_HUB_GRADER", "allranks-grader")  # a Unix account without a password
STATE = Path(SETTINGS.get("ALLRANKS_HUB_STATE", "/var/lib/allranks/hub"))
EXCHANGE = Path(SETTINGS.get("ALLRANKS_HUB_EXCHANGE", "/var/lib/allranks/exchange"))
# not in /tmp, of which the systemd spawner gives each person one of their own. A hub that isn't root has no place for it
# that all accounts share, nor that spawner: worlds then take their own default
LEASES = SETTINGS.get("ALLRANKS_LEASES") or ("/var/lib/allranks/leases" if os.geteuid() == 0 else "")
MEMORY = SETTINGS.get("ALLRANKS_HUB_MEMORY", "6G")  # a person's
CORES = float(SETTINGS.get("ALLRANKS_HUB_CORES", "2"))  # likewise
IDLE_S = int(SETTINGS.get("ALLRANKS_HUB_IDLE_S", "3600"))  # without use: first kernels, then servers are ended
REFRESH_S = int(SETTINGS.get("ALLRANKS_HUB_REFRESH_S", "60"))  # how soon the hub sees a change of Unix groups
LOCAL = Path("/etc/allranks/hub.py")


def account(name: str) -> pwd.struct_passwd:
    """The Unix account; ends with one sentence where there is none."""
    try:
        return pwd.getpwnam(name)
    except KeyError:
        sys.exit(f"There is no Unix account {name!r}, which owns the gradebook: useradd --create-home {name}")


def open_to_all(path: Path) -> None:
    """Ends with one sentence where other accounts can't get to `path`, which every server is started from."""
    for directory in (*reversed(path.parents), path):
        if not directory.stat().st_mode & 0o001:
            sys.exit(f"Other accounts can't enter {directory}, and their servers are started from {path}: move it.")


def unix_groups(username: str) -> set[str]:
    """The names of the Unix groups that the account is in; empty where there is no such account."""
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


class UnixAuthenticator(PAMAuthenticator):
    """PAM's passwords; the hub's groups follow the Unix groups, also for people who are logged in already."""

    def hub_groups(self, username: str) -> list[str]:
        """nbgrader's names for what the account may do in this course."""
        groups = unix_groups(username)
        names = {STUDENTS: f"nbgrader-{COURSE}", INSTRUCTORS: f"formgrade-{COURSE}"}
        return [hub for unix, hub in names.items() if unix in groups]

    async def authenticate(self, handler, data):
        """As PAM says, with the groups."""
        name = await super().authenticate(handler, data)
        return name and {"name": name, "groups": self.hub_groups(name)}

    async def refresh_user(self, user, handler=None):
        """Asked every `auth_refresh_age` seconds: who has left the groups is logged out, who changed them is moved."""
        if user.name != GRADER and not unix_groups(user.name) & self.allowed_groups:
            user.sync_groups([])  # a token of theirs is not asked to log in again: it loses what the groups gave
            return False
        return {"name": user.name, "groups": self.hub_groups(user.name)}


c.JupyterHub.authenticator_class = UnixAuthenticator
c.Authenticator.manage_groups = True
c.Authenticator.auth_refresh_age = REFRESH_S
c.LocalAuthenticator.allowed_groups = {STUDENTS, INSTRUCTORS, ADMINS}
c.Authenticator.blocked_users = {"root"}
with contextlib.suppress(KeyError):  # PAMAuthenticator refuses everyone where the group is missing
    grp.getgrnam(ADMINS)  # asked by name: a directory service may not list its groups
    c.PAMAuthenticator.admin_groups = {ADMINS}
c.PAMAuthenticator.open_sessions = False  # of no use to a server, and denied in many containers

# The grader is an account of its own, which no one logs in to: it owns the gradebook and the submissions. Instructors
# reach its server at /user/allranks-grader/formgrader, through this role; students have no way to it.
account(GRADER)
open_to_all(CHECKOUT)
open_to_all(Path(sys.base_prefix).resolve())
reach = f"!user={GRADER}"
c.JupyterHub.load_roles = [
    {
        "name": "grader-account",
        "description": "makes the hub know the grader's account",
        "scopes": [],
        "users": [GRADER],
    },
    {
        "name": "instructor",
        "description": "start, use and stop the grader's server",
        "scopes": [f"{scope}{reach}" for scope in ("access:servers", "servers", "read:users:name")],
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
# on loopback: docs/jupyterhub.md says how to put TLS before it
c.JupyterHub.bind_url = SETTINGS.get("ALLRANKS_HUB_URL", "http://127.0.0.1:8000")
c.JupyterHub.db_url = f"sqlite:///{STATE / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(STATE / "cookie_secret")
c.ConfigurableHTTPProxy.pid_file = str(STATE / "proxy.pid")
c.ConfigurableHTTPProxy.command = [
    shutil.which("configurable-http-proxy")
    or sys.exit("JupyterHub needs its proxy: npm install -g configurable-http-proxy")
]
c.JupyterHub.cleanup_servers = False  # a restart of the hub interrupts nobody
c.JupyterHub.template_vars = {"announcement_login": "All Ranks: log in with your account on this machine."}

# nbgrader's exchange. nbgrader wants its root open to all; sticky, so that nobody but the grader moves the course's
# folder, which is made here, before anyone else can.
EXCHANGE.mkdir(parents=True, exist_ok=True)
EXCHANGE.chmod(0o1777)
(EXCHANGE / COURSE).mkdir(exist_ok=True)
(EXCHANGE / COURSE).chmod(0o755)
os.chown(EXCHANGE / COURSE, account(GRADER).pw_uid, account(GRADER).pw_gid)

# Who has which GPU: each person's worlds lock files of theirs there, as in /tmp.
if LEASES:
    Path(LEASES).mkdir(parents=True, exist_ok=True)
    if os.geteuid() in (0, Path(LEASES).stat().st_uid):
        Path(LEASES).chmod(0o1777)

# ------------------------------------------------------------------------------------------------ each one's server

# The server is started by a script, as its user: it closes the home, lays out the chapters, warms the engines.
c.Spawner.cmd = [sys.executable, str(CHECKOUT / "deploy" / "singleuser.py")]
c.Spawner.notebook_dir = "~/allranks"
c.Spawner.default_url = "/lab/tree/chapters/00_start_here.ipynb"
c.Spawner.args = [
    # Unix sockets in a closed directory instead of ports on loopback, which any account of the machine can connect to
    "--KernelManager.transport=ipc",
    f"--MappingKernelManager.cull_idle_timeout={IDLE_S}",  # a kernel's world ends with it
    f"--MappingKernelManager.cull_interval={max(1, min(60, IDLE_S // 3))}",
    "--MappingKernelManager.cull_connected=True",  # a forgotten browser tab is not use
]
c.Spawner.mem_limit = MEMORY
c.Spawner.cpu_limit = CORES
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120
c.Spawner.environment = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "ALLRANKS_EXCHANGE": str(EXCHANGE),
    **({"ALLRANKS_LEASES": LEASES} if LEASES else {}),
}
c.Spawner.env_keep = ["LANG", "LC_ALL", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "ALLRANKS_GPU_SHARES"]


def role_of(spawner) -> None:
    """Tells the script whose server it starts: the grader's has formgrader, all others are a learner's."""
    grader = spawner.user.name == GRADER
    spawner.environment = {**spawner.environment, "ALLRANKS_HUB_ROLE": "grader" if grader else "learner"}
    if grader:
        spawner.default_url = "/formgrader"
        spawner.mem_limit = spawner.cpu_limit = None  # the judge limits what it runs, rank by rank


c.Spawner.pre_spawn_hook = role_of

# Limits hold for everything a person runs, by cgroups, where systemd runs and jupyterhub-systemdspawner is installed.
# Elsewhere the script sets what a process can set: memory per process, cores, processes. That is weaker, and said.
SPAWNER = SETTINGS.get("ALLRANKS_HUB_SPAWNER", "systemd" if Path("/run/systemd/system").is_dir() else "local")
if SPAWNER == "systemd":
    c.JupyterHub.spawner_class = "systemd"
    c.SystemdSpawner.isolate_tmp = True
    c.SystemdSpawner.isolate_devices = False  # GPUs are devices
    c.SystemdSpawner.disable_user_sudo = True
    c.SystemdSpawner.unit_name_template = "allranks-{USERNAME}-singleuser"
elif SPAWNER == "local":
    c.JupyterHub.spawner_class = "jupyterhub.spawner.LocalProcessSpawner"
    c.Spawner.environment["ALLRANKS_HUB_RLIMITS"] = "1"
else:
    sys.exit(f"ALLRANKS_HUB_SPAWNER is {SPAWNER!r}; it is systemd or local.")

# ------------------------------------------------------------------------------------------------------------- idle

c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [
            sys.executable,
            "-m",
            "jupyterhub_idle_culler",
            f"--timeout={IDLE_S}",
            f"--cull-every={max(1, min(60, IDLE_S // 3))}",
        ],
    }
]
c.JupyterHub.last_activity_interval = max(1, min(60, IDLE_S // 3))
c.JupyterHub.activity_resolution = max(1, min(30, IDLE_S // 3))

if LOCAL.is_file():
    load_subconfig(str(LOCAL))  # noqa: F821 - JupyterHub puts it here
