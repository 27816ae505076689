"""The workshop board: what travels, a board that is down, a hundred learners, and thirty of them live in Chromium."""

from __future__ import annotations

import contextlib
import http.server
import json
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
from allranks import board as client
from allranks import check, join_board, leave_board
from allranks.board import Board, BoardError
from allranks.board.server import MAX_LEARNERS, Standing

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
        assert server.wait(20) == 0
        server.stdout.close()


def post(address: str, told: object) -> int:
    request = urllib.request.Request(f"{address}/tell", json.dumps(told).encode())
    try:
        with urllib.request.urlopen(request, timeout=20) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def message(
    number: int, exercise: str = "ring_shift", passed: bool = False, cause: str = "wrong values", name: str = ""
) -> dict:
    return {"who": f"{number:016x}", "name": name, "exercise": exercise, "passed": passed, "cause": cause}


def state(address: str) -> dict:
    with urllib.request.urlopen(f"{address}/events", timeout=20) as reply:
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
        verdict = check(ring_shift)
        assert not came and not any(t.name == "allranks-board" for t in threading.enumerate()), "nobody has joined"
        join_board(f"http://127.0.0.1:{server.server_port}/key", name="Ada  L")
        check(ring_shift)
        assert arrived.wait(20)
        server.shutdown()
    ((path, body, headers),) = came
    assert path == "/key/tell"
    who = body.pop("who")
    assert len(who) == 16 and int(who, 16) >= 0
    assert body == {"name": "Ada L", "exercise": "ring_shift", "passed": False, "cause": verdict.mistake}
    assert set(headers) <= {"Accept-Encoding", "Content-Length", "Host", "User-Agent", "Content-Type", "Connection"}


def test_check_never_waits_for_a_board_that_does_not_answer():
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


def test_a_board_that_is_gone_is_no_error():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    join_board(f"http://127.0.0.1:{port}/key")
    check(ring_shift)
    client._joined["board"].thread.join(20)


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
    assert standing.state() == {"exercises": [], "learners": []}


def test_names_are_dropped_unless_asked_for():
    for names, shown in ((False, ""), (True, "Ada")):
        standing = Standing(KNOWN, names)
        standing.take(message(1, name="Ada\n\x1b"))
        assert standing.state()["learners"][0]["name"] == shown


def test_what_was_passed_stays_passed_and_the_board_is_bounded():
    standing = Standing(KNOWN, names=False)
    standing.take(message(1, passed=True, cause=""))
    standing.take(message(1, cause="x" * 1000))
    assert standing.state()["learners"][0]["exercises"]["ring_shift"] == {"passed": True, "cause": "", "tries": 2}
    for number in range(2, MAX_LEARNERS + 1):
        assert standing.take(message(number)) is None
    assert "learners already" in standing.take(message(10**6))


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
def test_thirty_learners_live_in_chromium():
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "browser"))
    from jupyter_lab import chromium_program, running_chromium
    from playwright.sync_api import expect

    if chromium_program() is None:
        pytest.skip("no Chromium or Chrome is installed")
    with running_chromium() as browser:
        page = browser.new_page()
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
