"""A teacher's side of the hub's service for hand-ins: release, collect and give back without a disk that all share.

The course's own `Collect` and `ReleaseFeedback` do the work, with all their rules, on an exchange that lies in a temporary folder for the
time of one command. Whose a work is, and when it was handed in, the service says; its student's files say neither.
"""

from __future__ import annotations

import re
import shutil
import stat
import tempfile
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from allranks.course.exchange.remote import HandInError, Remote
from allranks.course.exchange.store import Denied, inside
from allranks.course.handin import Refused
from allranks.jupyter.exchange import HandIn
from nbgrader.exchange import default
from traitlets.config import Config

from autograder import giving, intake
from autograder.lti import LtiError, origin

TOKEN = "exchange_token.txt"


def address_in(folder: Path) -> str:
    """The service's address, if the course's exchange.txt has one and no folder; else ""."""
    try:
        text = (folder / "exchange.txt").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return text if "://" in text else ""


def use(c: Config, url: str, folder: Path) -> None:
    """Makes nbgrader's configuration ask the service at `url`, with the token in the course's folder."""
    c.HandIn.url = url
    c.HandIn.token_file = str(folder / TOKEN)
    c.ExchangeFactory.exchange = "allranks.jupyter.exchange.HandIn"
    for name in (
        "List",
        "FetchAssignment",
        "FetchFeedback",
        "Submit",
        "ReleaseAssignment",
        "Collect",
        "ReleaseFeedback",
    ):
        setting = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)[1:]
        setattr(c.ExchangeFactory, setting, f"autograder.by_service.{name}")


def asked(url: str, token_file: str) -> Remote:
    """The service. The token is the file's: that of a teacher's server does not teach. Raises HandInError."""
    try:
        origin(url)
    except LtiError:
        raise HandInError(
            f"{url} is no address with https://, and hand-ins must not travel without encryption."
        ) from None
    if not urlsplit(url).path.strip("/"):
        raise HandInError(f"{url} is a hub's address; its service is at {url.rstrip('/')}/services/handin/.")
    path = Path(token_file)
    if not token_file or not path.is_file():
        raise HandInError(f"Put a token of the hub (its page Token) into {path}, which only you may read: chmod 600.")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise HandInError(f"Others can read {path}: chmod 600, and get a new token if others have an account here.")
    token = path.read_text(encoding="utf-8", errors="replace").strip()
    if not re.fullmatch("[!-~]+", token):
        raise HandInError(
            f"{path} holds no token of the hub, which is one word: copy it again from the hub's page Token."
        )
    return Remote(url, token)


def remote_of(course: Path) -> Remote | None:
    """The service of a course's folder; None if its exchange is a folder. Raises HandInError."""
    url = address_in(course / "autograder")
    return asked(url, str(course / "autograder" / TOKEN)) if url else None


class _Teachers(HandIn):
    """The exchange of one command."""

    @cached_property
    def remote(self) -> Remote:
        """Raises HandInError."""
        return asked(self.url, self.token_file)

    def ask(self) -> None:
        """Nothing is copied before it is needed."""

    def start(self) -> object:
        """nbgrader's own, on an exchange that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="allranks-") as folder:
            self.root = folder
            return super().start()


class ReleaseAssignment(_Teachers, default.ExchangeReleaseAssignment):
    """Releases a lab."""

    def copy_files(self) -> None:
        """Sends what nbgrader would copy."""
        lab = self.coursedir.assignment_id
        if lab in self.remote.released() and not self.force:
            self.fail(f"{lab} is released already; add --force to replace it.")
        self.do_copy(self.src_path, self.dest_path)
        self.remote.release(lab, Path(self.dest_path))
        self.log.info("Released as: %s %s", self.coursedir.course_id, lab)


class Collect(_Teachers, intake.Collect):
    """Collects by the course's own rules. It reads the list of what is there, and only those works that it takes."""

    def init_src(self) -> None:
        """Lays out the list as folders, as nbgrader looks for them; each is empty until it is collected."""
        self.by_arrival = False  # the names have the service's time, and the files' own is that of the copying
        lab = self.coursedir.assignment_id
        inbound = Path(self.root, self.coursedir.course_id, "inbound")
        inbound.mkdir(parents=True)
        self.listed = {}
        for student, works in self.remote.handed_in(lab).get(lab, {}).items():
            for stamp, paths in works.items():
                name = f"{student}+{lab}+{stamp}"
                self.listed[name] = (student, stamp, paths)
                inside(inbound, name).mkdir()
                if intake.REQUEST in paths:
                    (inbound / name / intake.REQUEST).touch()
        super().init_src()

    def _read(self, record: dict, only: str | None = None) -> None:
        student, stamp, paths = self.listed[record["filename"]]
        folder = Path(self.inbound_path, record["filename"])
        try:
            for path in paths if only is None else [only]:
                file = inside(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(self.remote.file("handed_in", self.coursedir.assignment_id, student, stamp, path))
            if only is None:  # also of a volume that was restored, or lost power while this was written
                (folder / "timestamp.txt").write_text(stamp, encoding="ascii")
        except (HandInError, Denied) as error:
            if error.status not in (400, 404):  # not about this work: then others are not read either
                raise
            raise Refused(f"can't be read from the hub ({error})") from None

    def _copy(self, record: dict, dest: Path) -> None:
        self._read(record)
        super()._copy(record, dest)
        shutil.rmtree(Path(self.inbound_path, record["filename"]))

    def _collect_request(self, record: dict) -> None:
        self._read(record, intake.REQUEST)
        super()._collect_request(record)


class ReleaseFeedback(_Teachers, giving.ReleaseFeedback):
    """Gives each student's page to that student alone."""

    def init_dest(self) -> None:
        """nbgrader's own, in the exchange of this command."""
        Path(self.root, self.coursedir.course_id).mkdir()
        super().init_dest()

    def _release(self, student: str, page: Path) -> None:
        super()._release(student, page)
        pages = Path(self.dest_path)
        try:
            self.remote.give_back(student, pages)
        except HandInError as error:
            raise Refused(str(error)) from None
        finally:
            for sent in pages.iterdir():
                sent.unlink()


class List(_Teachers, default.ExchangeList):
    """Lists what is released, or with --inbound what was handed in."""

    def init_dest(self) -> None:
        """Lays out the list, with empty files."""
        if self.remove:
            self.fail(
                "The hub's service keeps what was handed in and released: `allranks course forget` removes a student's."
            )
        course, lab = Path(self.root, self.coursedir.course_id), self.coursedir.assignment_id
        names = [f"outbound/{name}/{path}" for name, paths in self.remote.released().items() for path in paths]
        if self.inbound:
            works = self.remote.handed_in(lab or "")
            names = [
                f"inbound/{student}+{name}+{stamp}/{path}"
                for name, people in works.items()
                for student, found in people.items()
                for stamp, paths in found.items()
                for path in paths
                if path.endswith(".ipynb")
            ]
        for name in names:
            file = inside(course, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        super().init_dest()


def _not_here(self: HandIn) -> object:
    """A teacher's machine is no learner's server."""
    return self.fail("A teacher's folder hands nothing in and fetches nothing: students do that in their own servers.")


class Submit(_Teachers, default.ExchangeSubmit):
    """Not on a teacher's machine: the work would be the teacher's."""

    start = _not_here


class FetchAssignment(_Teachers, default.ExchangeFetchAssignment):
    """Not on a teacher's machine."""

    start = _not_here


class FetchFeedback(_Teachers, default.ExchangeFetchFeedback):
    """Not on a teacher's machine."""

    start = _not_here
