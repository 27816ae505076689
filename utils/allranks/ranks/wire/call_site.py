"""Which line of the student's an operation comes from, and by which public name it was called.

A line inside a helper function is told with the line that led to it: [line, the caller's line]."""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

import torch
from torch.distributed import c10d_logger, distributed_c10d

from allranks.ranks.engines import older_torch
from allranks.ranks.engines.usercode import in_library

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
# the variables of the modules that lie between the wire and who called it
_C10D, _OLDER, _LOGGER = vars(distributed_c10d), vars(older_torch), vars(c10d_logger)
_NOT_STUDENTS = (_TORCH, "<__array_function__")  # torch may lie elsewhere than installed packages do
_DEEPEST = 50  # frames looked at for the caller's line: a recursion must not make each operation slow

SaidLine = int | list | None  # as a rank says it; `requests.py` reads it


class CallSites:
    """Knows the student's files: all that are neither torch's, Python's nor this package's, and the program's own.

    `caller` are the variables of the module whose function calls the student's: nothing of the student's is outside it. A frame's code
    is asked for where nothing else tells: Python tells the process's audit hook of each time.
    """

    def __init__(self, filename: str, caller: dict | None = None) -> None:
        self.known = {filename: True}
        self.caller = caller

    def is_students(self, filename: str) -> bool:
        """Whether the file is the student's."""
        answer = self.known.get(filename)
        if answer is None:
            answer = self.known[filename] = not (filename.startswith(_NOT_STUDENTS) or in_library(filename))
        return answer

    def of_frame(self, frame: FrameType | None) -> tuple[str | None, str | None, SaidLine]:
        """(public torch.distributed name, file, line) of the innermost student's frame."""
        public, file, line = None, None, None
        while frame is not None:
            scope = frame.f_globals
            if scope is _C10D:
                public = frame
            elif scope is not _OLDER and scope is not _LOGGER:
                file = frame.f_code.co_filename
                if self.is_students(file):
                    line = self._with_caller(frame, file)
                    break
                file = None
            frame = frame.f_back
        return (None if public is None else public.f_code.co_name), file, line

    def _with_caller(self, inner: FrameType, file: str) -> SaidLine:
        """The frame's line, with the line of the outermost student's frame of the same file if that is another one."""
        outer, frame = inner, inner.f_back
        for _ in range(_DEEPEST):
            if frame is None or frame.f_globals is self.caller:
                break
            code = frame.f_code
            if code.co_filename == file and code.co_name != "<module>":
                outer = frame
            frame = frame.f_back
        if outer is inner:
            return inner.f_lineno
        return [inner.f_lineno, outer.f_lineno]

    def here(self, depth: int = 2) -> tuple[str | None, str | None, SaidLine]:
        """`of_frame` for the caller's caller."""
        return self.of_frame(sys._getframe(depth))

    def of_traceback(self, traceback: TracebackType | None) -> tuple[str | None, SaidLine]:
        """(file, line) of the innermost student's frame that an exception passed."""
        passed: list[tuple[str, int, str]] = []
        while traceback is not None:
            code = traceback.tb_frame.f_code
            if self.is_students(code.co_filename):
                passed.append((code.co_filename, traceback.tb_lineno, code.co_name))
            traceback = traceback.tb_next
        if not passed:
            return None, None
        file, line, _ = passed[-1]
        outer = next(p for p in passed if p[0] == file and (p[2] != "<module>" or p is passed[-1]))
        return file, line if outer is passed[-1] else [line, outer[1]]
