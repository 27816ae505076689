"""The bytes of a frame, in memory or shared: what messages are while the router has them. No sockets and no torch."""

from __future__ import annotations

import contextlib
import os

from allranks.base.errors import CourseError

INLINE_NBYTES = 64 * 1024
_READ_NBYTES = 1 << 20


def seals() -> int:
    """What nobody can do with a sealed memfd any more: write it, or change its size or its seals."""
    import fcntl

    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class CodecError(CourseError, ValueError):
    """Bytes that are no frame of ours, or a value that the wire does not carry."""


class Body:
    """Bytes of a frame: either `data`, or a sealed memfd of `nbytes` that is closed with the object."""

    __slots__ = ("data", "fd", "nbytes")

    def __init__(self, data: bytes | memoryview = b"", fd: int = -1, nbytes: int | None = None) -> None:
        self.data, self.fd = data, fd
        self.nbytes = len(data) if nbytes is None else nbytes

    @classmethod
    def of(cls, buffers) -> Body:
        """The buffers joined: in memory if they are small, else in a new sealed memfd."""
        total = sum(len(b) for b in buffers)
        if total <= INLINE_NBYTES:
            return cls(buffers[0] if len(buffers) == 1 else b"".join(buffers))
        import fcntl  # here: a browser has none, and needs none

        fd = os.memfd_create("allranks-wire", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                while view:
                    view = view[os.write(fd, view) :]
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals())
        except BaseException:
            os.close(fd)
            raise
        return cls(fd=fd, nbytes=total)

    def read(self) -> bytes | bytearray | memoryview:
        """All bytes."""
        if self.fd < 0:
            return self.data
        whole = bytearray(self.nbytes)
        self.read_into(memoryview(whole))
        return whole

    def read_into(self, target: memoryview) -> None:
        """Fills `target`, which has the body's size."""
        if self.fd < 0:
            target[:] = self.data
            return
        done = 0
        while done < self.nbytes:
            # not preadv: Python calls preadv2 for it, which the sandbox refuses, since its flags tell what is in the page cache
            piece = os.pread(self.fd, _READ_NBYTES, done)
            if not piece:
                raise CodecError("a shared-memory message is shorter than it says")
            target[done : done + len(piece)] = piece
            done += len(piece)

    def again(self) -> Body:
        """The same bytes for one more reader. A memfd is opened anew: who shares a description can leave word in its offset."""
        if self.fd < 0:
            return Body(self.data)
        return Body(fd=os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC), nbytes=self.nbytes)

    def close(self) -> None:
        """Lets go of the memfd."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self.close()
