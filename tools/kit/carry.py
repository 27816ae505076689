"""What the kit's run.sh does: looks at the machine, unpacks the kit beside its torch, and runs `allranks verify`.

Needs only Python's own library, and writes only below $WORK and $OUT.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHARING_NCCL = (2, 30)  # the first that lets several ranks use one GPU
OLDEST_GPUS = {13: (7, 5)}  # compute capability, by the CUDA for which NCCL was built
MINUTES = 9.0  # for all runs together
RESERVE_S = 15.0  # for the end of a run that is stopped
LIBRARY = "nvidia/nccl/lib/libnccl.so.2"  # in NCCL's wheel
# asked in a process of its own, so that this one never starts CUDA. Of several NCCLs in a process, the one that counts is the
# one that the dynamic linker gave to torch's library: torch itself says only for which one it was built.
LOOK = """
import ctypes, json
facts = {
    "torch": None, "numpy": None, "cuda": None, "driver_cuda": None, "gpus": 0, "capability": None, "why": "",
    "nccl": None, "nccl_file": None,
}

class Symbol(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]

def nccl():
    paths = [line.split(None, 5)[-1].strip() for line in open("/proc/self/maps")]
    own = [path for path in paths if path.endswith("/libtorch_cuda.so")]
    if not own or not hasattr(ctypes.CDLL(own[0]), "ncclGetVersion"):
        return
    ask, code, symbol = ctypes.CDLL(own[0]).ncclGetVersion, ctypes.c_int(), Symbol()
    ask(ctypes.byref(code))
    ctypes.CDLL(None).dladdr(ctypes.cast(ask, ctypes.c_void_p), ctypes.byref(symbol))
    facts["nccl"] = [code.value // 10000, code.value % 10000 // 100, code.value % 100]
    facts["nccl_file"] = (symbol.file or b"").decode()

def driver():
    try:
        ask, code = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion, ctypes.c_int()  # it starts nothing
    except OSError:
        return
    if ask(ctypes.byref(code)) == 0:
        facts["driver_cuda"] = [code.value // 1000, code.value % 1000 // 10]

driver()
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
        facts["cuda"] = [int(number) for number in torch.version.cuda.split(".")]
        nccl()
        if torch.cuda.is_available():
            facts["gpus"], facts["capability"] = torch.cuda.device_count(), list(torch.cuda.get_device_capability())
        else:
            try:
                torch.cuda.init()
            except Exception as error:
                facts["why"] = (str(error).splitlines() or [type(error).__name__])[0]
print(json.dumps(facts))
"""


class KitError(Exception):
    """The kit can't be used here; the message says what to do."""


def read_manifest(here=HERE):
    """The manifest, and where each of its files is. Raises KitError if one is missing or was damaged on the way."""
    try:
        manifest = json.loads((here / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KitError(f"The kit's manifest.json can't be read: {error}. Carry it once more.") from None
    places, wrong = {}, []
    for row in manifest["files"]:
        path = here / row["file"]
        if not path.is_file():
            wrong.append(f"{row['file']} is missing")
        elif not _is(path, row):
            wrong.append(f"{row['file']} differs from what was packed")
        else:
            places[row["file"]] = path
    if wrong:
        raise KitError(f"The kit is not whole: {'; '.join(wrong[:5])}. Carry these files once more.")
    return manifest, places


def _is(path, row):
    return path.stat().st_size == row["bytes"] and hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]


def nccl_file(manifest, folder, work):
    """(NCCL's library from the slices of its wheel in `folder`, None if they are not all there; a sentence about it)."""
    rows = manifest["nccl"]
    if not rows:
        return None, "The kit has no NCCL."
    lacking = [row["file"] for row in rows if not ((folder / row["file"]).is_file() and _is(folder / row["file"], row))]
    if lacking:
        return None, f"Of NCCL's wheel, {', '.join(lacking)} of {len(rows)} slices are not whole in {folder}."
    wheel = work / "nccl.whl"
    with open(wheel, "wb") as whole:
        for row in rows:
            whole.write((folder / row["file"]).read_bytes())
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(LIBRARY, work / "nccl")), "NCCL comes from the kit's wheel."
    except (zipfile.BadZipFile, KeyError) as error:
        return None, f"The slices are no wheel of NCCL: {error}."
    finally:
        wheel.unlink()


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


def blind(facts, wanted=None, loaded=Path("/proc/driver/nvidia/version")):
    """Why torch uses no GPU although there is an NVIDIA driver; None if it uses one, if there is none, or if none is wanted.

    `wanted` is CUDA_VISIBLE_DEVICES: "" means that the CPU is to be proved.
    """
    there = facts["driver_cuda"] is not None or loaded.exists()
    if facts["gpus"] or wanted == "" or not there:
        return None
    name, has, needs = f"torch {facts['torch']}", facts["driver_cuda"], facts["cuda"]
    if needs is None:
        why = f"{name} was built without CUDA. Name the Python whose torch has it (PYTHON=/path/to/python3)."
    elif has is None:
        why = (
            "The NVIDIA driver's library for CUDA (libcuda.so.1) is missing here; in a container, set "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility."
        )
    elif has[0] < needs[0]:
        why = (
            f"The NVIDIA driver runs CUDA {_dotted(has)} and older, and {name} was built for CUDA {_dotted(needs)}. Name a "
            f"Python whose torch is for CUDA {has[0]} (PYTHON=/path/to/python3), or install a newer driver."
        )
    else:
        why = f"{name} sees no GPU: {facts['why']}"
    return f"{why} To prove the CPU instead: CUDA_VISIBLE_DEVICES= bash run.sh"


def unfit(manifest, facts):
    """Why the kit's NCCL can't work with this driver or these GPUs, whatever torch was built for; None if it can."""
    cuda, has = manifest.get("nccl_cuda"), facts["driver_cuda"]
    if cuda and has and has[0] < cuda:
        return (
            f"The kit's NCCL is for CUDA {cuda}, and the driver runs {_dotted(has)} and older, so it is not used. Make the kit with "
            f"NCCL's wheel for CUDA {has[0]}: make kit NCCL=nvidia_nccl_cu{has[0]}-....whl"
        )
    oldest = OLDEST_GPUS.get(cuda)
    if oldest and facts["capability"] and tuple(facts["capability"]) < oldest:
        return f"The kit's NCCL is for CUDA {cuda}, which has no code for GPUs of compute capability {_dotted(facts['capability'])}, so it is not used."
    return None


def _dotted(version):
    return ".".join(map(str, version))


def preloaded(library, env):
    """(the further environment with which torch uses this NCCL, a sentence); ({}, why) if torch then uses another one."""
    more = {"LD_PRELOAD": " ".join(filter(None, [str(library), env.get("LD_PRELOAD")]))}
    try:
        facts = look({**env, **more})
    except KitError as error:
        return {}, f"With the kit's NCCL torch does not start, so it is not used: {error}"
    used, numbers = facts["nccl_file"], ".".join(map(str, facts["nccl"] or ()))
    if not used or not os.path.samefile(used, library):
        return {}, f"torch does not take the kit's NCCL: it uses {f'{numbers}, {used}' if used else 'one of its own'}."
    return more, f"Where ranks share a GPU, torch uses NCCL {numbers}, {used}."


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
            "--no-compile",  # what a run imports is compiled then; all of it takes a minute
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


def ranks_can_share(facts):
    """Whether several ranks can use one GPU with torch's own NCCL."""
    return tuple(facts["nccl"] or ()) >= SHARING_NCCL


def runs(facts, preload):
    """(arguments of verify, further environment, name of the log, share of the time) of each run.

    `preload`: the environment with which torch uses the kit's NCCL, {} if it can't.

    On one GPU: one rank with torch's own NCCL, then two on it with an NCCL that can do that, else two on the CPU.
    """
    gpus = facts["gpus"]
    if not gpus:
        return [(["--ranks", "4"], {}, "verify-cpu.log", 1.0)]
    shares = ranks_can_share(facts)
    preload = {} if shares else preload
    two = (["--ranks", "2", "--gpus", "1"], preload, "verify-2-on-1.log")
    if gpus > 1:
        everything = (["--ranks", str(gpus), "--gpus", str(gpus)], {}, "verify-all.log")
        return [(*everything, 0.65), (*two, 0.35)] if shares or preload else [(*everything, 1.0)]
    if not (shares or preload):
        two = (["--ranks", "2"], {}, "verify-2-on-cpu.log")
    return [(["--ranks", "1", "--gpus", "1"], {}, "verify-1.log", 0.45), (*two, 0.55)]


def minutes_of(text):
    """The number of $MINUTES. Raises KitError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 1 <= found < 1e4:
        raise KitError(f"MINUTES={text!r}: it is how long all runs may take together, from 1 on, for example 9.")
    return found


def about_the_machine(file):
    """Writes what the driver and the system say of this machine; each command has some seconds."""
    commands = (["nvidia-smi"], ["nvidia-smi", "topo", "-m"], ["nvidia-smi", "-q", "-d", "CLOCK,POWER,PERFORMANCE"])
    with open(file, "w", encoding="utf-8") as text:
        for command in (*commands, ["df", "-h", "/dev/shm"], ["sh", "-c", "ulimit -a"]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=10)
                text.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}\n")
            except (OSError, subprocess.TimeoutExpired) as error:
                text.write(f"$ {' '.join(command)}\n{error}\n")


def run(arguments, env, cwd, log, until):
    """Runs a command whose output is shown and kept in a file; its exit code. At `until` it is asked to end, then made to."""
    with open(log, "wb") as file:
        process = subprocess.Popen(arguments, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        watch = threading.Thread(target=_end_in_time, args=(process, until), daemon=True)
        watch.start()
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


def _end_in_time(process, until):
    """Asks a process to end at `until`, so that it writes its record, and kills it if it has not ended soon after."""
    # not SIGINT, which a job in the background ignores
    for wait_s, number in ((until - time.monotonic(), signal.SIGTERM), (RESERVE_S, signal.SIGKILL)):
        try:
            process.wait(max(0.1, wait_s))
            return
        except subprocess.TimeoutExpired:
            process.send_signal(number)


def main(arguments):
    """The exit code: 0 if every run passed, 1 if a step of one failed, 2 if the kit can't be used here."""
    began = time.monotonic()
    try:
        out = Path(os.environ.get("OUT", "out")).absolute()
        work = Path(os.environ.get("WORK", "work")).absolute()
        until = began + 60 * minutes_of(os.environ.get("MINUTES", str(MINUTES)))
        manifest, places = read_manifest()
        refuse_python(manifest)
        facts = look()
        if (why := blind(facts, os.environ.get("CUDA_VISIBLE_DEVICES"))) is not None:
            raise KitError(why)
        for folder in (out, work):
            folder.mkdir(parents=True, exist_ok=True)
        say(f"Python {manifest['python']}, torch {facts['torch']}, {facts['gpus']} GPUs.")
        about_the_machine(out / "machine.txt")
        preload = {}
        if facts["gpus"] and not ranks_can_share(facts):
            nccl, words = None, unfit(manifest, facts)
            if words is None:
                nccl, words = nccl_file(manifest, Path(os.environ.get("NCCL", HERE / "nccl")), work)
            say(words)
            if nccl is not None:
                preload, words = preloaded(nccl, dict(os.environ))
                say(words)
        checkout, site = install(places, work)
        env = environment(work, site)
        codes, left = [], 1.0
        for more, added, log, share in runs(facts, preload):
            now = time.monotonic()
            ends = now + (until - RESERVE_S - now) * share / left
            left -= share
            if ends - now < 2 * RESERVE_S:
                say(f"There is no time left for {log}; take more MINUTES.")
                codes.append(2)
                continue
            codes.append(_prove([*more, *arguments], {**env, **added}, checkout, out, log, ends))
    except (KitError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        say("Stopped.")
        return 130
    say(f"The records are in {out}.")
    return max(codes)


def _prove(arguments, env, checkout, out, log, ends):
    minutes = max(
        0.5, (ends - time.monotonic() - RESERVE_S) / 60
    )  # a step that is under way at its end has some seconds
    command = [
        sys.executable,
        "-m",
        "allranks.cli",
        "verify",
        "--out",
        str(out),
        "--minutes",
        f"{minutes:.1f}",
        *arguments,
    ]
    say(f"allranks verify --minutes {minutes:.1f} {' '.join(arguments)}")
    return run(command, env, checkout, out / log, ends)


def say(text):
    """Prints a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
