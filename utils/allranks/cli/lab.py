"""`allranks lab`: JupyterLab at the map of the course, with engines that are warm already."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from allranks.base import course_files as files
from allranks.base.course_files import FIRST_CHAPTER
from allranks.cli._shared import GradeError, course_above
from allranks.course import folder

MAX_SOCKET = 103  # bytes of a Unix socket's path: 107 on Linux, 103 on a Mac
# Lab's settings for the course, layered below the user's own: players are saved with their notebooks
SETTINGS = Path(__file__).resolve().parent.parent / "jupyter"


def course_directory(named: Path | None = None) -> Path:
    """The directory that holds chapters/: `named`, or this one or one above it, or the checkout that the package is run
    from.

    Where the package was installed from its wheel, the notebooks are put into `named`, or into ~/all-ranks.
    """
    here = Path.cwd()
    if named is None:
        for directory in (here, *here.parents, Path(__file__).resolve().parents[3]):
            if (directory / folder.first_chapter(directory)).is_file():
                return directory
    elif (named / FIRST_CHAPTER).is_file() and not (named / folder.OWN).is_dir():
        return named.resolve()
    if files.given() is None:
        raise click.ClickException(
            f"There is no {FIRST_CHAPTER} in {named or here} or above it. Run this in the course's directory; "
            "if the notebooks are not built yet, `make notebooks` builds them."
        )
    return (named or folder.home_folder()).resolve()


def elsewhere(root: Path, named: Path | None) -> list[str]:
    """What to tell somebody who named no folder, and whose notebooks are neither here nor above."""
    if named is not None or root in (Path.cwd(), *Path.cwd().parents):
        return []
    return [f"There are no notebooks here: opening those of {root}. `--folder` names another folder."]


def taught_course(start: Path, asked: bool) -> Path | None:
    """The course whose formgrader opens: that of `start` if it has no chapters or if `asked`; None for the chapters."""
    try:
        found = course_above(start)
    except GradeError as error:
        if asked:
            raise click.ClickException(str(error)) from None
        return None
    return found if asked or (found != files.checkout() and not (found / FIRST_CHAPTER).is_file()) else None


def _open_formgrader(course: Path, no_browser: bool, jupyter_args: tuple[str, ...]) -> None:
    """Runs JupyterLab at formgrader. nbgrader reads the configuration of the folder in which it starts: autograder/."""
    click.echo(f"formgrader of {course}", err=True)
    os.chdir(course / "autograder")
    _launch([f"--ServerApp.root_dir={course}", "--LabApp.default_url=/formgrader"], no_browser, jupyter_args)


def fill(directory: Path) -> list[str]:
    """Puts the notebooks that are missing into the learner's folder; returns what to tell. A checkout stays."""
    if directory == files.checkout() or (
        (directory / FIRST_CHAPTER).is_file() and not (directory / folder.OWN).is_dir()
    ):
        return []
    report = folder.lay_out(directory)
    told = [f"The notebooks are in {directory}: they are yours."] if report.added else []
    if folder.version_of(directory) != report.version or folder.first_chapter(directory) != FIRST_CHAPTER:
        told.append(
            f"Version {report.version} has newer notebooks: `allranks update` merges them and keeps what you wrote."
        )
    return told


def private_kernels() -> list[str]:
    """The option by which kernels talk over Unix sockets: on TCP every account of the machine could read along.

    Empty where the sockets' paths would be too long, or there are none.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    longest = os.fsencode(os.path.join(jupyter_runtime_dir(), f"kernel-{'0' * 36}-ipc-5"))
    return ["--KernelManager.transport=ipc"] if hasattr(socket, "AF_UNIX") and len(longest) <= MAX_SOCKET else []


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@click.option(
    "--folder",
    "named",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The folder for your notebooks. Default: this one or one above it if it has them; else the checkout that this "
    "program is run from; without a checkout ~/all-ranks.",
)
@click.option(
    "--formgrader",
    is_flag=True,
    help="Open nbgrader's formgrader of the course in this folder. A teacher's own course folder always opens so.",
)
@click.argument("jupyter_args", nargs=-1, type=click.UNPROCESSED)
def command(no_browser: bool, named: Path | None, formgrader: bool, jupyter_args: tuple[str, ...]) -> None:
    """Warm the engines and open JupyterLab at the map of the course. Further arguments go to JupyterLab (`--port
    9999`).

    In a folder without notebooks it opens the checkout that this program is run from, wherever that is; --folder
    names another one. Where the package was installed without a checkout, it puts the notebooks into a folder of
    yours first; what is there stays as it is.
    In a course folder that `allranks course init` made it opens formgrader.
    """
    from allranks.base.extras import require
    from allranks.ranks.engines.forkserver.client import ForkServerError
    from allranks.ranks.engines.forkserver.process import forking_is_safe
    from allranks.ranks.engines.kernels import warm_for_jupyter

    require("jupyterlab", "allranks lab")
    taught = taught_course(named or Path.cwd(), formgrader)
    if taught is not None:
        require("nbgrader", "allranks lab --formgrader")
        _open_formgrader(taught, no_browser, jupyter_args)
        return
    root = course_directory(named)
    for sentence in [*elsewhere(root, named), *fill(root)]:
        click.echo(sentence, err=True)
    if forking_is_safe():
        try:
            warm_for_jupyter()
        except ForkServerError as error:
            raise click.ClickException(str(error)) from None
        click.echo("Warming the engines while JupyterLab starts: every notebook of this session shares them.", err=True)
    else:
        click.echo("Forking is unsafe on this system: worlds start with ipyparallel's own launcher, slowly.", err=True)
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        filter(None, [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH")])
    )
    _launch([f"--ServerApp.root_dir={root}", f"--LabApp.default_url={_first_page(root)}"], no_browser, jupyter_args)


def _first_page(root: Path) -> str:
    """The address at which JupyterLab opens: alone it shows the map; an older version's folder has no place there."""
    first = folder.first_chapter(root)
    return "/lab" if first == FIRST_CHAPTER else f"/lab/tree/{first.as_posix()}"


def _launch(argv: list[str], no_browser: bool, jupyter_args: tuple[str, ...]) -> None:
    """Runs JupyterLab in this process."""
    # the kernels must be this environment's, also when its bin directory is not on the PATH
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

    from jupyterlab.labapp import LabApp

    argv = [*argv, *private_kernels(), *jupyter_args]
    if not any("log_level" in argument or argument == "--debug" for argument in jupyter_args):
        argv.append("--Application.log_level=ERROR")  # the address is printed at any level
    if no_browser:
        argv.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0 and "--allow-root" not in argv:
        argv.append("--allow-root")  # in containers; the server listens on loopback and asks for its token
    sys.argv = ["jupyter-lab", *argv]
    LabApp.launch_instance(argv)
