"""The teacher's folder: a course of its own, outside of this repository, in nbgrader's layout. `allranks grade` takes it.

    solutions/LAB/    nbgrader's source; with answers only if a checkout is there to take them from
    labs/LAB/         what students get
    autograder/       nbgrader_config.py, the secret, and later submissions, the gradebook and feedback

Only its owner can read it: it holds answers, and later what students handed in and their marks. The grader's code stays in the
installation, so that a new version of it serves every course folder.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allranks.base import course_files as files
from allranks.base.errors import CourseError

CONFIG = Path("autograder/nbgrader_config.py")
SECRET = Path("autograder/secret.txt")
# what a course's repository must not hold: keys, hidden inputs, and students' data
_IGNORED = """/lti/
/secret.txt
/submitted/
/autograded/
/feedback/
/pairs/
/pairs.csv
/class.csv
/regrades.jsonl
/grades.csv
/exchange.txt
/exchange_token.txt
*.db*
*.log
"""
_STUB = re.compile(r"^([ \t]*)# YOUR CODE HERE\n[ \t]*raise NotImplementedError\(\)$", re.MULTILINE)
_CONFIG_TEXT = '''"""nbgrader's configuration of this course; nbgrader reads it from its current directory, autograder/.

What the grader needs comes from the installed allranks. Your own settings go to the end.
"""

from pathlib import Path

from allranks.base.course_files import teacher

c = get_config()  # noqa: F821 - nbgrader defines it
load_subconfig("nbgrader_config.py", path=str(teacher() / "autograder"))  # noqa: F821

HERE = Path(__file__).resolve().parent
c.CourseDirectory.course_id = {name!r}
c.CourseDirectory.root = str(HERE.parent)
c.CourseDirectory.db_url = f"sqlite:///{{HERE / 'gradebook.db'}}"
'''


class TeachingError(CourseError):
    """The course folder can't be made; the message is one sentence that says what to do."""


@dataclass(frozen=True)
class Made:
    """A new course folder: its labs, and whether solutions/ has the answers."""

    folder: Path
    labs: tuple[str, ...]
    answers: bool

    def text(self) -> str:
        """What was made, and what comes next."""
        kind = "with answers" if self.answers else "without answers: grading needs none, and a checkout has them"
        return "\n".join(
            [
                f"{self.folder} is a course with {len(self.labs)} lab{'s' * (len(self.labs) != 1)} ({kind}).",
                f"  give out:  the folders of {self.folder / 'labs'}",
                f"  collect:   {self.folder / 'autograder/submitted'}/STUDENT/LAB/",
                f"  grade:     allranks grade {self.labs[0]} --course {shlex.quote(str(self.folder))}",
                f"Keep {self.folder / SECRET} secret: hidden inputs follow from it.",
            ]
        )


def grader_of(course: Path) -> Path:
    """The folder that holds the package autograder/ for a course: the course itself in a checkout, else the installation."""
    if (course / "autograder" / "grading.py").is_file():
        return course
    found = files.teacher()
    if found is None:
        raise TeachingError(
            "This installation of allranks has no grader: install it from its wheel, or use a checkout."
        )
    return found


def init(folder: Path, labs: tuple[str, ...] = (), name: str = "allranks", answers: Path | None = None) -> Made:
    """Makes the course folder. `labs` are those to take, all if empty; `answers` is a solutions/ to take the answers from.

    Without `answers` it takes those of the checkout that the package is run from. Raises TeachingError if the folder is there
    and not empty, or for a lab that there is not.
    """
    source = files.given()
    if source is None or files.teacher() is None:
        raise TeachingError("This installation of allranks has no labs: install it from its wheel, or use a checkout.")
    known = sorted(path.name for path in (source / "labs").iterdir() if path.is_dir())
    for lab in labs:
        if lab not in known:
            raise TeachingError(f"There is no lab {lab!r}. There are: {', '.join(known)}.")
    if answers is None and files.checkout() is not None:
        answers = source / "solutions"
    chosen = tuple(lab for lab in known if not labs or lab in labs)
    for lab in chosen:
        if answers is not None and not list((answers / lab).glob("*.ipynb")):
            raise TeachingError(f"{answers} has no notebook of {lab}: give the folder solutions/ of a checkout.")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise TeachingError(f"The course's name {name!r} may have letters, digits, dots, hyphens and underscores only.")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TeachingError(f"{folder} is there already and not empty: name a new folder.")
        _make(folder, chosen, name, source, answers)
    except OSError as error:
        raise TeachingError(f"{folder} can't be made ({error.strerror or error}): name a folder of your own.") from None
    return Made(folder, chosen, answers is not None)


def _make(folder: Path, labs: tuple[str, ...], name: str, source: Path, answers: Path | None) -> None:
    (folder / "autograder" / "submitted").mkdir(parents=True)
    # the inner ones too: who opens the folder for the labs does not open these
    for closed in (folder, folder / "autograder"):
        closed.chmod(0o700)
    for lab in labs:
        for kind in ("labs", "solutions"):
            (folder / kind / lab).mkdir(parents=True)
        (folder / "solutions").chmod(0o700)
        for path in sorted((source / "labs" / lab).glob("*.ipynb")):
            shutil.copyfile(path, folder / "labs" / lab / path.name)
            target = folder / "solutions" / lab / path.name
            if answers is not None:
                shutil.copyfile(answers / lab / path.name, target)
            else:
                text = json.dumps(
                    _as_source(json.loads(path.read_text(encoding="utf-8"))), indent=1, ensure_ascii=False
                )
                target.write_text(text + "\n", encoding="utf-8")
    descriptor = os.open(folder / SECRET, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secrets.randbits(128)}\n")
    (folder / "autograder" / ".gitignore").write_text(_IGNORED, encoding="ascii")
    (folder / CONFIG).write_text(_CONFIG_TEXT.format(name=name), encoding="utf-8")


def _as_source(notebook: dict[str, Any]) -> dict[str, Any]:
    """A students' notebook with nbgrader's marks around each place for an answer, so that nbgrader releases the same again."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and cell["metadata"].get("nbgrader", {}).get("solution"):
            text = "".join(cell["source"])
            cell["source"] = _STUB.sub(r"\1### BEGIN SOLUTION\n\1raise NotImplementedError()\n\1### END SOLUTION", text)
    return notebook
