"""What of this package a rank may import while it runs an answer: only what carries messages, not what knows answers.

A schedule of the course, or one of its exercises, would otherwise do the student's work, in the check though not in the marking.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

PACKAGE = __name__.partition(".")[0]
# what runs in a rank beside the answer
SHOWN = ("errors", "notebook", "engines", "memory", "wire", "checking.in_rank")
_RULES = "nccl_rules"  # imported by a rank under NCCL's rules


class _Refusing(MetaPathFinder):
    """Finds none of the course's modules that an answer may not have."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if _is_hidden(name):
            raise ModuleNotFoundError(f"the course's own {name} is not there when an answer is checked", name=name)


def _is_hidden(name: str) -> bool:
    package, _, inner = name.partition(".")
    if package != PACKAGE or not inner:
        return False
    # the packages on the way to one that is shown are there too
    return not any(f"{inner}.".startswith(f"{s}.") or f"{s}.".startswith(f"{inner}.") for s in (*SHOWN, _RULES))


@contextlib.contextmanager
def without_the_course() -> Iterator[None]:
    """Hides the modules, those that this process has imported too. The code that they share with a rank's own goes on."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_hidden(name)}
    package = vars(sys.modules[PACKAGE])
    attributes = {name: package.pop(name) for name in list(package) if f"{PACKAGE}.{name}" in hidden}
    refusing = _Refusing()
    sys.meta_path.insert(0, refusing)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # an answer may have taken it away
            sys.meta_path.remove(refusing)
        sys.modules |= hidden
        package |= attributes
