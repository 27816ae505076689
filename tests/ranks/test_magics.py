"""`%%ranks` as a notebook sees it: a real kernel executes the cells, and what it displays is read."""

import re

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.live

CELLS = {
    "without a world": "import allranks\n",
    "no world": "%%ranks\nprint(1)",
    "start": "from allranks import World\nworld = World(ranks=3)\nworld",
    "sum": (
        "%%ranks\nx = torch.full((2,), float(rank), device=device)\ndist.all_reduce(x)\n"
        "print(f'rank {rank} of {world_size}')\nx"
    ),
    "kept": "%%ranks\nprint(x.tolist())",
    "silent": "%%ranks\ny = 1",
    "figure": (
        "%%ranks\nimport matplotlib.pyplot as plt\n%matplotlib inline\nfrom IPython.display import display, HTML\n"
        "fig = plt.figure(figsize=(1, 1)); plt.plot([rank, 1])\ndisplay(fig); plt.close(fig)\n"
        "display(HTML(f'<em>bold {rank}</em>'))"
    ),
    "escaped": "%%ranks\nprint('<script>alert(1)</script>')",
    "same error": "%%ranks\n\nz = 1 / 0",
    "one rank fails": "%%ranks\nif rank == 1:\n    raise ValueError('boo')\ndist.barrier()",
    "fresh": "%%ranks\nprint('x' in globals(), rank)",
    "syntax": "%%ranks\nok = 1\ndef f(:\n    pass",
    "warned": "%%ranks\nz = 1 is 1",
    "await": "%%ranks\nimport asyncio\nawait asyncio.sleep(0)",
    "options": "%%ranks --soon\n1",
    "bad deadline": "%%ranks --deadline 0\n1",
    "deadline": "%%ranks --deadline 1.5\nimport time\ntime.sleep(rank * 60)",
    "megabytes": "%%ranks\nprint('m' * 3_000_000)",
    "exit": "%%ranks\nimport os\nif rank == 2: os._exit(5)\ndist.barrier()",
    "run prints": "world.run(lambda: print('from run'))",
    "pids": "print(*world.pids)",
    "stop": "world.stop()",
    "after stop": "%%ranks\n1",
    "zero": "World(ranks=0)",
    "too many": "World(ranks=10_000)",
}


@pytest.fixture(scope="module")
def outputs():
    """The outputs of every cell, by its name; the kernel has ended when they are read."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS.values()])
    NotebookClient(notebook, timeout=120, allow_errors=True, kernel_name="python3").execute()
    return dict(zip(CELLS, (cell.outputs for cell in notebook.cells), strict=True))


def text_of(outputs) -> str:
    return "\n".join(
        "\n".join(o.traceback) if o.output_type == "error" else o.get("text") or o.data["text/plain"] for o in outputs
    )


def html_of(outputs) -> str:
    return "\n".join(o.data.get("text/html", "") for o in outputs if "data" in o)


def test_importing_the_package_is_enough_and_says_nothing(outputs):
    assert outputs["without a world"] == []


def test_without_a_world_one_sentence_says_how_to_start_one(outputs):
    assert text_of(outputs["no world"]) == (
        "WorldError: No world is running. Start one first:  from allranks import World; world = World(ranks=4)"
    )


def test_the_start_ends_in_one_line_and_the_table(outputs):
    line, table = outputs["start"]
    assert re.fullmatch(r"3 ranks: ready in \d+\.\d s \(gloo\)\.", line.data["text/plain"])
    assert table.data["text/html"].count("<tr>") == 4


def test_outputs_stand_side_by_side_one_column_a_rank(outputs):
    assert len(outputs["sum"]) == 1
    assert re.findall(r"<b [^>]*>(rank \d)</b><pre>([^<]*)</pre>", html_of(outputs["sum"])) == [
        (f"rank {r}", f"rank {r} of 3\ntensor([3., 3.])") for r in range(3)
    ]
    assert "[rank 2] tensor([3., 3.])" in text_of(outputs["sum"])


def test_variables_stay_on_the_ranks_and_a_silent_cell_shows_nothing(outputs):
    assert text_of(outputs["kept"]).splitlines() == [f"[rank {r}] [3.0, 3.0]" for r in range(3)]
    assert outputs["silent"] == []


def test_figures_and_html_of_ranks_are_shown_and_text_is_escaped(outputs):
    shown = html_of(outputs["figure"])
    assert shown.count("data:image/png;base64,") == 3
    assert all(f"<em>bold {r}</em>" in shown for r in range(3))
    assert "<script>" not in html_of(outputs["escaped"])
    assert "&lt;script&gt;" in html_of(outputs["escaped"])


def test_an_error_on_all_ranks_is_shown_once_with_the_notebooks_line(outputs):
    assert text_of(outputs["same error"]).splitlines() == [
        "All 3 ranks: ZeroDivisionError: division by zero",
        "    line 3: z = 1 / 0",
    ]


def test_a_rank_that_fails_is_named_and_so_are_those_that_wait_for_it(outputs):
    said = text_of(outputs["one rank fails"])
    assert "Rank 1: ValueError: boo\n    line 3: raise ValueError('boo')" in said
    assert "rank 0: in dist.barrier, line 4: dist.barrier()" in said
    assert text_of(outputs["fresh"]).splitlines() == [f"[rank {r}] False {r}" for r in range(3)]


def test_a_syntax_error_is_found_before_any_rank_runs_the_cell(outputs):
    assert text_of(outputs["syntax"]) == (
        "WorldError: This cell is not valid Python, so no rank ran it: invalid syntax.\n    line 3: def f(:"
    )
    assert text_of(outputs["await"]) == (
        "WorldError: This cell is not valid Python, so no rank ran it: 'await' outside function.\n    line 3: await asyncio.sleep(0)"
    )


def test_a_warning_of_the_compiler_is_the_ranks(outputs):
    assert [o.output_type for o in outputs["warned"]] == ["display_data"]
    assert all(f"[rank {r}] " in text_of(outputs["warned"]) for r in range(3))


@pytest.mark.parametrize(
    "name, words",
    [
        ("options", r"WorldError: %%ranks: unrecognized arguments: --soon\. Usage"),
        ("bad deadline", "WorldError: deadline=0.0: it is a number of seconds above 0"),
        ("deadline", r"within 1\.5 s(.|\n)*rank 1: computing, line 3: time\.sleep\(rank \* 60\)(.|\n)*rank 0: done"),
        ("exit", "Rank 2 exited with code 5"),
        ("after stop", "WorldError: No world is running"),
        ("zero", "DeviceError: ranks=0: a world needs at least one rank"),
        ("too many", "DeviceError: ranks=10000: a live world has at most 64"),
    ],
)
def test_what_goes_wrong_is_said_without_our_insides(outputs, name, words):
    said = text_of(outputs[name])
    assert re.search(words, said), said
    assert "Traceback" not in said and "allranks/" not in said


def test_megabytes_are_cut(outputs):
    assert len(html_of(outputs["megabytes"])) < 100_000
    assert "characters left out" in html_of(outputs["megabytes"])


def test_prints_of_run_are_shown_by_rank(outputs):
    assert "[rank 1] from run" in text_of(outputs["run prints"])


def test_no_rank_outlives_the_kernel(outputs):
    pids = [int(pid) for pid in text_of(outputs["pids"]).split()]
    assert len(pids) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)
