"""The device nodes of GPUs: which account may open them, and which processes have them open. For root's service.

An ACL of the node names the accounts that may open it; all others but root are refused by the kernel. It needs no program: an
ACL is an extended attribute, in the layout of linux/posix_acl_xattr.h. NVIDIA's GPU N is /dev/nvidiaN. A MIG device
needs its GPU's node and two more, whose numbers are in /proc/driver/nvidia/capabilities (NVIDIA's MIG User Guide, "Device
Nodes and Capabilities").
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from allranks.ranks.engines.devices import DeviceError, Gpu

ACL = "system.posix_acl_access"
_VERSION = 2
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY_IN_PARTICULAR = 0xFFFFFFFF
_READ_WRITE = 6
_GPU_MAJOR, _CONTROL_MINOR = 195, 255  # of /dev/nvidiaN and /dev/nvidiactl, since the driver's first version
_NUMBER = re.compile(r"^(?:Device Minor|DeviceFileMinor):\s*(\d+)", re.MULTILINE)

Nodes = Mapping[str, tuple[Path, ...]]  # the nodes that a process needs for each GPU, by the GPU's UUID


def nodes_of(gpus: Iterable[Gpu]) -> Nodes:
    """The device nodes of each of these GPUs of this machine; ALLRANKS_INVENTORY's file may name those of pretend ones."""
    pretend = os.environ.get("ALLRANKS_INVENTORY")
    if pretend:
        listed = json.loads(Path(pretend).read_text(encoding="utf-8"))["gpus"]
        return {gpu["uuid"]: tuple(map(Path, gpu.get("nodes", ()))) for gpu in listed}
    import pynvml

    pynvml.nvmlInit()
    try:
        found = {}
        for gpu in gpus:
            card = pynvml.nvmlDeviceGetMinorNumber(pynvml.nvmlDeviceGetHandleByUUID(gpu.physical))
            parts = None
            if gpu.parent:
                part = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                parts = pynvml.nvmlDeviceGetGpuInstanceId(part), pynvml.nvmlDeviceGetComputeInstanceId(part)
            found[gpu.uuid] = paths(card, parts)
        return found
    except pynvml.NVMLError as error:
        raise DeviceError(f"The NVIDIA driver does not say which device nodes its GPUs have: {error}.") from None
    finally:
        pynvml.nvmlShutdown()


def paths(card: int, parts: tuple[int, int] | None = None, root: Path = Path("/")) -> tuple[Path, ...]:
    """The nodes of GPU number `card` by the driver's count, or of the MIG device (GPU instance, compute instance) on it.

    Raises DeviceError if the driver's files do not name the MIG device.
    """
    found = [root / f"dev/nvidia{card}"]
    if parts is not None:
        instance = root / f"proc/driver/nvidia/capabilities/gpu{card}/mig/gi{parts[0]}"
        for access in (instance / "access", instance / f"ci{parts[1]}" / "access"):
            found.append(root / f"dev/nvidia-caps/nvidia-cap{_number_in(access)}")
    return tuple(found)


def _number_in(path: Path) -> int:
    try:
        match = _NUMBER.search(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeviceError(f"{path} can't be read: {error.strerror}.") from None
    if match is None:
        raise DeviceError(f"{path} names no device node.")
    return int(match[1])


def missing(root: Path = Path("/")) -> dict[Path, tuple[int, int, int]]:
    """NVIDIA's device nodes that should be there and are not: (major, minor, mode) of each.

    With NVreg_ModifyDeviceFiles=0 the driver's own program makes none.
    """
    wanted: dict[Path, tuple[int, int, int]] = {}
    for about in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        wanted[root / f"dev/nvidia{_number_in(about)}"] = (_GPU_MAJOR, _number_in(about), 0o600)
    if wanted:
        wanted[root / "dev/nvidiactl"] = (_GPU_MAJOR, _CONTROL_MINOR, 0o666)
    majors = _majors(root)
    if "nvidia-uvm" in majors:
        wanted[root / "dev/nvidia-uvm"] = (majors["nvidia-uvm"], 0, 0o666)
        wanted[root / "dev/nvidia-uvm-tools"] = (majors["nvidia-uvm"], 1, 0o666)
    if "nvidia-caps" in majors:
        for access in sorted((root / "proc/driver/nvidia/capabilities").glob("gpu*/mig/gi*/**/access")):
            number = _number_in(access)
            wanted[root / f"dev/nvidia-caps/nvidia-cap{number}"] = (majors["nvidia-caps"], number, 0o600)
    return {path: node for path, node in wanted.items() if not path.exists()}


def _majors(root: Path) -> dict[str, int]:
    """The numbers of the machine's device drivers, by their names."""
    with contextlib.suppress(OSError):
        lines = (root / "proc/devices").read_text(encoding="utf-8").splitlines()
        return {words[1]: int(words[0]) for words in map(str.split, lines) if len(words) == 2 and words[0].isdigit()}
    return {}


def make_missing(root: Path = Path("/")) -> list[Path]:
    """Makes the missing nodes; those of GPUs are closed to all but root. Returns their paths."""
    made = []
    for path, (major, minor, mode) in missing(root).items():
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        path.chmod(mode)  # whatever the umask
        made.append(path)
    return made


def driver_opens(root: Path = Path("/")) -> bool:
    """Whether the driver's own program (nvidia-modprobe, which everybody may call) sets the nodes' modes anew."""
    with contextlib.suppress(OSError):
        return "ModifyDeviceFiles: 1" in (root / "proc/driver/nvidia/params").read_text(encoding="utf-8")
    return False


@dataclass(frozen=True)
class Before:
    """How a node was before the service closed it."""

    mode: int
    uid: int
    gid: int


def before(node: Path) -> Before:
    """How a node is now. One with an ACL was closed by a service that was killed: then how the driver makes it.

    Raises OSError; DeviceError if it is no device node.
    """
    found = node.lstat()
    if not stat.S_ISCHR(found.st_mode):
        raise DeviceError(f"{node} is not a device node.")
    if _acl(node) is not None:
        return Before(0o444 if node.name.startswith("nvidia-cap") else 0o666, 0, 0)
    return Before(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def open_to(node: Path, uids: Iterable[int]) -> bool:
    """Lets only these accounts (and root) open a node; returns whether that was changed. Raises OSError."""
    wanted = _packed(uids)
    if _acl(node) == wanted:
        return False
    found = node.lstat()
    if not stat.S_ISCHR(found.st_mode):
        raise DeviceError(f"{node} is not a device node.")
    if (found.st_uid, found.st_gid) != (0, 0):
        os.chown(node, 0, 0)
    os.setxattr(node, ACL, wanted)
    return True


def put_back(node: Path, was: Before) -> None:
    """Makes a node as it was before the service. Raises OSError."""
    with contextlib.suppress(OSError):
        os.removexattr(node, ACL)
    os.chown(node, was.uid, was.gid)
    node.chmod(was.mode)


def _acl(node: Path) -> bytes | None:
    try:
        return os.getxattr(node, ACL)
    except OSError:
        return None


def _packed(uids: Iterable[int]) -> bytes:
    """An ACL that lets root and these accounts read and write; the kernel wants the accounts in order."""
    entries = [(_OWNER, _READ_WRITE, _NOBODY_IN_PARTICULAR)]
    entries += [(_USER, _READ_WRITE, uid) for uid in sorted(set(uids) - {0})]
    entries += [
        (_GROUP, 0, _NOBODY_IN_PARTICULAR),
        (_MASK, _READ_WRITE, _NOBODY_IN_PARTICULAR),
        (_OTHER, 0, _NOBODY_IN_PARTICULAR),
    ]
    return struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@dataclass(frozen=True)
class Opener:
    """A process that has a node open, and its account."""

    pid: int
    uid: int
    node: Path


def openers(nodes: Iterable[Path], uid: int | None = None, ending: bool = False) -> list[Opener]:
    """The processes, except root's, that have one of these nodes open; with `uid`, only those of this account.

    With `uid` it looks closer: also at what threads have opened for themselves, at memory that is mapped to a node, and at
    processes that begin meanwhile. With `ending`, each one that it finds is ended at once.
    """
    devices, inodes = {}, {}
    for node in nodes:
        with contextlib.suppress(OSError):
            found = node.stat()
            devices[found.st_rdev] = node
            inodes[f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}", str(found.st_ino)] = node
    found_openers: list[Opener] = []
    seen: set[int] = set()
    while new := set(map(int, filter(str.isdigit, os.listdir("/proc")))) - seen:
        seen |= new
        for pid in new:
            ids = _accounts(pid)
            if not ids or (uid is None and ids[0] == 0) or (uid is not None and uid not in ids):
                continue
            opened = {devices[device] for device in _open_devices(pid, uid is not None) if device in devices}
            if uid is not None:
                opened |= {inodes[key] for key in _mapped(pid) if key in inodes}
                if opened and ending:
                    end(pid, uid)
            found_openers += [Opener(pid, ids[0] if uid is None else uid, node) for node in sorted(opened)]
        if uid is None:
            break
    return found_openers


def end_all(uid: int) -> None:
    """Ends every process of an account at once, also those that begin meanwhile: the kernel does it in one step."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["/bin/sh", "-c", "kill -9 -1"], user=uid, extra_groups=[], timeout=5, cwd="/", check=False)


def end(pid: int, uid: int) -> None:
    """Ends a process, if it still is one of this account."""
    with contextlib.suppress(OSError):
        handle = os.pidfd_open(pid)
        try:
            if uid in _accounts(pid):  # else the number has gone to another process
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)


def _accounts(pid: int) -> list[int]:
    """The real, effective, saved and file system's account of a process; empty if it has ended."""
    with contextlib.suppress(OSError, ValueError):
        # in bytes: a text file ends a line at a carriage return too, which a process may have in its name
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith(b"Uid:"):
                    return [int(word) for word in line.split()[1:]]
    return []


def _open_devices(pid: int, each_thread: bool) -> Iterator[int]:
    """The numbers of the character devices that a process has open."""
    folders = [f"/proc/{pid}/fd"]
    if each_thread:  # a thread can have descriptors of its own
        with contextlib.suppress(OSError):
            folders += [f"/proc/{pid}/task/{thread}/fd" for thread in os.listdir(f"/proc/{pid}/task")]
    for folder in folders:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    found = os.stat(f"{folder}/{name}")
                    if stat.S_ISCHR(found.st_mode):
                        yield found.st_rdev


def _mapped(pid: int) -> Iterator[tuple[str, str]]:
    """(device of the file system, inode) of each file that a process has mapped."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split(maxsplit=5)
                if len(words) > 5 and words[4] != "0":
                    yield words[3], words[4]
