"""A learning platform that keeps to 1EdTech's specifications and takes nothing else: real HTTP on loopback, real signatures.

It checks what the specifications make a duty: the assertion's signature, issuer, subject, audience, times and that it is used once (Security
Framework 1.0, 4.1), the scopes of each request, content types, the fields of a score and its time (AGS 2.0), paged lists (RFC 8288), and
media types of members (NRPS 2.0). Tests spoil an answer by `trouble`, and see what arrived in `seen`.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt

AGS = "https://purl.imsglobal.org/spec/lti-ags/scope/"
NRPS = "https://purl.imsglobal.org/spec/lti-nrps/scope/contextmembership.readonly"
KINDS = {
    "lineitems": "application/vnd.ims.lis.v2.lineitemcontainer+json",
    "lineitem": "application/vnd.ims.lis.v2.lineitem+json",
    "results": "application/vnd.ims.lis.v2.resultcontainer+json",
    "scores": "application/vnd.ims.lis.v1.score+json",
    "members": "application/vnd.ims.lti-nrps.v2.membershipcontainer+json",
}
PROGRESS = {
    "activityProgress": {"Initialized", "Started", "InProgress", "Submitted", "Completed"},
    "gradingProgress": {"FullyGraded", "Pending", "PendingManual", "Failed", "NotReady"},
}
Answer = tuple[int, dict[str, str], Any]


@dataclass
class StrictPlatform:
    """The platform's side: `client_id`, the tool's public `jwk`, who is in the course, and the columns with their marks."""

    client_id: str = "tool-17"
    jwk: dict[str, str] = field(default_factory=dict)
    scopes: set[str] = field(
        default_factory=lambda: (
            {f"{AGS}{s}" for s in ("lineitem", "lineitem.readonly", "result.readonly", "score")} | {NRPS}
        )
    )
    members: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    marks: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    page: int = 2  # rows in a page of a list
    trouble: Callable[[str, str, Any], Answer | None] = lambda method, path, body: None
    seen: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: dict[str, set[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    address: str = ""

    @property
    def scores(self) -> list[dict[str, Any]]:
        """All scores that arrived, taken or not."""
        return [body for method, path, body in self.seen if method == "POST" and path.endswith("/scores")]

    # ---- what it takes

    def answer(self, method: str, target: str, headers: Any, raw: bytes) -> Answer:
        """The status, headers and body of one request."""
        parts = urlsplit(target)
        kind = headers.get("Content-Type", "")
        body = json.loads(raw) if raw and kind.endswith("+json") else raw.decode()
        self.seen.append((method, parts.path, body))
        if (spoiled := self.trouble(method, parts.path, body)) is not None:
            return spoiled
        if parts.path == "/token":
            return self._token(method, kind, parse_qs(body))
        granted = self.tokens.get(headers.get("Authorization", "").removeprefix("Bearer "))
        if granted is None:
            return 401, {"WWW-Authenticate": "Bearer"}, {"error": "invalid_token"}
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if query.get("type_id") != "4" and parts.path != "/members":
            return 404, {}, {"error": "the query of the address was lost"}
        accept = headers.get("Accept", "")
        if parts.path == "/members":
            return self._list(
                NRPS in granted, accept, "members", {"id": target, "members": self.members}, query, "/members"
            )
        if parts.path == "/lineitems":
            return self._lineitems(method, granted, accept, kind, body, query)
        item, _, rest = parts.path.removeprefix("/lineitems/").partition("/")
        if item not in self.columns:
            return 404, {}, {"error": "no such line item"}
        if rest == "results":
            rows = [{"id": f"{item}/{who}", "userId": who, **mark} for who, mark in self.marks[item].items()]
            return self._list(f"{AGS}result.readonly" in granted, accept, "results", rows, query, parts.path)
        if rest == "scores":
            return self._score(method, granted, kind, body, item)
        if not granted & {f"{AGS}lineitem", f"{AGS}lineitem.readonly"}:
            return 403, {}, {"error": "insufficient_scope"}
        return 200, {"Content-Type": KINDS["lineitem"]}, self.columns[item]

    def _token(self, method: str, kind: str, form: dict[str, list[str]]) -> Answer:
        try:
            assert (method, kind) == ("POST", "application/x-www-form-urlencoded"), "invalid_request"
            assert form["grant_type"] == ["client_credentials"], "unsupported_grant_type"
            assert form["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"], (
                "invalid_request"
            )
            (assertion,) = form["client_assertion"]
            assert jwt.get_unverified_header(assertion)["kid"] == self.jwk["kid"], "invalid_client"
            must = {"require": ["iss", "sub", "aud", "iat", "exp", "jti"]}
            told = jwt.decode(
                assertion,
                jwt.PyJWK(self.jwk).key,
                ["RS256"],
                must,
                audience=f"{self.address}/token",
                issuer=self.client_id,
            )
            assert told["sub"] == self.client_id and told["exp"] - told["iat"] <= 3600, "invalid_client"
            assert told["jti"] not in self.used, "invalid_grant"
            self.used.add(told["jti"])
            asked = set(form["scope"][0].split())
            assert asked <= self.scopes, "invalid_scope"
        except (AssertionError, KeyError, ValueError, jwt.PyJWTError) as error:
            return 400, {}, {"error": str(error) if isinstance(error, AssertionError) else "invalid_client"}
        token = uuid.uuid4().hex
        self.tokens[token] = asked
        return 200, {}, {"access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": " ".join(asked)}

    def _list(self, granted: bool, accept: str, kind: str, found: Any, query: dict[str, str], path: str) -> Answer:
        """One page of a list, with a Link to the next one."""
        if not granted:
            return 403, {}, {"error": "insufficient_scope"}
        if accept != KINDS[kind]:
            return 406, {}, {"error": f"{accept} is not {KINDS[kind]}"}
        rows = found["members"] if kind == "members" else found
        start = int(query.get("from", 0))
        headers = {"Content-Type": KINDS[kind]}
        if start + self.page < len(rows):
            kept = "".join(f"&{key}={value}" for key, value in query.items() if key != "from")
            headers["Link"] = f'<{self.address}{path}?from={start + self.page}{kept}>; rel="next"'
        shown = rows[start : start + self.page]
        return 200, headers, {**found, "members": shown} if kind == "members" else shown

    def _lineitems(
        self, method: str, granted: set[str], accept: str, kind: str, body: Any, query: dict[str, str]
    ) -> Answer:
        if method == "GET":
            rows = [c for c in self.columns.values() if query.get("resource_id") in (None, c.get("resourceId"))]
            return self._list(
                bool(granted & {f"{AGS}lineitem", f"{AGS}lineitem.readonly"}),
                accept,
                "lineitems",
                rows,
                query,
                "/lineitems",
            )
        if f"{AGS}lineitem" not in granted:
            return 403, {}, {"error": "insufficient_scope"}
        if kind != KINDS["lineitem"]:
            return 415, {}, {"error": "unsupported media type"}
        if not (isinstance(body.get("label"), str) and body["label"] and body.get("scoreMaximum", 0) > 0):
            return 400, {}, {"error": "a line item has a label, and a maximum above 0"}
        return 201, {"Content-Type": KINDS["lineitem"]}, self.add_column(**body)

    def add_column(self, **about: Any) -> dict[str, Any]:
        """A new column, as a request or a teacher makes it."""
        name = str(len(self.columns) + 1 + len(self.used))
        self.columns[name] = {**about, "id": f"{self.address}/lineitems/{name}?type_id=4"}
        self.marks[name] = {}
        return self.columns[name]

    def _score(self, method: str, granted: set[str], kind: str, body: dict[str, Any], item: str) -> Answer:
        if method != "POST":
            return 405, {}, {}
        if f"{AGS}score" not in granted:
            return 403, {}, {"error": "insufficient_scope"}
        if kind != KINDS["scores"]:
            return 415, {}, {"error": "unsupported media type"}
        try:
            assert all(body[key] in values for key, values in PROGRESS.items())
            assert re.search(r"(Z|[+-]\d\d:\d\d)$", body["timestamp"]) and re.search(
                r"\.\d+", body["timestamp"]
            )  # 3.4.6
            when = datetime.fromisoformat(body["timestamp"]).timestamp()
            assert isinstance(body["userId"], str) and body.get("scoreGiven", 0) >= 0
            assert "scoreGiven" not in body or body["scoreMaximum"] > 0
            assert isinstance(body.get("comment", ""), str)
        except (AssertionError, KeyError, ValueError, TypeError):
            return 400, {}, {"error": "that is no score"}
        if body["userId"] not in {str(one["user_id"]) for one in self.members if one["status"] == "Active"}:
            return 404, {}, {"error": "no such user"}
        mark = self.marks[item].setdefault(body["userId"], {})
        if when <= mark.get("when", 0):
            return 409, {}, {"error": "older than the last score"}
        most = self.columns[item]["scoreMaximum"]
        mark |= {
            "when": when,
            "scoreOf": self.columns[item]["id"],
            "resultMaximum": most,
            "comment": body.get("comment", ""),
        }
        # without points, or before all is graded, a platform takes the mark away
        if "scoreGiven" in body and body["gradingProgress"] == "FullyGraded":
            mark["resultScore"] = body["scoreGiven"] * most / body["scoreMaximum"]
        else:
            mark.pop("resultScore", None)
        return 204, {}, None


@contextlib.contextmanager
def running(platform: StrictPlatform) -> Iterator[StrictPlatform]:
    """The platform, at an address on loopback."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with lock:
                status, headers, body = platform.answer(self.command, self.path, self.headers, raw)
            if status == 0:  # as a platform that has gone
                self.close_connection = True
                return
            told = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                **headers,
                "Content-Length": str(len(told)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(told)

        do_GET = do_POST = do_PUT = do_DELETE = _any

        def log_message(self, *words: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    platform.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield platform
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def http_date(seconds: float) -> str:
    """A time of HTTP's so many seconds from now."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + seconds))
