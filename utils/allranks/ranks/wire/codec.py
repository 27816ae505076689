"""Frames and values on the wire: a JSON header and raw bytes, never a pickle towards the router.

A frame is a fixed head, a JSON text `[message, sizes]` and a body that holds the buffers one after another. A body of
more than 64 KiB travels as a sealed memfd beside the frame, so that large tensors pass by shared memory and nobody can
change them on the way.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import socket
import struct
from collections import deque
from typing import Any

from allranks.ranks.wire.body import INLINE_NBYTES, Body, CodecError, seals

HEAD = struct.Struct("!IIQB")
MAX_HEADER_NBYTES = 8 * 1024 * 1024
MAX_FDS = 8  # that wait for their frames; each frame announces one at most
_ENCODER = json.JSONEncoder(separators=(",", ":"))
_DECODE = json.JSONDecoder().raw_decode


def _as_json(message: object) -> bytes:
    """The message as JSON: what `JSONEncoder.encode` makes, which sets up its encoder anew at each call."""
    return "".join(_CHUNKS(message, 0)).encode()


def _chunks():
    make = getattr(json.encoder, "c_make_encoder", None)  # the stub does not know it
    if make is None:  # Python without its C accelerator
        return lambda message, _: _ENCODER.iterencode(message)
    texts = json.encoder.encode_basestring_ascii
    return make(None, _ENCODER.default, texts, None, ":", ",", False, False, True)


_CHUNKS = _chunks()


_EMPTY = Body()


def _checked(fd: int, nbytes: int) -> Body:
    """A body from a descriptor that came in; raises CodecError unless it is a sealed memfd of that size."""
    body, wanted = Body(fd=fd, nbytes=nbytes), seals()
    try:
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & wanted != wanted or os.fstat(fd).st_size != nbytes:
            raise CodecError("a shared-memory message is not sealed or has another size than it says")
    except OSError:
        raise CodecError("a shared-memory message is no memfd") from None
    return body


class Channel:
    """One end of a socket that carries frames. The router's end is non-blocking, the rank's end blocks."""

    def __init__(self, sock: socket.socket, blocking: bool) -> None:
        self.socket = sock
        sock.setblocking(blocking)
        self.incoming = bytearray()
        self.taken_nbytes = 0  # of the JSON of the last frame
        self.fds: deque[int] = deque()
        self.outgoing: deque[tuple[memoryview, int]] = deque()
        self.kept: deque[Body | None] = deque()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self.socket.fileno()

    def send(self, message: object, body: Body | None = None) -> None:
        """Sends a frame (queues what the socket does not take yet)."""
        text = _as_json(message)
        body = body or _EMPTY
        head = HEAD.pack(len(text), len(body.data), body.nbytes, body.fd >= 0)
        if body.fd < 0 and not self.outgoing:
            data = b"".join((head, text, body.data))
            try:
                sent = self.socket.send(data, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                sent = 0
            if sent < len(data):
                self.outgoing.append((memoryview(data)[sent:], -1))
                self.kept.append(None)
                self.push()
            return
        self.outgoing.append((memoryview(b"".join((head, text, body.data))), body.fd))
        self.kept.append(body)
        self.push()

    def push(self) -> bool:
        """Writes what is queued; True if nothing is left."""
        while self.outgoing:
            data, fd = self.outgoing[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd >= 0 else []
            try:
                sent = self.socket.sendmsg([data], rights, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return False
            if sent == len(data):
                self.outgoing.popleft()
                self.kept.popleft()
            else:
                self.outgoing[0] = (data[sent:], -1)
        return True

    def pull(self) -> bool:
        """Reads once from the socket; False at its end."""
        data, rights, _, _ = self.socket.recvmsg(INLINE_NBYTES, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                got = array.array("i")
                got.frombytes(payload[: len(payload) - len(payload) % got.itemsize])
                self.fds.extend(got)
        if len(self.fds) > MAX_FDS:
            raise CodecError("more descriptors came than frames announce")
        self.incoming += data
        return bool(data)

    def frame(self) -> tuple[object, Body] | None:
        """The next whole frame that was pulled: its message and body; else None."""
        if len(self.incoming) < HEAD.size:
            return None
        text_nbytes, inline_nbytes, nbytes, has_fd = HEAD.unpack_from(self.incoming)
        if text_nbytes > MAX_HEADER_NBYTES or inline_nbytes > INLINE_NBYTES:
            raise CodecError("a frame is larger than the wire takes")
        end = HEAD.size + text_nbytes + inline_nbytes
        if len(self.incoming) < end:
            return None
        self.taken_nbytes = text_nbytes
        try:
            text = str(memoryview(self.incoming)[HEAD.size : HEAD.size + text_nbytes], "utf-8")
            message, read = _DECODE(text)
        except (ValueError, RecursionError):
            raise CodecError("a frame is no JSON") from None
        if read != len(text):
            raise CodecError("a frame holds more than its message")
        data = bytes(self.incoming[end - inline_nbytes : end])
        del self.incoming[:end]
        if not has_fd:
            if nbytes != inline_nbytes:
                raise CodecError("a frame contradicts itself about its size")
            return message, Body(data)
        if not self.fds:
            raise CodecError("a frame came without the descriptor that it announces")
        fd = self.fds.popleft()
        if nbytes == 0:
            os.close(fd)
            raise CodecError("a descriptor that nobody asked for")
        return message, _checked(fd, nbytes)

    def receive(self) -> tuple[Any, Body]:
        """Blocks for the next frame. Raises EOFError when the other end has gone."""
        while (frame := self.frame()) is None:
            if not self.pull():
                raise EOFError("the router has gone")
        return frame

    def close(self) -> None:
        """Closes the socket and every descriptor that came and was not taken."""
        self.outgoing.clear()
        self.kept.clear()
        while self.fds:
            os.close(self.fds.popleft())
        self.socket.close()
