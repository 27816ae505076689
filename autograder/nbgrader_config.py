"""nbgrader's configuration for this course; nbgrader reads it from its current directory.

    cd autograder
    nbgrader autograde lab03_all_reduce

The instructor's notebooks are in solutions/, the students' in labs/, and all files about submissions in this folder.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
COURSE = HERE.parent
if str(COURSE) not in sys.path:  # so that nbgrader finds autograder.trusted
    sys.path.insert(0, str(COURSE))

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - nbgrader defines it

c.CourseDirectory.course_id = "allranks"
c.CourseDirectory.root = str(COURSE)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "labs"
c.CourseDirectory.submitted_directory = "autograder/submitted"
c.CourseDirectory.autograded_directory = "autograder/autograded"
c.CourseDirectory.feedback_directory = "autograder/feedback"
c.CourseDirectory.db_url = f"sqlite:///{HERE / 'gradebook.db'}"
# nbgrader copies all other files of a lab to the students: not source/, which holds the solutions
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback", "*.py", "source"]

# Where the exchange is: a folder (the hub writes it when the grader's server starts, so that nbgrader finds it in any shell of the
# machine), or the address of a hub's service. A folder made by `allranks course init` has its own.
FOLDER = next((one for one in (Path.cwd(), HERE) if (one / "exchange.txt").is_file()), HERE)
if (EXCHANGE := FOLDER / "exchange.txt").exists():
    c.Exchange.root = EXCHANGE.read_text(encoding="utf-8").strip()

# nbgrader never executes a submission. RestoreCells first gives the notebook its released cells back. TrustedStep, in place
# of nbgrader's Execute, then marks it and writes the outputs of the graded cells.
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
    "autograder.showing.CutForPage",
    "nbgrader.preprocessors.CheckCellMetadata",
]

# `allranks course late` gives a lab its rule for late work; without one, c.LateSubmissionPlugin decides.
c.AssignLatePenalties.plugin_class = "autograder.lateness.LateRule"

# `nbgrader export` has a column for each exercise behind its own.
c.ExportApp.plugin_class = "autograder.exports.Exercises"

# A student's page begins with the score as a bar, the one thing to look at, and every exercise folded.
c.GenerateFeedback.preprocessors = [
    "nbgrader.preprocessors.GetGrades",
    "autograder.feedback_page.FeedbackTop",
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]

# The page is nbgrader's, without its list of scores, and loads nothing from elsewhere.
from nbgrader.server_extensions.formgrader.handlers import template_path  # noqa: E402

c.GenerateFeedback.exporter_class = "autograder.feedback_page.FeedbackExporter"
c.FeedbackExporter.template_name = "allranks"
c.FeedbackExporter.template_file = "page.html.j2"
c.FeedbackExporter.extra_template_basedirs = [str(HERE / "templates"), template_path]

# Files are checked first, when they are collected and when they are graded: no links, no pipes, nothing of another user.
from autograder.giving import guard_feedback  # noqa: E402 - the path above is needed
from autograder.intake import guard_nbgrader  # noqa: E402
from autograder.log import guard_logging  # noqa: E402

c.ExchangeFactory.collect = "autograder.intake.Collect"
guard_nbgrader()

# Each submission fails alone: a page for everybody, in bounded time, and an error at the end that names the rest.
c.ExchangeFactory.release_feedback = "autograder.giving.ReleaseFeedback"
guard_feedback()

# On a hub whose people share no disk its service is the exchange: the same rules, on what the service hands over.
from autograder import by_service  # noqa: E402

if ADDRESS := by_service.address_in(FOLDER):
    by_service.use(c, ADDRESS, FOLDER)

# What students write can't forge a line of the log, or draw on the terminal.
guard_logging()

# People who can change grades read the students' text in a browser: scripts in it must not run there.
from autograder.safe_prose import guard_formgrader  # noqa: E402

guard_formgrader()
c.HTMLExporter.preprocessors = ["autograder.safe_prose.SafeProse"]
c.HTMLExporter.filters = {
    "markdown2html": "autograder.safe_prose.markdown2html",
    "highlight_code": "autograder.showing.highlight_code",
}
