"""Reads a machine from a topology file: JSON, by `allranks fit` or by hand (docs/topology_file.md)."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from allranks.theory.topology.machines import PRESETS, Link, Topology, TopologyError

FORMAT = 1
MAX_NBYTES = 16 << 20
_LINKS = ("inside", "host", "nic")
_OF_FILE = ("allranks_topology", "like", "measured")
# what a file may say of a machine; slow ranks, busy links and failures are said on the command line
_FIELDS = tuple(f.name for f in fields(Topology) if f.name not in ("stragglers", "background", "failed", "slow_nics"))
_KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,), "ranks_per_node": (int,), "nics_per_node": (int,), "ranks_per_island": (int,),
    "nodes_per_leaf": (int,), "oversubscription": (int, float), "rails": (bool,), "source": (str,),
}  # fmt: skip
_OPTIONAL = ("ranks_per_island", "nodes_per_leaf", "host", "nic")


def is_file_name(name: str) -> bool:
    """Whether a topology's name means a file: it ends with .json, or has a folder in it.

    >>> topology.is_file_name("dgx-h100"), topology.is_file_name("mine.json")
    (False, True)
    """
    return name.lower().endswith(".json") or "/" in name or "\\" in name


def preset(name: str) -> Topology:
    """A preset by its name, or the machine of a topology file (`mine.json`).

    Raises TopologyError, which lists the presets, or says what is wrong in the file.

    >>> topology.preset("dgx-h100").nic.name
    'InfiniBand 4x NDR'
    """
    if is_file_name(name):
        return load_topology(name)
    try:
        return PRESETS[name.lower()]
    except KeyError:
        raise TopologyError(
            f"there is no topology {name!r}; there are {', '.join(PRESETS)}, and files that end with .json"
        ) from None


def load_topology(path: Path | str) -> Topology:
    """The machine of a topology file. Raises TopologyError, which says what is wrong in it.

    >>> import json, pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "mine.json")
    >>> mine = {"allranks_topology": 1, "name": "mine", "like": "dgx-h100", "nics_per_node": 4}
    >>> _ = file.write_text(json.dumps(mine))
    >>> topology.load_topology(file).nics_per_node
    4
    """
    path = Path(path)
    data = read_topology_file(path)
    wanted: dict[str, Any] = {}
    for name, value in data.items():
        if name in _OF_FILE:
            continue
        if value is None and name in _OPTIONAL:
            wanted[name] = None
        else:
            wanted[name] = _link(path, name, value) if name in _LINKS else _plain(path, name, value)
    for name in ("name", "ranks_per_node", "inside"):
        if name not in wanted:
            raise TopologyError(f"{path} has no {name!r}; a topology needs name, ranks_per_node and inside")
    try:
        return Topology(**wanted)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def read_topology_file(path: Path | str) -> dict[str, Any]:
    """What a topology file says, together with what it takes from the preset or file that it names as `like`.

    Raises TopologyError for a file that can't be read, is no topology, or is like itself.
    """
    data = _follow(Path(path), ())
    unknown = [name for name in data if name not in (*_FIELDS, *_OF_FILE)]
    if unknown:
        raise TopologyError(f"{path} has a field {unknown[0]!r} that no topology has; there are {', '.join(_FIELDS)}")
    return data


def _follow(path: Path, before: tuple[Path, ...]) -> dict[str, Any]:
    here = path.resolve()
    if here in before:
        names = " is like ".join(p.name for p in (*before[before.index(here) :], here))
        raise TopologyError(f"{path} never ends: {names}")
    data = _read(path)
    like = data.pop("like", None)
    if like is None:
        return data
    if not isinstance(like, str):
        raise TopologyError(f"{path}: 'like' is {like!r}; it must be a preset's name or a file")
    if is_file_name(like):
        base = _follow(path.parent / like, (*before, here))
    elif like.lower() in PRESETS:
        base = _as_data(PRESETS[like.lower()])
    else:
        raise TopologyError(f"{path}: there is no topology {like!r} to be like; there are {', '.join(PRESETS)}")
    base.pop("measured", None)  # it was measured on another machine
    return base | data


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_NBYTES + 1)
        if len(text) > MAX_NBYTES:
            raise TopologyError(f"{path} has more than {MAX_NBYTES >> 20} MiB; it is no topology file")
        data = json.loads(text, parse_constant=_no_number)
    except OSError as error:
        raise TopologyError(f"{path} can't be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, TopologyError):
            raise
        raise TopologyError(f"{path} is no JSON: {error}") from None
    if not isinstance(data, dict) or "allranks_topology" not in data:
        raise TopologyError(f"{path} is no topology file: it has no 'allranks_topology': {FORMAT}")
    if data["allranks_topology"] != FORMAT:
        raise TopologyError(
            f"{path} has format {data['allranks_topology']!r}; this version of All Ranks reads format {FORMAT}"
        )
    return data


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _link(path: Path, name: str, value: Any) -> Link:
    if not isinstance(value, dict):
        raise TopologyError(f"{path}: {name!r} is {value!r}; a link is {{name, alpha_s, bytes_per_s}}")
    figures = {}
    for key in ("alpha_s", "bytes_per_s"):
        if key not in value:
            raise TopologyError(f"{path}: the link {name!r} has no {key!r}")
        if isinstance(value[key], bool) or not isinstance(value[key], int | float):
            raise TopologyError(f"{path}: {key!r} of the link {name!r} is {value[key]!r}; it must be a number")
        figures[key] = float(value[key])
    unknown = [key for key in value if key not in ("name", "alpha_s", "bytes_per_s", "source")]
    if unknown:
        raise TopologyError(f"{path}: the link {name!r} has a field {unknown[0]!r} that no link has")
    try:
        return Link(str(value.get("name", name)), **figures, source=str(value.get("source", "")))
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _plain(path: Path, name: str, value: Any) -> Any:
    kinds = _KINDS[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
        raise TopologyError(f"{path}: {name!r} is {value!r}; it must be {words[kinds[-1]]}")
    return value


def _as_data(topology: Topology) -> dict[str, Any]:
    """A preset as its file would say it."""
    found: dict[str, Any] = {}
    for name in _FIELDS:
        value = getattr(topology, name)
        found[name] = (
            {"name": value.name, "alpha_s": value.alpha_s, "bytes_per_s": value.bytes_per_s, "source": value.source}
            if isinstance(value, Link)
            else value
        )
    return found
