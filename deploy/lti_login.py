"""People come to the hub from Canvas or Moodle by an LTI 1.3 launch, in place of a password: jupyterhub_config.py's ALLRANKS_HUB_LOGIN=lti.

LTI13Authenticator checks the launch: signature, issuer, audience, nonce, state, age. Here is what it leaves open: which course of the platform
may come, which account a person is, and what the grader learns of it.
"""

import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyterhub.auth import LocalAuthenticator
from ltiauthenticator.lti13.auth import LTI13Authenticator
from ltiauthenticator.lti13.handlers import LTI13LoginInitHandler
from tornado import web

CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
AGS = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"
NRPS = "https://purl.imsglobal.org/spec/lti-nrps/claim/namesroleservice"
LEARNER = "http://purl.imsglobal.org/vocab/lis/v2/membership#Learner"
PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")  # useradd's own rule


def platform_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The platform's addresses and this tool's registration there, from the environment; exits with a sentence if one lacks."""
    kind, _, address = settings.get("ALLRANKS_HUB_LTI", "").partition(" ")
    root, client = address.strip().rstrip("/"), settings.get("ALLRANKS_HUB_LTI_CLIENT", "")
    if kind not in ("moodle", "canvas") or "://" not in root or not client:
        sys.exit(
            "ALLRANKS_HUB_LOGIN=lti needs ALLRANKS_HUB_LTI, such as 'moodle https://moodle.example.org', and "
            "ALLRANKS_HUB_LTI_CLIENT, the client ID that the platform shows: docs/jupyterhub.md."
        )
    if kind == "moodle":
        tool, name = f"{root}/mod/lti", "ext.user_username"
        found = {
            "issuer": root,
            "authorize_url": f"{tool}/auth.php",
            "jwks": f"{tool}/certs.php",
            "token_url": f"{tool}/token.php",
        }
    else:
        hosted = root.endswith(".instructure.com")
        sso, name = "https://sso.canvaslms.com" if hosted else root, "custom.username"
        issuer = "https://canvas.instructure.com" if hosted else root
        found = {
            "issuer": issuer,
            "authorize_url": f"{sso}/api/lti/authorize_redirect",
            "jwks": f"{sso}/api/lti/security/jwks",
        }
        found["token_url"] = f"{root}/login/oauth2/token"
    for key in ("issuer", "authorize_url", "jwks"):  # for a platform that has others
        found[key] = settings.get(f"ALLRANKS_HUB_LTI_{key.upper()}", found[key])
    return {
        **found,
        "name": kind.capitalize(),
        "client_id": client,
        "username": settings.get("ALLRANKS_HUB_LTI_NAME", name),
    }


def claim(token: Mapping[str, Any], path: str) -> str:
    """A claim by its short name: `email`, `ext.user_username`, `custom.username`, `lis.person_sourcedid`; "" if it is not there."""
    group, _, name = path.rpartition(".")
    found = token.get(f"{CLAIM}{group}") if group else token
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, str) else ""


class LoginInit(LTI13LoginInitHandler):
    """The first step of a launch. Its cookies come back with a form that the platform's page sends, so from another site."""

    def _set_oauth_cookie(self, key, value):
        secure = self.authenticator.get_uri_scheme(self.request) == "https"
        across = {"samesite": "None", "secure": True} if secure else {}
        self._set_cookie(key, value, expires_days=1, httponly=True, encrypted=True, **across)


def platform_login(
    groups: type, platform: dict[str, str], settings: Mapping[str, str], launches: Path, reader_gid: int, learners: str
) -> type:
    """The authenticator. `groups` is the mixin that asks the Unix groups; `launches` is what the grader, of group `reader_gid`, may read.

    Accounts that a launch makes get the Unix group `learners`.
    """
    course, makes = (
        settings.get("ALLRANKS_HUB_LTI_COURSE", ""),
        settings.get("ALLRANKS_HUB_LTI_MAKE_ACCOUNTS", "0") == "1",
    )
    name = platform["name"]

    class FromPlatform(groups, LTI13Authenticator, LocalAuthenticator):
        """Takes who comes from the platform's course, under the name of the Unix account that the platform's user name is."""

        login_handler = LoginInit
        login_service = name
        custom_html = f"<p>Open the course in {name}: the link there leads to your notebooks.</p>"

        def get_username(self, token):
            """The account's name. Raises HTTPError where the platform does not tell it: `sub` would be another person's name."""
            found = claim(token, platform["username"])
            if not found:
                raise web.HTTPError(
                    403, f"{name} does not tell your user name ({platform['username']}): ask your teacher."
                )
            return found

        async def authenticate(self, handler, data):
            """Who it is. Raises HTTPError for another course, and for somebody without an account."""
            context = (data.get(f"{CLAIM}context") or {}).get("id", "")
            if not course or context != course:
                which = f"ALLRANKS_HUB_LTI_COURSE is {course or 'not set'}"
                raise web.HTTPError(
                    403, f"This hub is for one course of {name}, and you come from {context!r}: {which}."
                )
            person = self.normalize_username(self.get_username(data))
            if makes and LEARNER in (data.get(f"{CLAIM}roles") or ()):
                make_account(person, learners)
            try:
                pwd.getpwnam(person)
            except KeyError:
                raise web.HTTPError(403, f"There is no account {person!r} on this machine: ask your teacher.") from None
            return {"name": person, "groups": self.hub_groups(person), "auth_state": data}

        async def run_post_auth_hook(self, handler, auth_model):
            """Once the account may log in: tells the grader who came. The launch itself is not kept."""
            auth_model = await super().run_post_auth_hook(handler, auth_model)
            remember(launches, reader_gid, platform, auth_model["name"], auth_model.get("auth_state") or {})
            return {**auth_model, "auth_state": None}

    return FromPlatform


def make_account(name: str, group: str) -> None:
    """Makes a Unix account without a password, with a home, in the group; an account that is there stays as it is."""
    if not PLAIN_NAME.fullmatch(name):
        raise web.HTTPError(403, f"{name!r} can be no account's name: ask your teacher for an account.")
    try:
        pwd.getpwnam(name)
    except KeyError:
        made = subprocess.run(
            ["useradd", "--create-home", "--shell", "/bin/bash", "--groups", group, name],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise web.HTTPError(500, f"The account {name!r} could not be made: {made.stderr.strip()}") from None


def remember(file: Path, reader_gid: int, platform: dict[str, str], account: str, token: Mapping[str, Any]) -> None:
    """Writes who came and where the course's services are, for `allranks course connect hub` and `roster`; whole or not at all."""
    file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(file.parent, 0, reader_gid)
    file.parent.chmod(0o750)
    try:
        people = json.loads(file.read_text(encoding="utf-8"))["people"]
    except (OSError, ValueError, KeyError, TypeError):
        people = {}
    services = {
        "line_items": (token.get(AGS) or {}).get("lineitems"),
        "members": (token.get(NRPS) or {}).get("context_memberships_url"),
    }
    people[account] = {key: token[key] for key in ("sub", "given_name", "family_name", "email") if token.get(key)}
    told = {"platform": {key: platform[key] for key in ("name", "client_id", "token_url")}, "people": people}
    told["platform"] |= {key: value for key, value in services.items() if value}
    unfinished = file.with_name(f"{file.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
    with os.fdopen(descriptor, "w", encoding="utf-8") as text:
        os.fchmod(text.fileno(), 0o640)
        if os.geteuid() == 0:
            os.fchown(text.fileno(), 0, reader_gid)
        json.dump(told, text, indent=1)
    unfinished.replace(file)
