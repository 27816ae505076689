"""What `nvidia-smi topo -m` and `-p2p` print of the links between a machine's GPUs and network cards, and `nvidia-smi
nvlink -s` of the NVLinks of each.

The table may stand anywhere in a text, with a launcher's label before each line. Seen: nvidia-smi of drivers 450 to
590, with cards named NIC0 or mlx5_0, and GB200.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from allranks.base.errors import counted, listed
from allranks.base.unpacked import plain_text
from allranks.jobs.formats import Format
from allranks.jobs.job import ProfileError, RankRecord
from allranks.jobs.scan import lines_of

__all__ = ["FORMAT", "TOPOLOGY"]

TOPOLOGY = "nvidia-smi topo"
FAR = ("SYS", "SOC", "NODE", "PHB")  # GPUDirect RDMA over these passes through a CPU
_ITSELF = re.compile(r"\bGPU0[ \t]+X(?=\s)")  # the row of GPU0
_LINK = r"(?:NODE|SYS|SOC|PHB|PXB|PIX|NV\d{1,2}|X)"
_GLUED = re.compile(rf"{_LINK}(?:{_LINK})+")  # cells between which a terminal lost the space
_COMMAND = re.compile(r"\btopo\s+(-\w+|--\w+)")  # -mp and --matrix_pci leave NVLinks out
_HEAD = re.compile(r"(?:GPU|NIC|mlx|rocep|ibp|bnxt|efa)\w*")
_GPU = re.compile(r"\bGPU (\d{1,3}): .*\(UUID")  # of nvidia-smi nvlink
_NVLINK = re.compile(r"\bLink (\d{1,3}): (\S+)")
_ACCESS = {
    "OK": "peer access",
    "CNS": "no peer access, as the chipset has none",
    "GNS": "no peer access, as these GPUs have none",
    "TNS": "no peer access over these links",
    "NS": "no peer access",
    "DR": "no peer access, as the driver's settings forbid it",
}


@dataclass
class _Table:
    """One table: its heads, and what each GPU's row says of them."""

    label: int  # words before the row's name
    heads: list[str]
    with_numa: bool
    pci_only: bool  # nvidia-smi topo -mp: NVLinks are left out
    rows: dict[str, dict[str, str]] = field(default_factory=dict)
    own_memory: bool = False  # whether a GPU's memory is a NUMA node, as on Grace

    def links(self) -> Counter[str]:
        """How many pairs of GPUs have which link."""
        gpus = list(self.rows)
        return Counter(self.rows[a][b] for i, a in enumerate(gpus) for b in gpus[i + 1 :] if b in self.rows[a])


def _tables(lines: Iterable[str]) -> list[_Table]:
    found: list[_Table] = []
    pci_only = False
    for line in lines:
        if "topo" in line and (command := _COMMAND.search(line)):
            pci_only = command[1] in ("-mp", "--matrix_pci")
        cells = _cells(line)
        at = next((i for i, cell in enumerate(cells[:8]) if re.fullmatch(r"GPU\d+", cell)), None)
        if at is None:
            continue
        if cells[at] == "GPU0" and (
            at + 1 == len(cells) or cells[at + 1] in ("GPU1", "CPU") or _HEAD.fullmatch(cells[at + 1])
        ):
            # the title of the last column, GPU NUMA ID, begins as a GPU's name does
            heads = [c for c in cells[at:] if _HEAD.fullmatch(c) and re.search(r"\d", c)]
            found.append(_Table(at, heads, "NUMA" in cells and cells[-1] == "ID", pci_only))
        elif found and at == found[-1].label and len(cells) - at > len(found[-1].heads):
            table, row = found[-1], cells[at + 1 :]
            table.rows[cells[at]] = dict(zip(table.heads, row, strict=False))
            table.own_memory |= table.with_numa and len(row) > len(table.heads) + 2 and row[-1].isdigit()
    return [table for table in found if table.rows]


def _cells(line: str) -> list[str]:
    """The cells of a line; two between which the space is lost, as in NODENODE, are two."""
    found: list[str] = []
    for cell in line.split():
        found += re.findall(_LINK, cell) if _GLUED.fullmatch(cell) else [cell]
    return found


def _read(path: Path) -> list[RankRecord]:
    said: list[str] = []
    bad: list[str] = []
    for table in _tables(lines_of(path)):
        if set(table.links()) & set(_ACCESS):
            words = ", ".join(f"{n} with {_ACCESS.get(kind, kind)}" for kind, n in table.links().most_common())
            said.append(f"pairs of GPUs: {words}")
        else:
            _tell(table, said, bad)
    _tell_nvlinks(lines_of(path), said, bad)
    if not said:
        raise ProfileError("it looks like nvidia-smi topo -m or nvlink -s, and no line of it is whole")
    facts = {"said": tuple(said), **({"bad_links": tuple(bad)} if bad else {})}
    return [RankRecord(0, str(path), TOPOLOGY, facts=facts, rank_from="unknown")]


def _tell(table: _Table, said: list[str], bad: list[str]) -> None:
    """Adds sentences on one table: what links there are, and which of them are slow."""
    gpus, links = list(table.rows), table.links()
    named = [head for head in table.heads if head.startswith("GPU")]
    cut = [head for head in named if head not in gpus]
    said.append(
        f"{counted(len(named), 'GPU')}{f', with no whole row of {listed(cut)}' if cut and gpus else ''}; pairs: "
        + ", ".join(f"{n} by {_link(kind)}" for kind, n in links.most_common())
    )
    by_nvlink = {g: sum(table.rows[g].get(o, "").startswith("NV") for o in gpus if o != g) for g in gpus}
    apart = [
        f"{a}-{b}" for i, a in enumerate(gpus) for b in gpus[i + 1 :] if not table.rows[a].get(b, "NV").startswith("NV")
    ]
    alone = [g for g in gpus if not by_nvlink[g]]
    word = ""
    if table.pci_only and len(alone) == len(gpus):
        said.append(
            "the table is of topo -mp, which shows PCIe only: whether GPUs have NVLinks, nvidia-smi topo -m says"
        )
    elif len(gpus) > 1 and len(alone) == len(gpus):
        far_apart = links["SYS"] + links["SOC"]
        are = "is" if far_apart == 1 else "are"
        across = f", and {far_apart} of {sum(links.values())} pairs {are} across CPU sockets" if far_apart else ""
        word = f"no pair of GPUs has an NVLink: what they exchange goes over PCIe{across}"
    elif alone:
        have = "has" if len(alone) == 1 else "have"
        word = (
            f"{', '.join(alone)} {have} no NVLink to any other GPU, and the others have: a ring must leave NVLink there"
        )
    elif apart:
        more = ", ..." if len(apart) > 8 else ""
        word = f"without NVLink between them: {', '.join(apart[:8])}{more}: rings avoid these, or are as slow"
    if word:
        bad.append(word)
        said.append(word)
    cards = [head for head in table.heads if not head.startswith("GPU")]
    if not cards:
        return
    nearest = {g: min((row[c] for c in cards if c in row), key=_distance, default="") for g, row in table.rows.items()}
    kinds = ", ".join(f"{n} by {kind}" for kind, n in Counter(nearest.values()).items())
    said.append(f"{counted(len(cards), 'network card')}; the nearest of each GPU: {kinds}")
    far = [g for g, kind in nearest.items() if kind in FAR]
    if far and table.own_memory:
        said.append("GPU and CPU are one chip's two halves here (Grace), so that a card behind the CPU is no fault")
    elif far:
        ways = listed(dict.fromkeys(nearest[gpu] for gpu in far))
        words = f"the nearest card is behind a CPU ({ways}), so that GPUDirect RDMA is slow or off"
        bad.append(f"{', '.join(far)}: {words}")
        said.append(bad[-1])


def _tell_nvlinks(lines: Iterable[str], said: list[str], bad: list[str]) -> None:
    """Adds sentences on nvidia-smi nvlink -s: how many links each GPU has, and which are inactive."""
    links: dict[str, dict[str, bool]] = {}
    for line in lines:
        if head := _GPU.search(line):
            links[f"GPU{head[1]}"] = {}
        elif links and (link := _NVLINK.search(line)):
            links[list(links)[-1]][link[1]] = "inactive" not in link[2].lower()
        elif links and "all links are inactive" in line.lower():
            links[list(links)[-1]] = {"all": False}
    links = {gpu: state for gpu, state in links.items() if state}
    if links:
        counts = Counter(sum(state.values()) for state in links.values())
        said.append("NVLinks that are active: " + ", ".join(f"{n} on {counted(m, 'GPU')}" for n, m in counts.items()))
    for gpu, state in links.items():
        if dead := [number for number, active in state.items() if not active]:
            which = (
                "no NVLink is active" if len(dead) == len(state) else f"NVLink {listed(dead)} of {len(state)} inactive"
            )
            word = f"{gpu}: {which}: rings over it are slower, or fail; dmesg (Xid 74, 144 to 150) and a reset say more"
            bad.append(word)
            said.append(word)


def _link(kind: str) -> str:
    names = {
        "SYS": "SYS, across CPU sockets",
        "SOC": "SOC, across CPU sockets",
        "NODE": "NODE, across PCIe host bridges",
        "PHB": "PHB, through a CPU",
        "PXB": "PXB, several PCIe switches",
        "PIX": "PIX, one PCIe switch",
    }
    return f"{kind[2:]} NVLinks" if kind.startswith("NV") and kind[2:].isdigit() else names.get(kind, kind)


def _distance(kind: str) -> int:
    order = ("X", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
    return order.index(kind) if kind in order else 9


def _looks(path: Path, head: bytes) -> bool:
    if b"NCCL INFO" not in head and re.search(
        rb"(?mi)^\W*Link \d+: (?:<?inactive|[\d.]+ GB/s)|all links are inactive", head
    ):
        return True
    if b"GPU0" not in head or b"\0" in head or b"NCCL INFO" in head:
        return False
    text = plain_text(head.decode("utf-8", "replace"))
    return _ITSELF.search(text) is not None and text.count("GPU0") > 1


FORMAT = Format("nvidia-smi topo -m", _looks, _read)
