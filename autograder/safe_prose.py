"""A submission's prose, made harmless before formgrader or a feedback page shows it.

Markdown may hold HTML, and HTML may hold scripts; in formgrader these would run in the browser of somebody who may
change every grade. The files themselves are left as they are.
"""

from __future__ import annotations

import re

from nbconvert.preprocessors.sanitize import SanitizeHTML
from nbformat import NotebookNode

_RUNS = re.compile(r"(javascript|vbscript|data)(\s*(?::|&colon;|&#0*58;?|&#x0*3a;?))", re.IGNORECASE)


class SafeProse(SanitizeHTML):
    """Escapes the HTML in text cells and breaks links that run something. Code cells hold only what the grader wrote."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """The cell, harmless."""
        if cell.cell_type == "code":
            return cell, resources
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = _RUNS.sub("\\1\N{ZERO WIDTH SPACE}\\2", cell.source)
        cell.pop("attachments", None)
        return cell, resources
