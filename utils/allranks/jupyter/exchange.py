"""nbgrader's exchange where people share no disk: a learner's commands, and Lab's page of assignments, ask the hub's service.

nbgrader's own classes work on a small exchange in the person's home, which holds what the person may see: the released labs, and the
own feedback pages. `ask` brings it up to date before each of them. Handing in goes to the service, and to nbgrader's cache.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from functools import cached_property
from pathlib import Path

from allranks.base.errors import CourseError
from allranks.course.exchange.remote import Remote, mirror
from allranks.jupyter import submit
from jupyter_core.paths import jupyter_data_dir
from nbgrader.exchange import default
from traitlets import Unicode


class HandIn(default.Exchange):
    """What all of them share: the service, and the exchange in the home."""

    url = Unicode("", help="The address of the hub's service for hand-ins.").tag(config=True)
    token_file = Unicode("", help="A file with a token of the hub. Default: the server's own.").tag(config=True)

    @cached_property
    def remote(self) -> Remote:
        """The service, asked as this person. Raises HandInError."""
        return Remote(self.url, os.environ.get("JUPYTERHUB_API_TOKEN", ""))

    def ensure_root(self) -> None:
        """The exchange is this person's own."""
        Path(self.root).mkdir(mode=0o700, parents=True, exist_ok=True)

    def ask(self) -> None:
        """Brings the exchange up to date. Raises HandInError."""
        remote = self.remote
        self.root = str(Path(jupyter_data_dir(), "nbgrader_exchange"))
        self.ensure_root()
        course = Path(self.root, self.coursedir.course_id)
        labs = {f"{lab}/{path}": version for lab, files in remote.released().items() for path, version in files.items()}
        mirror(remote, "released", labs, course / "outbound")
        mirror(remote, "pages", remote.pages(), course / "feedback")

    def start(self) -> object:
        """nbgrader's own, on what is new. Raises ExchangeError with one sentence if the service can't be asked or refuses."""
        try:
            self.ask()
            return super().start()
        except CourseError as error:
            self.fail(str(error))
            raise


class FetchAssignment(HandIn, default.ExchangeFetchAssignment):
    """Fetches a lab."""


class FetchFeedback(HandIn, default.ExchangeFetchFeedback):
    """Fetches the own feedback pages."""


class List(HandIn, default.ExchangeList):
    """Lists what is released, and what this person handed in."""

    def start(self) -> object:
        """Raises HandInError: for an ExchangeError Lab's page says that there is no exchange's directory."""
        if self.inbound or self.remove:
            self.fail("This exchange is the hub's service: its command is `nbgrader collect`.")
        self.ask()
        return default.ExchangeList.start(self)


class Submit(HandIn, submit.Submit):
    """Hands in: first to the service, whose time counts, then to nbgrader's cache, from which feedback is found."""

    def init_dest(self) -> None:
        """Where the copy for feedback goes."""
        course = self.coursedir.course_id
        self.cache_path = os.path.join(self.cache, course)
        self.release_path = os.path.join(self.root, course, "outbound", self.coursedir.assignment_id)

    def copy_files(self) -> None:
        """Sends the folder, without what nbgrader leaves out."""
        lab = self.coursedir.assignment_id
        if not os.path.isdir(self.release_path):
            self.fail(f"{lab} is not released, so nobody can hand it in.")
        self.check_filename_diff()
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder, lab)
            self.do_copy(self.src_path, str(work))
            (work / "submission_secret.txt").write_text(secrets.token_hex(64), encoding="ascii")
            self.timestamp = self.remote.hand_in(lab, work)
            (work / "timestamp.txt").write_text(self.timestamp, encoding="ascii")
            Path(self.cache_path).mkdir(parents=True, exist_ok=True)
            self.do_copy(str(work), os.path.join(self.cache_path, f"{self.remote.name()}+{lab}+{self.timestamp}"))
        self.log.info("Submitted as: %s %s %s", self.coursedir.course_id, lab, self.timestamp)
