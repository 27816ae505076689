"""Every relative link in chapters, labs and documents leads to a file of the repository, and every anchor to a
heading.
"""

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        ".github/**/*.md",
        "chapters/*/*.ipynb",
        "labs/*/*.ipynb",
        "solutions/*/*.ipynb",
    )
    for path in ROOT.glob(pattern)
    if ".ipynb_checkpoints" not in path.parts
)
LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"")
OUTSIDE = re.compile(r"^([a-z][a-z0-9+.-]*:|//)", re.I)


def prose(path: Path) -> str:
    """The text that readers see, without code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def links(path: Path) -> list[str]:
    """Its links that stay in the repository."""
    found = [one or other for one, other in LINK.findall(prose(path))]
    return [link for link in found if not OUTSIDE.match(link)]


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, by GitHub's rule (small letters, hyphens for blanks) and by Jupyter's
    (hyphens only).
    """
    headings = re.findall(r"^#{1,6} (.+?)\s*$", prose_with_code(path), flags=re.M)
    plain = [re.sub(r"[`*]", "", heading) for heading in headings]
    github = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}
    return github | {heading.replace(" ", "-") for heading in plain}


def prose_with_code(path: Path) -> str:
    """As `prose`, with what stands in backticks inside a line, which headings may have."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return re.sub(r"^(`{3,}).*?^\1", "", text, flags=re.S | re.M)


def broken(path: Path) -> list[str]:
    """One sentence for each link of a page that leads nowhere."""
    faults = []
    for link in links(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists():
            faults.append(f"{link}: there is no {name}")
        elif not target.is_relative_to(ROOT) and target != path:
            faults.append(f"{link}: that is outside the repository")
        elif anchor and target.suffix in (".md", ".ipynb") and anchor not in anchors(target):
            faults.append(f"{link}: {target.name} has no heading {anchor}")
    return faults


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    assert broken(path) == []


def reached(start: Path) -> set[Path]:
    """Every page to which links lead from this one, directly or not."""
    found, new = set(), {start}
    while new:
        found |= new
        targets = {(page.parent / link.partition("#")[0]).resolve() for page in new for link in links(page)}
        new = {target for target in targets if target in PAGES} - found
    return found


def test_every_page_is_reached_from_the_readme():
    """A page that no other one names is a page that nobody reads. Records of tests and the instructors' notebooks
    are data.
    """
    wanted = {page for page in PAGES if not page.is_relative_to(ROOT / "solutions") and ".github" not in page.parts}
    lost = wanted - reached(ROOT / "README.md")
    assert sorted(str(page.relative_to(ROOT)) for page in lost) == []


def test_there_are_links_to_check():
    assert sum(len(links(path)) for path in PAGES) > 200


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("See [it](gone.md).", "there is no gone.md"),
        ("See [it](#not-here).", "has no heading not-here"),
        ('<img src="gone.png">', "there is no gone.png"),
        ("# A `b` c!\n\n[up](#a-b-c) and [out](https://example.org) `[code](x.md)`", None),
    ],
)
def test_a_broken_link_is_found(tmp_path, text, said):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    faults = broken(page)
    assert len(faults) == (said is not None)
    assert said is None or said in faults[0]
