"""A verdict in a real JupyterLab: the cause is read, the cycle is drawn, and the button plays the reader's own messages."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.browser

SENDS_FIRST = """import torch
import torch.distributed as dist
from allranks import check

def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    chunks = list(tensor.contiguous().flatten().tensor_split(p))
    for step in range(p - 1):
        dist.send(chunks[(rank - step) % p], (rank + 1) % p)
        buffer = torch.empty_like(chunks[(rank - step - 1) % p])
        dist.recv(buffer, (rank - 1) % p)
        chunks[(rank - step - 1) % p] += buffer
    for step in range(p - 1):
        dist.send(chunks[(rank + 1 - step) % p], (rank + 1) % p)
        dist.recv(chunks[(rank - step) % p], (rank - 1) % p)
    tensor.copy_(torch.cat(chunks).view_as(tensor))

check(ring_all_reduce)"""

# whether the number of a line ends before its code begins
BESIDE = """tr => {
    const range = document.createRange();
    const [number, code] = [...tr.cells].map((cell) => (range.selectNodeContents(cell), range.getBoundingClientRect()));
    return number.right <= code.left;
}"""


# whether the whole player is in the part of the window that shows the notebook
IN_WINDOW = """() => {
    const player = document.querySelector(".ar-player");
    const [box, view] = [player, player.closest(".jp-WindowedPanel-outer")].map((e) => e.getBoundingClientRect());
    return box.top >= view.top - 1 && (box.bottom <= view.bottom + 1 || box.height > view.height);
}"""


def test_a_deadlock_is_explained_drawn_and_played(lab, new_page):
    page = new_page()
    name = lab.write(SENDS_FIRST)
    lab.open(page, name)
    lab.run_all(page)
    said = page.locator(".ar-verdict").first.inner_text()  # a progress bar may have stood before it
    assert "every rank sends before it receives" in said
    assert "line 9" in said, "the line is not the reader's"
    assert page.locator(".jp-OutputArea-output svg").first.is_visible()
    page.get_by_role("button", name="Play my messages").click()
    player = page.locator(".ar-player[data-ready]")
    player.wait_for()
    assert "rank 0" in player.inner_text()
    page.wait_for_function(IN_WINDOW, timeout=60_000)
    marked = page.locator(".ar-verdict .code .marked")
    assert "dist.send(chunks[(rank - step) % p], (rank + 1) % p)" in marked.inner_text(), "the card shows the line"
    page.get_by_role("button", name="Beside the right schedule").click()
    both = page.locator(".ar-player.ar-compare[data-ready]")
    both.wait_for()
    assert both.locator(".ar-half-title").all_inner_texts()[1].startswith("The right schedule")
    assert page.locator(".ar-player").count() == 1, "it takes the place of the other one"
    lab.close_sessions()


def test_the_numbers_of_lines_stand_beside_the_code(lab, new_page):
    """A card without a player is plain output, in which JupyterLab gives tables a fixed layout."""
    page = new_page()
    lab.open(
        page,
        lab.write(
            "from allranks import check\n\ndef ring_shift(tensor, k):\n    raise NotImplementedError()\n\ncheck(ring_shift)"
        ),
    )
    lab.run_all(page)
    assert "Write the function" in page.locator(".ar-verdict").inner_text()
    assert page.locator(".ar-verdict .code .marked").evaluate(BESIDE), "the number stands on the code"
    lab.close_sessions()
