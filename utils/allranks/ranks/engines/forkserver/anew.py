"""What modules looked up or drew by chance when they were imported, done again in a fork for another account.

Root's fork server imports them in an environment of nobody's (`environment`): a path or name that is overlooked here leads to a
folder that only root can open, and to no account. A test looks for such values in all that a fork has imported.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import site
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

NOBODY = "allranks-nobody"  # the user's name, and the name of the home
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")  # where programs and libraries are, and the language


def environment(folder: Path) -> dict[str, str]:
    """The environment of root's fork server: nothing of root's, a home and a folder for temporary files in `folder`.

    All people's folders of torch's compiled code would else have one name in /tmp, for whoever makes it first.
    """
    home = str(folder / NOBODY)
    return {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        **{"HOME": home, "TMPDIR": home, "USER": NOBODY, "LOGNAME": NOBODY},
        "OPENBLAS_NUM_THREADS": "1",  # a process with one thread is safe to fork
        "MALLOC_ARENA_MAX": "1",
    }


def look_up_anew() -> None:
    """Does it all again, by this process's environment and account. What is not imported stays so.

    Raises an error if keys can't be drawn again.
    """
    _keys()
    for again in (_temporary, _packages, _trash, _lab, _messages, _templates, _compiled, _gateway, _tokens):
        with contextlib.suppress(Exception):  # another version has it elsewhere: nobody's server fails for that
            again()


def _module(name: str) -> Any:
    """The module; raises KeyError if it is not imported. To go through all their names instead would copy 8 MB of shared memory."""
    return sys.modules[name]


def _temporary() -> None:
    tempfile.tempdir = None


def _packages() -> None:
    site.USER_BASE = site.USER_SITE = None
    site.getusersitepackages()
    sysconfig.get_config_vars()["userbase"] = site.getuserbase()


def _trash() -> None:
    importlib.reload(
        _module("send2trash.plat_other")
    )  # its functions look into the module, wherever they were imported to


def _lab() -> None:
    commands, lab = _module("jupyterlab.commands"), _module("jupyterlab.labapp").LabApp
    for name in ("user_settings_dir", "workspaces_dir"):
        folder = getattr(commands, f"get_{name}")()
        getattr(lab, name).default_value = folder
        lab._static_immutable_initial_values[name] = folder


def _messages() -> None:
    session, name = _module("jupyter_client.session").Session, os.environ.get("USER", "username")
    session.username.default_value = session._static_immutable_initial_values["username"] = name


def _templates() -> None:
    exporter, paths = _module("nbconvert.exporters.templateexporter"), _module("jupyter_core.paths")
    exporter.TemplateExporter.template_data_paths.default_args[0][:] = paths.jupyter_path("nbconvert", "templates")


def _compiled() -> None:
    package, folders = _module("torch._dynamo.package"), _module("torch._inductor.runtime.cache_dir_utils")
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or folders.default_cache_dir()
    package.DynamoCache._path_prefix = os.path.join(folder, "dynamo")


def _gateway() -> None:
    handlers = _module("wsgiref.handlers")
    handlers.BaseHandler.os_environ = handlers.read_environ()


def _keys() -> None:
    """Each fork draws its own: with the same one, people's processes would trust each other."""
    if "multiprocessing.process" in sys.modules:
        _module("multiprocessing.process").current_process().authkey = os.urandom(32)
    if "jupyter_client.session" in sys.modules:
        session = _module("jupyter_client.session")
        session.session_flags["secure"][0]["Session"]["key"] = session.new_id_bytes()


def _tokens() -> None:
    importlib.reload(_module("jupyterhub._xsrf_utils"))
