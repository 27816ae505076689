"""The system calls that are refused to a rank in the sandbox, as a seccomp filter. libseccomp builds it from names.

Namespaces, limits and missing capabilities restrict a rank already. The filter closes what they leave open:

- new processes and programs;
- memory that no limit of a process counts;
- data in the kernel that another rank could read: key rings; locks, hints, times, modes and attributes of files that
  all ranks see; futexes on the pages of such files; what is known of these pages (in memory or not, on which node);
- what counts for all processes of a user or of the machine: descriptors that are sent over a socket and not received,
  the memory of pipes, huge pages, loads;
- the scheduling of other ranks: priorities and processors;
- calls that are newer than this list.

Everything else is allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os

NEW_PROCESSES = ("fork", "vfork", "execve", "execveat")
UNCOUNTED_MEMORY = ("shmget", "msgget", "semget", "mq_open", "memfd_secret", "io_uring_setup")
COVERT_CHANNELS = ("add_key", "request_key", "keyctl", "flock", "inotify_init", "inotify_init1", "fanotify_init")
# whether a page of a file is in memory, and what takes it out
PAGES = ("mincore", "cachestat", "preadv2", "pwritev2", "fadvise64", "readahead", "process_madvise", "process_mrelease")
NODES = ("mbind", "set_mempolicy", "get_mempolicy", "move_pages", "migrate_pages", "set_mempolicy_home_node")
SCHEDULING = tuple("sched_setaffinity sched_setscheduler sched_setparam sched_setattr setpriority ioprio_set".split())
SHARED_COUNTERS = ("sysinfo", "pipe", "pipe2")
NEW_NAMESPACES = ("unshare", "setns")
# these change a file that other ranks see: a device, or the memory that holds a large message
FILE_ATTRIBUTES = tuple(
    "utime utimes futimesat utimensat utimensat_time64 chmod fchmod fchmodat fchmodat2 chown lchown fchown fchownat "
    "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat".split()
)
SOCKETS = ("socket", "socketpair")  # a rank keeps the socket that it started with
KERNEL_SURFACE = ("bpf", "perf_event_open", "userfaultfd", "ptrace", "process_vm_readv", "process_vm_writev")

REFUSED = (
    *NEW_PROCESSES,
    *UNCOUNTED_MEMORY,
    *COVERT_CHANNELS,
    *PAGES,
    *NODES,
    *SCHEDULING,
    *SHARED_COUNTERS,
    *NEW_NAMESPACES,
    *FILE_ATTRIBUTES,
    *SOCKETS,
    *KERNEL_SURFACE,
)

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(0)
_EQUAL, _GREATER, _MASKED = 4, 6, 7  # SCMP_CMP_EQ, _GT, _MASKED_EQ
_CLONE_THREAD = 0x10000
# Calls with the same number on each architecture; an old libseccomp does not know the names. From _NEWEST on, they are
# refused as if the kernel were older.
_NUMBERS = {
    "process_madvise": 440,
    "process_mrelease": 448,
    "set_mempolicy_home_node": 450,
    "cachestat": 451,
    "fchmodat2": 452,
}
_FUTEX_CALLS = (449, 454, 455, 456)
_NEWEST = range(453, 512)
_FUTEX_WAITS, _FUTEX_LAST, _FUTEX_OPERATION = (0, 9), 13, 0xFF  # the mask holds FUTEX_PRIVATE_FLAG too
_MADVISE_REFUSED = (12, 20, 21, 100, 101)  # merging, taking out, offlining pages
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 4
# commands of fcntl: locks, owners and signals (5 to 16), locks of open files (36 to 38), leases and notices (1024 to 1026),
# the size of a pipe (1031), which counts for all processes of a user
_FCNTL_REFUSED = (*range(5, 17), 36, 37, 38, 1024, 1025, 1026, 1031)
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

    def refuse(name: str | int, code: int = errno.EPERM, *comparisons: tuple[int, ...]) -> None:
        number: int = name if isinstance(name, int) else library.seccomp_syscall_resolve_name(name.encode())
        if number < 0:
            number = _NUMBERS.get(str(name), number)
        if number < 0:
            return  # this architecture, or this libseccomp, has no such call
        array = (_Comparison * len(comparisons))(*(_Comparison(*words) for words in comparisons))
        _raise(
            library.seccomp_rule_add_array(context, ctypes.c_uint32(_REFUSE | code), number, len(comparisons), array)
        )

    try:
        for name in REFUSED:
            refuse(name)
        refuse("clone", errno.EPERM, (0, _MASKED, _CLONE_THREAD, 0))
        # a filter can't read the flags of clone3, which are in memory; refused, the C library calls clone
        refuse("clone3", errno.ENOSYS)
        refuse("fcntl", errno.EPERM, (1, _GREATER, _FCNTL_LAST_ALLOWED))
        for command in _FCNTL_REFUSED:
            refuse("fcntl", errno.EPERM, (1, _EQUAL, command))
        for operation in range(_FUTEX_LAST + 1):
            # The C library joins a thread by a wait of this kind. It tries again on EAGAIN; any other error ends the program.
            code = errno.EAGAIN if operation in _FUTEX_WAITS else errno.EPERM
            refuse("futex", code, (1, _MASKED, _FUTEX_OPERATION, operation))
        for number in {*_FUTEX_CALLS, *_NEWEST}:
            refuse(number, errno.ENOSYS)
        for advice in _MADVISE_REFUSED:
            refuse("madvise", errno.EPERM, (2, _EQUAL, advice))
        refuse("mmap", errno.ENOMEM, (3, _MASKED, _MAP_HUGETLB, _MAP_HUGETLB))
        refuse("memfd_create", errno.ENOMEM, (1, _MASKED, _MFD_HUGETLB, _MFD_HUGETLB))
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
