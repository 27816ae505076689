"""What torch says where the ranks of a job do not meet, or lose each other: a host that is not reached, processes that
did not come, gloo's connections.

Seen: torch 1.9 to 2.13 (c10d/socket.cpp, TCPStore.cpp, ProcessGroupNCCL.cpp, elastic/rendezvous).
"""

from __future__ import annotations

import re

from allranks.jobs.job import MAX_RANKS, Cause

__all__ = ["NO_MEETING", "meeting"]

# what a line has in it of which `meeting` may make a cause
NO_MEETING = (
    "client socket has timed out",
    "clients joined",
    "RendezvousTimeoutError",
    "via c10d key-value store",
    "gloo/transport/tcp",
)
_UNREACHED = re.compile(
    r"client socket has timed out after (\d{1,7}) ?(?:s|seconds) while trying to connect to "
    r"\(?([^\s,)]+?)(?:, (\d+)\))?\.?\s*$"
)
_JOINED = re.compile(r"Timed out after (\d{1,7}) seconds waiting for clients\. (\d{1,7})/(\d{1,7}) clients joined")
_NO_ID = re.compile(r"\[(\d{1,7})\] is setting up NCCL communicator and ret\w+ ncclUniqueId from \[(\d{1,7})\]")
_GLOO = re.compile(r"gloo/transport/tcp/\S+\] (.*(?:[Cc]onnection \w+ by|[Tt]imed out|refused|no error).{0,200})")
_WHERE = (
    "that place is --rdzv_endpoint, or MASTER_ADDR and MASTER_PORT: look whether its process runs, whether the address "
    "is one that the other hosts reach (not 127.0.0.1, not one inside a container), and at the firewall"
)


def meeting(line: str) -> Cause | None:
    """The cause that a line names, or None.

    >>> meeting("Timed out after 901 seconds waiting for clients. 4/8 clients joined.").cause
    'Only 4 of 8 processes came to the place where the ranks meet, in 901 s.'
    """
    if found := _UNREACHED.search(line):
        place = f"{found[2]}:{found[3]}" if found[3] else found[2]
        words = f"A process did not reach the place where the ranks meet, in {found[1]} s."
        return Cause(words, f"it tried {place}; {_WHERE}", None, 0.8, "hang")
    if found := _JOINED.search(line):
        words = f"Only {found[2]} of {found[3]} processes came to the place where the ranks meet, in {found[1]} s."
        why = "look how the others were started and whether they ended before; each must have the same number of all"
        return Cause(words, f"{why}. {_WHERE}", None, 0.85, "missing_rank")
    if (found := _NO_ID.search(line)) and int(found[2]) < MAX_RANKS:
        first = int(found[2])
        words = f"Rank {first} did not come to the first call of a group, in which rank {found[1]} waits for it."
        why = (
            "NCCL's id of the group comes from there: look how it ended, or where it stands; ranks are the group's own"
        )
        return Cause(words, why, None, 0.8, "missing_rank", first)
    if found := _GLOO.search(line):
        words = "A connection of gloo's was lost: the other rank or its machine ended first, or the network failed."
        why = (
            f"gloo says: {found[1].strip()[:200]}; look at the first error of the other ranks: the rank that says this "
        )
        why += "is rarely at fault. A rank that ends before its messages were taken loses them too; GLOO_SOCKET_IFNAME "
        why += "names the interface"
        return Cause(words, why, None, 0.5, "hang")
    if "RendezvousTimeoutError" in line:
        words = "Not all nodes came to the place where torchrun's nodes meet, in its time."
        return Cause(words, f"look how torchrun was started on the others. {_WHERE}", None, 0.7, "missing_rank")
    return None
