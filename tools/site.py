"""Builds the executed course as a static site: `make site`, then open site/index.html. No kernel, no network needed.

    make site                     every chapter, executed on live ranks (several minutes the first time)
    make site ARGS=chapters/1_first_hours/04_all_reduce.ipynb
                                  executes only these; the others keep their last outputs, if any
    make site ARGS=--live-only    only the live pages, in which Python runs in the browser (tools/live_site.py)

It executes a chapter again only if the chapter or the package has changed; executed chapters are kept in
build/site/executed. Sphinx with myst-nb makes the pages. They show players as they are without a kernel, and the
choices of other widgets.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import html
import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import nbformat
from allranks.base import chapters as course_map
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
SPHINX = ROOT / "tools" / "sphinx"
WIDGET = "application/vnd.jupyter.widget-view+json"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")
PAGES = ("chapters/*/*.ipynb", "labs/*/*.ipynb", "docs/**/*.md", "CONTRIBUTING.md")
# page: the live pages to which it leads, as (file, words)
LIVE = {
    "chapters/2_collectives/17_all_reduce_algorithms.ipynb": ("schedule", "Write a schedule in this browser"),
    "chapters/4_real_cluster/48_your_own_job.ipynb": ("explain", "Explain a profile in this browser"),
    "chapters/extras/63_can_a_machine_find_it.ipynb": ("race", "Race your own schedule in this browser"),
    "chapters/3_one_model/29_price_a_training_run.ipynb": ("price", "Compute in this browser"),
    "docs/race.md": ("race", "Try it in this browser"),
    "docs/explain.md": ("explain", "Try it in this browser"),
    "docs/cost_model.md": ("price", "Try it in this browser"),
}
# pages that have moved, so that old addresses don't fail: those of the time when all chapters lay in one folder, and
# older ones
MOVED = {
    "chapters/04_scatter.html": "chapters/2_collectives/11_scatter_and_gather.html",
    "chapters/05_gather.html": "chapters/2_collectives/11_scatter_and_gather.html",
    **{
        f"chapters/{chapter.was}.html": chapter.path.with_suffix(".html").as_posix()
        for chapter in course_map.chapters()
        if chapter.was
    },
}
STYLE = """
body {
  --jp-layout-color1: var(--color-background-primary); --jp-layout-color2: var(--color-background-secondary);
  --jp-border-color2: var(--color-background-border); --jp-content-font-color1: var(--color-foreground-primary);
  --jp-ui-font-color1: var(--color-foreground-primary); --jp-ui-font-color2: var(--color-foreground-secondary);
  --mystnb-source-border-color: var(--color-background-border);
  --jp-ui-font-family: var(--font-stack); --jp-code-font-family: var(--font-stack--monospace);
}
.main { min-width: 0; }  /* otherwise a wide table or line of code makes the page wider, not only its own box */
.content { width: min(60em, 100%); min-width: 0; box-sizing: border-box; }
article details { margin: 0.5em 0; padding: 0.3em 0.8em; border-left: 3px solid var(--color-background-border); }
article summary { cursor: pointer; }
.cell_output .output.text_html > table, .cell_output table.dataframe { border-collapse: collapse; }
.cell_output table th, .cell_output table td { padding: 2px 10px; text-align: left; }
.cell_output { overflow-x: auto; }
/* the end of a chapter says itself where to go next, and by the map, not by the number */
.content:has(.m-done) .related-pages { display: none; }
/* the pictures in the texts follow the page's theme, not the system's */
body[data-theme="light"] { color-scheme: light; }
body[data-theme="dark"] { color-scheme: dark; }
p > img[src$="-48.svg"] { vertical-align: middle; }
.ar-watch { margin: 0.4em 0; padding: 0.3em 0.9em; min-height: 36px; font: inherit; color: inherit; background: none;
  cursor: pointer; border: 1px solid var(--color-background-border); border-radius: 6px; }
@media (max-width: 480px) { .ar-watch { min-height: 44px; } }
.guess { color: var(--color-foreground-secondary); font-size: 0.9em; margin: 0.2em 0; }
.guess span { display: inline-block; margin-right: 1.2em; }
"""
# which chapter was opened last, for the front page; and a button that runs once down the ribbons of a collective's
# picture
SCRIPT = r"""
const chapter = /\/chapters\/\w+\/(\d\d_\w+)\.html$/.exec(location.pathname);
if (chapter) try { localStorage.setItem("allranks-chapter", chapter[1]); } catch {}
document.addEventListener("DOMContentLoaded", () => {
  const picture = chapter && document.querySelector('article img[alt^="Before:"]');
  if (!picture || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const traits = { className: "ar-watch", type: "button", textContent: "Watch it go down" };
  const button = Object.assign(document.createElement("button"), traits);
  picture.after(document.createElement("br"), button);
  button.addEventListener("click", () => {
    const cut = (percent) => ({ clipPath: `inset(0 0 ${percent}% 0)` });
    picture.animate([cut(76), cut(0)], { duration: 1200, easing: "ease-in-out" });
  });
});
"""


class SiteError(Exception):
    """The site can't be built; the message says what to fix."""


def fingerprint(notebook: Path, root: Path) -> str:
    """A hash of the notebook and the package: it changes if one of them changes."""
    digest = hashlib.sha256(notebook.read_bytes())
    for path in sorted((root / "utils" / "allranks").rglob("*")):
        if path.suffix in (".py", ".js", ".css", ".json", ".toml"):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@functools.cache
def warm() -> None:
    """Starts a fork server, if possible, from which all later kernels are forked."""
    from allranks.ranks.engines.forkserver.client import ForkServerError
    from allranks.ranks.engines.kernels import warm_for_jupyter

    with contextlib.suppress(ForkServerError):
        warm_for_jupyter()


def executed(notebook: Path, kept: Path, root: Path) -> NotebookNode:
    """The notebook with outputs, from `kept` if nothing has changed, else from a new run. Raises SiteError."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    there = kept / f"{notebook.stem}.{fingerprint(notebook, root)}.ipynb"
    if there.exists():
        return nbformat.read(there, as_version=4)
    print(f"running {notebook.name}", flush=True)
    warm()
    found = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        found,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise SiteError(f"{notebook.name} does not run to its end: {error.ename}: {error.evalue}") from None
    kept.mkdir(parents=True, exist_ok=True)
    for old in kept.glob(f"{notebook.stem}.*.ipynb"):
        old.unlink()
    nbformat.write(found, there)
    return found


def last_run(notebook: Path, kept: Path) -> NotebookNode:
    """The notebook with the outputs of its last run, or without outputs if it was never run."""
    old = sorted(kept.glob(f"{notebook.stem}.*.ipynb"))
    return nbformat.read(old[-1] if old else notebook, as_version=4)


def without_kernel(output: NotebookNode, states: dict) -> NotebookNode | None:
    """The output in a form for a page without a kernel; None if there is nothing to show.

    `states` are the notebook's widgets: model id -> {"state": traits}.
    """
    data = output.get("data", {})
    if "text/html" in data:  # a table of the chapters, as the cheat sheet's
        data["text/html"] = re.sub(r'href="((?:\.\./\w+/)?\d\d_\w+)\.ipynb"', r'href="\1.html"', data["text/html"])
    if WIDGET not in data:
        return output
    model = data.pop(WIDGET)["model_id"]
    if "text/html" not in data:
        offered = choices(model, states)
        if not offered:
            return None
        data["text/html"] = offered
    return output


def choices(model: str, states: dict) -> str:
    """The options of an ipywidgets widget, or the label of its field, as HTML; "" for other widgets."""
    state = states.get(model.removeprefix("IPY_MODEL_"), {}).get("state", {})
    if children := state.get("children"):
        return "".join(choices(child, states) for child in children)
    label = html.escape(state.get("description") or "")
    options = "".join(f"<span>○ {html.escape(option)}</span>" for option in state.get("_options_labels") or ())
    return f'<p class="guess">{label} {options or "______"}</p>' if label or options else ""


def led(text: str, page: Path) -> str:
    """The text with a link to the page's live page below its first heading, if it has one."""
    if page.as_posix() not in LIVE:
        return text
    name, words = LIVE[page.as_posix()]
    up = "../" * len(page.parent.parts)
    link = f'<p class="live">No install: <a href="{up}live/{name}.html">{words}</a></p>'
    return re.sub(r"^# .+$", lambda heading: f"{heading[0]}\n\n{link}", text, count=1, flags=re.M)


def staged(root: Path, source: Path, chapters: list[Path], kept: Path, live: bool = False) -> None:
    """Writes Sphinx's input into `source`: notebooks with outputs, pages, the files to which they link, an index."""
    shutil.rmtree(source, ignore_errors=True)
    pages = [path.relative_to(root) for pattern in PAGES for path in sorted(root.glob(pattern))]
    pages = [page for page in pages if ".ipynb_checkpoints" not in page.parts]
    for page in pages:
        target = source / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            text = (root / page).read_text(encoding="utf-8")
            text = relinked(text, page, pages, root, source)
            target.write_text(led(text, page) if live else text, encoding="utf-8")
            continue
        original = root / page
        notebook = executed(original, kept, root) if original in chapters else last_run(original, kept)
        states = (
            notebook.metadata.pop("widgets", {}).get("application/vnd.jupyter.widget-state+json", {}).get("state", {})
        )
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = relinked(cell.source, page, pages, root, source)
            elif cell.outputs:
                shown = [without_kernel(output, states) for output in cell.outputs]
                cell.outputs = [output for output in shown if output is not None]
        if live:
            notebook.cells[0].source = led(notebook.cells[0].source, page)
        notebook.cells.insert(1, nbformat.v4.new_markdown_cell(beside("open_in").offer(root, page, source)))
        nbformat.write(notebook, target)
    (source / "_static").mkdir(exist_ok=True)
    (source / "_static" / "course.css").write_text(STYLE, encoding="utf-8")
    (source / "_static" / "course.js").write_text(SCRIPT, encoding="utf-8")
    (source / "index.md").write_text(index(source, pages), encoding="utf-8")


def relinked(text: str, page: Path, pages: list[Path], root: Path, source: Path) -> str:
    """The text with links that work on the site.

    Links to pages stay; files become downloads; a link to something that is not there becomes plain text.
    """

    def change(match: re.Match) -> str:
        picture, words, link, anchor = match.groups()
        target = (root / page.parent / link).resolve()
        if not target.is_relative_to(root) or not target.is_file():
            return words
        name = target.relative_to(root)
        if name not in pages and name.suffix in (".md", ".ipynb"):  # the instructor's notebooks, for one
            return words
        if name not in pages:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, source / name)
            anchor = None
        elif name.suffix == ".ipynb":
            anchor = None
        return f"{picture}[{words}]({link}{anchor or ''})"

    return LINK.sub(change, text)


def title(path: Path) -> str:
    """The first heading of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n".join(
            cell.source for cell in nbformat.reads(text, as_version=4).cells if cell.cell_type == "markdown"
        )
    found = re.search(r"^# (.+)$", text, flags=re.M)
    return found.group(1) if found else path.stem


def numbered(source: Path, page: Path) -> str:
    """A chapter's number and title."""
    return f"{page.stem[:2]} {title(source / page)}"


def index(source: Path, pages: list[Path]) -> str:
    """Sphinx's root, which holds the navigation of all pages; the front page then takes its place."""
    trees = []
    for part in course_map.parts():
        found = [chapter.path for chapter in part.chapters if chapter.path in pages]
        name = f"{part.number}. {part.title}" if part.number else part.title
        trees.append((name, [f"{numbered(source, p)} <{p.with_suffix('')}>" for p in found]))
    trees.append(("Labs", [str(p.with_suffix("")) for p in pages if p.parts[0] == "labs"]))
    trees.append(("Documents", [str(p.with_suffix("")) for p in pages if p.suffix == ".md"]))
    lines = ["# All Ranks", ""]
    for name, entries in trees:
        lines += ["```{toctree}", ":hidden:", f":caption: {name}", "", *entries, "```", ""]
    return "\n".join(lines)


@functools.cache
def beside(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(f"allranks_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def live_pages(output: Path) -> str:
    """Builds the live pages into `output`/live; how many MB the puzzles load. Raises SiteError."""
    tool = beside("live_site")
    try:
        tool.build(output / "live")
        return str(tool.loads(output / "live"))
    except tool.LiveError as error:
        raise SiteError(f"{error}.") from None


def front_page(root: Path, source: Path, loads: str) -> str:
    """The map of the course, by tools/front.py; `loads`: how many MB the puzzles load, "" without live pages."""
    front = beside("front")

    def listed(*patterns: str) -> list[tuple[str, str]]:
        found = [path for pattern in patterns for path in sorted(source.glob(pattern))]
        return [(title(path), str(path.relative_to(source).with_suffix(".html"))) for path in found]

    return front.page(root, listed("labs/*/*.ipynb"), listed("docs/*.md", "CONTRIBUTING.md"), loads)


def race_page() -> str:
    """The race's tasks and leaderboard, a page by itself."""
    from allranks.theory.race import leaderboard, page

    return page.page(leaderboard.load())


def forward(output: Path) -> None:
    """Writes a page at each address of MOVED that leads on to the new one."""
    for old, new in MOVED.items():
        target = os.path.relpath(output / new, (output / old).parent)
        (output / old).write_text(
            '<!doctype html><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="0; '
            f'url={target}"><p>This chapter is now <a href="{target}">here</a>.</p>\n',
            encoding="utf-8",
        )


def build(root: Path, chapters: list[Path], output: Path, work: Path, live: bool = True) -> list[str]:
    """Builds the site into `output`, with the live pages if `live`, and keeps runs in `work`. Raises SiteError.

    Returns Sphinx's warnings, each of which is a fault of a page.
    """
    if live and (why := beside("live_site").missing()):
        raise SiteError(f"{why}.")
    try:
        import furo  # noqa: F401
        import myst_nb  # noqa: F401
        from sphinx.application import Sphinx
        from sphinx.util.docutils import docutils_namespace, patch_docutils
    except ImportError as error:
        raise SiteError(f"{error.name} is missing: pip install -c constraints.txt -e '.[site]'") from None
    import io

    sys.path.append(str(SPHINX))  # of `public_names`, which is no module of this process otherwise
    staged(root, work / "source", chapters, work / "executed", live)
    settings = {
        "project": "All Ranks",
        "copyright": "the authors of All Ranks; prose CC BY 4.0, code BSD-3-Clause",
        "html_title": "All Ranks",
        "extensions": [
            "myst_nb",
            "sphinx-mathjax-offline",
            "sphinx.ext.autodoc",
            "sphinx.ext.autosummary",
            "public_names",
        ],
        "html_theme": "furo",
        "html_static_path": ["_static"],
        "html_css_files": ["course.css"],
        "html_js_files": ["course.js"],
        "html_copy_source": False,
        "html_show_sphinx": False,
        "myst_enable_extensions": ["dollarmath", "amsmath"],
        "myst_heading_anchors": 3,
        "nb_execution_mode": "off",
        "nb_ipywidgets_js": {},
        "nb_merge_streams": True,
        "nb_mime_priority_overrides": [("html", "text/html", 0), ("html", "image/png", 5)],
        # a failing rank's report is not Python; show it without colours
        "suppress_warnings": ["misc.highlighting_failure", "myst.header", "mystnb.unknown_mime_type"],
        "templates_path": [str(SPHINX)],
        # docs/api.md: a page for each public name, in the order of the source; `x` in a docstring is code
        "autosummary_ignore_module_all": False,
        "autosummary_imported_members": True,
        "autodoc_default_options": {"no-value": True},
        "autodoc_member_order": "bysource",
        "autodoc_preserve_defaults": True,
        "default_role": "code",
        "add_module_names": False,
        "python_use_unqualified_type_names": True,
        "python_maximum_signature_line_length": 100,
        "exclude_patterns": [],
    }
    warnings = io.StringIO()
    pages = work / "html"  # myst-nb keeps pictures in a folder beside the pages, which should not be in `output`
    shutil.rmtree(pages, ignore_errors=True)
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            str(work / "source"),
            None,
            str(pages),
            str(work / "doctrees"),
            "html",
            confoverrides=settings,
            status=None,
            warning=warnings,
            freshenv=True,
        )
        app.build(force_all=True)
    shutil.rmtree(output, ignore_errors=True)
    shutil.copytree(pages, output)
    loads = live_pages(output) if live else ""
    (output / "index.html").write_text(front_page(root, work / "source", loads), encoding="utf-8")
    forward(output)
    (output / "race.html").write_text(race_page(), encoding="utf-8")
    return [line for line in warnings.getvalue().splitlines() if line.strip()]


def main(arguments: list[str] | None = None) -> int:
    """The exit code of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", type=Path, help="execute only these notebooks (default: all chapters)")
    parser.add_argument("--output", type=Path, default=ROOT / "site", help="where the pages go (default: site)")
    parser.add_argument("--live-only", action="store_true", help="build only the live pages, beside what is there")
    parser.add_argument(
        "--no-live", action="store_true", help="leave the live pages out; they need Node.js and `make js-tools`"
    )
    options = parser.parse_args(arguments)
    everything = [ROOT / chapter.path for chapter in course_map.chapters()]
    chosen = [path.resolve().with_suffix(".ipynb") for path in options.chapters] or everything
    try:
        if options.live_only:
            live_pages(options.output)
            print(f"wrote {options.output / 'live'}; to open it: python -m http.server -d {options.output}")
            return 0
        if unknown := [path for path in chosen if path not in everything]:
            raise SiteError(
                f"{unknown[0]} is not a notebook in chapters/; there are {', '.join(p.stem for p in everything)}"
            )
        faults = build(ROOT, chosen, options.output, ROOT / "build" / "site", not options.no_live)
    except SiteError as error:
        print(error, file=sys.stderr)
        return 2
    for fault in faults:
        print(fault, file=sys.stderr)
    print(f"wrote {options.output / 'index.html'}{f'; {len(faults)} warnings' if faults else ''}.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
