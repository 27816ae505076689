"""Which line of the student's an operation comes from, and by which public name it was called."""

from __future__ import annotations

import os
import sys
from types import FrameType, TracebackType

import torch

from allranks.engines.usercode import in_library

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_C10D = os.path.join(_TORCH, "distributed", "distributed_c10d.py")
_NOT_STUDENTS = (_TORCH, "<__array_function__")  # torch may lie elsewhere than installed packages do


class CallSites:
    """Knows the student's files: all that are neither torch's, Python's nor this package's, and the program's own."""

    def __init__(self, filename: str) -> None:
        self.known = {filename: True}

    def is_students(self, filename: str) -> bool:
        """Whether the file is the student's."""
        answer = self.known.get(filename)
        if answer is None:
            answer = self.known[filename] = not (filename.startswith(_NOT_STUDENTS) or in_library(filename))
        return answer

    def of_frame(self, frame: FrameType | None) -> tuple[str | None, str | None, int | None]:
        """(public torch.distributed name, file, line) of the innermost student's frame."""
        name = None
        while frame is not None:
            code = frame.f_code
            if self.is_students(code.co_filename):
                return name, code.co_filename, frame.f_lineno
            if code.co_filename == _C10D:
                name = code.co_name
            frame = frame.f_back
        return name, None, None

    def here(self, depth: int = 2) -> tuple[str | None, str | None, int | None]:
        """`of_frame` for the caller's caller."""
        return self.of_frame(sys._getframe(depth))

    def of_traceback(self, traceback: TracebackType | None) -> tuple[str | None, int | None]:
        """(file, line) of the innermost student's frame that an exception passed."""
        found: tuple[str | None, int | None] = (None, None)
        while traceback is not None:
            if self.is_students(traceback.tb_frame.f_code.co_filename):
                found = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
            traceback = traceback.tb_next
        return found
