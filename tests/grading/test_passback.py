"""`allranks course connect`, `roster` and `passback` against a platform that keeps strictly to the specifications of LTI 1.3, AGS and NRPS."""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from classes import typed_here as typed
from grading_course import LAB, NOTEBOOK, Course
from lti_platform import StrictPlatform, http_date, running
from nbgrader.api import Gradebook

from autograder import classroom, lti, passback, sent

pytestmark = [pytest.mark.notebooks, pytest.mark.timeout(900)]

WORDS = {
    "ada": 2.0,
    "bo": 1.5,
    "cy": 0.0,
    "di": 2.0,
    "gus": 1.0,
}  # what a reader gave; nobody has read ed's and flo's answer
NUMBERS = {name: f"u-{number}" for number, name in enumerate("ada bo cy di ed flo gus hal".split())}


def member(name: str, **more: object) -> dict[str, object]:
    """A learner of the platform, as Moodle tells it."""
    about = {"status": "Active", "roles": ["Learner"], "user_id": NUMBERS[name], "ext_user_username": name}
    return about | {"given_name": name.title(), "family_name": "Ito", "email": f"{name}@example.org"} | more


@pytest.fixture
def course(small_class, tmp_path) -> Course:
    """The small class; five answers in words are read."""
    made = Course(tmp_path / "course")
    shutil.copytree(small_class.course.root, made.root)
    give(made, WORDS)
    return made


def give(course: Course, words: dict[str, float]) -> None:
    """The points of a reader for answers in words."""
    with book(course) as here:
        for name, points in words.items():
            grade = here.find_grade("when_not_a_ring", NOTEBOOK, LAB, name)
            grade.manual_score, grade.needs_manual_grade = points, False
        here.db.commit()


@pytest.fixture
def platform(course) -> Iterator[StrictPlatform]:
    """The platform, which knows the course's key, and to which the course is connected."""
    with running(StrictPlatform(members=[member(name) for name in NUMBERS])) as made:
        made.members.append(
            {
                "status": "Active",
                "roles": ["http://x/membership#Instructor"],
                "user_id": "t-1",
                "ext_user_username": "ida",
            }
        )
        made.jwk = lti.public_jwk(course.root)
        lti.connect(course.root, at(made))
        yield made


def at(platform: StrictPlatform, **more: str) -> lti.Platform:
    where = platform.address
    about = {"line_items": f"{where}/lineitems?type_id=4", "members": f"{where}/members"} | more
    return lti.Platform("Moodle", platform.client_id, f"{where}/token", **about)


def passed(course: Course, *options: str) -> tuple[int, dict]:
    """The exit status of `allranks course passback --json`, and what it printed."""
    done = typed("course", "passback", LAB, "--course", course.root, "--json", *options)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def sent_by(course: Course, wait=lambda seconds: None) -> passback.Done:
    """What a run did whose waits between tries are `wait`."""
    services = lti.Services(course.root, lti.connected(course.root), wait)
    return passback.passback(course.root, LAB, services)[1]


def book(course: Course) -> Gradebook:
    return Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}")


def known(course: Course) -> dict[str, tuple[str, str]]:
    """Each student's number of the platform and address, in the gradebook."""
    with book(course) as here:
        return {student.id: (student.lms_user_id or "", student.email or "") for student in here.students}


def shown(platform: StrictPlatform) -> dict[str, float]:
    """The marks that the platform shows in the lab's column, by name."""
    names = {number: name for name, number in NUMBERS.items()}
    ((_, marks),) = platform.marks.items()
    return {names[who]: mark["resultScore"] for who, mark in marks.items() if "resultScore" in mark}


def test_a_dry_run_sends_nothing_then_marks_arrive_once_and_an_unread_answer_is_no_zero(course, platform):
    code, trial = passed(course, "--dry-run")
    assert code == 0 and platform.scores == [] and platform.columns == {}
    code, done = passed(course)
    assert code == 0 and done["sent"] == sorted(WORDS), done
    assert [m["student"] for m in trial["marks"] if m["state"] == "send"] == done["sent"]
    assert [m for m in done["marks"] if m["state"] == "send"] == [m for m in trial["marks"] if m["state"] == "send"]
    total = {row.student: row.total for row in classroom.overview(course.root, LAB).rows}
    assert shown(platform) == {name: total[name] for name in WORDS} and total["bo"] == 12.1
    assert {m["student"] for m in done["marks"] if m["state"] == "waits"} == {"ed", "flo"}
    ((column,), scores) = platform.columns.values(), platform.scores
    assert (column["label"], column["scoreMaximum"], column["resourceId"]) == (LAB, 15.0, LAB)
    assert {(s["activityProgress"], s["gradingProgress"], s["scoreMaximum"]) for s in scores} == {
        ("Completed", "FullyGraded", 15.0)
    }
    (bo,) = (s for s in scores if s["userId"] == NUMBERS["bo"])
    assert bo["comment"].splitlines() == [
        "distributed_mean: 3 of 3",
        "distributed_argmax: 4 of 4",
        "ring_all_reduce: 3.6 of 6, sends before it receives",
        "when_not_a_ring: 1.5 of 2",
    ]
    code, again = passed(course)
    assert (code, again["sent"]) == (0, []) and len(platform.scores) == len(WORDS) and len(platform.columns) == 1
    give(course, {"ed": 1.0, "cy": 2.0})
    code, later = passed(course)
    assert (code, later["sent"]) == (0, ["cy", "ed"]) and shown(platform)["cy"] == total["cy"] + 2


def test_only_numbers_points_and_a_comment_travel(course, platform):
    """docs/privacy.md: what is sent."""
    passed(course)
    bodies = [body for method, path, body in platform.seen if method == "POST" and path != "/token"]
    kept = {"userId", "scoreGiven", "scoreMaximum", "comment", "timestamp", "activityProgress", "gradingProgress"}
    assert {key for body in bodies for key in body} == kept | {"label", "resourceId", "tag"}
    told = json.dumps(bodies)
    assert not any(name in told for name in ("Lovelace", "example.org", "distributed_mean(", "def ")), told
    passed_without = lti.Services(course.root, lti.connected(course.root)).columns(LAB)
    assert len(passed_without) == 1
    give(course, {"ed": 1.0})
    passed(course, "--no-comment")
    assert "comment" not in platform.scores[-1]


def test_who_handed_in_nothing_has_no_mark_or_0_by_choice(course, platform):
    assert "hal" not in passed(course)[1]["sent"]
    code, done = passed(course, "--zero-missing")
    assert (code, done["sent"]) == (0, ["hal"]) and shown(platform)["hal"] == 0
    assert platform.scores[-1]["activityProgress"] == "Initialized"
    assert passed(course, "--zero-missing")[1]["sent"] == []


def test_a_penalty_is_taken_off_and_named(course, platform):
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.find_submission_notebook(NOTEBOOK, LAB, "ada").late_submission_penalty = 1.5
        book.db.commit()
    assert passed(course)[0] == 0 and shown(platform)["ada"] == 13.5
    assert "handed in late: -1.5" in next(s for s in platform.scores if s["userId"] == NUMBERS["ada"])["comment"]


def test_a_mark_that_a_teacher_changed_there_stays_unless_overwritten(course, platform):
    passed(course)
    ((_, marks),) = platform.marks.items()
    marks[NUMBERS["bo"]]["resultScore"] = 14.0
    marks[NUMBERS["hal"]] = {"resultScore": 3.0, "resultMaximum": 15.0}
    give(course, {"bo": 2.0})
    code, done = passed(course, "--zero-missing")
    assert code == 0 and done["sent"] == [] and shown(platform)["bo"] == 14.0 and shown(platform)["hal"] == 3.0
    assert {m["student"] for m in done["marks"] if m["state"] == "changed there"} == {"bo", "hal"}
    assert passed(course, "--overwrite")[1]["sent"] == ["bo"] and shown(platform)["bo"] == 12.6
    assert next(m for m in done["marks"] if m["student"] == "bo")["before"] == 14.0


def test_a_column_of_the_teachers_is_used_in_its_own_points(course, platform):
    platform.add_column(label="Lab 3", scoreMaximum=100.0)
    platform.scopes.discard(f"{lti.AGS}lineitem")  # the tool may use columns, and not make them
    code, done = passed(course)
    assert (
        code == 2
        and done["error"].strip()
        == "Moodle does not let this tool make a column: make one there and name it by --column."
    )
    assert passed(course, "--column", "Lab 3")[0] == 0
    assert shown(platform)["ada"] == pytest.approx(100.0) and passed(course, "--column", "Lab 3")[1]["sent"] == []
    code, done = passed(course, "--column", "Lab 4")
    assert (
        code == 2
        and done["error"].startswith("Moodle has no column named 'Lab 4'")
        and "There are: Lab 3." in done["error"]
    )


def test_one_students_failure_loses_nobody_elses_mark(course, platform):
    platform.members = [one for one in platform.members if one["user_id"] != NUMBERS["cy"]]  # has left the course there
    code, done = passed(course)
    assert code == 1 and done["sent"] == ["ada", "bo", "di", "gus"]
    assert [m["student"] for m in done["marks"] if m["state"] == "unknown"] == ["cy"]
    passback.roster(course.root, lti.Services(course.root, lti.connected(course.root)), None, False)
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        book.update_or_create_student("cy", lms_user_id=NUMBERS["cy"])
    code, done = passed(course)
    assert code == 1 and done["not_sent"] == [
        {"student": "cy", "why": "Moodle has no student cy in this course any more, or takes no mark for one (404)."}
    ]


def test_a_run_that_was_stopped_goes_on_where_it_ended(course, platform):
    taken = 0

    def gone(method, path, body):
        nonlocal taken
        taken += path.endswith("/scores")
        return (0, {}, None) if taken > 2 else None

    platform.trouble = gone
    done = sent_by(course)
    assert [mark.student for mark in done.sent] == ["ada", "bo"] and done.failed == []
    where = platform.address.removeprefix("http://")
    assert done.ended == f"Moodle does not answer at {where} (no connection): type the command again later."
    platform.trouble = lambda method, path, body: None
    assert passed(course)[1]["sent"] == ["cy", "di", "gus"] and len(shown(platform)) == 5


@pytest.mark.parametrize(("status", "header"), [(429, "7"), (429, "date"), (503, ""), (403, "")])
def test_a_busy_platform_is_asked_again_as_late_as_it_says(course, platform, status, header):
    left = 2

    def busy(method, path, body):
        nonlocal left
        if not path.endswith("/scores") or not left:
            return None
        left -= 1
        wait = http_date(40) if header == "date" else header
        return (
            status,
            {"Retry-After": wait} if wait else {},
            "403 Forbidden (Rate Limit Exceeded)",
        )  # so Canvas words it

    platform.trouble = busy
    waited: list[float] = []
    # the time of a score has milliseconds: no two tries in one
    done = sent_by(course, lambda seconds: (waited.append(seconds), time.sleep(0.002)))
    assert len(done.sent) == 5 and (done.failed, done.ended) == ([], "")
    low, high = {"7": (7, 7), "date": (30, 41), "": (2, 4)}[header]
    assert len(waited) == 2 and all(low <= one <= high for one in waited), waited
    times = [(score["userId"], score["timestamp"]) for score in platform.scores]
    assert len(set(times)) == len(times)  # each try has a time of its own, or the platform takes it for an old one


@pytest.mark.parametrize("status", [503, 0])
def test_a_column_whose_answer_was_lost_is_not_made_again(course, platform, status):
    def lost(method, path, body):
        if (method, path) == ("POST", "/lineitems") and not platform.columns:
            platform.add_column(**body)
            return status, {}, ""
        return None

    platform.trouble = lost
    services = lti.Services(course.root, lti.connected(course.root), lambda seconds: None)
    made = services.make_column(LAB, LAB, 15.0)
    assert list(platform.columns.values()) == [made]


def test_a_platform_that_asks_for_an_hour_gets_it_from_the_teacher(course, platform):
    platform.trouble = lambda method, path, body: (
        (429, {"Retry-After": "3600"}, "") if path.endswith("/scores") else None
    )
    waited: list[float] = []
    ran = sent_by(course, waited.append)
    done, ended = ran.sent, ran.ended
    assert (done, waited) == (
        [],
        [],
    ) and ended == "Moodle takes no more requests for now: type the command again in 3600 s."


def test_a_token_that_ends_early_is_asked_for_anew(course, platform):
    ended = False

    def revoke(method, path, body):
        nonlocal ended
        if path.endswith("/scores") and len(platform.scores) == 3 and not ended:
            ended = True
            platform.tokens.clear()

    platform.trouble = revoke
    code, done = passed(course)
    assert code == 0 and done["sent"] == sorted(WORDS) and ended
    assert sum(path == "/token" for _, path, _ in platform.seen) == 3  # members, grades, and grades again


def test_a_column_that_is_deleted_meanwhile_ends_the_run_and_is_made_anew(course, platform):
    def delete(method, path, body):
        if len(platform.scores) == 2:
            platform.columns.clear()
            platform.marks.clear()

    platform.trouble = delete
    code, done = passed(course)
    assert (
        code == 1
        and done["ended"] == f"The column {LAB} was deleted in Moodle: type the command again, and it is made anew."
    )
    platform.trouble = lambda method, path, body: None
    assert passed(course)[1]["sent"] == sorted(WORDS) and len(shown(platform)) == 5


def sentence(course: Course, *words: str) -> str:
    """The one sentence with which a command ends that could do nothing."""
    done = typed("course", *words, "--course", course.root)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stdout + done.stderr
    return done.stderr.strip()


def test_bad_registrations_are_one_sentence_each(course, platform):
    key = "Moodle accepts neither this course's key nor its client ID, or one of them (invalid_client): compare the client ID, and "
    key += "register the key that `allranks course connect --show` prints."
    right, platform.jwk = platform.jwk, {**platform.jwk, "n": platform.jwk["n"][::-1]}
    assert sentence(course, "passback", LAB) == key
    platform.jwk = right
    lti.connect(course.root, at(StrictPlatform(client_id="another", address=platform.address)))
    assert sentence(course, "passback", LAB) == key
    lti.connect(course.root, at(platform, line_items=f"{platform.address}/elsewhere?type_id=4"))
    nothing = "Moodle has no {} of this course and tool (404): compare --course-id and --tool-id."
    assert sentence(course, "passback", LAB) == nothing.format("columns")
    lti.connect(course.root, at(platform, members=f"{platform.address}/elsewhere?type_id=4"))
    assert sentence(course, "roster") == nothing.format("members")
    lti.connect(course.root, at(platform))
    platform.scopes = {lti.MEMBERS}
    off = "Moodle does not let this tool use its {}: switch the service on in the tool's registration."
    assert sentence(course, "passback", LAB) == off.format("grades (line items, results and scores)")
    platform.scopes = {f"{lti.AGS}{one}" for one in ("lineitem", "result.readonly", "score")}
    assert sentence(course, "roster") == off.format("names and roles")
    platform.trouble = lambda method, path, body: (401, {}, {}) if path == "/lineitems" else None
    refused = "Moodle gives tokens and then refuses them (401): see whether the tool is still active, and used in this course."
    assert sentence(course, "connect") == refused
    platform.trouble = lambda method, path, body: (303, {"Location": "/login"}, "") if path == "/lineitems" else None
    assert (
        sentence(course, "connect")
        == "Moodle answers with another address (303): see whether that of its services is right."
    )
    platform.trouble = lambda method, path, body: (200, {}, "<html>maintenance") if path == "/lineitems" else None
    assert "something else than JSON" in sentence(course, "connect")
    lti.connect(course.root, lti.moodle("http://127.0.0.1:9", "x", 2, 1))
    lti.folder_of(course.root).joinpath("platform.json").unlink()
    assert sentence(course, "passback", LAB) == "This course has no platform yet: type `allranks course connect` first."
    lacking = "Moodle needs ADDRESS and --client-id and --course-id and --tool-id too."
    assert sentence(course, "connect", "moodle") == lacking
    words = ("moodle", "http://moodle.example.org", "--client-id", "x", "--course-id", "2", "--tool-id", "1")
    assert "marks must not travel without encryption" in sentence(course, "connect", *words)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("https://exa mple", "is no address"),
        ("https://x:99999", "is no address"),
        ("https://[::1", "is no address"),
        ("https://user:pw@moodle.example.org", "is no address"),
        ("https://moodle.example.org\\@x.org", "is no address"),
        ("https://moodle.example.org\n", "is no address"),
        ("https:///course", "is no address"),
        ("ftp://moodle.example.org", "is no address with https://"),
        (
            "moodle.example.org/course/view.php?id=2",
            "give that of the platform alone, such as https://moodle.example.org.",
        ),
        ("https://school.instructure.com/courses/7", "such as https://school.instructure.com."),
    ],
)
def test_an_address_that_can_not_be_one_is_refused_at_once(address, why):
    with pytest.raises(lti.LtiError) as refused:
        lti.check(lti.moodle(address, "x", 2, 1))
    assert why in str(refused.value) and str(refused.value).isprintable()


def test_a_connection_that_does_not_work_replaces_none_that_does(course, platform):
    kept = lti.folder_of(course.root) / lti.PLATFORM
    before = kept.read_bytes()
    platform.trouble = lambda method, path, body: (404, {}, "") if path.startswith("/mod/lti") else None
    words = ("moodle", platform.address, "--client-id", "x", "--course-id", "2", "--tool-id", "1")
    sentence(course, "connect", *words)
    assert kept.read_bytes() == before and passed(course)[0] == 0


def test_a_token_goes_to_no_host_that_a_column_names(course, platform):
    other = StrictPlatform()
    with running(other):
        platform.add_column(label=LAB, scoreMaximum=15.0, resourceId=LAB)
        (column,) = platform.columns.values()
        for there in (f"{other.address}/lineitems/1", "http://127.0.0.1:x/", "https://127.0.0.1/lineitems/1"):
            column["id"] = there
            assert passed(course)[0] == 2
        column["id"] = f"{other.address}/lineitems/1"
        assert sentence(course, "passback", LAB) == "Moodle names another host for a column: nothing is sent there."
    assert other.seen == [] and platform.scores == []


def test_a_launch_names_no_other_host_unless_the_teacher_does(course, platform, tmp_path):
    there = platform.address.replace("127.0.0.1", "localhost")
    told = {"name": "Canvas", "client_id": platform.client_id, "token_url": f"{platform.address}/token"}
    told |= {"line_items": f"{there}/lineitems?type_id=4", "members": f"{there}/members"}
    file = tmp_path / "launches.json"
    file.write_text(json.dumps({"platform": told, "people": {}}))
    assert sentence(course, "connect", "hub", "--launches", str(file)) == (
        f"A launch names services at {there}, and Canvas gives its tokens at {platform.address[7:]}: if both are "
        f"the platform's, type `allranks course connect hub {there}`."
    )
    assert platform.seen == []
    done = typed("course", "connect", "hub", there, "--launches", file, "--course", course.root)
    assert done.returncode == 0, done.stderr
    file.write_text(json.dumps({"platform": told | {"line_items": None}, "people": {}}))
    assert "names no column service" in sentence(course, "connect", "hub", "--launches", str(file))


def test_a_password_of_netrc_does_not_take_the_tokens_place(course, platform, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    headers = []
    answer = platform.answer
    platform.answer = lambda method, target, about, raw: (
        headers.append(about.get("Authorization")) or answer(method, target, about, raw)
    )
    assert passed(course)[0] == 0 and headers
    assert all(header is None or header.startswith("Bearer ") for header in headers)


def test_what_the_platform_says_does_not_rule_the_terminal(course, platform):
    platform.trouble = lambda method, path, body: (400, {}, {"error": "\x1b]0;pwn\x07"}) if path == "/token" else None
    told = sentence(course, "connect")
    assert "pwn" in told and told.isprintable()


def test_a_token_goes_to_no_other_host(course, platform):
    elsewhere = {"Link": '<http://127.0.0.1:1/lineitems>; rel="next"', "Content-Type": lti.LINE_ITEMS}
    platform.trouble = lambda method, path, body: (200, elsewhere, []) if path == "/lineitems" else None
    assert sentence(course, "connect") == "Moodle names another host for the next page: nothing is sent there."


def test_a_next_page_is_found_also_behind_typographic_quotes(course, platform):
    """As Moodle writes them."""
    first = platform.add_column(label="Lab 1", scoreMaximum=1.0)
    second = platform.add_column(label="Lab 2", scoreMaximum=1.0)
    link = f"<{platform.address}/lineitems?page=1>; rel=“first”, <{platform.address}/lineitems?page=2>; rel=“next”"
    pages = [(200, {"Link": link.encode().decode("latin-1")}, [first]), (200, {}, [second])]
    platform.trouble = lambda method, path, body: pages.pop(0) if path == "/lineitems" else None
    found = lti.Services(course.root, lti.connected(course.root)).columns()
    assert [one["label"] for one in found] == ["Lab 1", "Lab 2"]


def test_the_key_is_made_once_and_only_this_account_reads_it(course, platform):
    folder = lti.folder_of(course.root)
    passed(course)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {
        "lti": 0o700,
        **dict.fromkeys(("key.pem", "platform.json", "numbers.json", "sent.jsonl", "lock"), 0o600),
    }
    before = (folder / "key.pem").read_bytes()
    os.chmod(folder, 0o755)
    with ThreadPoolExecutor(4) as pool:  # which raises what one of them raises
        list(pool.map(lambda _: lti.connect(course.root, at(platform)), range(16)))
    assert (folder / "key.pem").read_bytes() == before and stat.S_IMODE(folder.stat().st_mode) == 0o700
    pem = typed("course", "connect", "--show", "pem", "--course", course.root).stdout
    assert pem.startswith("-----BEGIN PUBLIC KEY-----") and "PRIVATE" not in pem
    jwks = json.loads(typed("course", "connect", "--show", "jwks", "--course", course.root).stdout)
    assert jwks == {"keys": [platform.jwk]} and set(platform.jwk) == {"kty", "n", "e", "kid", "alg", "use"}
    (folder / "key.pem").chmod(0o640)
    assert sentence(course, "passback", LAB).startswith(f"Others can read {folder / 'key.pem'}: type `chmod 600")
    (folder / "key.pem").chmod(0o600)
    (folder / "key.pem").write_text("no key")
    assert "can't be read as a key" in sentence(course, "passback", LAB)


def test_the_roster_brings_names_and_addresses_and_removes_nobody(course, platform):
    platform.members.append(member("ada") | {"user_id": "u-99", "ext_user_username": "zoe", "email": "zoe@example.org"})
    platform.members.append(member("ada") | {"user_id": "u-98", "ext_user_username": "../x", "email": "x@example.org"})
    done = typed("course", "roster", "--course", course.root, "--json", "--dry-run")
    told = json.loads(done.stdout)
    assert "zoe" in told["new"] and "ida" not in told["new"] and len(told["told"]) == 1 and "'../x'" in told["told"][0]
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        assert "zoe" not in {student.id for student in book.students}
        before = {student.id for student in book.students}
    typed("course", "roster", "--course", course.root)
    with Gradebook(f"sqlite:///{course.root / 'autograder' / 'gradebook.db'}") as book:
        zoe = book.find_student("zoe")
        assert (zoe.first_name, zoe.email, zoe.lms_user_id) == ("Ada", "zoe@example.org", "u-99")
        assert before < {student.id for student in book.students}
    again = json.loads(typed("course", "roster", "--course", course.root, "--json").stdout)
    assert (again["new"], again["changed"]) == ([], [])


def test_a_chosen_address_takes_nobodys_mark(course, platform):
    """Gus gives himself ada's address on the platform: neither name is certain then, and the marks of both are safe."""
    for one in platform.members:
        if one["user_id"] == NUMBERS["gus"]:
            one |= {"ext_user_username": "gustav", "email": "ada@example.org"}
    code, done = passed(course)
    assert code == 1 and "ada" not in done["sent"] and shown(platform).keys() == {"bo", "cy", "di"}
    assert "ada could be 2 people of the platform" in " ".join(done["told"])


def test_the_hub_says_which_account_a_person_is(course, platform, tmp_path, monkeypatch):
    """Canvas tells no user name: who came to the hub from there is known by the platform's number."""
    for one in platform.members:
        del one["ext_user_username"]
        one.pop("email", None)
    people = {name: {"sub": number} for name, number in NUMBERS.items()}
    told = {"name": "Canvas", "client_id": platform.client_id, "token_url": f"{platform.address}/token"}
    told |= {"line_items": f"{platform.address}/lineitems?type_id=4", "members": f"{platform.address}/members"}
    file = tmp_path / "launches.json"
    file.write_text(json.dumps({"platform": told, "people": people}))
    done = typed("course", "connect", "hub", "--launches", file, "--course", course.root)
    assert done.returncode == 0 and done.stdout.startswith("Connected to Canvas at 127.0.0.1"), done.stderr
    assert passed(course)[1]["sent"] == sorted(WORDS)
    monkeypatch.setenv("ALLRANKS_HUB_LTI_LAUNCHES", str(file))  # the hub's own setting says where the file is
    done = typed("course", "connect", "hub", "--course", course.root)
    assert done.returncode == 0 and done.stdout.startswith("Connected to Canvas at 127.0.0.1"), done.stderr
    file.unlink()
    assert "nobody has come from the platform" in sentence(course, "connect", "hub", "--launches", str(file))


def test_forgetting_a_student_takes_the_lines_of_what_was_sent_too(course, platform):
    passed(course)
    done = typed("course", "forget", "bo", "--yes", "--course", course.root)
    assert done.returncode == 0 and "lti/sent.jsonl: 1 line" in done.stdout, done.stdout + done.stderr
    assert {entry["student"] for _, entry in sent.lines(course.root)} == set(WORDS) - {"bo"}
    zipped = typed("course", "export", "ada", "-o", course.root / "ada.zip", "--course", course.root)
    assert zipped.returncode == 0, zipped.stderr
    told = json.loads(zipfile.ZipFile(course.root / "ada.zip").read("student.json"))
    assert [(line["lab"], line["points"]) for line in told["sent"]] == [(LAB, 15.0)]
    path: Path = lti.folder_of(course.root) / sent.SENT
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_marks_of_a_course_are_sent_by_one_command_at_a_time(course, platform):
    with sent.alone(course.root):
        with pytest.raises(sent.Busy, match="being sent by another command"):
            sent_by(course)
        assert platform.seen == [] and passed(course, "--dry-run")[0] == 0  # not even planned
        done = typed("course", "forget", "bo", "--yes", "--course", course.root)
        assert done.returncode == 2 and "being sent by another command" in done.stderr
    assert platform.scores == [] and "bo" in known(course)


# ------------------------------------------------------------------------------------------------------- who is who


def test_a_student_with_a_number_is_found_by_nothing_else(course, platform):
    """Ada changes her address, and Gus takes the old one: as in Canvas, which tells no user names."""
    for one in platform.members:
        one.pop("ext_user_username", None)
    with book(course) as here:
        for name in NUMBERS:
            here.update_or_create_student(name, email=f"{name}@example.org")
    typed("course", "roster", "--course", course.root)
    ada, gus = (next(m for m in platform.members if m["user_id"] == NUMBERS[name]) for name in ("ada", "gus"))
    ada["email"], gus["email"] = "new@example.org", "ada@example.org"
    platform.members.append(member("hal", user_id="u-77", email="hal@example.org", ext_user_username="ada"))
    told = json.loads(typed("course", "roster", "--course", course.root, "--json").stdout)
    assert {name: number for name, (number, _) in known(course).items()} == NUMBERS and told["new"] == []
    assert "ada is number u-0 of the platform, and number u-77 has the name or address of ada" in " ".join(told["told"])
    assert "gus has the address of ada there: it is not written here." in told["told"]
    assert known(course)["gus"][1] == "gus@example.org" and known(course)["ada"][1] == "new@example.org"
    assert passed(course)[1]["sent"] == sorted(WORDS)
    total = {row.student: row.total for row in classroom.overview(course.root, LAB).rows}
    assert shown(platform) == {name: total[name] for name in WORDS}


def test_a_number_is_kept_from_the_first_mark_on(course, platform):
    """Without `roster` too."""
    passed(course)
    assert {name for name, (number, _) in known(course).items() if number} == set(WORDS)
    for one in platform.members:
        one["ext_user_username"] = {"ada": "gus", "gus": "ada"}.get(one["ext_user_username"], one["ext_user_username"])
    give(course, {"ada": 1.0})
    assert passed(course)[1]["sent"] == ["ada"] and platform.scores[-1]["userId"] == NUMBERS["ada"]


def test_a_new_account_takes_an_option(course, platform):
    typed("course", "roster", "--course", course.root)
    platform.members = [member(name, **{"user_id": "u-55"} if name == "ada" else {}) for name in NUMBERS]
    assert "--renumber ada" in typed("course", "roster", "--course", course.root).stdout
    assert known(course)["ada"][0] == "u-0"
    assert "no student 'eve'" in sentence(course, "roster", "--renumber", "eve")
    typed("course", "roster", "--renumber", "ada", "--course", course.root)
    assert known(course)["ada"][0] == "u-55"


def test_a_number_that_two_students_have_gets_no_mark(course, platform):
    typed("course", "roster", "--course", course.root)
    with book(course) as here:
        here.update_or_create_student("ghost", lms_user_id=NUMBERS["ada"])
    code, done = passed(course, "--zero-missing")
    assert code == 1 and done["sent"] == ["bo", "cy", "di", "gus", "hal"] and "ada" not in shown(platform)
    assert done["told"][0].startswith("ada and ghost have one number of the platform, u-0")
    assert {m["student"] for m in done["marks"] if m["state"] == "unclear"} == {"ada", "ghost"}
    lines = typed("course", "passback", LAB, "--course", course.root).stdout.splitlines()
    assert sum("ada" in line for line in lines) == 1  # one sentence on each
    typed("course", "roster", "--renumber", "ghost", "--course", course.root)
    assert known(course)["ghost"][0] == "" and passed(course)[1]["sent"] == ["ada"]


@pytest.mark.parametrize("other", ["platform", "registration"])
def test_numbers_of_another_platform_are_nobodys(course, platform, other):
    typed("course", "roster", "--course", course.root)
    swapped = {"ada": NUMBERS["bo"], "bo": NUMBERS["ada"]}
    with running(
        StrictPlatform(jwk=platform.jwk, members=[member(n, user_id=swapped.get(n, NUMBERS[n])) for n in NUMBERS])
    ) as new:
        new.members = [one for one in new.members if one["ext_user_username"] != "hal"]
        if other == "registration":
            platform.client_id, platform.members, new = "tool-18", new.members, platform
        lti.connect(course.root, at(new))
        code, done = passed(course)
        assert code == 0 and done["sent"] == sorted(WORDS)
        points = {score["userId"]: score["scoreGiven"] for score in new.scores}
        assert (points[NUMBERS["bo"]], points[NUMBERS["ada"]]) == (15.0, 12.1)  # ada's and bo's
        assert known(course)["ada"][0] == NUMBERS["bo"] and known(course)["hal"][0] == ""  # no mark, so not looked for
        typed("course", "roster", "--course", course.root)
        assert known(course)["bo"][0] == NUMBERS["ada"] and known(course)["hal"][0] == ""


def test_a_roster_says_who_may_be_there_twice(course, platform):
    for one in platform.members:
        one.pop("ext_user_username", None)
    told = json.loads(typed("course", "roster", "--dry-run", "--json", "--course", course.root).stdout)
    assert len(told["new"]) > 2 and "students fit nobody there" in told["told"][-1], told


@pytest.mark.parametrize("name", ["-rf", "x" * 300])
def test_a_name_that_is_no_name_is_not_entered(course, platform, name):
    platform.members.append(member("ada", user_id="u-9", ext_user_username=name, email="x@example.org"))
    platform.members.append(member("ada", user_id="u-8", ext_user_username="\u0430da", email="y@example.org"))
    told = json.loads(typed("course", "roster", "--json", "--course", course.root).stdout)
    assert told["new"] == ["\u0430da"] and "can be no student's name here" in " ".join(told["told"])
    assert "'\\u0430da' is new, and has letters beyond a to z" in " ".join(told["told"])


def test_a_section_alone_can_be_sent(course, platform):
    text = "id,section\nada,A\nbo,B\ncy,A\ned,A\n"
    (course.root / "autograder" / "class.csv").write_text(text, encoding="utf-8")
    code, done = passed(course, "--section", "A")
    assert code == 0 and sorted(done["sent"]) == ["ada", "cy"]
    assert {one["student"]: one["state"] for one in done["marks"]} == {"ada": "send", "cy": "send", "ed": "waits"}
    assert "bo" in passed(course)[1]["sent"]


def test_nobody_gets_0_who_may_still_hand_in(course, platform):
    soon = datetime.now(UTC).replace(tzinfo=None, microsecond=0) - timedelta(hours=1)
    with book(course) as here:
        here.find_assignment(LAB).duedate = soon
        here.update_or_create_submission(LAB, "hal").extension = timedelta(hours=3)
        here.db.commit()
    code, done = passed(course, "--zero-missing")
    assert code == 0 and "hal" not in done["sent"] and "ada" in done["sent"]
    assert done["told"] == [
        f"hal may hand in until {soon + timedelta(hours=3):%Y-%m-%d %H:%M} UTC: no 0 is sent before."
    ]
    with book(course) as here:
        here.find_submission(LAB, "hal").extension = None
        here.db.commit()
    assert passed(course, "--zero-missing")[1]["sent"] == ["hal"]
