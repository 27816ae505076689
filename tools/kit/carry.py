"""What the kit's run.sh does: looks at the machine, unpacks the kit beside its torch, and runs `allranks verify`.

Needs only Python's own library, and writes only below $WORK and $OUT.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARING_NCCL = (2, 30)  # the first that lets several ranks use one GPU
BUILD_S = 1800
# asked in a process of its own, so that this one never starts CUDA
LOOK = """
import ctypes, json
facts = {"torch": None, "numpy": None, "nccl": None, "gpus": 0, "arch": None}
try:
    import torch
    facts["torch"] = str(torch.__version__)
except ImportError as error:
    facts["error"] = str(error)
else:
    try:
        import numpy
        facts["numpy"] = numpy.__version__
    except ImportError:
        pass
    if torch.version.cuda:
        paths = [line.split(None, 5)[-1].strip() for line in open("/proc/self/maps")]
        found = [path for path in paths if path.rpartition("/")[2].startswith("libnccl")]
        if found:
            code = ctypes.c_int()
            ctypes.CDLL(found[0]).ncclGetVersion(ctypes.byref(code))
            facts["nccl"] = [code.value // 10000, code.value % 10000 // 100, code.value % 100]
        if torch.cuda.is_available():
            facts["gpus"] = torch.cuda.device_count()
            facts["arch"] = "%d%d" % torch.cuda.get_device_capability(0)
print(json.dumps(facts))
"""


class KitError(Exception):
    """The kit can't be used here; the message says what to do."""


def read_manifest(here=HERE):
    """The manifest, and where each of its files is. Raises KitError if one is missing or was damaged on the way."""
    try:
        manifest = json.loads((here / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KitError(f"The kit's manifest.json can't be read: {error}. Carry part-1 once more.") from None
    places, wrong = {}, []
    for row in manifest["files"]:
        # side by side as they were made, or all in one folder
        candidates = [here / row["file"], here.parent / row["part"] / row["file"]]
        path = next((p for p in candidates if p.is_file()), None)
        if path is None:
            wrong.append(f"{row['part']}/{row['file']} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != row["sha256"]:
            wrong.append(f"{row['part']}/{row['file']} differs from what was packed")
        else:
            places[row["file"]] = path
    if wrong:
        raise KitError(f"The kit is not whole: {'; '.join(wrong[:5])}. Carry these parts once more, side by side.")
    return manifest, places


def refuse_python(manifest, version=sys.version_info[:2]):
    """Raises KitError if the wheels are for another Python, or if this one has no pip."""
    have, want = ".".join(map(str, version)), manifest["python"]
    if have != want:
        raise KitError(
            f"This kit's wheels are for Python {want}, and {sys.executable} is Python {have}. Name another one "
            f"(PYTHON=python{want}), or make a kit for this one: make kit PYTHON_VERSION={have}"
        )
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        raise KitError(f"This Python has no pip. It brings one along: {sys.executable} -m ensurepip")


def look(env=None):
    """What this Python has: versions of torch, numpy and NCCL, the number of GPUs. Raises KitError without torch and numpy."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, env=env)
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise KitError(f"torch can't be imported here: {done.stderr.strip()[-300:]}") from None
    if facts["torch"] is None:
        raise KitError(
            f"{sys.executable} has no torch ({facts['error']}), and the kit brings none. Name the Python that has it: "
            "PYTHON=/path/to/python3"
        )
    if facts["numpy"] is None:
        raise KitError(f"{sys.executable} has no numpy, and the kit brings none; install it beside torch.")
    return facts


def install(places, work):
    """Unpacks the checkout, and the wheels without their requirements; (the checkout, the folder of packages)."""
    site, marker = work / "site", work / "installed"
    names = "\n".join(sorted(places))
    if not (marker.is_file() and marker.read_text() == names):
        for old in (site, work / "all-ranks"):
            shutil.rmtree(old, ignore_errors=True)
        wheels = [str(path) for name, path in places.items() if name.endswith(".whl")]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-index",
            "--no-deps",
        ]
        done = subprocess.run([*command, "--target", str(site), *wheels], capture_output=True, text=True)
        if done.returncode:
            raise KitError(f"pip can't install the kit's wheels: {done.stderr.strip()[-400:]}")
        _unpack(places["all-ranks.tar.gz"], work)
        marker.write_text(names)
    return work / "all-ranks", site


def _unpack(archive, folder):
    # Python 3.11.2, which Debian 12 has, may not know filters
    safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(folder, **safely)


def environment(work, site):
    """The environment of every command: the kit's packages before those of the machine, and no file in the home folder."""
    before = os.environ.get("PYTHONPATH")
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), before]))}
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "MPLCONFIGDIR"):
        folder = work / "home" / name.lower()
        folder.mkdir(parents=True, exist_ok=True)
        found.setdefault(name, str(folder))
    return found


def building(facts, has_source, tools):
    """Whether NCCL is to be built, and a sentence about it. `tools` maps nvcc, make and g++ to their paths or None."""
    nccl = facts["nccl"] and tuple(facts["nccl"])
    if not facts["gpus"]:
        return False, "There is no GPU here: the ranks run on the CPU with gloo."
    if nccl is None:
        return False, "This torch has no NCCL: the ranks run on the CPU with gloo."
    words = ".".join(map(str, nccl))
    if nccl >= SHARING_NCCL:
        return False, f"torch's NCCL is {words}: several ranks can use one GPU."
    but = f"torch's NCCL is {words}, which takes one rank a GPU"
    if not has_source:
        return False, f"{but}, and the kit has no source of a newer one: several ranks run on the CPU."
    if lacking := [name for name, path in tools.items() if path is None]:
        return False, f"{but}, and here is no {', '.join(lacking)} to build a newer one: several ranks run on the CPU."
    return True, f"{but}: building the kit's NCCL for one architecture, sm_{facts['arch']}, meanwhile."


def tools():
    """The paths of what builds NCCL."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = shutil.which("nvcc") or shutil.which(os.path.join(home, "bin", "nvcc"))
    return {"nvcc": nvcc, "make": shutil.which("make"), "g++": shutil.which("g++")}


def build_command(arch, nvcc):
    """The command that builds NCCL for one architecture."""
    home = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    gencode = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    return ["make", f"-j{os.cpu_count() or 1}", "src.build", f"CUDA_HOME={home}", f"NVCC_GENCODE={gencode}"]


def runs(facts, ranks, nccl_file):
    """(arguments of verify, further environment, name of the log) of each run. `nccl_file` is the NCCL that was built, or None."""
    found = []
    for number in ranks:
        arguments, env = ["--ranks", str(number)], {}
        newest = nccl_file is not None or (facts["nccl"] is not None and tuple(facts["nccl"]) >= SHARING_NCCL)
        if facts["gpus"] and (number == 1 or newest):
            arguments += ["--gpus", "1"]
        if facts["gpus"] and number > 1 and newest:
            env = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "4"}
            if nccl_file is not None:
                env["LD_PRELOAD"] = str(nccl_file)
        found.append((arguments, env, f"verify-{number}.log"))
    if facts["gpus"] > 1:
        found.append((["--gpus", str(facts["gpus"]), "--ranks", str(facts["gpus"])], {}, "verify-all-gpus.log"))
    return found


def world_sizes(text):
    """The numbers of $RANKS. Raises KitError."""
    parts = text.replace(",", " ").split()
    if not parts or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise KitError(f"RANKS={text!r}: it is world sizes, for example RANKS='1 2 4'.")
    return [int(part) for part in parts]


def run(arguments, env, cwd, log):
    """Runs a command whose output is shown and kept in a file; its exit code."""
    with open(log, "wb") as file:
        process = subprocess.Popen(arguments, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for line in process.stdout:
                file.write(line)
                file.flush()
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
        except KeyboardInterrupt:  # the command got it too, and writes its record
            process.wait()
            raise
        return process.wait()


def main(arguments):
    """The exit code: 0 if every run passed, 1 if a step of one failed, 2 if the kit can't be used here."""
    build = None
    try:
        out = Path(os.environ.get("OUT", "out")).absolute()
        work = Path(os.environ.get("WORK", "work")).absolute()
        sizes = world_sizes(os.environ.get("RANKS", "1 2 4"))
        manifest, places = read_manifest()
        refuse_python(manifest)
        facts = look()
        for folder in (out, work):
            folder.mkdir(parents=True, exist_ok=True)
        say(f"Python {manifest['python']}, torch {facts['torch']}, {facts['gpus']} GPUs.")
        have = tools()
        wanted, words = building(facts, "nccl.tar.gz" in places, have)
        say(words)
        nccl_log = out / "nccl-build.log"
        if wanted:
            _unpack(places["nccl.tar.gz"], work)
            with open(nccl_log, "wb") as file:
                command = build_command(facts["arch"], have["nvcc"])
                build = subprocess.Popen(command, cwd=work / "nccl", stdout=file, stderr=file)
        checkout, site = install(places, work)
        env = environment(work, site)
        nccl_file, codes = None, []
        # the first run has one rank, for which torch's own NCCL is right: NCCL is built meanwhile
        for turn, number in enumerate(sizes):
            if build is not None and number > 1 and nccl_file is None:
                nccl_file, build = built(build, work, nccl_log), None
            codes.append(_prove(runs(facts, [number], nccl_file)[0], env, checkout, out, arguments))
            if turn == len(sizes) - 1 and facts["gpus"] > 1:
                codes.append(_prove(runs(facts, [], None)[0], env, checkout, out, arguments))
    except (KitError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("Stopped.")
        return 130
    finally:
        if build is not None:
            build.kill()
            build.wait()
    say(f"The records are in {out}.")
    return max(codes)


def built(build, work, log):
    """The NCCL that the build makes, after waiting for it; None if it failed."""
    say("Waiting for the build of NCCL.")
    try:
        code = build.wait(BUILD_S)
    except subprocess.TimeoutExpired:
        build.kill()
        build.wait()
        code = f"no end within {BUILD_S} s"
    file = work / "nccl" / "build" / "lib" / "libnccl.so.2"
    if code == 0 and file.exists():
        return file
    say(f"The build of NCCL failed ({code}), see {log}: several ranks run on the CPU.")
    return None


def _prove(one, env, checkout, out, more):
    arguments, added, log = one
    minutes = os.environ.get("MINUTES", "10")
    command = [
        sys.executable,
        "-m",
        "allranks.cli",
        "verify",
        "--out",
        str(out),
        "--minutes",
        minutes,
        *arguments,
        *more,
    ]
    say(f"allranks verify {' '.join(arguments)}  {' '.join(f'{k}={v}' for k, v in added.items())}".rstrip())
    return run(command, {**env, **added}, checkout, out / log)


def say(text):
    """Prints a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
