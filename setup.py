"""Puts the course into the wheel: what learners get, and the autograder for `allranks course init`. No solutions.

All other settings are in pyproject.toml. An editable installation needs none of this: it finds these files in the
checkout.
"""

import runpy
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# where the files go, under allranks/course/, and which they are
FILES = {
    "given": runpy.run_path(str(ROOT / "utils/allranks/base/course_files.py"))["PATTERNS"],
    "teacher": ("autograder/*.py", "autograder/commands/*.py", "autograder/templates/**/*"),
}


class BuildWithCourse(build_py):
    """What setuptools does, and then the course's files beside the package's modules."""

    def run(self) -> None:
        """Copies everything into the build folder."""
        super().run()
        if self.editable_mode:
            return
        for folder, patterns in FILES.items():
            target = Path(self.build_lib, "allranks", "course", folder)
            shutil.rmtree(target, ignore_errors=True)  # of an earlier build
            for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()):
                copy = target / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


setup(cmdclass={"build_py": BuildWithCourse})
