"""How a learner's server and a teacher's machine ask the hub's service for hand-ins (`server`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from allranks.course.exchange.store import Denied, person
from allranks.course.handin import Refused, check_folder

TIMEOUT_S = (5, 60)  # to connect, and for each part of an answer
UNANSWERED = "The hub's service for hand-ins does not answer"


class HandInError(CourseError):
    """The service refused, with HTTP's `status`, or can't be reached; the message is one sentence."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Remote:
    """The service at `url`, which ends in a slash, with a token of the hub."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url if url.endswith("/") else f"{url}/"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"token {token}"
        self._session.auth = lambda request: request  # else a password of ~/.netrc takes the token's place

    def _ask(self, method: str, *parts: str, **options: Any) -> requests.Response:
        path = "/".join(quote(part, safe="") for part in parts)
        try:
            answer = self._session.request(
                method, f"{self.url}{path}", timeout=TIMEOUT_S, allow_redirects=False, **options
            )
        except requests.RequestException as error:
            raise HandInError(f"{UNANSWERED} ({type(error).__name__}). Try again in a minute.") from None
        if answer.status_code not in (200, 204):
            try:
                said = str(answer.json()["error"])
            except (ValueError, KeyError, TypeError):
                said = f"{UNANSWERED} at {self.url} (status {answer.status_code}). Try again in a minute."
            raise HandInError(said, answer.status_code)
        return answer

    def _json(self, *parts: str) -> Any:
        try:
            return self._ask("GET", *parts).json()
        except ValueError:
            raise HandInError(f"{UNANSWERED} at {self.url}: something else is there.") from None

    # ---- everybody

    def name(self) -> str:
        """Who the hub says that this is."""
        return str(self._json("me")["name"])

    def released(self) -> dict[str, dict[str, str]]:
        """The labs that can be fetched; of each its files, and a text that changes with each."""
        return dict(self._json("released"))

    def pages(self) -> dict[str, str]:
        """The own feedback pages, in the same way."""
        return dict(self._json("pages"))

    def file(self, *parts: str) -> bytes:
        """A file, such as ("released", LAB, PATH)."""
        return self._ask("GET", *parts).content

    def hand_in(self, lab: str, folder: Path) -> str:
        """Hands a folder in; the time that the service gave it."""
        return str(self._ask("POST", "handed_in", lab, params={"draft": self._send(folder)}).json()["time"])

    def _send(self, folder: Path) -> str:
        try:
            check_folder(folder)  # the service, which has the same limits, hangs up on what is too large
        except Refused as reason:
            raise HandInError(str(reason).replace("It was not graded.", "Nothing was sent.")) from None
        draft = str(self._ask("POST", "drafts").json()["id"])
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with open(path, "rb") as file:  # an open file of no bytes would be sent in pieces
                    content: Any = file if path.stat().st_size else b""
                    self._ask("PUT", "drafts", draft, path.relative_to(folder).as_posix(), data=content)
        return draft

    # ---- teachers

    def release(self, lab: str, folder: Path) -> None:
        """Makes the folder's files what students fetch."""
        self._ask("POST", "released", lab, params={"draft": self._send(folder)})

    def give_back(self, student: str, folder: Path) -> None:
        """Gives a student the pages of a folder."""
        self._ask("POST", "pages", student, params={"draft": self._send(folder)})

    def handed_in(self, lab: str = "") -> dict[str, dict[str, dict[str, list[str]]]]:
        """What was handed in: the files, by lab, student and time."""
        return dict(self._json("handed_in", lab) if lab else self._json("handed_in"))

    def about(self, student: str) -> dict[str, Any]:
        """The same of one student ("handed_in"), and the names of the feedback pages ("pages"); nothing of a name that nobody has there."""
        try:
            person(student)
        except Denied:
            return {"handed_in": {}, "pages": []}
        return dict(self._json("people", student))

    def of_student(self, student: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What is there of one student: the name of each file, and what `file` takes for it."""
        about = self.about(student)
        for lab, people in about["handed_in"].items():
            for stamp, paths in people.get(student, {}).items():
                for path in paths:
                    yield f"inbound/{lab}/{stamp}/{path}", ("handed_in", lab, student, stamp, path)
        for page in about["pages"]:
            yield f"feedback/{page}", ("people", student, "pages", page)

    def forget(self, *parts: str) -> None:
        """Removes all work and pages of a student (STUDENT), or a page (STUDENT, "pages", NAME)."""
        self._ask("DELETE", "people", *parts)


def mirror(remote: Remote, kind: str, files: Mapping[str, str], folder: Path) -> None:
    """Makes a folder hold the files of `Remote.released` or `Remote.pages`, and no others. Reads only what has changed."""
    state = folder / ".versions"
    known = dict(line.split(" ", 1)[::-1] for line in _lines(state))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):  # what is in a folder before the folder
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and path != state and path.relative_to(folder).as_posix() not in files:
            path.unlink()
    for name, version in files.items():
        target = folder / name
        if known.get(name) != version or not target.is_file():
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(target, remote.file(kind, *name.split("/", 1) if kind == "released" else [name]))
    write_whole(state, "".join(f"{version} {name}\n" for name, version in files.items()))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
