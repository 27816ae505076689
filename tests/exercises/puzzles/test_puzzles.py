"""The puzzles: known answers with their causes, what the page draws of a verdict, and code that does not behave.

The known answers are those of tests/puzzle_answers.py. The site's tests run the same ones in a browser.
"""

import base64
import json
import random
import re
import subprocess
import sys
import zlib
from itertools import groupby

import pytest
from allranks import Trace, puzzles
from allranks.exercises.puzzles.program import MODULES
from allranks.show.player.animation import animate
from puzzle_answers import puzzle_answers

ANSWERS = puzzle_answers()
RING, CIRCLE = (
    next(a.text for a in ANSWERS if str(a) == name) for name in ("ring/right_ring", "circle/wrong_as_given")
)
IDS = [row["id"] for row in puzzles.catalogue()]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_known_answer_gets_its_verdict(answer):
    wanted = re.fullmatch(r"# (?:right|wrong: (.+?)(?: at (\d+))?)", answer.text.splitlines()[0])
    found = puzzles.judge(answer.puzzle, answer.text)
    assert (found["right"], found["code"]) == (wanted[1] is None, wanted[1]), found["headline"]
    assert wanted[2] is None or found["line"] == int(wanted[2])
    assert json.loads(json.dumps(found))["headline"] == found["headline"]


@pytest.mark.parametrize("puzzle", IDS)
def test_each_puzzle_has_right_answers_of_two_shapes_and_four_wrong_ones(puzzle):
    names = [answer.name for answer in ANSWERS if answer.puzzle == puzzle]
    assert sum(name.startswith("right_") for name in names) >= 2
    assert sum(name.startswith("wrong_") for name in names) >= 4


@pytest.mark.parametrize("row", puzzles.catalogue(), ids=IDS)
def test_the_code_to_begin_with_is_wrong_and_says_why_in_a_sentence(row):
    found = puzzles.judge(row["number"], row["starter"])
    assert not found["right"] and found["headline"].endswith(".") and found["code"]
    assert [rule["text"] for rule in found["rules"]] == [rule["text"] for rule in row["rules"]]


def test_it_imports_and_judges_where_there_is_no_torch():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'numpy', 'fcntl', 'matplotlib')))\n"
        f"from allranks import puzzles; print(puzzles.judge('ring', {RING!r})['right'])"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split() == ["True"]


def test_the_player_plays_the_trace_of_a_verdict():
    played = Trace.from_dict(puzzles.judge("ring", RING)["trace"])
    assert [len(list(step)) for _, step in groupby(played.messages(), lambda message: message.step)] == [4] * 6
    assert animate(played, None).payload()


# ------------------------------------------------------------------------------------------------ what the page draws


def test_the_chunks_before_each_step_and_the_first_wrong_move():
    wrong = RING.replace("isend(c[(rank + 1 - s) % p], right)", "isend(c[(rank - s) % p], right)")
    wrong = wrong.replace("recv(c[(rank - s) % p], left)", "recv(c[(rank - s - 1) % p], left)")
    found = puzzles.judge("ring", wrong)
    assert found["headline"] == "Rank 0 hands out chunk 0, which holds only its own numbers."
    assert found["note"] == "Steps 1 to 3 are right: each rank has one complete chunk."
    first = found["first_wrong"]
    assert (first["step"], first["rank"], first["peer"], first["chunks"], first["want"]) == (3, 0, 1, [0], [1])
    event = found["trace"]["events"][first["event"]]
    assert (event["op"], event.get("rank"), event["line"], event["step"]) == ("send", 0, first["line"], 3)
    steps = found["drawn"]["steps"]
    assert len(steps) == 6 and steps[0]["before"] == [[[r]] * 4 for r in range(4)]
    assert steps[3]["before"][0] == [[0], [0, 1, 2, 3], [0, 2, 3], [0, 3]]
    assert steps[3]["before"][1] == [[0, 1], [1], [0, 1, 2, 3], [0, 1, 3]]
    assert [(m["chunks"], m["how"], m["wrong"]) for m in steps[0]["moves"]] == [([c], "add", False) for c in range(4)]
    assert [m["wrong"] for m in steps[3]["moves"]] == [True, False, False, False]


def test_a_right_ring_is_drawn_to_its_end():
    found = puzzles.judge("ring", RING)
    assert found["drawn"]["after"] == [[[0, 1, 2, 3]] * 4] * 4
    assert [m["how"] for m in found["drawn"]["steps"][5]["moves"]] == ["store"] * 4
    assert (found["lead"]["messages"], found["lead"]["rounds"]) == (24, 6)
    assert all(rule["kept"] for rule in found["rules"])


def test_rules_wait_until_the_values_are_right():
    found = puzzles.judge("ring", RING.replace("+= new", "-= new"))
    assert [rule["kept"] for rule in found["rules"]] == [False, None, None, None]


def test_a_circle_says_who_waits_for_whom_and_who_could_go_on():
    found = puzzles.judge("circle", CIRCLE)
    assert found["headline"] == "All four wait in send, in a circle: each for a receiver that is itself waiting."
    assert found["note"] == "Known at once, after 0 messages; no time ran out."
    assert found["circle"] == [0, 1, 2, 3]
    assert found["waits"][3] == {"rank": 3, "call": "send(x, 0)", "line": 6, "for": [0], "doing": "waiting"}
    assert found["prints"] == [{"rank": rank, "text": f"rank {rank} sends"} for rank in range(4)]
    assert found["reached"] == [[2, 3, 4, 5, 6]] * 4
    first = found["receive_first"][0]
    assert first["ends"] and first["messages"] == [[3, 0], [2, 3], [1, 2], [0, 1]] and first["goes_on"] == [0, 3, 2, 1]


def test_what_is_printed_stands_there_once_however_often_a_rank_waits():
    found = puzzles.judge("ring", RING.replace("        wait(out)", "        wait(out)\n        print(rank, s)"))
    assert found["right"]
    assert [row["text"] for row in found["prints"] if row["rank"] == 2] == ["2 0", "2 1", "2 2"] * 2


# --------------------------------------------------------------------------------------------- code that misbehaves

BODIES = {
    "while True: pass": ("an endless loop", "Rank 0, line 2, began 50,000 lines"),
    "while True:\n        try: recv(x, rank)\n        except: pass": ("an endless loop", "an endless loop?"),
    "return [i for i in iter(int, 1)]": ("an endless loop", "an endless loop?"),
    "for i in range(10000): isend(x, (rank + 1) % world_size)": ("an endless loop", "500 sends and receives"),
    "for i in range(2500):\n        o = isend(x, (rank + 1) % 4)\n        recv(empty_like(x), (rank - 1) % 4)\n        wait(o)": (
        "an endless loop",
        "sends and receives: an endless loop?",
    ),
    "while True: print('a' * 1000)": ("prints too much", "printed more than"),
    "import torch.distributed as dist": ("needs a package that is not there", "Line 2: there is no torch here"),
    "import requests": ("needs a package that is not there", "there is no module requests here"),
    "from os import system": ("needs a package that is not there", "there is no module os here"),
    "open('/etc/passwd')": ("raises RuntimeError", "there are no files"),
    "input()": ("raises RuntimeError", "nobody answers"),
    "exit()": ("ends its process", "ends the program"),
    "raise SystemExit": ("ends its process", "ends the program"),
    "return (lambda f: f(f))(lambda f: f(f))": ("raises RecursionError", "without an end"),
    "return zeros(10 ** 9)": ("raises MemoryError", "too long here"),
    "raise NotImplementedError": ("not written yet", "not written yet"),
    "y = x[1] + z": ("raises NameError", "name 'z' is not defined"),
    "send(1, 0)": ("raises TypeError", "takes a vector first"),
    "send(x, 1.0)": ("raises TypeError", "a whole number"),
    "send(x, 'right')": ("raises TypeError", "the other rank second"),
    "send(x, 7)": ("raises ValueError", "there is no rank 7"),
    "send(x, rank)": ("raises ValueError", "its own rank"),
    "send(x[::2], (rank + 1) % 4)": ("raises ValueError", "use clone()"),
    "wait(None)": ("raises TypeError", "not nothing"),
    "batch([send])": ("raises TypeError", "batch takes a list"),
    "return 'x'": ("returns something of another kind", "returns a str"),
    "return": ("nothing was returned", "returns nothing"),
    "return 10 ** 1000": ("wrong shape", "ends with 1 number"),
    "class E(Exception):\n        def __str__(self): return 5\n    raise E": ("raises E", "raises E."),
    "raise KeyboardInterrupt": ("raises KeyboardInterrupt", "raises KeyboardInterrupt."),
    "exec('while True: pass')": ("raises RuntimeError", "write the code out"),
    "x.store.values = None": ("raises TypeError", "not subscriptable"),
    "torch.zeros(3)": ("raises NameError", "there is no torch here"),
    "send(x)": ("raises TypeError", "send() missing 1 required positional argument"),
    "isend(x, (rank + 1) % 4, tag=rank)\n    recv(empty_like(x), (rank - 1) % 4, tag=7)": (
        "tags of send and receive differ",
        "wait",
    ),
    "try: send(x, (rank + 1) % 4)\n    except BaseException: return x": ("sends before it receives", "in a circle"),
    "y = irecv(x, (rank - 1) % 4)\n    send(clone(x), (rank + 1) % 4)\n    wait(y)\n    return x": (
        "a buffer was read before wait()",
        "wait()",
    ),
    "yield x": ("returns something of another kind", "returns a generator"),
    "recv(empty_like(x), 1 - rank % 2)": ("receives before it sends", "wait"),
    "class E(Exception):\n        def __str__(self):\n            while True: pass\n    raise E": (
        "an endless loop",
        "an endless loop?",
    ),
    "class V(Vector): values = 3\n    return V(x.store, x.at)": ("raises TypeError", "a class of your own"),
    "return " + "-" * 9000 + "x": ("the code can't be read", "nested too deep"),
    "return send.__self__": ("calls what is forbidden", "Line 2 uses __self__"),
    "match send:\n        case object(__self__=rank_): return rank_": (
        "calls what is forbidden",
        "Line 3 uses __self__",
    ),
    "return (i for i in x).gi_frame.f_back": ("calls what is forbidden", "Line 2 uses f_back"),
    "return getattr(send, '__self' + '__')": ("raises AttributeError", "Python's inside"),
    "return isend(x, (rank + 1) % 4).rank": ("raises AttributeError", "no attribute 'rank'"),
    "return globals()": ("raises RuntimeError", "globals() does not work here"),
    "__loader__.load_module('posix')": ("raises NameError", "__loader__"),
    "import random\n    random._os._exit(0)": ("raises AttributeError", "_os"),
    "import dataclasses\n    dataclasses.sys.exit()": ("raises AttributeError", "'sys'"),
    "import operator\n    return operator.attrgetter('__self__')(send)": ("raises AttributeError", "attrgetter"),
    "import string\n    return string.Formatter().get_field('0.__self__', [send], {})": (
        "raises AttributeError",
        "Formatter",
    ),
}


@pytest.mark.parametrize("body", BODIES)
def test_code_that_does_not_behave_gets_a_sentence(body):
    found = puzzles.judge("circle", f"def pass_right(x):\n    {body}\n")
    code, words = BODIES[body]
    assert (found["right"], found["code"]) == (False, code), found["headline"]
    assert words in found["headline"] and found["headline"].endswith((".", "?"))


CODES = {
    "": ("the function is missing", "defines no function pass_right"),
    "def pass_left(x): return x": ("the function is missing", "called pass_left"),
    "pass_right = 3": ("raises TypeError", "not a function"),
    "def pass_right(x)": ("the code can't be read", "line 1"),
    "def pass_right(x):\n\treturn x\n        return y": ("the code can't be read", "line 3"),
    "def pass_right(x): return '\0'": ("the code can't be read", "can't read"),
    "def pass_right(): return 1": ("raises TypeError", "takes 0 positional arguments"),
    "x = 1 / 0\ndef pass_right(x): return x": ("raises ZeroDivisionError", "line 1"),
    "def pass_right(x): return x\n" + "#" * 70_000: ("the code can't be read", "longer than 64 KiB"),
    "def pass_right(x): return " + "(" * 5000 + ")" * 5000: ("the code can't be read", "can't read"),
    "async def pass_right(x): return x": ("the function is missing", "defines no function"),
}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code[:30])
def test_code_that_is_none_gets_a_sentence(code):
    found = puzzles.judge("circle", code)
    assert (found["right"], found["code"]) == (False, CODES[code][0]), found["headline"]
    assert CODES[code][1] in found["headline"]


WORDS = "rank world_size p 0 1 2 x new c left right send recv isend irecv wait out None range empty_like clone".split()


def mutated(code: str, chance: random.Random) -> str:
    """The code with a line too few, too many, elsewhere or further in, or with another word or sign."""
    lines = code.split("\n")
    at, other = chance.randrange(1, len(lines)), chance.randrange(1, len(lines))
    match chance.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(at, lines[other])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = "    " + lines[at]
        case 4:
            lines[at] = re.sub(r"[-+*%<>]", chance.choice("+-*%<>"), lines[at], count=1)
        case 5:
            words = list(re.finditer(r"\b\w+\b", lines[at]))
            if words:
                word = chance.choice(words)
                lines[at] = lines[at][: word.start()] + chance.choice(WORDS) + lines[at][word.end() :]
    return "\n".join(lines)


def test_whatever_is_changed_in_an_answer_it_gets_a_verdict():
    chance = random.Random(5)
    for _ in range(150):
        answer = chance.choice(ANSWERS)
        code = mutated(mutated(answer.text, chance), chance)
        found = puzzles.judge(answer.puzzle, code)
        assert found["headline"].endswith((".", "?")), code
        assert json.dumps(found, allow_nan=False)
        assert found["first_wrong"] is None or found["first_wrong"]["event"] is not None, code


def test_a_rank_that_does_not_do_the_same_again_is_told_so():
    code = (
        "import functools\nfunctools.seen = getattr(functools, 'seen', 0)\n"
        "def pass_right(x):\n    functools.seen += 1\n    y = empty_like(x)\n    x[0] = functools.seen\n"
        "    out = isend(x, (rank + 1) % world_size)\n    recv(y, (rank - 1) % world_size)\n    wait(out)\n    return y\n"
    )
    try:
        assert "did something else when it was run again" in puzzles.judge("circle", code)["headline"]
    finally:
        import functools

        vars(functools).pop("seen", None)


def test_random_numbers_and_time_are_the_same_each_time():
    code = CIRCLE.replace(
        "    send(x",
        "    import random, time\n    assert time.time() == 0\n    out = isend(tensor([random.random()] * 4), 1)\n    send(x",
    )
    assert "run again" not in puzzles.judge("circle", code)["headline"]
    before = "import random\nrandom.seed(5)\n"
    assert puzzles.judge("ring", before + RING)["right"]


def test_a_puzzle_that_is_not_there_is_refused():
    with pytest.raises(puzzles.PuzzleError, match="There is no puzzle 11"):
        puzzles.judge(11, "")


def test_no_module_that_is_allowed_opens_files_or_sockets():
    assert not {"os", "sys", "io", "socket", "subprocess", "pathlib", "ctypes", "importlib"} & set(MODULES)


# ----------------------------------------------------------------------------------------------------- the share link


def squeezed(data: bytes) -> str:
    made = zlib.compressobj(wbits=-15)
    return base64.urlsafe_b64encode(made.compress(data) + made.flush()).decode().rstrip("=")


@pytest.mark.parametrize("code", ["", "def f(x):\n    return 'h\u00e9'\n", "x = 1\n" * 5000])
def test_a_link_gives_back_the_code(code):
    assert puzzles.unpack(f"https://example.org/puzzles/?lang=en#{puzzles.pack('ring', code)}") == ("ring", code)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("", "names no puzzle"),
        ("https://example.org/#c=abc", "names no puzzle"),
        ("#p=rings&c=abc", "there is no puzzle 'rings'"),
        ("#p=ring", "can't be read"),
        ("#p=ring&c=%%%", "can't be read"),
        ("#p=ring&c=abcde", "can't be read"),
        ("#p=ring&c=" + squeezed(b"x = 1" * 50)[:-6], "cut off"),
        ("#p=ring&c=" + squeezed(b"\xff\xfe"), "can't be read"),
        ("#p=ring&c=" + squeezed(b"a" * 70_000), "longer than 64 KiB"),
        ("#p=ring&c=" + squeezed(b"\0" * 50_000_000), "longer than 64 KiB"),
    ],
)
def test_a_broken_link_says_what_is_broken(link, words):
    with pytest.raises(puzzles.LinkError, match=words):
        puzzles.unpack(link)


def test_code_that_is_too_long_makes_no_link():
    with pytest.raises(puzzles.LinkError, match="64 KiB"):
        puzzles.pack("ring", "a" * 70_000)
