"""Whether this process is a notebook's kernel. Looks at the loaded modules and imports nothing.

If two threads import parts of IPython at the same time, one may wait for ever or get a _DeadlockError; `import
ipyparallel` imports IPython too. In a notebook, all of IPython is loaded already, so nothing must be imported to find
out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def ipython_shell() -> Any:
    """The IPython shell of this process, or None."""
    shell = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    return shell.instance() if shell is not None and shell.initialized() else None


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    return getattr(ipython_shell(), "kernel", None) is not None


def notebook_file() -> Path | None:
    """The file of this kernel's notebook, as a Jupyter server or VS Code names it; None where nobody does."""
    shell = ipython_shell()
    if getattr(shell, "kernel", None) is None:
        return None
    named = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__") or ""
    path = Path(str(named))
    return path if path.suffix == ".ipynb" and path.is_absolute() and path.is_file() else None
