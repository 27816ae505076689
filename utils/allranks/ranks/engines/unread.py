"""Keeps ipykernel's kernels from reading every module when they start.

They list all modules' files, for a debugger. In a fork this copies 15 MB of memory that it shared: to look at an object writes to it.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any


class _Sys:
    """`sys` as ipykernel's kernels see it: no modules."""

    modules: dict[str, Any] = {}  # noqa: RUF012 - it stays empty

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)


def leave_modules_unread() -> None:
    """Lets the kernel of this process start without the list. Its debugger makes it when somebody begins to debug."""
    from ipykernel import ipkernel

    kernel = ipkernel.IPythonKernel
    begin = kernel.__init__

    def __init__(self: Any, **settings: Any) -> None:
        count = len(sys.modules)  # the kernel's own; what a cell imports comes after them
        begin(self, **settings)  # type: ignore[no-untyped-call]
        try:
            from ipykernel.debugger import Debugger  # prints a warning when it is imported, which the kernel takes
        except ImportError:  # an ipykernel without it lists nothing either
            return

        def files(_: Any) -> list[str]:
            modules = list(itertools.islice(sys.modules.values(), count))
            return [module.__file__ for module in modules if getattr(module, "__file__", None) is not None]  # type: ignore[misc]

        type.__setattr__(Debugger, "kernel_modules", property(files, lambda *_: None))

    vars(ipkernel)["sys"] = _Sys()
    type.__setattr__(kernel, "__init__", __init__)
