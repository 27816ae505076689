"""Outside JupyterLab: Notebook 7, with a plain kernel of ipykernel and its own widget manager."""

from __future__ import annotations

import pytest
from jupyter_lab import _OPENED, ask, running_lab

pytestmark = pytest.mark.browser

CELLS = (
    "import os, time\nfrom allranks import World, check, predict\nfrom allranks.show.player import Player\n"
    "from allranks.schedules import ring_all_reduce\nPlayer(ring_all_reduce(4), nbytes=4096, speed=4)",
    "guess = predict('How many GB?', low=1, high=1000, unit='GB', log=True, title='GB', name='gigabytes')\nguess",
    "guess.reveal(27.125, 'Sums are made on the way.')",
    "def slow():\n    import torch.distributed as dist\n"
    "    while dist.get_rank() == 0 and not os.path.exists(GO_ON):\n        time.sleep(0.05)\n"
    "    dist.barrier()\nworld = World(ranks=2)\nworld.run(slow)\nworld.stop()",
    "def ring_shift(tensor, k):\n    return tensor\ncheck(ring_shift)",
)


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory):
    """A running Notebook 7."""
    pytest.importorskip("notebook")
    with running_lab(tmp_path_factory.mktemp("notebook7"), "notebook") as found:
        yield found


def use(page) -> None:
    """Plays, answers a prediction and plays one's own messages, with what the page shows."""
    page.locator(".ar-player [data-do=play]").first.click()
    page.wait_for_selector('.ar-player[data-step="6"][data-playing="false"]')
    question = page.locator("[data-predict=question]").last
    question.get_by_role("textbox").fill("434")
    question.get_by_role("button", name="Lock in").click()
    page.locator("[data-predict=reveal]").last.get_by_text("you said 434 GB").wait_for()
    assert "Your line" not in page.locator(".ar-verdict").last.inner_text(), (
        "no line is at fault where nothing was sent"
    )


def test_notebook_7_plays_asks_and_shows_ranks_that_wait(notebook7, chromium):
    context, thrown = chromium.new_context(viewport={"width": 1400, "height": 900}), []
    page = context.new_page()
    page.set_default_timeout(60_000)
    go_on = notebook7.root / "go on"
    first, *cells = CELLS
    first = f"GO_ON = {str(go_on)!r}\n{first}"
    # Notebook 7 itself throws while it reads its settings: only errors of the widgets' modules count
    page.on("pageerror", lambda error: thrown.append(str(error.stack)))
    page.goto(f"{notebook7.url}notebooks/{notebook7.write(first, *cells)}?token={notebook7.token}")
    page.wait_for_function("() => window.jupyterapp?.shell?.currentWidget?.sessionContext", timeout=60_000)
    page.evaluate(_OPENED)
    page.evaluate("() => { window.ran = window.jupyterapp.commands.execute('notebook:run-all-cells') }")
    page.locator(".ar-panel", has_text="waiting in").first.wait_for(timeout=60_000)
    go_on.touch()
    page.evaluate("() => window.ran")
    use(page)
    assert ask(page, "print(guess.value)") == "434"
    assert not [stack for stack in thrown if "blob:" in stack]
    context.close()
    notebook7.close_sessions()
