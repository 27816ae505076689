"""Each chapter, run from top to bottom as its reader would, on a real live world."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from allranks.base.chapters import chapters, find
from allranks.ranks.engines import kernels
from allranks.ranks.engines.forkserver.client import ForkServer
from jupyter_client.provisioning import KernelProvisionerFactory
from nbclient import NotebookClient

pytestmark = [pytest.mark.notebooks, pytest.mark.live, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = [ROOT / chapter.path for chapter in chapters()]
# how a chapter starts its ranks: one on each GPU, or four on the CPU
START = "World()"
# ALLRANKS_TEST_RANKS=2,8 runs the chapters with other world sizes too
RANKS = [int(n) for n in os.environ.get("ALLRANKS_TEST_RANKS", "4").split(",")]
MARK = "ALLRANKS_TEST_MARK"
WIDGET = "application/vnd.jupyter.widget-view+json"


class Executed:
    """A chapter that has been run; `error(name)` and `text(name)` say what the cell of that name gave."""

    def __init__(self, notebook: nbformat.NotebookNode) -> None:
        self.cells = {cell.id: cell for cell in notebook.cells}

    def outputs(self, name: str) -> list:
        return self.cells[name].outputs

    def text(self, name: str) -> str:
        """Everything that the cell showed as plain text, but for how long it took on a slow machine ("the ranks took 4 s")."""
        # what is printed may come in several pieces that end anywhere
        parts = [o.get("text") or o.get("data", {}).get("text/plain", "") + "\n" for o in self.outputs(name)]
        return "".join(part for part in parts if not re.fullmatch(r"the ranks took \d+ s\n", part)).strip()

    def curves(self, name: str) -> dict[str, list[tuple[float, float]]]:
        """The points of each curve of the figures that the cell showed, by label; they follow the theme."""
        shown = [
            output.data for output in self.outputs(name) if "ar-figure" in output.get("data", {}).get("text/html", "")
        ]
        assert shown, f"{name} shows no figure"
        lines = [line.rsplit(": ", 1) for data in shown for line in data["text/plain"].splitlines() if ": " in line]
        return {label: [tuple(map(float, pair.split())) for pair in points.split(", ")] for label, points in lines}

    def by_rank(self, name: str) -> dict[int, str]:
        """What each rank printed in a `%%ranks` cell."""
        found: dict[int, list[str]] = {}
        for rank, line in re.findall(r"^\[rank (\d+)\] (.*)$", self.text(name), flags=re.M):
            found.setdefault(int(rank), []).append(line)
        return {rank: "\n".join(lines) for rank, lines in found.items()}

    def errors(self) -> dict[str, str]:
        """The cells that ended with an error, and its name and message."""
        return {
            name: f"{output.ename}: {output.evalue}"
            for name, cell in self.cells.items()
            for output in cell.get("outputs", ())
            if output.output_type == "error"
        }

    def pids(self, name: str) -> set[int]:
        """The processes in the table that a cell showing `world` printed."""
        return {int(pid) for pid in re.findall(r"^ *\d+ +(\d+) ", self.text(name), flags=re.M)}


def read(chapter: str, ranks: int = 4, **replace: str) -> nbformat.NotebookNode:
    """A chapter for so many ranks on any machine; `replace` maps a cell's name to its new source."""
    notebook = nbformat.read(ROOT / find(chapter).path, as_version=4)
    for cell in notebook.cells:
        cell.source = replace.pop(cell.id, cell.source)
        if cell.cell_type == "code":
            cell.source = cell.source.replace(START, f"World(ranks={ranks})")
            cell.source = cell.source.replace('World(backend="gloo")', f'World(ranks={ranks}, backend="gloo")')
            # how often a call is timed makes a figure steadier, and proves nothing
            if not os.environ.get("ALLRANKS_NIGHTLY"):
                cell.source = re.sub(r"\b(iterations=)(\d+)", lambda m: f"{m[1]}{min(int(m[2]), 4)}", cell.source)
    assert not replace
    return notebook


def source_of(chapter: str) -> Callable[[str], str]:
    """What gives the source of a cell of a chapter, by the cell's name."""
    return lambda name: next(cell.source for cell in read(chapter).cells if cell.id == name)


source = source_of("04_all_reduce")


def folded_code(source: Callable[[str], str], answer: str) -> str:
    """The code of a folded answer."""
    return re.search(r"```python\n(.*?)```", source(answer), flags=re.S).group(1).rstrip()


def filled(source: Callable[[str], str], cell: str, answer: str, hole: str) -> str:
    """A cell with the code of its folded answer in the place of its hole, of which it has one."""
    assert source(cell).count(hole) == 1
    return source(cell).replace(hole, folded_code(source, answer))


def numbers(text: str) -> list[float]:
    """The decimal numbers in a text."""
    return [float(x) for x in re.findall(r"-?\d+\.?\d*(?:e[-+]?\d+)?", text)]


def off_by(text: str) -> float:
    """The number after "off by"."""
    return float(re.search(r"off by (\S+?),?(?:\s|$)", text)[1])


@functools.cache
def fork_server() -> ForkServer:
    """One for all notebooks that this process runs, as `make lab` has one for all kernels. It ends with this process."""
    # as name_to_jupyter does for a process that starts: in this one other tests may have started kernels before
    KernelProvisionerFactory.instance().default_provisioner_name = kernels.NAME
    forkserver = ForkServer.start(lasting=True)
    forkserver.wait_warm()
    return forkserver


def execute(notebook: nbformat.NotebookNode, folder: Path = CHAPTERS[0].parent, warm: bool = True) -> Executed:
    """Runs it in a fresh kernel, then waits until every process that it started is gone.

    With `warm` as under `make lab`: forked from the fork server. Else as in any other Jupyter, where it starts a fork server of its own.
    """
    mark = uuid.uuid4().hex
    shared = {"ALLRANKS_FORKSERVER": str(fork_server().path)} if warm else {}
    client = NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, **shared, MARK: mark})
    assert not remaining(mark)
    return Executed(notebook)


def remaining(mark: str, patience_s: float = 30) -> list[str]:
    """The processes with this mark in their environment, and the fork server's ranks, that patience does not outlast."""
    until = time.monotonic() + patience_s
    while left := [p for p in psutil.process_iter() if marked(p, mark)] + lent():
        if time.monotonic() > until:
            return [f"{p.pid} {' '.join(p.cmdline())}" for p in left]
        time.sleep(0.1)
    return []


def lent() -> list[psutil.Process]:
    """What the fork server forked and has not buried: a fork keeps the server's environment in /proc, so no mark shows."""
    return psutil.Process(fork_server().pid).children(recursive=True) if fork_server.cache_info().currsize else []


def marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:
        return False


def test_the_mark_finds_processes():
    mark = uuid.uuid4().hex
    child = psutil.Popen(["cat"], env={**os.environ, MARK: mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        child.stdin.write(b"here\n")
        child.stdin.flush()
        child.stdout.readline()  # until now it may be nobody yet: exec gives a process its environment last
        assert len(remaining(mark, patience_s=0)) == 1
    finally:
        child.kill()
        child.wait()
    assert not remaining(mark)


@pytest.mark.core
@pytest.mark.parametrize("ranks", RANKS)
def test_start_here(ranks):
    chapter = execute(read("00_start_here", ranks), warm=False)
    total = ranks * (ranks + 1) / 2
    last = ranks - 1

    assert chapter.by_rank("first_all_reduce") == {rank: str(total) for rank in range(ranks)}
    assert chapter.text("reveal_sum").startswith(f"you didn't say; it was {total:g}\n")
    assert chapter.text("mean_loss") == str([2 + last / 2] * ranks)
    assert set(chapter.by_rank("default_device").values()) == {"my device: cpu\ntorch.ones(4): cpu"}

    errors = chapter.errors()
    assert set(errors) == {"one_raises", "one_absent"}
    assert f"Rank {last}: RuntimeError" in errors["one_raises"]
    assert "line 4: batch = batch.reshape(3, 3)" in errors["one_raises"]
    assert chapter.by_rank("one_raises") == {rank: "(8,)" for rank in range(last)}
    assert "rank 0: done" in errors["one_absent"]
    for rank in range(1, ranks):
        assert f"rank {rank}: in dist.all_reduce, float32[1], line 3: dist.all_reduce(x)" in errors["one_absent"]

    before, after = chapter.pids("start_world"), chapter.pids("fresh_world")
    assert len(before) == len(after) == ranks
    assert not before & after
    assert chapter.text("fetched") == str([f"tensor([{total:.0f}.])"] * ranks).replace("'", "")
    there = chapter.by_rank("still_there")
    assert {int(text.split()[1]) for text in there.values()} == before
    assert all(text.endswith(f"x = {total}") for text in there.values())

    assert WIDGET in chapter.outputs("player")[0].data
    assert "it was 6\n" in chapter.text("reveal_messages")


def test_the_function_runs_unchanged_under_torchrun(tmp_path):
    """As the first chapter says, with the lines that it gives."""
    cells = {cell.id: cell.source for cell in read("00_start_here").cells}
    before = re.search(r"```python\n(.*?)```", cells["on_a_cluster"], flags=re.S).group(1)
    function = cells["mean_loss"].split("\n\n\nworld.run")[0]
    script = tmp_path / "script.py"
    script.write_text(
        f"{before}\n{function}\n\n\nprint(f'{{mean_loss(2.0)}}\\n', end='')\ndist.destroy_process_group()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    done = subprocess.run(torchrun, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["2.5", "2.5"], done.stderr


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("solved", [False, True], ids=["released", "solved"])
def test_all_reduce(ranks, solved):
    replace = {}
    if solved:
        replace["ring_all_reduce"] = solved_ring() + "\n\n\ncheck(ring_all_reduce)"
        replace["formula"] = source("formula").replace("return 0", "return 2 * (p - 1) / p * n")
    chapter = execute(read("04_all_reduce", ranks, **replace))

    assert not chapter.errors()

    own = [float(text) for text in chapter.by_rank("own_gradient").values()]
    for text in chapter.by_rank("mean_gradient").values():
        together, alone = (float(line.split()[-1]) for line in text.splitlines())
        assert together == pytest.approx(sum(own) / ranks, abs=2e-4)
        assert together == pytest.approx(alone, abs=2e-4)

    operations = dict(line.split() for line in chapter.by_rank("operations")[0].splitlines())
    assert float(operations["SUM"]) == ranks * (ranks + 1) / 2
    assert float(operations["AVG"]) == (ranks + 1) / 2
    assert (operations["MIN"], operations["MAX"]) == ("1", str(ranks))
    late, early, _ = (line.split()[-1] for line in chapter.by_rank("overflow")[0].splitlines())
    assert late == "inf"
    assert float(early) == pytest.approx(60000, rel=1e-3)  # float16 keeps 11 bits of a sum

    total = ranks * (ranks + 1) // 2
    assert chapter.by_rank("in_place_run")[0] == f"{total}, None"
    assert chapter.by_rank("twice")[0] == str(ranks * total)
    between_ranks, with_notebook, _ = chapter.text("compare_bits").splitlines()
    assert "last rank: 0.0 % differ" in between_ranks
    assert ("0.0 % differ" in with_notebook) == (ranks == 2)  # two numbers can be added in one way only

    rows = re.findall(r"p = (\d), n = 840:  yours +(\S+) +counted +(\d+)", chapter.text("formula"))
    assert [(int(p), int(counted)) for p, _, counted in rows] == [(2, 840), (3, 1120), (4, 1260), (8, 1470)]
    assert all((mine == counted) is solved for _, mine, counted in rows)
    verdict = chapter.text("ring_all_reduce")
    assert ("not yet" in verdict, "The all-gather half is missing" in verdict) == (not solved, not solved)
    assert chapter.text("ring_live") == str([solved] * ranks)

    assert list(chapter.curves("growth").values())[1][-1] == (1024, 2046)
    times = {name.split(" all_reduce")[0]: dict(points) for name, points in chapter.curves("competition").items()}
    assert min(times, key=lambda name: times[name][1e3]) == "recursive doubling"
    assert min(times, key=lambda name: times[name][1e9]) == "ring"
    assert "it was: recursive doubling\n" in chapter.text("reveal_fastest")
    assert "it was 27.1 GB\n" in chapter.text("reveal_answer")
    assert "bytes alone:             135.6 ms" in chapter.text("answer")

    sizes = [1024 * 4**k for k in range(9)]
    found = chapter.curves("figure")
    measured, model = found["measured, median"], found["model"]
    assert [n for n, _ in measured] == [n for n, _ in model] == pytest.approx(sizes)
    assert measured[-1] == pytest.approx(model[-1], rel=1e-5)  # the last point of the model is fitted to
    for (n, seconds), (_, busbw) in zip(measured, chapter.curves("bandwidth")["all_reduce, busbw"], strict=True):
        assert busbw == pytest.approx(n / seconds / 1e9 * 2 * (ranks - 1) / ranks, rel=1e-4)
    assert all(float(text) != ranks for text in chapter.by_rank("dtype").values())


def solved_ring() -> str:
    """The chapter's `ring_all_reduce` with the answer that its folded text gives."""
    function, _ = source("ring_all_reduce").split("\n\n\ncheck(")
    hole = "    # all-gather: your turn"
    assert hole in function
    return function.replace(hole, folded_code(source, "ring_answer"))


def test_the_answer_is_right_and_moves_what_the_schedule_says(tmp_path):
    """The package's ring and the chapter's are one algorithm in two forms."""
    from allranks import check, schedules
    from allranks.ranks.wire import run

    file = tmp_path / "ring.py"
    file.write_text(f"import torch\nimport torch.distributed as dist\n\n\n{solved_ring()}\n")
    namespace: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    function = namespace["ring_all_reduce"]
    assert check(function).passed

    def body():
        import torch

        function(torch.arange(8.0))

    for ranks in (2, 3, 4):
        _, trace, deadlock = run(body, ranks=ranks)
        assert deadlock is None
        sizes = schedules.ring_all_reduce(ranks).chunk_nbytes(8)
        planned = [(m.src, m.dst, 4 * sum(sizes[c] for c in m.chunks)) for m in schedules.ring_all_reduce(ranks).moves]
        sent = [(m.src, m.dst, m.nbytes) for m in trace.messages()]
        for rank in range(ranks):  # the order of one rank's own messages is the algorithm; between ranks there is none
            assert [m for m in sent if m[0] == rank] == [m for m in planned if m[0] == rank]


def folded(cell) -> bool:
    """Whether the notebook hides the source: of a cell that reveals an answer, or holds what the text does not teach."""
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_predictions_are_few_and_their_answers_stand_nowhere_before(path):
    """At most six a chapter, each answered by a cell whose source is folded away; `predictions()` comes last.

    A folded cell says in its first line that it must be run.
    """
    code = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    asked, revealed = (sum(len(re.findall(call, c.source)) for c in code) for call in (r"\bpredict\(", r"\.reveal\("))
    assert asked == revealed <= 6
    assert all(folded(cell) for cell in code if ".reveal(" in cell.source)
    assert all("run this cell" in cell.source.splitlines()[0] for cell in code if folded(cell))
    assert [cell.source for cell in code].count("predictions()") == (asked > 0)


def lines_of_code(cell) -> int:
    """A cell's lines; a call that asks or reveals counts as one, because it holds words and no program."""
    source = re.sub(r"^(\s*)%", r"\1#%", cell.source, flags=re.M)
    calls = [
        (node.lineno, node.end_lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("predict", "reveal")
    ]
    return len(source.splitlines()) - sum(last - first for first, last in calls)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_keep_to_the_style(path):
    """Length as in the style guide; every code cell named, so that an insertion renames none."""
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    lines = sorted(map(lines_of_code, code))
    # sources stand in comments, which nobody sees
    texts = [re.sub("<!--.*?-->", "", c.source, flags=re.S) for c in notebook.cells if c.cell_type == "markdown"]
    words = sum(len(text.split()) for text in texts)
    assert sum(not folded(cell) for cell in code) <= 40
    assert lines[len(lines) // 2] <= 6
    assert lines[-1] <= 25
    assert words <= 2500
    assert all("name" in cell.metadata for cell in notebook.cells)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_the_title_is_the_only_heading_of_its_size(path):
    cells = nbformat.read(path, as_version=4).cells
    texts = [re.sub(r"```.*?```", "", c.source, flags=re.S) for c in cells if c.cell_type == "markdown"]
    assert len([line for text in texts for line in text.splitlines() if line.startswith("# ")]) == 1


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapters_use_every_gpu(path):
    """`World()` has a rank on each GPU; with a number of ranks, GPUs stay idle or the world falls back to the CPU."""
    code = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    for arguments in re.findall(r"\bWorld\(([^)]*)\)", code):
        assert "ranks=" not in arguments
    if "%%ranks" in code or "world.run(" in code:
        on_the_cpu = ('world = World(rules="nccl")', 'world = World(backend="gloo")')  # everywhere
        assert f"world = {START}" in code or any(start in code for start in on_the_cpu)


@pytest.mark.parametrize(
    ("chapter", "cell"),
    [
        ("04_all_reduce", "ring_all_reduce"),
        ("17_all_reduce_algorithms", "doubling_code"),
        ("17_all_reduce_algorithms", "recursive_doubling_all_reduce"),
        ("13_all_gather", "bruck_all_gather"),
        ("14_reduce_scatter", "ring_reduce_scatter"),
    ],
)
def test_ranks_that_swap_do_so_in_one_batch(chapter, cell):
    """On NCCL a single isend may stand in front of the receive that the neighbour waits for."""
    given = source_of(chapter)(cell)
    assert "dist.batch_isend_irecv(" in given
    assert not re.search(r"dist\.i?(send|recv)\(", given)


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_summaries_hold_no_markdown(path):
    """Within a line of HTML it would be shown as it is typed."""
    cells = nbformat.read(path, as_version=4).cells
    summaries = [s for cell in cells for s in re.findall(r"<summary>(.*?)</summary>", cell.source, flags=re.S)]
    assert not [summary for summary in summaries if re.search("[*`]", summary)]


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_no_circle_sends_and_receives_one_by_one(path):
    """On NCCL a lone `isend` may wait for its receiver: a batch of both is for every circle, but where chapters 03 and 42 show it."""
    for cell in nbformat.read(path, as_version=4).cells:
        if not path.stem.startswith(("03_", "42_")):
            assert not re.search(r"= dist\.isend\(.*\n\s*dist\.recv\(", cell.source), cell.id


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_links_within_the_course_resolve(path):
    prose = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]
    assert links
    for link in links:
        assert (path.parent / link.partition("#")[0]).exists(), f"{path.name} links to {link}"
