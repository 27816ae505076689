"""TCP ports that stay ours from the moment we ask for them until we listen on them, and after."""

from __future__ import annotations

import socket


def hold(n: int, address: str = "") -> list[socket.socket]:
    """`n` sockets, each on a free port of `address` that nobody else is given as long as the socket is open.

    ipyparallel and Jupyter ask for free ports and let go of them until they listen; whoever starts at the same time may be
    given one of them. A socket that is bound and doesn't listen keeps its port from all who ask for any; libzmq may listen
    on it all the same, for both set SO_REUSEADDR (socket(7)). Raises OSError where the address is not this machine's.
    """
    held = []
    for _ in range(n):
        holder = socket.socket()
        held.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address, 0))
    return held
