"""Free TCP ports that no other process can be given before we listen on them."""

from __future__ import annotations

import socket


def hold(n: int, address: str = "") -> list[socket.socket]:
    """`n` sockets, each bound to a free port of `address`. No other process gets that port while the socket is open.

    ipyparallel and Jupyter ask for a free port, close it, and listen on it later; in between, another process may be
    given the same port. A socket that is bound but does not listen prevents that: the system gives its port to no
    process that asks for a free one. libzmq can still listen on it, because both sockets set SO_REUSEADDR (socket(7)).
    Raises OSError if the address is not this machine's.
    """
    held = []
    for _ in range(n):
        holder = socket.socket()
        held.append(holder)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address, 0))
    return held
