"""nbgrader's configuration for this course; nbgrader reads it from the directory in which it is started.

    cd autograder
    nbgrader autograde lab03_all_reduce

The instructor's notebooks are in solutions/, what students get in labs/, everything about submissions in here.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COURSE = HERE.parent
if str(COURSE) not in sys.path:  # so that nbgrader finds autograder.trusted
    sys.path.insert(0, str(COURSE))

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - nbgrader puts it here

c.CourseDirectory.course_id = "allranks"
c.CourseDirectory.root = str(COURSE)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "labs"
c.CourseDirectory.submitted_directory = "autograder/submitted"
c.CourseDirectory.autograded_directory = "autograder/autograded"
c.CourseDirectory.feedback_directory = "autograder/feedback"
c.CourseDirectory.db_url = f"sqlite:///{HERE / 'gradebook.db'}"
# nbgrader copies a lab's other files to the students: source/, with the solutions' percent script, must not be among them
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.py", "source"]

# A submission is never executed beside its tests. Its notebook is first put back into the shape it was released in,
# then marked by the trusted step, which takes the place of nbgrader's Execute and writes the graded cells' outputs.
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "autograder.trusted.RestoreCells",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "autograder.trusted.TrustedStep",
    "nbgrader.preprocessors.IgnorePattern",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# Before that, the files: no links, no pipes, nothing that is not its student's, neither at collecting nor at grading.
from autograder.intake import guard_nbgrader  # noqa: E402 - the path above is needed

c.ExchangeFactory.collect = "autograder.intake.Collect"
guard_nbgrader()

# What a student wrote is shown to people who may change grades: no script in it may run there.
c.HTMLExporter.preprocessors = ["autograder.safe_prose.SafeProse"]
c.HTMLExporter.filters = {"markdown2html": "autograder.safe_prose.markdown2html"}
