"""The last phase: chapters, cell by cell, as a reader would run them."""

from __future__ import annotations

import importlib.util
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

from allranks.base.chapters import find
from allranks.machine.verify.steps import Context, Step, StepFailed, StepSkipped

CHAPTERS = (
    "03_point_to_point",
    "45_when_it_hangs",
    "24_tensor_parallel",
    "16_barrier_and_groups",
    "22_sharded_training",
    "21_overlap_and_bucketing",
    "04_all_reduce",
)
# nbclient's own: a cell with this tag may raise an error, and the chapters show what follows
RAISES = "raises-exception"
NEEDED = ("nbclient", "ipykernel", "ipywidgets", "anywidget", "matplotlib")
WORLD = re.compile(r"\bWorld\((?:ranks=\d+)?\)")
CELL_S = 100


def chapter(name: str, context: Context) -> dict[str, Any]:
    """Runs a chapter with this run's ranks. An error in a cell that is not meant to raise one fails the step."""
    plan = context.plan
    if plan.course is None:
        raise StepSkipped("There is no folder chapters/ here; run this in the course's checkout.")
    path = Path(plan.course) / find(name).path
    if not path.is_file():
        raise StepSkipped(f"The course's folder has no {find(name).path}.")
    if lacking := [package for package in NEEDED if importlib.util.find_spec(package) is None]:
        raise StepSkipped(f"Chapters need {', '.join(lacking)}: pip install -c constraints.txt -e '.[lab]' nbclient")
    context.need(2, "A chapter")
    context.stop_world()
    return run_notebook(path, context)


def in_this_world(source: str, context: Context) -> str:
    """The cell with this run's ranks in place of those that it starts: `World()` and `World(ranks=4)`."""
    plan = context.plan
    shared = "" if plan.gpus is None else f", gpus={plan.gpus}"
    return WORLD.sub(f"World(ranks={plan.ranks}, backend={plan.backend!r}{shared})", source)


def run_notebook(path: Path, context: Context) -> dict[str, Any]:
    """Executes a notebook cell by cell; keeps how far it came and what each cell raised. Raises StepFailed."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = in_this_world(cell.source, context)
    code = [(number, cell) for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    client = NotebookClient(
        notebook, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.reset_execution_trackers()
    raised: dict[str, str] = {}
    expected: dict[str, str] = {}
    slowest = ("", 0.0)
    # the last: cells that may raise an error, and did not with this backend
    context.note(cells=len(code), done=0, errors=raised, meant_errors=expected, meant_without_error=[])
    with client.setup_kernel():
        for done, (number, cell) in enumerate(code):
            context.note(cell=cell.id, done=done)
            if context.left_s < 2:
                break
            client.timeout = max(1, min(CELL_S, int(context.left_s)))
            began, meant = time.monotonic(), RAISES in cell.metadata.get("tags", ())
            try:
                client.execute_cell(cell, number)
            except CellExecutionError as error:
                raised[cell.id] = f"{error.ename}: {error.evalue}"[:600]
            except CellTimeoutError:
                if client.timeout == CELL_S:  # else the step's time is over, which is no fault of the cell
                    raised[cell.id] = f"The cell did not end within {client.timeout} s."
                break  # its kernel is still in it
            except DeadKernelError:
                raised[cell.id] = "The notebook's kernel died."
                break
            errors = [output for output in cell.outputs if output.output_type == "error"]
            if meant and errors:
                expected[cell.id] = f"{errors[0].ename}: {errors[0].evalue}"[:600]
            elif meant:
                context.figures["meant_without_error"].append(cell.id)
            took = time.monotonic() - began
            slowest = max(slowest, (cell.id, took), key=lambda pair: pair[1])
        else:
            context.note(done=len(code))
    context.note(cell="", slowest=f"{slowest[0]}, {slowest[1]:.1f} s")
    if raised:
        first = next(iter(raised))
        raise StepFailed(
            f"{len(raised)} of {len(code)} cells raised an error that is not meant, first {first}: {raised[first]}"
        )
    if context.figures["done"] < len(code):
        raise StepSkipped(
            f"The time was over after {context.figures['done']} of {len(code)} cells, which were right; take more --minutes."
        )
    return {}


STEPS = tuple(Step("chapters", name, partial(chapter, name), 150) for name in CHAPTERS)
