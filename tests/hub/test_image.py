"""deploy/Dockerfile, built without a daemon and run as a container: its user, versions and files, and that its server works.

NVIDIA's base takes a registry, and torch with CUDA takes gigabytes. So the base is a bare system of the distribution that has this
Python, torch is the one for CPUs, and pip installs this environment's packages, packed again as wheels. Torch's wheel is hollow: its
700 MB are mounted from this environment when a container starts. apt asks the mirror.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from packaging.utils import canonicalize_name
from packed import folders_of, packed_again, required

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
DISTRIBUTIONS = {(3, 11): "bookworm", (3, 12): "noble", (3, 13): "trixie"}  # by the Python that they have
PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "bwrap": "bubblewrap", "nsenter": "util-linux"}
CACHES = (
    Path("/var/lib/containers"),
    Path("/var/lib/containers/cache"),
)  # buildah keeps one outside of the given folders
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").split())
# the environment's own, and torch, whose version the extra decides
UNPINNED = {"allranks", "pip", "setuptools", "torch"}

pytestmark = [pytest.mark.servers, pytest.mark.live, pytest.mark.timeout(600)]


def run(*command: object, **options) -> str:
    """A program's output; what it said is in the error if it fails."""
    done = subprocess.run(
        [str(c) for c in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout[-6000:]}"
    return done.stdout


def cpu_torch() -> str:
    """The version of torch that TORCH=cpu installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pin,) = project["optional-dependencies"]["cpu"]
    return f"{pin.removeprefix('torch==')}+cpu"


def what_is_missing() -> str | None:
    """Why no image can be built here, and how to fix it; None where one can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "building an image without a daemon takes root on Linux"
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            return f"{program} is not installed: apt install {package}"
    if sys.version_info[:2] not in DISTRIBUTIONS:
        return f"no distribution with this Python is known here: {sorted(DISTRIBUTIONS)}"
    for name in ("jupyterhub", "setuptools"):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"{name} is not installed: pip install -c constraints.txt -e '.[hub]'"
    if metadata.version("torch") != cpu_torch():
        return f"the image for CPUs has torch {cpu_torch()}, this environment {metadata.version('torch')}"
    box = ["bwrap", "--ro-bind", "/", "/", "--unshare-pid", "--unshare-net", "true"]
    tried = subprocess.run(box, text=True, capture_output=True)
    if tried.returncode != 0:
        return f"this machine gives root no namespaces: {tried.stderr.strip()}"
    return None


@dataclass
class Image:
    """The image's configuration, and a container's files."""

    config: dict
    root: Path

    @property
    def user(self) -> list[str]:
        """The numbers of user and group."""
        return self.config["User"].split(":")

    @contextlib.contextmanager
    def started(self, log: Path):
        """A container: a function that runs a command in it as its user, as `docker exec` does. In the end it is asked to stop."""
        uid, gid = self.user
        read, write = os.pipe()
        box = ["bwrap", "--die-with-parent", "--as-pid-1", "--info-fd", str(write), "--bind", str(self.root), "/"]
        site = next(self.root.glob("opt/allranks/.venv/lib/python3*/site-packages")).relative_to(self.root)
        for place in folders_of("torch"):
            box += ["--ro-bind", str(place), f"/{site / place.name}"]
        box += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm", "--perms", "1777"]
        box += ["--tmpfs", "/tmp", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--clearenv"]
        box += [word for line in self.config["Env"] for word in ("--setenv", *line.split("=", 1))]
        box += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        box += ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", "--inh-caps=-all"]
        # as the user: root without its rights can't enter a closed home
        box += ["env", "--chdir", self.config["WorkingDir"]]
        with log.open("w") as out:
            container = subprocess.Popen(
                [*box, *self.config["Entrypoint"], *self.config["Cmd"]],
                pass_fds=[write],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        os.close(write)
        with open(read) as told:
            about = told.read()
        assert about, f"bwrap could not start: {log.read_text()}"
        first = json.loads(about)["child-pid"]
        enter = ["nsenter", "--target", first, "--mount", "--pid", "--net", "--ipc", "--uts"]
        enter += ["--setuid", uid, "--setgid", gid, "--", "env", "-i", *self.config["Env"]]
        try:
            yield lambda *command: run(*enter, *command, timeout=200)
            os.kill(first, signal.SIGTERM)
            assert container.wait(120) == 0, log.read_text()
        finally:
            if container.poll() is None:
                os.kill(first, signal.SIGKILL)  # and with it all of the container
            container.wait()


def context_in(folder: Path) -> Path:
    """What a builder sees, with a umask by which only its owner reads the files."""
    for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE):
        for name in line.split():
            source, target = ROOT / name, folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules"))
            else:
                shutil.copy(source, target)
    run("chmod", "-R", "go-rwx", folder)
    return folder


@pytest.fixture(scope="module")
def image():
    """Builds it in a folder of its own, and leaves nothing of it."""
    if reason := what_is_missing():
        pytest.skip(reason)
    with contextlib.ExitStack() as at_the_end:
        folder = Path(tempfile.mkdtemp(prefix="art-image-"))
        at_the_end.callback(remove, folder)
        for place in [place for place in CACHES if not place.exists()][:1]:
            at_the_end.callback(shutil.rmtree, place, ignore_errors=True)
        if psutil.virtual_memory().available > 10 << 30:  # a busy disk takes minutes for so many small files
            run("mount", "-t", "tmpfs", "-o", "size=5g,mode=700", "image", folder)
        for name in ("tmp", "wheels", "context"):
            (folder / name).mkdir()
        yield built(folder)


def newer(name: str, folder: Path) -> None:
    """A wheel of a version that no pin allows: pip takes it where nothing holds it back."""
    about = f"{name}-9999.dist-info"
    with zipfile.ZipFile(folder / f"{name}-9999-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 9999\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def buildah_in(folder: Path):
    """A function that runs buildah with its storage in `folder`: overlay's where the disk allows that, else plain copies."""
    places = ["buildah", "--root", folder / "storage", "--runroot", folder / "run"]
    overlay = subprocess.run([*places, "--storage-driver=overlay", "info"], capture_output=True).returncode == 0
    places.append(f"--storage-driver={'overlay' if overlay else 'vfs'}")
    return lambda *command: run(*places, *command, env={**os.environ, "TMPDIR": str(folder / "tmp")}).strip()


def built(folder: Path) -> Image:
    """The image, and a container of it."""
    buildah = buildah_in(folder)
    base = buildah("from", "scratch")
    bootstrap = ["mmdebstrap", "--variant=minbase", DISTRIBUTIONS[sys.version_info[:2]], buildah("mount", base)]
    with subprocess.Popen(
        bootstrap,
        env={**os.environ, "TMPDIR": str(folder / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as making:
        for name in required("allranks[lab,grading]", "jupyterhub", "setuptools") - {"allranks"}:
            packed_again(name, folder / "wheels", hollow=name == "torch")
        for name in ("click", "oauthlib"):  # one that the course requires, and one that JupyterHub alone does
            newer(name, folder / "wheels")
        said, _ = making.communicate()
    if making.returncode != 0:
        pytest.skip(f"mmdebstrap could not make a base, so there is no mirror or no key for it: {said[-300:]}")
    buildah("umount", base)
    buildah("commit", "--rm", base, "localhost/base")
    (folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    arguments = {"BASE": "localhost/base", "TORCH": "cpu", "JUPYTERHUB": PINS["jupyterhub"]}
    options = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    options += [f"--volume={folder}/wheels:/wheels:ro", f"--volume={folder}/pip.conf:/etc/pip.conf:ro"]
    options += ["--isolation=chroot", "--file", DOCKERFILE, "--ignorefile", f"{DOCKERFILE}.dockerignore"]
    print(buildah("build", *options, "--tag", "localhost/allranks", context_in(folder / "context")))
    about = json.loads(buildah("inspect", "--type=image", "localhost/allranks"))
    container = buildah("from", "localhost/allranks")
    return Image(about["OCIv1"]["config"], Path(buildah("mount", container)))


def remove(folder: Path) -> None:
    """Takes down what buildah has mounted in the folder, the last first, and deletes it."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in reversed([place for place in mounts if Path(place).is_relative_to(folder)]):
        run("umount", "--lazy", place)
    shutil.rmtree(folder)


def of_the_course(image: Image) -> list[Path]:
    """The files of /opt/allranks, without its environment."""
    course = image.root / "opt" / "allranks"
    return [path for path in course.rglob("*") if path.is_file() and course / ".venv" not in path.parents]


def test_it_has_the_pinned_versions(image):
    listing = (
        "import json, importlib.metadata as m; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
    )
    python = ["chroot", image.root, "/opt/allranks/.venv/bin/python", "-I"]
    found = {canonicalize_name(name): version for name, version in json.loads(run(*python, "-c", listing))}
    assert found["torch"] == cpu_torch()
    assert {"jupyterlab", "nbgrader", "ipyparallel", "jupyterhub"} <= set(found)
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    assert {name: found[name] for name in set(found) - UNPINNED if found[name] != pins.get(name)} == {}


def test_it_has_no_answer_and_nothing_that_is_not_needed(image):
    files = of_the_course(image)
    names = {path.relative_to(image.root / "opt" / "allranks").as_posix() for path in files}
    assert {
        "chapters/1_first_hours/00_start_here.ipynb",
        "labs/lab03_all_reduce/all_reduce.ipynb",
        "deploy/singleuser.py",
    } <= names
    assert not [name for name in names if name.startswith(("chapters/source", "utils/js/node_modules"))]
    answers = [*ROOT.glob("solutions/**/*"), *ROOT.glob("tests/**/right/**/*"), *ROOT.glob("chapters/source/*")]
    hidden = {hashlib.sha256(path.read_bytes()).digest() for path in answers if path.is_file() and path.stat().st_size}
    assert len(hidden) > 50
    assert [path for path in files if hashlib.sha256(path.read_bytes()).digest() in hidden] == []


def test_its_user_reads_everything_and_changes_only_the_home(image):
    assert image.user == ["1000", "100"]
    assert image.config["Labels"]["org.opencontainers.image.base.name"] == "localhost/base"
    assert not [path for path in of_the_course(image) if not path.stat().st_mode & 0o004]
    writable = "find /opt /usr /etc -xdev -writable -not -type l 2>/dev/null; true"
    assert run("chroot", "--userspec=1000:100", "--groups=", image.root, "sh", "-c", writable) == ""
    assert (image.root / "home" / "jovyan").stat().st_uid == 1000
    assert list((image.root / "opt" / "allranks" / "utils").rglob("*.pyc")), "each start would compile the package anew"


ASK = """
import sys, urllib.error, urllib.request
try:
    with urllib.request.urlopen("http://127.0.0.1:8888/" + sys.argv[1], timeout=120) as answer:
        print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def test_its_server_answers_and_chapter_0_runs(image, tmp_path):
    log = tmp_path / "log.txt"
    with image.started(log) as execute:
        deadline = time.monotonic() + 200
        while not (token := re.search(r"127\.0\.0\.1:8888/\S*\?token=(\w+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        assert execute("id", "-u").strip() == "1000"
        assert execute("python", "-c", ASK, "api/status").strip() == "403"
        about = execute("python", "-c", ASK, f"api/contents/chapters/1_first_hours?token={token[1]}")
        assert about.startswith("200") and "00_start_here.ipynb" in about
        assert execute("python", "-c", ASK, f"lab?token={token[1]}").startswith("200")
        home = image.root / "home" / "jovyan"
        assert home.stat().st_mode & 0o777 == 0o700
        execute("jupyter", "execute", "/home/jovyan/allranks/chapters/1_first_hours/00_start_here.ipynb", "--inplace")
        done = json.loads((home / "allranks/chapters/1_first_hours/00_start_here.ipynb").read_text(encoding="utf-8"))
        code = [cell for cell in done["cells"] if cell["cell_type"] == "code"]
        assert code and all(cell["execution_count"] for cell in code)
