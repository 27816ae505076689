"""A course and its learning platform (Canvas, Moodle) by LTI 1.3: the course's key, access tokens, columns, scores and members.

Specifications of 1EdTech: Security Framework 1.0, section 4.1 (a token for a signed assertion), Assignment and Grade Services 2.0,
Names and Role Provisioning Services 2.0. Everything lies in `autograder/lti/`, which only the grader's account can read: `key.pem`, the
key, and `platform.json`, who the platform is and where its services are.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

import jwt
import requests
from allranks.base.errors import CourseError
from allranks.base.whole import write_whole
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from autograder.rows import printable
from autograder.sent import folder_of

KEY, PLATFORM = "key.pem", "platform.json"
AGS = "https://purl.imsglobal.org/spec/lti-ags/scope/"
MEMBERS = "https://purl.imsglobal.org/spec/lti-nrps/scope/contextmembership.readonly"
# the second serves platforms on which the tool may use columns, but not make them
GRADES = tuple(
    tuple(f"{AGS}{one}" for one in (items, "result.readonly", "score")) for items in ("lineitem", "lineitem.readonly")
)
PEOPLE = ((MEMBERS,),)
LINE_ITEM = "application/vnd.ims.lis.v2.lineitem+json"
LINE_ITEMS = "application/vnd.ims.lis.v2.lineitemcontainer+json"
RESULTS = "application/vnd.ims.lis.v2.resultcontainer+json"
SCORE = "application/vnd.ims.lis.v1.score+json"
MEMBERSHIP = "application/vnd.ims.lti-nrps.v2.membershipcontainer+json"
ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TIMEOUT_S = (10, 60)  # to connect, and to answer
TRIES = 4
LONGEST_WAIT_S = 120  # a platform that asks for more is tried again by the teacher
MAX_PAGES = 1000
AGAIN = frozenset({429, 500, 502, 503, 504})


class LtiError(CourseError):
    """Nothing more can be done with the platform now; the message is one sentence, without control characters of the platform's."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Refusal(LtiError):
    """The platform answered with an error; `status` is HTTP's, `said` the beginning of what it said."""

    def __init__(self, message: str, status: int, said: str = "") -> None:
        super().__init__(message)
        self.status, self.said = status, said


class _IsThere(Exception):
    """A column is not made again."""

    def __init__(self, column: dict[str, Any]) -> None:
        super().__init__()
        self.column = column


# --------------------------------------------------------------------------------------------------- who the platform is


@dataclass(frozen=True)
class Platform:
    """A course on a platform, as the tool's registration there names it.

    `line_items` and `members` are the addresses of the course's columns and people, which a launch carries too; `people` is the file in
    which a hub keeps who came from the platform, if there is one.
    """

    name: str
    client_id: str
    token_url: str
    line_items: str
    members: str = ""
    people: str = ""

    @property
    def host(self) -> str:
        """The platform's host, for messages."""
        return urlsplit(self.token_url).netloc


def moodle(address: str, client_id: str, course_id: int, tool_id: int) -> Platform:
    """A course of Moodle. `course_id` is in the course's address, `tool_id` is the one in *Tool configuration details*' or the tool's address."""
    root = _root(address)
    service = f"{root}/mod/lti/services.php"
    return Platform(
        "Moodle",
        client_id,
        f"{root}/mod/lti/token.php",
        f"{service}/{course_id}/lineitems?type_id={tool_id}",
        f"{service}/CourseSection/{course_id}/bindings/{tool_id}/memberships",
    )


def canvas(address: str, client_id: str, course_id: int) -> Platform:
    """A course of Canvas; `course_id` is the number in the course's address."""
    root = _root(address)
    service = f"{root}/api/lti/courses/{course_id}"
    return Platform(
        "Canvas", client_id, f"{root}/login/oauth2/token", f"{service}/line_items", f"{service}/names_and_roles"
    )


def from_hub(file: Path, at: str | None = None) -> Platform:
    """The course whose launches a hub wrote into its file; `at` is the address of its services, if it is not that of its tokens.

    Raises LtiError.
    """
    try:
        told = json.loads(file.read_text(encoding="utf-8"))["platform"]
        wanted = {name: told[name] for name in ("name", "client_id", "token_url", "line_items")}
        if not all(isinstance(value, str) and value for value in wanted.values()):
            raise TypeError("an address is no text")
        found = Platform(**wanted, members=str(told.get("members") or ""), people=str(file))
    except OSError as error:
        raise LtiError(
            f"{file} can't be read ({error.strerror}): nobody has come from the platform to the hub yet, or this is not the grader's account."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise LtiError(
            f"{file} names no column service: switch on grade services for the tool, and launch it once."
        ) from None
    trusted = {origin(found.token_url), *([origin(_root(at))] if at else [])}
    for address in filter(None, (found.line_items, found.members)):
        if origin(address) not in trusted:
            there = f"{origin(address)[0]}://{urlsplit(address).netloc}"
            raise LtiError(
                f"A launch names services at {there}, and {found.name} gives its tokens at {found.host}: if both are "
                f"the platform's, type `allranks course connect hub {there}`."
            )
    return found


def _root(address: str) -> str:
    """The platform's address with https://. Raises LtiError for the address of a page of it."""
    root = address.rstrip("/")
    root = root if "://" in root else f"https://{root}"
    parts = _parts(root)
    if parts.query or parts.fragment or re.search(r"\.php(/|$)|/courses?/", f"{parts.path}/"):
        raise LtiError(
            f"{address} is the address of a page: give that of the platform alone, such as https://{parts.netloc}."
        )
    return root


def check(platform: Platform) -> None:
    """Raises LtiError for an address that can't be one or is without TLS, and for an empty client ID."""
    for address in filter(None, (platform.token_url, platform.line_items, platform.members)):
        origin(address)
    if not platform.client_id.strip():
        raise LtiError("The client ID is empty: the platform shows it once the tool is registered.")


def connect(course: Path, platform: Platform) -> None:
    """Keeps the platform for this course, and makes the key if there is none. Raises LtiError as `check` does."""
    check(platform)
    key_of(course)
    write_private(folder_of(course) / PLATFORM, json.dumps(asdict(platform), indent=1) + "\n")


def _parts(address: str) -> SplitResult:
    """The parts of an address. Raises LtiError if it can't be one, or has a user or password in it."""
    try:
        parts = urlsplit(address)
        whole = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:  # a port of letters or above 65535, a bracket that is not closed
        whole = False
    # urlsplit drops a line end and keeps a blank; other readers of addresses take a backslash for a slash
    if not whole or "\\" in address or not address.isprintable() or " " in address:
        raise LtiError(f"{address!r} is no address such as https://moodle.example.org.")
    return parts


def origin(address: str) -> tuple[str, str, int]:
    """Scheme, host and port: whom a token is shown to. Raises LtiError for what can't be an address.

    Only this machine may do without TLS: elsewhere marks and tokens would travel in the open.
    """
    parts = _parts(address)
    host = parts.hostname or ""
    local = host in ("localhost", "127.0.0.1", "::1") or host.endswith(".localhost")
    if not (parts.scheme == "https" or (parts.scheme == "http" and local)):
        raise LtiError(f"{address} is no address with https://, and marks must not travel without encryption.")
    return parts.scheme, host, parts.port or (443 if parts.scheme == "https" else 80)


def connected(course: Path) -> Platform:
    """The platform of this course. Raises LtiError if there is none."""
    path = folder_of(course) / PLATFORM
    try:
        return Platform(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise LtiError("This course has no platform yet: type `allranks course connect` first.") from None
    except (OSError, ValueError, TypeError):
        raise LtiError(f"{path} can't be read: type `allranks course connect` again.") from None


# -------------------------------------------------------------------------------------------------------------- the key


def write_private(path: Path, text: str) -> None:
    """Puts the text into a file that only this account can read, whole or not at all."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.parent.chmod(0o700)
    write_whole(path, text, 0o600)


def key_of(course: Path) -> rsa.RSAPrivateKey:
    """The course's private key (RSA, 2048 bits), made at the first use. Raises LtiError if others can read it, or if it is damaged."""
    path = folder_of(course) / KEY
    if not path.exists():
        made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        plain = serialization.NoEncryption()
        text = made.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
        unfinished = path.with_name(f"{KEY}.{uuid.uuid4().hex}")
        write_private(unfinished, text)
        with contextlib.suppress(FileExistsError):  # another command was first: its key counts
            os.link(unfinished, path)
        unfinished.unlink()
    if path.stat().st_mode & 0o077:
        raise LtiError(
            f"Others can read {path}: type `chmod 600 {path}`, and if they did, delete it and register a new key."
        )
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise LtiError(
            f"{path} can't be read as a key ({error}): delete it, connect and register the new one."
        ) from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise LtiError(f"{path} is no RSA key: delete it, connect and register the new one.")
    return key


def public_pem(course: Path) -> str:
    """The public key as Moodle's field *Public key* takes it."""
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return key_of(course).public_key().public_bytes(serialization.Encoding.PEM, spki).decode()


def public_jwk(course: Path) -> dict[str, str]:
    """The public key as Canvas's field *Public JWK* takes it (RFC 7517); its name `kid` is its thumbprint (RFC 7638)."""
    return jwk_of(key_of(course))


def jwk_of(key: rsa.RSAPrivateKey) -> dict[str, str]:
    """The public part of a key, as `public_jwk` gives it."""
    numbers = key.public_key().public_numbers()

    def text(number: int) -> str:
        return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8)).rstrip(b"=").decode()

    told = {"e": text(numbers.e), "kty": "RSA", "n": text(numbers.n)}
    digest = hashlib.sha256(json.dumps(told, separators=(",", ":"), sort_keys=True).encode()).digest()
    return {**told, "kid": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), "alg": "RS256", "use": "sig"}


# ------------------------------------------------------------------------------------------------------------- services


class Services:
    """The platform's services for one course, with tokens that are asked for when needed and kept in memory only.

    `wait` sleeps so many seconds between tries.
    """

    def __init__(self, course: Path, platform: Platform, wait: Callable[[float], None] = time.sleep) -> None:
        self.platform = platform
        self._key = key_of(course)
        self._kid = jwk_of(self._key)["kid"]
        self._wait = wait
        self._session = requests.Session()
        # without this, requests puts a password of ~/.netrc, or of the address, in place of the token
        self._session.auth = lambda request: request
        self._tokens: dict[tuple[tuple[str, ...], ...], tuple[str, float]] = {}

    # ---- tokens

    def _token(self, choices: tuple[tuple[str, ...], ...]) -> str:
        """A token for the first of these sets of scopes that the platform grants in full. Raises LtiError."""
        token, until = self._tokens.get(choices, ("", 0.0))
        if token and time.monotonic() < until:
            return token
        refused: LtiError | None = None
        for scopes in choices:
            try:
                told = self._ask_token(scopes)
            except Refusal as error:
                if "invalid_scope" not in error.said:
                    raise
                refused = error
                continue
            if set(scopes) <= set(str(told.get("scope", " ".join(scopes))).split()):
                life_s = float(told.get("expires_in") or 3600)
                self._tokens[choices] = (str(told["access_token"]), time.monotonic() + max(0.0, life_s - 30))
                return str(told["access_token"])
        name = self.platform.name
        what = "names and roles" if choices == PEOPLE else "grades (line items, results and scores)"
        raise LtiError(
            f"{name} does not let this tool use its {what}: switch the service on in the tool's registration."
        ) from refused

    def _ask_token(self, scopes: tuple[str, ...]) -> dict[str, Any]:
        platform = self.platform

        def body() -> bytes:  # anew for each try: an assertion is good once
            now = int(time.time())
            claims: dict[str, Any] = {"iss": platform.client_id, "sub": platform.client_id, "aud": platform.token_url}
            claims |= {"iat": now - 5, "exp": now + 300, "jti": uuid.uuid4().hex}
            signed = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": self._kid})
            form = {"grant_type": "client_credentials", "client_assertion_type": ASSERTION}
            return urlencode({**form, "client_assertion": signed, "scope": " ".join(scopes)}).encode()

        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        try:
            told = self._tried("POST", platform.token_url, headers, body)
        except Refusal as error:
            if "invalid_scope" in error.said:
                raise
            message = (
                f"{platform.name} accepts neither this course's key nor its client ID, or one of them ({error.said or error.status}): "
                "compare the client ID, and register the key that `allranks course connect --show` prints."
            )
            raise Refusal(message, error.status, error.said) from None
        found = _json(told, platform.name)
        if not isinstance(found, dict) or not found.get("access_token"):
            raise LtiError(
                f"{platform.name} gave no access token: see whether {platform.token_url} is the address of its tokens."
            )
        return found

    # ---- requests

    def _tried(
        self, method: str, url: str, headers: dict[str, str], body: Callable[[], bytes] | None
    ) -> requests.Response:
        """The answer, with further tries where that helps. Raises Refusal for an error, LtiError if there is no answer."""
        name, host = self.platform.name, urlsplit(url).netloc
        for left in reversed(range(TRIES)):
            try:
                answer = self._session.request(
                    method, url, headers=headers, data=body and body(), timeout=TIMEOUT_S, allow_redirects=False
                )
            except requests.RequestException as error:
                if left:
                    self._wait(2.0 ** (TRIES - left))
                    continue
                raise LtiError(
                    f"{name} does not answer at {host} ({_why(error)}): type the command again later."
                ) from None
            limited = answer.status_code == 429 or (answer.status_code == 403 and "rate limit" in answer.text.lower())
            if limited or answer.status_code in AGAIN:
                pause_s = _retry_after(answer) or 2.0 ** (TRIES - left)
                if left and pause_s <= LONGEST_WAIT_S:
                    self._wait(pause_s)
                    continue
                if limited:
                    later = f"in {pause_s:.0f} s" if pause_s > LONGEST_WAIT_S else "later"
                    raise LtiError(f"{name} takes no more requests for now: type the command again {later}.")
                raise Refusal(
                    f"{name} has an error of its own ({answer.status_code}): type the command again later.",
                    answer.status_code,
                )
            if answer.status_code >= 300:
                raise Refusal(f"{name} refuses it ({answer.status_code}).", answer.status_code, _said(answer))
            return answer
        raise AssertionError("the last try ends the loop")

    def _call(
        self,
        method: str,
        url: str,
        choices: tuple[tuple[str, ...], ...],
        kind: str,
        body: Callable[[], Any] | None = None,
        what: str = "a column",
    ) -> requests.Response:
        """One request with a token; a token that has ended early is asked for anew, once. Raises LtiError.

        A token goes to the host of the service to which the course is connected, and to no other: `what` the platform named there is in
        the message. All requests with a token pass here.
        """
        home = self.platform.members if choices == PEOPLE else self.platform.line_items
        if origin(url) != origin(home):
            raise LtiError(f"{self.platform.name} names another host for {what}: nothing is sent there.")
        for last in (False, True):
            about = {"Authorization": f"Bearer {self._token(choices)}"}
            about |= {"Content-Type": kind, "Accept": "*/*"} if body else {"Accept": kind}
            try:
                return self._tried(method, url, about, body and (lambda: json.dumps(body()).encode()))
            except Refusal as error:
                whole = urlsplit(url).path == urlsplit(home).path
                self._explain(error, last, ("members" if choices == PEOPLE else "columns") if whole else "")
                self._tokens.pop(choices, None)
        raise AssertionError("the second refusal is raised")

    def _explain(self, error: Refusal, last: bool, service: str) -> None:
        """Raises what a refusal means, by a `service` or of one thing (""); returns if a new token may help."""
        name = self.platform.name
        if error.status == 401 and not last:
            return
        why = {
            401: f"{name} gives tokens and then refuses them (401): see whether the tool is still active, and used in this course.",
            403: f"{name} does not allow it (403): see whether the tool is used in this course, with grade services switched on.",
        }.get(error.status)
        if error.status == 404 and service:
            why = f"{name} has no {service} of this course and tool (404): compare --course-id and --tool-id."
        if 300 <= error.status < 400:
            why = f"{name} answers with another address ({error.status}): see whether that of its services is right."
        if why is None:
            raise error
        raise Refusal(why, error.status, error.said) from None

    def _pages(self, url: str, choices: tuple[tuple[str, ...], ...], kind: str) -> Iterator[Any]:
        """Each page of a list."""
        for page in range(MAX_PAGES):
            answer = self._call("GET", url, choices, kind, what="the next page" if page else "a column")
            yield _json(answer, self.platform.name)
            following = _next(answer)
            if following is None:
                return
            url = urljoin(url, following)

    # ---- columns, marks and people

    def columns(self, resource: str | None = None) -> list[dict[str, Any]]:
        """The columns that this tool may use; with `resource` only those that it made for this lab."""
        url = _with(self.platform.line_items, resource_id=resource) if resource else self.platform.line_items
        found = [one for page in self._pages(url, GRADES, LINE_ITEMS) for one in _list(page)]
        return [one for one in found if one.get("id") and (resource is None or one.get("resourceId") == resource)]

    def make_column(self, label: str, resource: str, most: float) -> dict[str, Any]:
        """Makes a column of `most` points. A further try asks first whether the one before, without a good answer, made it."""
        about = {"label": label, "scoreMaximum": most, "resourceId": resource, "tag": "allranks"}
        tried = False

        def body() -> dict[str, Any]:
            nonlocal tried
            if tried and (there := self.columns(resource)):
                raise _IsThere(there[0])
            tried = True
            return about

        name = self.platform.name
        try:
            made = _json(self._call("POST", self.platform.line_items, GRADES, LINE_ITEM, body), name)
        except _IsThere as found:
            return found.column
        except Refusal as error:
            if error.status not in (401, 403):
                raise
            raise LtiError(
                f"{name} does not let this tool make a column: make one there and name it by --column."
            ) from None
        if not isinstance(made, dict) or not made.get("id"):
            raise LtiError(f"{name} made a column and did not say which: type the command again.")
        return made

    def column(self, item: str) -> dict[str, Any] | None:
        """A column by its address; None if it is not there any more."""
        try:
            found = _json(self._call("GET", item, GRADES, LINE_ITEM), self.platform.name)
        except Refusal as error:
            if error.status in (404, 410):
                return None
            raise
        return found if isinstance(found, dict) else None

    def results(self, item: str) -> dict[str, dict[str, Any]]:
        """What the platform shows in a column, by its number of the person."""
        pages = self._pages(_below(item, "results"), GRADES, RESULTS)
        return {str(one["userId"]): one for page in pages for one in _list(page) if one.get("userId") is not None}

    def send(self, item: str, body: Callable[[], dict[str, Any]]) -> None:
        """Sends one score; `body` makes it, anew for each try, because of its time. Raises Refusal, LtiError."""
        self._call("POST", _below(item, "scores"), GRADES, SCORE, body)

    def people(self) -> list[dict[str, Any]]:
        """The course's members, as the platform tells them. Raises LtiError."""
        if not self.platform.members:
            raise LtiError(
                f"{self.platform.name} named no service for names and roles: students are found by the gradebook only."
            )
        pages = self._pages(self.platform.members, PEOPLE, MEMBERSHIP)
        found = [one for page in pages if isinstance(page, dict) for one in _list(page.get("members"))]
        return [one for one in found if one.get("user_id") is not None]


def _below(item: str, name: str) -> str:
    """The address of a column's scores or results: the query stays at the end (AGS 2.0, 3.1)."""
    parts = urlsplit(item)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def _with(url: str, **more: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(query=urlencode([*parse_qsl(parts.query), *more.items()])))


def _next(answer: requests.Response) -> str | None:
    """The next page of a Link header. Moodle writes typographic quotes, which requests' own parser does not know."""
    for part in re.findall(r"<([^>]*)>([^<]*)", answer.headers.get("Link", "")):
        if re.search(r"\brel\W+next\b", part[1].encode("latin-1", "replace").decode("utf-8", "replace")):
            return str(part[0])
    return None


def _list(found: Any) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _json(answer: requests.Response, name: str) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise LtiError(
            f"{name} answered with something else than JSON: see whether the address of its services is right."
        ) from None


def _said(answer: requests.Response) -> str:
    """The beginning of what an error's answer says, in one line."""
    text = answer.text[:2000]
    with contextlib.suppress(ValueError):
        told = json.loads(text)
        if isinstance(told, dict):
            parts = [told.get(key) for key in ("error", "error_description", "reason", "message") if told.get(key)]
            text = ": ".join(map(str, parts)) or text
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())[:200]


def _retry_after(answer: requests.Response) -> float | None:
    """The seconds that the header Retry-After asks to wait: a number, or a date (RFC 9110, 10.2.3)."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    with contextlib.suppress(ValueError, TypeError):
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    return None


def _why(error: requests.RequestException) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted"
    if isinstance(error, requests.Timeout):
        return "it is too slow"
    return "no connection"
