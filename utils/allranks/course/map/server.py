"""The map in JupyterLab: an extension of Jupyter's server that gives the map, and brings the extension of JupyterLab that shows it in a tab.

`allranks lab` loads it by utils/allranks/jupyter/jupyter_server_config.json. The page always shows the state of this moment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

from allranks.base import record
from allranks.base.chapters import Chapter
from allranks.course.map.drawing import Manner
from allranks.course.map.end import MAP_ENV
from allranks.course.map.page import page, style
from allranks.course.state import state

LABEXTENSIONS = Path(__file__).resolve().parents[2] / "jupyter" / "labextensions"


class MapHandler(JupyterHandler):
    """The map of the reader whose notebooks this server serves: a page, or with ?part only what stands in the tab."""

    @web.authenticated
    def get(self) -> None:
        """Draws the map."""
        root = Path(self.settings["server_root_dir"]).expanduser()
        folder = record.folder_of(root)

        def href(chapter: Chapter) -> str:
            where = (folder or root) / chapter.path
            inside = where.relative_to(root.resolve()) if where.is_relative_to(root.resolve()) else chapter.path
            return url_path_join(self.base_url, "lab", "tree", inside.as_posix())

        inside = page(state(folder), Manner(href))
        self.set_header("Cache-Control", "no-store")
        if self.get_argument("part", None) is not None:
            self.finish(style() + inside)
            return
        head = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Map</title>'
        self.finish(
            f"{head}{style()}<body data-theme=auto style='margin:0'><div class=ar-theme style='min-height:100vh'>{inside}</div>"
        )


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: Any) -> None:
    app.web_app.add_handlers(".*$", [(url_path_join(app.web_app.settings["base_url"], "allranks", "map"), MapHandler)])
    os.environ[MAP_ENV] = "1"  # the kernels of this server may link to the map
    app.web_app.settings.setdefault("page_config_data", {})["allranksMap"] = "first"
    for lab in app.extension_manager.extension_apps.get("jupyterlab", ()):
        if str(LABEXTENSIONS) not in lab.extra_labextensions_path:
            lab.extra_labextensions_path = [*lab.extra_labextensions_path, str(LABEXTENSIONS)]
