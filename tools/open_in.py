"""The menu of a notebook's page on the site: download it, or open it where Jupyter runs already.

The repository's address is `Repository` in pyproject.toml's [project.urls]; without one, GitHub's CI tells its own.
Without either the menu only offers the download, which needs neither.
"""

from __future__ import annotations

import os
import shutil
import tomllib
from html import escape
from pathlib import Path

BRANCH = "main"
FOLDER = "_static/notebooks"  # on the site: what the menu's first entry downloads


def repository(root: Path) -> str:
    """The repository's address, such as https://github.com/OWNER/NAME; "" if nobody tells it."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project.get("urls", {}).get("Repository", "")
    if not named and os.environ.get("GITHUB_REPOSITORY"):
        named = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{os.environ['GITHUB_REPOSITORY']}"
    return named.rstrip("/").removesuffix(".git")


def links(notebook: Path, address: str) -> list[tuple[str, str]]:
    """(name, address) of each place where the notebook, a path in the repository, can be opened."""
    if not address:
        return []
    path, name = notebook.as_posix(), address.removeprefix("https://github.com/")
    found = [("the repository", f"{address}/blob/{BRANCH}/{path}")]
    if name != address:  # these know GitHub only
        found += [
            ("Colab", f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{path}"),
            ("Kaggle", f"https://kaggle.com/kernels/welcome?src={address}/blob/{BRANCH}/{path}"),
            ("Binder", f"https://mybinder.org/v2/gh/{name}/{BRANCH}?urlpath=lab/tree/{path}"),
            ("Codespaces", f"https://codespaces.new/{name}"),
        ]
    return found


def menu(notebook: Path, address: str) -> str:
    """The menu as HTML for the page of the notebook, a path in the repository."""
    up = "../" * len(notebook.parent.parts)
    download = f'<a href="{up}{FOLDER}/{notebook.as_posix()}" download>Download the notebook</a>'
    items = [download, *(f'<a href="{escape(link)}">Open in {name}</a>' for name, link in links(notebook, address))]
    help_ = f'<a href="{up}docs/start.html">What runs where, and how to start it</a>'
    listed = "".join(f"<li>{item}</li>" for item in [*items, help_])
    return f'<details class="ar-open"><summary>Open this notebook</summary><ul>{listed}</ul></details>'


def offer(root: Path, notebook: Path, source: Path) -> str:
    """Puts the notebook, as learners get it, among the site's files, and returns the menu for its page."""
    copy = source / FOLDER / notebook
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / notebook, copy)
    return menu(notebook, repository(root))
