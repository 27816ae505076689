"""nbgrader's submit on the hub: a notebook that the grader would refuse is not handed in, and the student is told why."""

from __future__ import annotations

from pathlib import Path

from allranks.course.handin import ready
from nbgrader.exchange.default import ExchangeSubmit


class Submit(ExchangeSubmit):
    """nbgrader's own, after the check of `allranks.ready` on each notebook of the lab."""

    def init_src(self) -> None:
        """Finds the folder. Fails with one sentence for the first notebook that would be refused."""
        super().init_src()
        for path in sorted(Path(self.src_path).glob("*.ipynb")):
            if not (found := ready(path)):
                self.fail(f"Nothing was handed in. {found.name} would be refused: {found.refused}")
