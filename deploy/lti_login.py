"""People come to the hub from Canvas or Moodle by an LTI 1.3 launch, in place of a password: jupyterhub_config.py's ALLRANKS_HUB_LOGIN=lti.

LTI13Authenticator checks the launch: signature, issuer, audience, nonce, state, age. Here is what it leaves open: which course of the platform
may come, which account a person is, and what the grader learns of it. An account stays that of the person who came first: the file of launches
has the platform's number of each (`sub`). Root lets an account go, and removes what the file says of a person:

    sudo /opt/allranks/.venv/bin/python /opt/allranks/deploy/lti_login.py forget ada
"""

import fcntl
import grp
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jupyterhub.auth import LocalAuthenticator
from ltiauthenticator.lti13.auth import LTI13Authenticator
from ltiauthenticator.lti13.handlers import LTI13CallbackHandler, LTI13LoginInitHandler
from tornado import web

CLAIM = "https://purl.imsglobal.org/spec/lti/claim/"
AGS = "https://purl.imsglobal.org/spec/lti-ags/claim/endpoint"
NRPS = "https://purl.imsglobal.org/spec/lti-nrps/claim/namesroleservice"
LEARNER = "http://purl.imsglobal.org/vocab/lis/v2/membership#Learner"
# who has one of these roles teaches or administers: nobody gives them to himself
LIS = "http://purl.imsglobal.org/vocab/lis/v2/"
TEACHING = {f"{LIS}membership#Instructor", f"{LIS}membership/Instructor#TeachingAssistant"} | {
    f"{LIS}{where}#Administrator" for where in ("membership", "institution/person", "system/person")
}
PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")  # useradd's own rule


def platform_of(settings: Mapping[str, str]) -> dict[str, str]:
    """The platform's addresses and this tool's registration there, from the environment; exits with a sentence if one lacks."""
    kind, _, address = settings.get("ALLRANKS_HUB_LTI", "").partition(" ")
    root, client = address.strip().rstrip("/"), settings.get("ALLRANKS_HUB_LTI_CLIENT", "")
    for key, value in {**settings, "ALLRANKS_HUB_LTI": root}.items():
        if key.startswith("ALLRANKS_HUB_LTI") and len(value.split()) > 1:
            sys.exit(
                f"{key} has something behind its value, {value!r}: hub.env takes comments on lines of their own only."
            )
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
    return text_of(token.get(f"{CLAIM}{group}") if group else token, name)


def text_of(claims: Any, name: str) -> str:
    """A text in a group of claims; "" if it is not there, or one of the two is something else."""
    value = claims.get(name) if isinstance(claims, Mapping) else None
    return value if isinstance(value, str) else ""


class Callback(LTI13CallbackHandler):
    """The last step of a launch."""

    def decode_and_validate_launch_request(self):
        """The claims. Raises HTTPError also where one has a form in which the library does not expect it."""
        try:
            return super().decode_and_validate_launch_request()
        except (AttributeError, TypeError):
            raise web.HTTPError(400, "The launch has a claim that LTI 1.3 writes in another way.") from None


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
    course = settings.get("ALLRANKS_HUB_LTI_COURSE", "")
    makes = settings.get("ALLRANKS_HUB_LTI_MAKE_ACCOUNTS", "0") == "1"
    name = platform["name"]

    class FromPlatform(groups, LTI13Authenticator, LocalAuthenticator):
        """Takes who comes from the platform's course, under the name of the Unix account that the platform's user name is."""

        login_handler, callback_handler = LoginInit, Callback
        login_service = name
        custom_html = f"<p>Open the course in {name}: the link there leads to your notebooks.</p>"

        def get_username(self, token):
            """The account's name. Raises HTTPError where the platform does not tell it: `sub` would be another person's name.

            Refused are letters that `lower` makes others' of, such as the Kelvin sign, of which it makes a k.
            """
            found = claim(token, platform["username"])
            if not found:
                raise web.HTTPError(
                    403, f"{name} does not tell your user name ({platform['username']}): ask your teacher."
                )
            if not (found.isascii() and found.isprintable()):
                raise web.HTTPError(403, f"{found!r} can be no account's name: ask your teacher for an account.")
            return found

        async def authenticate(self, handler, data):
            """Who it is. Raises HTTPError for another course, for somebody without an account, and for another person's account."""
            context = claim(data, "context.id")
            if not course or context != course:
                which = f"ALLRANKS_HUB_LTI_COURSE is {course or 'not set'}"
                raise web.HTTPError(
                    403, f"This hub is for one course of {name}, and you come from {context!r}: {which}."
                )
            person = self.normalize_username(self.get_username(data))
            check_person(launches, read(launches), platform, person, claim(data, "sub"))
            roles = data.get(f"{CLAIM}roles")
            roles = {role for role in roles if isinstance(role, str)} if isinstance(roles, list) else set()
            if makes and LEARNER in roles:
                make_account(person, learners)
            if not is_there(pwd.getpwnam, person):
                raise web.HTTPError(403, f"There is no account {person!r} on this machine: ask your teacher.")
            groups = self.hub_groups(person)
            above = self.hub_admin(person) or any(group.startswith("formgrade-") for group in groups)
            if above and not roles & TEACHING:  # a student may choose a user name that is a teacher's account here
                raise web.HTTPError(403, f"The account {person!r} is a teacher's, and {name} says that you learn here.")
            return {"name": person, "groups": groups, "auth_state": data}

        def is_admin(self, handler, authentication):
            """Whether the account is an administrator's; None, which changes nothing, if neither a setting nor a group says it."""
            return super().is_admin(handler, authentication) or self.hub_admin(authentication["name"])

        async def run_post_auth_hook(self, handler, auth_model):
            """Once the account may log in: tells the grader who came. The launch itself is not kept."""
            auth_model = await super().run_post_auth_hook(handler, auth_model)
            remember(launches, reader_gid, platform, auth_model["name"], auth_model.get("auth_state") or {})
            return {**auth_model, "auth_state": None}

    return FromPlatform


def make_account(name: str, group: str) -> None:
    """Makes a Unix account without a password, with a home, in the group; an account that is there stays as it is."""
    if is_there(pwd.getpwnam, name):
        return
    if not PLAIN_NAME.fullmatch(name) or is_there(grp.getgrnam, name):  # with `docker` an account would get that group
        raise web.HTTPError(403, f"{name!r} can be no new account's name: ask your teacher for an account.")
    made = subprocess.run(
        ["useradd", "--create-home", "--shell", "/bin/bash", "--groups", group, name],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise web.HTTPError(500, f"The account {name!r} could not be made: {made.stderr.strip()}")


def is_there(look_up: Callable[[str], object], name: str) -> bool:
    """Whether there is a Unix account (`pwd.getpwnam`) or group (`grp.getgrnam`) of this name."""
    try:
        look_up(name)
    except KeyError:
        return False
    return True


# ------------------------------------------------------------------------------------------------- the file of launches


def read(file: Path) -> dict[str, dict[str, Any]]:
    """What the file says: `platform`, and `people` by account. Raises HTTPError if it is damaged, since it says whose an account is."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        parts = (told["platform"], told["people"], *told["people"].values())
    except FileNotFoundError:
        return {"platform": {}, "people": {}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        parts = (None,)
    if not all(isinstance(part, dict) for part in parts):
        raise web.HTTPError(500, f"{file} can't be read, and it says whose an account is: tell the administrator.")
    return told


def check_person(file: Path, told: dict[str, Any], platform: dict[str, str], account: str, sub: str) -> None:
    """Raises HTTPError unless the account and the platform's number of the person are each other's, or both are new."""
    name, before = platform["name"], told["platform"].get("token_url")
    if not sub:
        raise web.HTTPError(403, f"{name} does not tell your number (sub): ask your teacher.")
    if before not in (None, platform["token_url"]):
        raise web.HTTPError(403, f"{file} is of another platform ({before}): tell the administrator.")
    if told["people"].get(account, {}).get("sub", sub) != sub:
        raise web.HTTPError(403, f"The account {account!r} is another person's of {name}: ask your teacher.")
    for other, about in told["people"].items():
        if other != account and about.get("sub") == sub:
            raise web.HTTPError(403, f"You came as {other!r}, and now {name} names you {account!r}: ask your teacher.")


def remember(file: Path, reader_gid: int, platform: dict[str, str], account: str, token: Mapping[str, Any]) -> None:
    """Writes who came and where the course's services are, for `allranks course connect hub` and `roster`. Raises HTTPError as check_person.

    Services that this launch does not name stay, if they are of the same course and the same tool.
    """
    file.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(file.parent, 0, reader_gid)
    file.parent.chmod(0o750)
    tool = {key: platform[key] for key in ("name", "client_id", "token_url")} | {"course": claim(token, "context.id")}
    services = {
        "line_items": text_of(token.get(AGS), "lineitems"),
        "members": text_of(token.get(NRPS), "context_memberships_url"),
    }
    with alone(file):
        told = read(file)
        check_person(file, told, platform, account, claim(token, "sub"))
        before = told["platform"] if tool.items() <= told["platform"].items() else {}
        person = {key: claim(token, key) for key in ("sub", "given_name", "family_name", "email")}
        told["platform"] = before | tool | {key: value for key, value in services.items() if value}
        told["people"][account] = {key: value for key, value in person.items() if value}
        write(file, reader_gid, told)


def forget(file: Path, account: str) -> bool:
    """Removes the account's line, so that the next who comes under its name has it; False if there is none. Raises HTTPError, OSError."""
    if not file.exists():
        return False
    with alone(file):
        told = read(file)
        if told["people"].pop(account, None) is None:
            return False
        write(file, file.stat().st_gid, told)
    return True


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """While it holds, no other process writes the file. The lock is root's: the reader can't hold it."""
    with open(os.open(f"{file}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write(file: Path, reader_gid: int, told: dict[str, Any]) -> None:
    """Writes the file whole or not at all; its group may read it."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o640)
    with os.fdopen(descriptor, "w", encoding="utf-8") as text:
        os.fchmod(text.fileno(), 0o640)
        if os.geteuid() == 0:
            os.fchown(text.fileno(), 0, reader_gid)
        json.dump(told, text, indent=1)
        text.flush()
        os.fsync(text.fileno())
    unfinished.replace(file)


def main(words: list[str]) -> str | None:
    """The command line; what was wrong, or None."""
    from allranks.machine.doctor.hub import Site

    if len(words) != 2 or words[0] != "forget":
        return "Type: lti_login.py forget ACCOUNT"
    file, account = Site.of_this_machine().launches, words[1]
    try:
        if not forget(file, account):
            return f"{file} has no {account!r}."
    except web.HTTPError as error:
        return error.log_message
    except OSError as error:
        return f"{file} can't be changed ({error.strerror}): use sudo."
    print(
        f"{file} has {account} no more: the next person whom the platform names so gets the account, if there is one."
    )
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
