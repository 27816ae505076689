"""What NCCL's own words point to: its warnings, its last error, and settings that make it slow."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from allranks.base.errors import capital, name_ranks
from allranks.jobs.job import Cause

__all__ = ["LOCKED", "complaints", "settings_words", "shortened", "slow_settings"]

ERROR, SETTING = "nccl_error", "nccl_setting"
_OWN = 0.6  # from so sure on, a text names a failure of its own
_LETTERS = 300  # of a warning's text
LOCKED = (
    "Memory could not be locked for a card of InfiniBand or RoCE.",
    "mostly the limit of locked memory is too small: ulimit -l must say unlimited in the job itself (a container needs "
    "--ulimit memlock=-1, a daemon such as slurmd LimitMEMLOCK=infinity)",
)

# what a text says, the cause, what to look at, and how sure; the first that fits is taken. The texts are those of
# NCCL's src/transport, src/misc and src/bootstrap.cc
_ERRORS: tuple[tuple[str, str, str, float], ...] = (
    (
        r"^(?!.*ibv_).*No space left on device",
        "The shared memory of the machine or container is full: NCCL could not make its segment in /dev/shm.",
        "look at df -h /dev/shm; give a container more (docker run --shm-size=8g or --ipc=host; in Kubernetes an "
        "emptyDir of medium Memory)",
        0.9,
    ),
    (
        r"unlink shared memory",
        "A segment of NCCL's shared memory had been removed while the job ran.",
        "systemd removes files in /dev/shm of users that it holds for logged out: RemoveIPC=no in logind.conf, or "
        "loginctl enable-linger",
        0.75,
    ),
    (
        r"attaching to shared memory segment.*No such file",
        "A rank could not open the segment of shared memory that another rank of its machine made.",
        "containers of one machine must share /dev/shm (--ipc=host); NCCL_SHM_DISABLE=1 goes on without it; the other "
        "rank may also have ended",
        0.75,
    ),
    (
        r"shared memory segment|/dev/shm",
        "NCCL could not make its segment of shared memory in /dev/shm.",
        "look at df -h /dev/shm, its rights and ulimit; a container needs --shm-size or --ipc=host",
        0.7,
    ),
    (
        r"(?:status=|error )12\b|vendor err 129|IBV_WC_RETRY_EXC_ERR|transport retry counter exceeded",
        "A message over InfiniBand or RoCE was never answered: the other side is dead, or the fabric or the GID "
        "is wrong.",
        "look first whether the peer's process had ended before; if not, look at the port (ibstat, ibv_devinfo, "
        "cables, switches), on RoCE at NCCL_IB_GID_INDEX and NCCL_IB_TC, and try ib_write_bw between the two hosts",
        0.7,
    ),
    (
        r"(?:status=|error )5\b|vendor err 249|IBV_WC_WR_FLUSH_ERR",
        "A message over InfiniBand or RoCE was given up, as its connection had failed before: an earlier error closed "
        "it, or the other side had ended.",
        "look for the first error of all ranks, and whether the peer's process had ended; then at the port (ibstat, "
        "dmesg)",
        0.55,
    ),
    (
        r"collective mismatch error|Mismatched collective",
        "Ranks did not make the same collective, or not of the same size.",
        "compare the calls of these ranks: one call more or fewer, another order or size "
        "(TORCH_DISTRIBUTED_DEBUG=DETAIL names the first that differs); whether all hosts have one NCCL and the same "
        "NCCL_ variables",
        0.7,
    ),
    (
        r"CUDA IPC handle|peer access is not supported|(?:[Cc]uda|hip)\w*Ipc(?:Open|Get)MemHandle",
        "A GPU could not open the memory of another one, to copy directly.",
        "run once with NCCL_P2P_DISABLE=1: where that works, look at nvidia-smi topo -p2p r, at containers that do not "
        "share IPC and PID namespaces, at CUDA_VISIBLE_DEVICES and at the IOMMU",
        0.7,
    ),
    (
        r"network \S.* not found",
        "NCCL_NET asks for a network whose plugin was not found.",
        "look at NCCL_NET and NCCL_NET_PLUGIN, and whether LD_LIBRARY_PATH has the plugin's libnccl-net.so",
        0.8,
    ),
    (
        r"Address already in use",
        "NCCL could not take a port: all that it may use are taken.",
        "look at ss -s and net.ipv4.ip_local_port_range; a program that makes a new communicator at each step, or a "
        "process of an earlier run, keeps them",
        0.6,
    ),
    (
        r"has already checked in",
        "Two processes say that they are the same rank.",
        "look at what gives each its number: RANK or SLURM_PROCID, the tasks of a node, the launcher's count of "
        "processes; two launchers of one job count twice",
        0.9,
    ),
    (
        r"Failed to open libibverbs",
        "The machine or container has no library for InfiniBand and RoCE (libibverbs).",
        "without such cards this does no harm; with them, install rdma-core or libibverbs1, or messages go through "
        "sockets",
        0.4,
    ),
    (
        r"ibv_modify_qp failed|ibv_modify_qp.*(?:unreachable|timed out|No such device|Invalid argument)",
        "Two cards of InfiniBand or RoCE could not be connected: one does not reach the other.",
        "look at NCCL_IB_GID_INDEX (show_gids) and NCCL_IB_HCA, at the addresses and routes of both hosts' cards, and "
        "try ib_write_bw between them; where only cards of one number reach each other, NCCL_CROSS_NIC=0",
        0.7,
    ),
    (
        r"(?:status=|with error )4\b|IBV_WC_LOC_PROT_ERR|local access violation|local protection",
        "A card of InfiniBand or RoCE was told to use memory that it may not use: it was freed, or was never "
        "registered with the card.",
        "look for the first such rank, whether buffers of a graph or of registered memory were freed, and at the "
        "versions of the driver and of nvidia_peermem or dma-buf; run once with NCCL_NET_GDR_LEVEL=LOC",
        0.6,
    ),
    (
        r"async (?:fatal )?event : local catastrophic|device fatal",
        "A card of InfiniBand or RoCE failed as a whole.",
        "it is on the host of the ranks that say so: look at its dmesg (mlx5_core), firmware and temperature; the "
        "driver or the host must be started anew",
        0.8,
    ),
    (
        r"async (?:fatal )?event : port (?:error|active)",
        "A port of InfiniBand or RoCE lost its link.",
        "look at the cable, the optics and the switch's port, and at ibqueryerrors or ethtool -S; links that come back "
        "are worth as much attention",
        0.7,
    ),
    (
        r"ibv_(?:exp_)?(?:reg|create|alloc)_\w+ .*Cannot allocate memory",
        *LOCKED,
        0.75,
    ),
    (
        r"(?:status=|with error )\d+,? opcode|ibv_\w+ failed|async (?:fatal )?event",
        "The InfiniBand or RoCE card reported an error.",
        "look at ibstat, at dmesg and at the counters of the port; locked memory may be too small (ulimit -l)",
        0.6,
    ),
    (
        r"Connection refused|Operation now in progress|No route to host|Network is unreachable|Connection timed out|"
        r"Connect to \S+ failed",
        "A rank could not connect to another one: NCCL took an interface or address that the other side does "
        "not reach.",
        "compare the address with ip addr of both hosts (172.17.0.1 is docker0, 169.254.x.x is no network's); set "
        "NCCL_SOCKET_IFNAME to the interface that joins the machines, and look at the firewall; it is also refused "
        "where the other rank had ended",
        0.7,
    ),
    (
        r"[Cc]onnection (?:closed|reset) by (?:remote )?peer|Broken pipe|remote process exited",
        "The connection to another rank was lost: that rank or its machine ended first, or the network failed.",
        "look at the first error of the other ranks: the rank that says this one is rarely at fault",
        0.5,
    ),
    (
        r"NVLS|NVLink SHARP|[Mm]ulticast",
        "NVLink SHARP (NVLS) could not be set up: the switches inside the machine did not give what it needs.",
        "look at nvidia-fabricmanager (systemctl status, nvidia-smi -q under Fabric), at its version beside the "
        "driver's, and at containers that lack /dev/nvidia-caps-imex-channels; NCCL_NVLS_ENABLE=0 goes on without it, "
        "and all_reduce inside a machine is slower",
        0.8,
    ),
    (
        r"before the previous operation returned ncclSuccess",
        "A communicator was used while its start, or an operation before, had not ended.",
        "an error of it came before: look at the first error of all ranks; a program that asks for calls that do not "
        "wait (blocking=0) must ask ncclCommGetAsyncError first",
        0.5,
    ),
    (
        r"no socket interface found|Address family not supported|No (?:usable )?(?:socket )?interface found",
        "NCCL found no network interface that it may use.",
        "look at NCCL_SOCKET_IFNAME: it must name an interface of this host (ip addr)",
        0.85,
    ),
    (
        r"Duplicate GPU detected",
        "Two ranks use the same GPU.",
        "give each rank its own: torch.cuda.set_device(local_rank)",
        0.95,
    ),
    (
        r"out of memory",
        "NCCL could not get memory of the GPU for its buffers.",
        "leave more of it free, or lower NCCL_BUFFSIZE",
        0.8,
    ),
    (
        r"\bXid\b|uncorrectable|\bECC\b|illegal memory access|unspecified launch failure|device-side assert",
        "The GPU reported an error.",
        "look at dmesg for Xid and at nvidia-smi -q; an illegal access is the program's own: CUDA_LAUNCH_BLOCKING=1",
        0.7,
    ),
    (
        r"Cuda failure.*(?:initialization error|no CUDA-capable device|invalid device ordinal)",
        "CUDA could not be used by a rank.",
        "look whether the process was forked after CUDA was used, at CUDA_VISIBLE_DEVICES, at the container's GPUs and "
        "at the driver (nvidia-smi)",
        0.6,
    ),
    (
        r"NET/OFI ",
        "The plugin for libfabric and EFA (aws-ofi-nccl) reported an error.",
        "compare the versions of the EFA driver, libfabric and aws-ofi-nccl on all hosts; fi_info -p efa shows the "
        "cards, FI_LOG_LEVEL=warn libfabric's own text",
        0.6,
    ),
    (
        r"Attribute \w+ of node \w+ not found",
        "NCCL could not read the topology of the machine.",
        "look at NCCL_TOPO_FILE, and at /sys in the container; another version of NCCL may read it",
        0.6,
    ),
    (
        r"Unable to load NCCL library|Failed to load NCCL|libnccl\.so\S* cannot open",
        "The program did not find NCCL's library.",
        "look whether the package nvidia-nccl-cu12 or libnccl2 is installed, and at LD_LIBRARY_PATH",
        0.85,
    ),
    (
        r"^(?:unhandled (?:cuda|system) error|internal error\b|nccl\w+Error)",
        "A call of NCCL's failed, and this text does not say why.",
        "run it again with NCCL_DEBUG=WARN: NCCL's own line before it says which call, and on which rank",
        0.4,
    ),
    (
        r"^invalid (?:usage|argument)",
        "NCCL refused the arguments of a call.",
        "run it again with NCCL_DEBUG=WARN, which names the argument; mostly two ranks have one GPU, or the number of "
        "ranks is not that of the processes",
        0.5,
    ),
    (
        r"Cuda failure",
        "A call of CUDA's failed inside NCCL.",
        "the words name it; look at the line before it in NCCL's log for the file (nvls.cc: NCCL_NVLS_ENABLE=0 goes on "
        "without NVLink SHARP; p2p.cc: NCCL_P2P_DISABLE=1), and at nvidia-smi",
        0.5,
    ),
    (
        r"falling back to",
        "NCCL could not take its first choice, and goes on with another one.",
        "this is no failure by itself, and may be slower: compare nvidia-smi topo -m with what NCCL says of its rings",
        0.3,
    ),
    (
        r"driver version is insufficient|forward compat",
        "The driver does not fit this NCCL or CUDA.",
        "compare nvidia-smi's CUDA version with torch.version.cuda",
        0.7,
    ),
    (
        r"Missing \".+\" from (?:kernel command line|environment)",
        "RCCL misses a setting of the kernel or the environment that it asks for.",
        "most jobs run well without; look for another error first, and set it if nothing else explains a hang",
        0.3,
    ),
)

_UNKNOWN = (
    "NCCL warns, in words that this report has no rule for.",
    "look for the first such line of all ranks",
    0.4,
)
_SLOW: tuple[tuple[str, str, str], ...] = (
    (
        "NCCL_P2P_DISABLE",
        "GPUs of one machine do not talk to each other directly",
        "copies go through the host's memory instead of NVLink or PCIe",
    ),
    (
        "NCCL_SHM_DISABLE",
        "GPUs of one machine do not use shared memory",
        "where they have no direct link, their bytes go through the network",
    ),
    (
        "NCCL_IB_DISABLE",
        "InfiniBand and RoCE are switched off",
        "messages between machines go through sockets",
    ),
    (
        "NCCL_NVLS_ENABLE=0",
        "NVLink SHARP is switched off",
        "all_reduce inside a machine is slower where the switches could add",
    ),
)
_GDR = re.compile(r"GPU Direct RDMA [Dd]isabled")


def shortened(text: str) -> str:
    """A text of NCCL's, cut between two words where it is very long.

    >>> shortened("word " * 100)[-10:]
    'word word…'
    """
    text = " ".join(text.split()).rstrip(".")
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS].rsplit(' ', 1)[0]}…"


def complaints(
    warnings: Iterable[str], ranks: Mapping[str, Collection[int]] = MappingProxyType({})
) -> tuple[Cause, ...]:
    """A cause for each kind of warning or error, in their order, the unsure last.

    A text that is not known is told as it is, where no other is. `ranks` are those that said a text, as far as a
    launcher's label says it.

    >>> complaints(["Call to connect returned Connection refused"])[0].kind
    'nccl_error'
    """
    found: dict[str, Cause] = {}
    said_by: dict[str, set[int]] = defaultdict(set)
    for text in warnings:
        words, advice, sure = next(
            ((words, advice, sure) for pattern, words, advice, sure in _ERRORS if re.search(pattern, text)), _UNKNOWN
        )
        found.setdefault(words, Cause(words, f"NCCL says: {shortened(text)}; {advice}", None, sure, ERROR))
        said_by[words] |= {*ranks.get(text, ())}
    if len(found) > 1:
        found.pop(_UNKNOWN[0], None)  # it is told among what the logs say
    for words, who in said_by.items():
        if who and words in found:
            cause = found[words]
            told = cause.evidence.replace("NCCL says", f"NCCL says on {name_ranks(sorted(who))}", 1)
            found[words] = replace(cause, evidence=told)
    if len(found) > 1 and any("No space left" in cause.evidence for cause in found.values()):
        found = {words: cause for words, cause in found.items() if "could not make its segment of" not in words}
    # of those that stand by themselves the first leads, as later ones may follow from it
    return tuple(sorted(found.values(), key=lambda cause: -min(cause.sure, _OWN)))


def settings_words(settings: Mapping[str, str], *names: str) -> str:
    """Those of the environment's variables that are set, in a clause, or nothing.

    >>> settings_words({"NCCL_IB_DISABLE": "1"}, "NCCL_IB_DISABLE", "NCCL_NET")
    'the environment sets NCCL_IB_DISABLE=1'
    """
    here = [f"{name}={settings[name]}" for name in names if name in settings]
    return f"the environment sets {' and '.join(here)}" if here else ""


def slow_settings(settings: Mapping[str, str], told: Iterable[str]) -> tuple[Cause, ...]:
    """Causes that the environment's variables and NCCL's notices name: a fast way that is off, or a forced choice.

    >>> [cause.cause for cause in slow_settings({"NCCL_P2P_DISABLE": "1"}, ())]
    ['GPUs of one machine do not talk to each other directly: NCCL_P2P_DISABLE=1.']
    """
    found = []
    for rule, words, why in _SLOW:
        name, _, value = rule.partition("=")
        set_to = settings.get(name)
        off = set_to == value if value else set_to not in (None, "0", "")
        if off:
            found.append(
                Cause(
                    f"{capital(words)}: {name}={set_to}.",
                    f"{why}; unset it and compare",
                    None,
                    0.6,
                    SETTING,
                )
            )
    if line := next((line for line in told if _GDR.search(line)), None):
        evidence = (
            f"NCCL says: {shortened(line)}; bytes go through the host's memory. Look for the module nvidia_peermem "
            "(or dma-buf), at the distance of GPU and card (nvidia-smi topo -m), at NCCL_NET_GDR_LEVEL, and in a "
            "virtual machine at ACS"
        )
        found.append(Cause("GPUDirect RDMA is off between a GPU and its network card.", evidence, None, 0.6, SETTING))
    forced = [f"{name}={settings[name]}" for name in ("NCCL_ALGO", "NCCL_PROTO") if name in settings]
    if forced:
        evidence = "one choice for all sizes is slow for some of them; unset it unless you measured that it helps"
        found.append(
            Cause(f"The environment forces NCCL's choice: {' and '.join(forced)}.", evidence, None, 0.4, SETTING)
        )
    return tuple(found)
