"""What passes over the wire, and what may: operations, log entries, rules, outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class OpKind(StrEnum):
    """What sort of operation a rank posts."""

    SEND = "send"
    RECV = "recv"
    COLLECTIVE = "collective"


SENDS = frozenset({"send", "isend"})
RECEIVES = frozenset({"recv", "irecv"})
POINT_TO_POINT = SENDS | RECEIVES | {"batch_isend_irecv"}
COLLECTIVES = frozenset(
    {
        "broadcast",
        "all_reduce",
        "all_reduce_coalesced",
        "reduce",
        "gather",
        "scatter",
        "all_gather",
        "all_gather_coalesced",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "all_to_all",
        "all_to_all_single",
        "barrier",
    }
)
_ALIASES = {
    "all_gather_single": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
}
PAYLOAD_LOGGED_NBYTES = 64 * 1024
CHANNELS = 4  # of signals between two ranks


def canonical(name: str) -> str:
    """The one name under which an operation is allowed and logged."""
    return _ALIASES.get(name, name)


@dataclass(frozen=True)
class Program:
    """A student's source text; `function` is looked up in it. Executed inside the ranks only.

    Example (needs ranks):
        >>> program = wire.Program("def double(x): return 2 * x", "double")
        >>> wire.run(program, ranks=2, args=(21,)).results
        [42, 42]
    """

    source: str
    function: str
    filename: str = "<program>"


@dataclass(frozen=True)
class Rules:
    """What a program may do. `allow` are operation names (None: all); `peers` is "ring" (only rank-1 and rank+1), a
    function (rank, peer, world_size) -> bool, or None; `contiguous` refuses other tensors, as gloo and NCCL do, and
    what only gloo refuses: messages to oneself, lists of tensors of different sizes in all_to_all, a receive of no elements from
    any rank; `nccl` applies NCCL's rules (docs/nccl_rules.md): what NCCL refuses is refused, and each
    rank's operations run one after the other. With `alone` the program can't import the course's own modules, as an answer can't.

    Raises ValueError for an unknown operation and for another `peers`.

    Example:
        >>> rules = wire.Rules(allow={"send", "recv"}, peers="ring")
        >>> rules.allows("all_reduce"), rules.allows_peer(0, 3, ranks=4)
        (False, True)
    """

    allow: frozenset[str] | None = None
    peers: str | Callable[[int, int, int], bool] | None = None
    contiguous: bool = False
    nccl: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        if self.allow is not None:
            names = frozenset({self.allow} if isinstance(self.allow, str) else self.allow)
            names = frozenset(canonical(name) for name in names)
            unknown = sorted(names - POINT_TO_POINT - COLLECTIVES)
            if unknown:
                raise ValueError(
                    f"{unknown[0]!r} is not an operation of the wire; choose among those of torch.distributed."
                )
            object.__setattr__(self, "allow", names)
        if not (self.peers is None or self.peers == "ring" or callable(self.peers)):
            raise ValueError(f"peers is {self.peers!r}; it must be 'ring', a function or None.")

    def allows(self, name: str) -> bool:
        """Whether the operation may be called."""
        return self.allow is None or name in self.allow

    def allows_peer(self, rank: int, peer: int, ranks: int) -> bool:
        """Whether `rank` may exchange messages with `peer`."""
        if self.peers is None:
            return True
        if isinstance(self.peers, str):  # "ring"
            return (rank - peer) % ranks in (1, ranks - 1)
        return bool(self.peers(rank, peer, ranks))


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One operation.

    `nbytes` and `numel` are those of the tensor sent (of the buffer, for a receive); `received_nbytes` is what the
    operation brought this rank. `match` joins a send and its receive, or the members' entries of one collective; None
    if it found no partner. `index` counts the rank's operations from 0, `call` the call of the function (see `calls`).
    `called` is the name by which the student called it; `op` is the one under which rules know it.
    `splits` are the bytes of each input of a collective (all_to_all: to each peer). `payload` are the raw bytes of a send or a collective's
    input up to 64 KiB, until 8 MiB of a run are kept.

    Example (needs ranks):
        >>> entry = wire.run(lambda: dist.all_reduce(torch.ones(4)), ranks=2).log[0]
        >>> entry.rank, entry.op, entry.nbytes
        (0, 'all_reduce', 16)
    """

    rank: int
    op: str
    peer: int | None
    nbytes: int
    tag: int
    dtype: str | None
    numel: int
    line: int | None
    text: str | None
    index: int
    call: int
    match: int | None
    received_nbytes: int = 0
    waited: bool = False
    reduce_op: str | None = None
    group: tuple[int, ...] | None = None
    file: str | None = None
    payload: bytes | None = field(default=None, repr=False)
    kind: OpKind = OpKind.COLLECTIVE
    splits: tuple[int, ...] = ()
    called: str = ""


@dataclass(frozen=True, slots=True)
class FileWritten:
    """A file that a rank opened for writing while the program ran: its path, and the student's line.

    Example (needs ranks):
        >>> wire.run(lambda: open("/dev/null", "w").close(), ranks=1).files[0].path
        '/dev/null'
    """

    rank: int
    path: str
    line: int | None
    text: str | None
