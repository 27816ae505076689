"""Who is at the other end of a Unix socket, by the kernel's word."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

_FORMAT = "iII"  # the kernel's struct ucred; numbers of accounts have no sign


class Credentials(NamedTuple):
    """A process, and the account and group that it had when it connected, or began to listen."""

    pid: int
    uid: int
    gid: int


def credentials_of(connection: socket.socket) -> Credentials:
    """Those of the other end (SO_PEERCRED).

    >>> import os
    >>> one, other = socket.socketpair()
    >>> credentials_of(one) == (os.getpid(), os.getuid(), os.getgid())
    True
    """
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_FORMAT))
    return Credentials(*struct.unpack(_FORMAT, told))
