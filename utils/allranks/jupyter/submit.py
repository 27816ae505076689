"""nbgrader's submit on the hub: a notebook that the grader would refuse is not handed in, and the student is told why."""

from __future__ import annotations

from pathlib import Path

from allranks.course.handin import ready, released
from nbgrader.exchange.default import ExchangeSubmit


class Submit(ExchangeSubmit):
    """nbgrader's own, after the check of `allranks.ready` on the notebooks that are marked, or on all if none of these is there."""

    def init_src(self) -> None:
        """Finds the folder. Fails with one sentence for the first notebook that would be refused."""
        super().init_src()
        folder = Path(self.src_path)
        notebooks = sorted(folder.glob("*.ipynb"))
        given = released(folder.name)
        for path in [path for path in notebooks if path.name in given] or notebooks:
            if not (found := ready(path)):
                self.fail(f"Nothing was handed in. {found.name} would be refused: {found.refused}")
