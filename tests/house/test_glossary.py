"""Each term of the glossary: two lines, in order, with a chapter that exists and speaks of it."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
SECTIONS = re.split(r"^## ", (DOCS / "glossary.md").read_text(encoding="utf-8"), flags=re.M)[1:]
ENTRIES = [entry for section in SECTIONS for entry in section.strip().split("\n\n")[1:]]


def words(text: str) -> str:
    """For comparison: small letters, hyphens as spaces."""
    return re.sub(r"[-‐\s_]+", " ", text.lower())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.split("**")[1])
def test_an_entry_has_two_lines_and_the_chapter_that_explains_it(entry):
    lines = entry.splitlines()
    assert len(lines) == 2 and all(len(line) <= 240 for line in lines)
    bold, _, meaning = lines[0].partition(": ")
    terms = [part.split("(")[0].strip() for name in re.findall(r"\*\*(.+?)\*\*", bold) for part in name.split(",")]
    assert terms and meaning.endswith((".", ";"))
    ((title, link),) = re.findall(r" \[([^\]]+)\]\(([^)#]+)\)$", lines[1])
    target = DOCS / link
    assert target.exists(), f"{link} is not there"
    if target.suffix == ".ipynb":
        script = DOCS.parent / "chapters" / "source" / target.resolve().parent.name / f"{target.stem}.py"
        text = script.read_text(encoding="utf-8")
        heading = re.search(r"^# # (.+)$", text, flags=re.M).group(1)
        assert words(title) == words(heading), f"the chapter is called {heading}"
        known = words(re.sub(r"^# ?", "", text, flags=re.M))
        greek = {"α": "alpha", "β": "beta", "γ": "gamma"}
        assert any(words(greek.get(term, term)) in known for term in terms), f"{link} does not speak of {terms}"


def test_no_term_is_explained_twice():
    terms = [name.strip() for entry in ENTRIES for name in entry.split("**")[1].split(",")]
    assert len(terms) > 50 and len(set(terms)) == len(terms)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.splitlines()[0])
def test_terms_are_in_alphabetical_order(section):
    terms = [entry.split("**")[1].lower() for entry in section.strip().split("\n\n")[1:]]
    greek = str.maketrans({"α": "1", "β": "2", "γ": "3"})
    assert [t.translate(greek) for t in terms] == sorted(t.translate(greek) for t in terms)
