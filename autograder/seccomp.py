"""The system calls that are refused to a rank in the sandbox, as a seccomp filter. libseccomp builds it from names.

Namespaces, limits and missing capabilities restrict a rank already. The filter closes what they leave open:

- new processes and programs;
- memory that no limit of a process counts;
- data in the kernel that another rank could read: key rings; locks, hints, times, modes and attributes of files that
  all ranks see;
- new sockets: descriptors that are sent over a socket, but not received, count for all processes of a user.

Everything else is allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os

NEW_PROCESSES = ("fork", "vfork", "execve", "execveat")
UNCOUNTED_MEMORY = ("shmget", "msgget", "semget", "mq_open", "memfd_secret", "io_uring_setup")
COVERT_CHANNELS = ("add_key", "request_key", "keyctl", "flock", "inotify_init", "inotify_init1", "fanotify_init")
# these change a file that other ranks see: a device, or the memory that holds a large message
FILE_ATTRIBUTES = tuple(
    "utime utimes futimesat utimensat utimensat_time64 chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat".split()
)
SOCKETS = ("socket", "socketpair")  # a rank keeps the socket that it started with
KERNEL_SURFACE = ("bpf", "perf_event_open", "userfaultfd", "ptrace", "process_vm_readv", "process_vm_writev")

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(0)
_EQUAL, _GREATER, _MASKED = 4, 6, 7  # SCMP_CMP_EQ, _GT, _MASKED_EQ
_CLONE_THREAD = 0x10000
# commands of fcntl: locks, owners and signals (5 to 16), locks of open files (36 to 38), leases and notices (1024 to 1026)
_FCNTL_REFUSED = (*range(5, 17), 36, 37, 38, 1024, 1025, 1026)
_FCNTL_LAST_ALLOWED = 1034  # F_GET_SEALS; above it are hints that stay with the file


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def program() -> bytes:
    """The filter for this machine: the instructions for `prctl(PR_SET_SECCOMP)`, 8 bytes each.

    A call of another architecture (32 bits, x32) ends the rank. Raises OSError if libseccomp is missing or fails.
    """
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))

    def refuse(name: str, code: int = errno.EPERM, *comparisons: tuple[int, ...]) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            return  # this architecture, or this libseccomp, has no such call
        array = (_Comparison * len(comparisons))(*(_Comparison(*words) for words in comparisons))
        _raise(
            library.seccomp_rule_add_array(context, ctypes.c_uint32(_REFUSE | code), number, len(comparisons), array)
        )

    try:
        for name in (*NEW_PROCESSES, *UNCOUNTED_MEMORY, *COVERT_CHANNELS, *FILE_ATTRIBUTES, *SOCKETS, *KERNEL_SURFACE):
            refuse(name)
        refuse("clone", errno.EPERM, (0, _MASKED, _CLONE_THREAD, 0))
        # a filter can't read the flags of clone3, which are in memory; refused, the C library calls clone
        refuse("clone3", errno.ENOSYS)
        refuse("fcntl", errno.EPERM, (1, _GREATER, _FCNTL_LAST_ALLOWED))
        for command in _FCNTL_REFUSED:
            refuse("fcntl", errno.EPERM, (1, _EQUAL, command))
        fd = os.memfd_create("seccomp")
        try:
            _raise(library.seccomp_export_bpf(context, fd))
            return os.pread(fd, 1 << 16, 0)
        finally:
            os.close(fd)
    finally:
        library.seccomp_release(context)


def _raise(code: int) -> None:
    if code < 0:
        raise OSError(-code, f"libseccomp: {os.strerror(-code)}")
