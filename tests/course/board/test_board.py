"""The workshop board: what travels, a board that is down, a hundred learners, and thirty of them live in Chromium."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from allranks import check, join_board, leave_board, predict
from allranks.base import board as client
from allranks.base.board import Board, BoardError
from allranks.course.board.server import (
    BARS,
    MAX_LEARNERS,
    MAX_QUESTIONS,
    NEW_AT_ONCE,
    REFUSAL,
    Standing,
    bars,
)
from waiting import until

KNOWN = ("ring_shift", "ring_all_reduce")


@pytest.fixture(autouse=True)
def alone(no_ghosts_in_run_dir, monkeypatch):
    """Nobody has joined, before and after."""
    monkeypatch.delenv("ALLRANKS_BOARD", raising=False)
    client._joined.clear()
    yield
    client._joined.clear()


@pytest.fixture
def no_ghosts_in_run_dir(short_path, monkeypatch):
    monkeypatch.setenv("ALLRANKS_RUN_DIR", str(short_path / "run"))


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The address that `allranks board` prints, while it serves."""
    program = [str(Path(sys.executable).parent / "allranks"), "board", "--port", "0", *arguments]
    server = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
        server.stdout.close()


def threads(name: str) -> set[threading.Thread]:
    """Those that have this name: another test's may live for a moment more."""
    return {thread for thread in threading.enumerate() if thread.name == name}


def post(address: str, told: object) -> int:
    request = urllib.request.Request(f"{address}/tell", json.dumps(told).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def message(
    number: int, exercise: str = "ring_shift", passed: bool = False, cause: str = "wrong values", name: str = ""
) -> dict:
    return {"who": f"{number:016x}", "name": name, "exercise": exercise, "passed": passed, "cause": cause}


def state(address: str) -> dict:
    with urllib.request.urlopen(f"{address}/events", timeout=60) as reply:
        return json.loads(reply.readline().removeprefix(b"data: "))


def ring_shift(tensor, k):
    return tensor


def test_nothing_but_exercise_pass_and_cause_travels():
    came: list[tuple[str, dict, dict]] = []
    arrived = threading.Event()

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            came.append((self.path, body, dict(self.headers)))
            self.send_response(204)
            self.end_headers()
            arrived.set()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        before = threads("allranks-board")
        verdict = check(ring_shift)
        assert not came and threads("allranks-board") <= before, "nobody has joined"
        join_board(f"http://127.0.0.1:{server.server_port}/key", name="Ada  L")
        check(ring_shift)
        assert arrived.wait(60)
        server.shutdown()
    ((path, body, headers),) = came
    assert path == "/key/tell"
    who = body.pop("who")
    assert len(who) == 16 and int(who, 16) >= 0
    assert body == {"name": "Ada L", "exercise": "ring_shift", "passed": False, "cause": verdict.mistake}
    assert set(headers) <= {"Accept-Encoding", "Content-Length", "Host", "User-Agent", "Content-Type", "Connection"}


def test_check_never_waits_for_a_board_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(client, "WAIT_S", 60)  # longer than the check takes on a busy machine
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection and says nothing
        join_board(f"http://127.0.0.1:{silent.getsockname()[1]}/key")
        for _ in range(3 * client.WAITING):
            client.tell("ring_shift", False, "wrong values")
        verdict = check(ring_shift)
        assert not verdict.passed
        thread = client._joined["board"].thread
        assert thread.is_alive() and thread.daemon, "check came back while the board was still being told"
    leave_board()
    assert not check(ring_shift).passed


def test_what_is_told_while_the_thread_ends_arrives_too(monkeypatch):
    """The thread ends once the queue was empty for a second: a message that comes just then is no exception."""
    told = []

    class Waiting(queue.Queue):
        late = True

        def get(self, *how, **options):
            try:
                return super().get(*how, **options)
            except queue.Empty:
                if self.late:
                    self.late = False
                    board.tell("ring_shift", True, "")
                raise

    class Opener:
        def open(self, request, timeout):
            told.append(json.loads(request.data)["exercise"])
            return contextlib.nullcontext()

    monkeypatch.setattr(client, "_opener", Opener)
    board = Board("http://127.0.0.1:1/key", waiting=Waiting())
    board.tell("all_gather", False, "wrong values")
    until(lambda: board.thread is None or not board.thread.is_alive())
    assert told == ["all_gather", "ring_shift"]


def test_a_number_that_another_notebook_just_makes_is_never_read_half_written(monkeypatch):
    """Both would stand for a learner else."""
    linked, own = os.link, []

    def link(source, target):  # the moment before the name is there: the other notebook is a moment faster
        if not own:
            own.append(None)
            own[0] = client._own_number()
        return linked(source, target)

    def opened(path, mode="r", *how, **options):
        file = open(path, mode, *how, **options)
        if "x" in mode:  # it is there, and nothing is in it yet
            own.append(client._own_number())
        return file

    monkeypatch.setattr(client.os, "link", link)
    monkeypatch.setattr(client, "open", opened, raising=False)
    first = client._own_number()
    assert own == [first] and re.fullmatch("[0-9a-f]{16}", first)
    assert [path.name for path in Path(os.environ["ALLRANKS_RUN_DIR"]).iterdir()] == ["board-number"]


def test_a_board_that_is_gone_is_no_error():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    join_board(f"http://127.0.0.1:{port}/key")
    check(ring_shift)
    client._joined["board"].thread.join(60)


@pytest.mark.parametrize("address", ["", "teacher", "ftp://a/key", "http://a", "http://a/b/c", "http:///key"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(BoardError, match="no address of a board"):
        join_board(address)
    client.tell("ring_shift", False, "x")
    assert client._joined.get("board") is None


def test_a_learners_own_environment_joins(monkeypatch):
    told = []
    monkeypatch.setattr(Board, "tell", lambda self, *words: told.append((self.address, self.name, *words)))
    monkeypatch.setenv("ALLRANKS_BOARD", "http://127.0.0.1:1/key/")
    monkeypatch.setenv("ALLRANKS_BOARD_NAME", "Bo")
    client.tell("ring_shift", True, "")
    assert told == [("http://127.0.0.1:1/key", "Bo", "ring_shift", True, "")]


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"who": "x"},
        message(1, exercise="no_such_exercise"),
        message(1) | {"who": "<b>"},
        message(1) | {"passed": "yes"},
        message(1) | {"cause": 3},
    ],
)
def test_what_is_no_message_is_not_taken(told):
    standing = Standing(KNOWN, names=True)
    assert standing.take(told) == "That is no message for a board."
    assert standing.state() == {"exercises": [], "learners": [], "questions": []}


@pytest.mark.parametrize(
    "changed",
    [
        {"who": "<b>"},
        {"question": ""},
        {"question": 3},
        {"title": "\n"},
        {"choice": " \x1b"},
        {"choice": True},
        {"choice": None},
        {"choice": [1, 2]},
        {"choice": float("nan")},
        {"choice": 1e300},
    ],
)
def test_what_is_no_prediction_is_not_taken(changed):
    standing = Standing(KNOWN, names=True)
    assert standing.take(choice(1) | changed) == REFUSAL
    assert standing.state()["questions"] == []


def choice(number: int, said: object = "every rank", question: str = "who", title: str = "Who holds it") -> dict:
    return {"who": f"{number:016x}", "question": question, "title": title, "choice": said}


def test_a_learner_counts_once_for_a_question_and_questions_are_bounded():
    standing = Standing(KNOWN, names=True)
    for said in ("rank 0", "every rank"):
        assert standing.take(choice(1, said)) is None
    assert standing.take(choice(2, "rank 0") | {"name": "Ada"}) is None
    (asked,) = standing.state()["questions"]
    assert asked == {
        "question": "who",
        "title": "Who holds it",
        "answers": 2,
        "bars": [("every rank", 1), ("rank 0", 1)],
    }
    assert not standing.state()["learners"], "a prediction brings no row, and no name"
    for number in range(1, MAX_QUESTIONS):
        assert standing.take(choice(1, question=f"q{number}")) is None
    assert "questions already" in standing.take(choice(1, question="one more"))
    for number in range(3, MAX_LEARNERS + 1):
        assert standing.take(choice(number), f"account {number}") is None
    assert "learners already" in standing.take(choice(10**6))


@pytest.mark.parametrize(
    "said",
    [
        range(100),
        [k / 7 for k in range(-40, 40)],
        [1e-3 * 3**k for k in range(25)],
        [5.0, *range(9, 30), 5],
        [-(10**9) + k for k in range(9)],
    ],
)
def test_every_number_is_in_one_bar(said):
    shown = bars(list(said))
    assert sum(count for _, count in shown) == len(list(said)) and 1 < len(shown) <= BARS + 1
    assert len({words for words, _ in shown}) == len(shown)


def listening() -> tuple[http.server.HTTPServer, list[tuple[str, dict]], threading.Event]:
    """A board that keeps what it is told as it comes, and has no answers."""
    came: list[tuple[str, dict]] = []
    arrived = threading.Event()

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            came.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(204)
            self.end_headers()
            arrived.set()

        def log_message(self, *_):
            pass

    return http.server.HTTPServer(("127.0.0.1", 0), Listener), came, arrived


def test_of_a_prediction_only_question_and_choice_travel():
    server, came, arrived = listening()
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        guess = predict("How many `GB`?", low=1, high=1000, unit="GB", title="`GB` sent", name="gigabytes")
        before = threads("allranks-board")
        guess.lock_in(7)
        assert threads("allranks-board") <= before, "nobody has joined"
        join_board(f"http://127.0.0.1:{server.server_port}/key", name="Ada")
        guess.lock_in(434)
        assert arrived.wait(60)
        server.shutdown()
    ((path, body),) = came
    assert path == "/key/tell" and len(body.pop("who")) == 16
    assert body == {"question": "gigabytes", "title": "GB sent (GB)", "choice": 434}


def test_after_the_reveal_the_card_shows_what_the_class_said():
    with serving() as address:
        for number in range(5):
            assert post(address, choice(number, "rank 0" if number else "every rank")) == 204
        join_board(address)
        guess = predict("Who holds the sum?", choices=["rank 0", "`every` rank"], title="Who holds it", name="who")
        before = threads("allranks-class")
        shown = guess.reveal("`every` rank")
        assert threads("allranks-class") <= before, "not before an answer"
        heard = threading.Event()
        shown.observe(lambda change: change.new["answers"] == 6 and heard.set(), "class_said")
        guess.lock_in("`every` rank")
        assert heard.wait(60)
        assert shown.text().splitlines()[-1] == "the class said: rank 0 (4), every rank (2)"
        assert "rank 0 (4)" not in shown._repr_mimebundle_()["text/html"], "a page keeps no class"
        leave_board()


def test_a_prediction_never_waits_and_a_silent_or_strange_board_changes_nothing(monkeypatch):
    monkeypatch.setattr(client, "WAIT_S", 0.2)
    monkeypatch.setattr(client, "LOOKS_S", (0,))
    guess = predict("How many?", low=0, high=9, name="how-many")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        join_board(f"http://127.0.0.1:{silent.getsockname()[1]}/key")
        before = threads("allranks-class")
        guess.lock_in(3)
        shown = guess.reveal(4)
        assert repr(shown) == "<Reveal: Not quite. You said 3; it was 4>" and not shown.class_said
        for thread in threads("allranks-class") - before:
            assert thread.daemon
            thread.join(60)
    for strange in (
        {},
        [],
        {"answers": 1, "bars": 3},
        {"answers": 1, "bars": [["x", "y"]]},
        {"answers": "1", "bars": []},
    ):
        assert not client._is_said(strange)
    assert not shown.class_said


def test_names_are_dropped_unless_asked_for():
    for names, shown in ((False, ""), (True, "Ada")):
        standing = Standing(KNOWN, names)
        standing.take(message(1, name="Ada\n\x1b"))
        assert standing.state()["learners"][0]["name"] == shown


def test_what_was_passed_stays_passed_and_the_board_is_bounded():
    standing = Standing(KNOWN, names=False)
    standing.take(message(1, passed=True, cause=""), now_s=0.0)
    standing.take(message(1, cause="x" * 1000), now_s=0.0)
    assert standing.state()["learners"][0]["exercises"]["ring_shift"] == {"passed": True, "cause": "", "tries": 2}
    for number in range(2, MAX_LEARNERS + 1):
        assert standing.take(message(number), now_s=2.0 * number) is None
    assert "learners already" in standing.take(message(10**6), now_s=1e6)


def test_a_hundred_learners_at_once():
    with serving() as address:
        told = [message(n, exercise, n % 2 == 0) for n in range(100) for exercise in KNOWN for _ in range(2)]
        with ThreadPoolExecutor(20) as pool:
            assert set(pool.map(lambda one: post(address, one), told)) == {204}
        found = state(address)
        assert len(found["learners"]) == 100 and set(found["exercises"]) == set(KNOWN)
        assert sum(one["exercises"]["ring_shift"]["passed"] for one in found["learners"]) == 50
        assert post(address, {"who": 1}) == 400
        wrong_key = address[:-3] + ("abc" if not address.endswith("abc") else "abd")
        assert post(wrong_key, message(1)) == 404
        assert post(address, message(1) | {"cause": "x" * 10_000}) >= 400


def test_a_races_standings_are_shown_if_the_teacher_asks(tmp_path):
    leaderboard = tmp_path / "class.json"
    entry = {"task": "two-nodes", "name": "two rings", "by": "Ada", "file": "ada.py"}
    fast, slow = (
        entry | {"picoseconds": 10, "score": "0.900000"},
        entry | {"picoseconds": 20, "score": "0.450000", "by": "Bo"},
    )
    leaderboard.write_text(json.dumps({"allranks_race": 1, "entries": [slow]}))
    with serving("--names", "--race", str(leaderboard)) as address:
        assert state(address)["race"] == [["two-nodes", [["1. two rings (Bo)", "0.450000"]]]]
        leaderboard.write_text(json.dumps({"allranks_race": 1, "entries": [slow, fast]}))
        lines = [["1. two rings (Ada)", "0.900000"], ["2. two rings (Bo)", "0.450000"]]
        assert state(address)["race"] == [["two-nodes", lines]]
        leaderboard.write_text("{broken")
        assert state(address)["race"] == [["two-nodes", lines]], "a file that is being written changes nothing"
    leaderboard.write_text(json.dumps({"allranks_race": 1, "entries": [fast]}))
    with serving("--race", str(leaderboard)) as address:
        assert state(address)["race"] == [["two-nodes", [["1.", "0.900000"]]]], "no names unless asked for"
    for path, said in ((tmp_path / "none.json", "can't be read"), (tmp_path, "can't be read")):
        program = [str(Path(sys.executable).parent / "allranks"), "board", "--port", "0", "--race", str(path)]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.browser
def test_thirty_learners_live_in_chromium(new_page):
    from playwright.sync_api import expect

    page = new_page()
    with serving("--names") as address:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        expect(page.locator("#summary")).to_have_text("Nobody has checked anything yet.")
        boards = [Board(address, f"<b>learner {n}", f"{n:016x}") for n in range(30)]
        for n, board in enumerate(boards):  # as check does
            board.tell("ring_all_reduce", n % 3 == 0, "" if n % 3 == 0 else "sends before it receives")
        expect(page.locator("#summary")).to_have_text("30 learners")
        expect(page.locator("td.passed")).to_have_count(10)
        expect(page.locator("td.tries")).to_have_count(20)
        expect(page.locator(".cause").first).to_have_text("sends before it receives (ring_all_reduce)20")
        expect(page.locator("tbody th").first).to_contain_text("<b>learner")
        for n, board in enumerate(boards):
            board.tell_choice("who", "Who holds <b>it", "rank 0" if n < 20 else "every rank")
        asked_about = page.locator("#questions section")
        expect(asked_about.locator("p")).to_contain_text("30 answers")
        expect(asked_about.locator("h3")).to_have_text("Who holds <b>it")
        expect(page.locator(".bar")).to_have_count(0)
        page.get_by_role("button", name="Show what they said").press("Enter")
        expect(page.locator(".bar").first).to_have_text("rank 020")
        boards[0].tell_choice("who", "Who holds <b>it", "every rank")
        expect(page.locator(".bar").last).to_have_text("every rank11")
        page.get_by_role("button", name="Hide").click()
        expect(page.locator(".bar")).to_have_count(0)
        boards[1].tell("ring_all_reduce", True, "")
        expect(page.locator("td.passed")).to_have_count(11)
        assert {url.split("/")[2] for url in asked} == {address.split("/")[2]}, "no third party"
    expect(page.locator("#lost")).to_contain_text("does not answer")
    expect(page.locator("td.passed")).to_have_count(11)


def test_a_taken_port_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = [str(Path(sys.executable).parent / "allranks"), "board", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "can't be used" in done.stderr


def test_fakes_of_one_account_keep_nobody_out_and_push_nobody_off():
    """One account (or machine) brings a hundred at once, and then one a second; on a full board it makes room for others."""
    board = Standing(KNOWN, names=False)
    real = [message(n) for n in range(20)]
    for told in real:
        assert board.take(told, "account 1001", 0.0) is None
    refused = [board.take(message(1000 + n), "account 6666", 0.0) for n in range(1000)]
    assert sum(answer is None for answer in refused) == NEW_AT_ONCE
    assert {answer for answer in refused if answer} == {
        "Too many new learners come from there at once: try again in a minute."
    }
    for second in range(1, 1000):
        board.take(message(5000 + second), "account 6666", float(second))
    assert len(board.learners) == MAX_LEARNERS
    for n in range(100):
        assert board.take(message(9000 + n), f"account {2000 + n}", 1000.0) is None
    assert len(board.learners) == MAX_LEARNERS
    assert all(told["who"] in board.learners for told in real)
    assert len({learner.number for learner in board.learners.values()}) == MAX_LEARNERS


def test_fakes_of_one_account_keep_no_prediction_and_no_question_out():
    """The same of predictions, and of questions, of which one account may ask as many as the board has."""
    board = Standing(KNOWN, names=False)
    refused = [board.take(choice(n), "account 6666", 0.0) for n in range(1000)]
    assert sum(answer is None for answer in refused) == NEW_AT_ONCE
    for n in range(1000, 2000):
        board.take(choice(n), "account 6666", float(n))
    for n in range(MAX_QUESTIONS):
        board.take(choice(n, question=f"q{n}"), "account 6666", 0.0)
    assert len(board.questions) == MAX_QUESTIONS and len(board.questions["who"].said) == MAX_LEARNERS
    for n in range(30):
        assert board.take(choice(5000 + n, "mine"), f"account {2000 + n}", 0.0) is None
    assert board.take(choice(6000, question="the teacher's"), "account 2000", 0.0) is None
    assert list(board.questions["who"].said.values()).count("mine") == 30
    assert len(board.questions) == MAX_QUESTIONS and len(board.questions["who"].said) == MAX_LEARNERS


def test_a_class_behind_one_address_fits():
    board = Standing(KNOWN, names=False)
    came = [board.take(message(n), "192.0.2.1", 2.0 * n) for n in range(MAX_LEARNERS + 1)]
    assert came[:-1] == [None] * MAX_LEARNERS and came[-1] == f"The board has {MAX_LEARNERS} learners already."
    assert board.take(message(0, passed=True), "192.0.2.1", 0.0) is None, "who is on it may go on"


def test_what_is_nested_too_deep_is_refused():
    with serving() as address:
        request = urllib.request.Request(f"{address}/tell", b"[" * 4000)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)
        assert refused.value.code == 400
        assert post(address, message(1)) == 204
