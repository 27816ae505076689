"""Whether this process is a notebook's kernel. Asks what is loaded and imports nothing.

A thread that imports part of IPython while another thread imports the rest may wait for it for ever, or get a _DeadlockError;
`import ipyparallel` imports IPython too. Who is in a notebook has all of IPython loaded already.
"""

from __future__ import annotations

import sys
from typing import Any


def ipython_shell() -> Any:
    """The IPython shell of this process, or None."""
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    return shell.instance() if shell is not None and shell.initialized() else None


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    return getattr(ipython_shell(), "kernel", None) is not None
