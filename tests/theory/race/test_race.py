"""The race: the proof and the clock against slower ones, the bounds, the entries, and what is said of wrong ones."""

import json
import random
import re
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from allranks import race, schedules, topology
from allranks.cli import main
from allranks.theory.race import leaderboard
from allranks.theory.race.bounds import lower_bound, spread_ps
from allranks.theory.race.maker import make
from allranks.theory.schedules import Move, Schedule, ScheduleError
from allranks.theory.schedules.proof import fault_of
from allranks.theory.simulator.clock import replay
from allranks.theory.simulator.scale import price_at_scale
from allranks.theory.simulator.simulation import programs
from click.testing import CliRunner
from loading import loaded

ENTRIES = leaderboard.load()
FILES = [e for e in ENTRIES if e.file is not None]
LARGE = ("big-world", "sixteen-gibibytes")  # their entries take a second or more


def run(*arguments):
    return CliRunner().invoke(main, ["race", *map(str, arguments)])


def by_file(entry):
    """The entry's schedule, made in this process."""
    return loaded(leaderboard.COURSE.parent / entry.file).schedule(race.task(entry.task))


# ----------------------------------------------------------------------------------------------------- proof and clock


def naive_fault(schedule):
    """The first kind of fault, by a table of every (rank, chunk), with counters instead of bits."""
    held = schedule.initial()
    for step in sorted({m.step for m in schedule.moves}):
        now = [m for m in schedule.moves if m.step == step]
        before = {(m.src, c): held.get((m.src, c)) for m in now for c in m.chunks}
        written = set()
        for move, chunk in ((m, c) for m in now for c in m.chunks):
            payload, target = before[move.src, chunk], (move.dst, chunk)
            if any(before[move.src, c] is None for c in move.chunks):  # a message is looked at as a whole first
                return "does not hold"
            if not move.reduce and target in written:
                return "written twice"
            if move.reduce and target not in held:
                return "nothing to add"
            held[target] = held[target] + payload if move.reduce else payload
            if max(held[target].values()) > 1:
                return "added twice"
            written.add(target)
    wrong = [place for place, wanted in schedule.final().items() if held.get(place, Counter()) != wanted]
    return "should hold" if wrong else None


def test_the_proof_agrees_with_a_table_of_every_chunk():
    draw, kinds = random.Random(29), Counter()
    collectives = (
        "broadcast",
        "all_reduce",
        "reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "scatter",
        "gather",
    )
    for trial in range(400):
        name = collectives[trial % len(collectives)]
        good = draw.choice(list(schedules.algorithms(name).values()))(draw.choice([2, 3, 4, 6]))
        moves = list(good.moves)
        for _ in range(draw.choice([0, 1, 1, 2])):  # a message lost, twice, at another time, elsewhere, added or not
            n = draw.randrange(len(moves))
            m = moves[n]
            other = draw.choice([r for r in range(good.ranks) if r != m.src])
            moves[n : n + 1] = draw.choice(
                [[], [m, m], [Move(m.step + draw.choice([0, 1, 3]), m.src, m.dst, m.chunks, m.reduce)],
                 [Move(m.step, m.src, other, m.chunks, m.reduce)], [Move(m.step, m.src, m.dst, m.chunks, not m.reduce)],
                 [Move(m.step, m.src, m.dst, (draw.randrange(good.chunks),), m.reduce)]]
            )  # fmt: skip
            if not moves:
                break
        bent = Schedule(good.collective, "bent", good.ranks, good.chunks, tuple(moves), root=good.root)
        wanted, found = naive_fault(bent), fault_of(bent)
        kinds[wanted] += 1
        assert (found is None) == (wanted is None) and (wanted or "") in (found or ""), (wanted, found)
    assert len(kinds) == 6, kinds


class Whole:
    """A fabric as a network for the clock of the wire."""

    def __init__(self, fabric):
        self.fabric = fabric

    def seconds(self, src, dst, nbytes):
        return self.fabric.picoseconds(src, dst, nbytes)

    def links(self, src, dst):
        return self.fabric.route(src, dst)


def test_the_clock_agrees_with_that_of_the_wire_message_by_message():
    """On machines where a rank has one port, so that both have the same rule; with uplinks to fight for."""
    link = topology.Link("card", 1e-6, 1e9)
    tree = topology.Topology("tree", 1, link, link, nodes_per_leaf=4, oversubscription=4.0)
    draw, waited = random.Random(7), 0
    for trial in range(60):
        p = draw.choice([4, 8, 12])
        fabric = topology.node_fabric((tree, topology.uniform(1e-6, 1e9))[trial % 2], p)
        moves = sorted(
            (
                Move(draw.randrange(6), *draw.sample(range(p), 2), draw.choice([(0,), range(3)]))
                for _ in range(draw.randrange(1, 90))
            ),
            key=lambda m: m.step,
        )  # fmt: skip
        schedule = Schedule("all_reduce", "random", p, 3, tuple(moves))
        slow, fast = replay(programs(schedule, 3000), Whole(fabric)), price_at_scale(schedule, 3000, fabric)
        assert fast.picoseconds == slow.seconds
        assert [slow.spans[n] for n in range(len(moves))] == list(zip(fast.starts, fast.ends, strict=True))
        waited += sum(end - start for start, end in zip(fast.starts, fast.ends, strict=True)) > fast.picoseconds
    assert waited > 40, "messages hardly overlapped, so that nothing was compared"


def test_ranges_are_chunks():
    as_range = Schedule("broadcast", "x", 2, 1000, (Move(0, 0, 1, range(1000)),), root=0)
    as_range.verify()
    assert len(as_range.trace()) == 2
    with pytest.raises(ScheduleError, match=r"rank 1 should hold chunk 999 .* ranks \[0\]; it holds \[\]"):
        Schedule("broadcast", "x", 2, 1000, (Move(0, 0, 1, range(999)),), root=0).verify()


# ------------------------------------------------------------------------------------------------- machines and bounds


@pytest.mark.parametrize("name", [name for name in race.TASKS if name != "big-world"])
def test_every_message_over_a_cut_uses_one_of_its_links(name):
    fabric = race.task(name).fabric
    for family in fabric.families.values():
        assert sorted(r for cut in family for r in cut.ranks) == list(range(fabric.ranks))
        for cut in family:
            inside = set(cut.ranks)
            for src, dst in product(range(fabric.ranks), repeat=2):
                if (src in inside) == (dst in inside):
                    continue
                try:
                    way, alpha, _ = fabric.way(src, dst)
                except topology.TopologyError:
                    continue
                assert set(way) & set(cut.out if src in inside else cut.into)
                assert alpha >= cut.alpha_ps


def test_what_is_slow_is_slower():
    fabric = race.task("slow-card").fabric
    plain = topology.node_fabric(topology.preset("dgx-h100"), 32)
    assert fabric.picoseconds(19, 0, 10**9) == 4 * plain.picoseconds(19, 0, 10**9)
    assert fabric.picoseconds(18, 0, 10**9) == plain.picoseconds(18, 0, 10**9) == 20_005_000_000
    slow = race.task("slow-rank").fabric
    assert slow.picoseconds(5, 0, 0) == 4 * slow.picoseconds(4, 0, 0) == 8_000_000
    with pytest.raises(topology.TopologyError, match="has no link \\('card out', 9, 9\\)"):
        plain.with_slow_link(2, ("card out", 9, 9))


def test_a_torus_goes_the_shorter_way():
    fabric = race.task("torus-broadcast").fabric
    assert [len(fabric.route(0, dst)) for dst in (1, 7, 8, 56, 4, 36)] == [1, 1, 1, 1, 4, 8]
    assert fabric.picoseconds(0, 36, 50) == 8_000_000 + 1000


def test_news_spreads_as_by_hand():
    """Over one port it doubles each time; over ports of 2 and 5: at 2, 4, 5, 6 and 7 there are 2, 4, 5, 8 and 10 who
    know.
    """
    assert [spread_ps((1,), p) for p in (1, 2, 3, 4, 5, 1024)] == [0, 1, 2, 2, 3, 10]
    assert [spread_ps((2, 5), p) for p in (2, 4, 5, 8, 10)] == [2, 4, 5, 6, 7]


def test_bounds_are_those_worked_out_by_hand():
    """The 16 ranks of two nodes: 2n(p-1) over 16 x 421 GB/s, and 2 µs; a slow rank: n over a quarter of 371 GB/s,
    and 8 µs.
    """
    n = 256 * 2**20
    two = 2 * n * 15 / Fraction(16 * 421 * 10**9) * 10**12 + 2_000_000
    assert abs(race.task("two-nodes").bound.picoseconds - two) <= 1
    slow = Fraction(n * 4, 371 * 10**9) * 10**12 + 2_000_000
    assert 0 <= race.task("slow-rank").bound.picoseconds - slow <= 6_000_001
    assert race.task("one-kibibyte").bound.picoseconds == 12_000_000


@pytest.mark.parametrize(
    "collective", ["broadcast", "reduce", "all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
)
def test_no_algorithm_of_the_course_beats_a_bound(collective):
    best = Fraction(0)
    link, card = topology.Link("port", 2e-6, 300e9), topology.Link("card", 5e-6, 25e9)
    nodes = topology.Topology("nodes", 4, link, card, nics_per_node=2, nodes_per_leaf=1, oversubscription=2.0)
    for p, nbytes, machine in product((2, 4, 8, 12), (0, 1, 4800, 10**8), ("switch", "nodes", "torus")):
        if machine == "torus":
            fabric = topology.torus_fabric(2, p // 2, card)
        else:
            fabric = topology.node_fabric(nodes if machine == "nodes" else topology.uniform(1e-6, 1e9), p)
        for build in schedules.algorithms(collective).values():
            schedule = build(p)
            time = price_at_scale(schedule, nbytes, fabric).picoseconds
            bound = lower_bound(collective, nbytes, fabric, schedule.root).picoseconds
            assert bound <= time, (schedule, fabric.name, nbytes)
            best = max(best, Fraction(bound, time))
    assert best > Fraction(99, 100), "a bound that nothing comes near tells nothing"


def test_a_collective_without_a_bound_is_refused():
    with pytest.raises(ScheduleError, match="no bound for barrier"):
        lower_bound("barrier", 0, race.task("cube-mesh").fabric)


# ------------------------------------------------------------------------------------------------------------- entries


def test_every_task_has_three_entries_and_no_score_above_one():
    for name in race.TASKS:
        mine = [e for e in ENTRIES if e.task == name]
        assert len(mine) >= 3 and sum(e.file is not None for e in mine) >= 3, name
        assert all(e.picoseconds >= race.task(name).bound.picoseconds for e in mine), name
    used = {e.file for e in FILES}
    assert used == {f"entries/{path.name}" for path in (leaderboard.COURSE.parent / "entries").glob("*.py")}


@pytest.mark.parametrize("entry", [e for e in FILES if e.task not in LARGE], ids=lambda e: f"{e.task}-{e.file[8:-3]}")
def test_an_entry_has_the_time_that_the_leaderboard_says(entry):
    result = race.judge(by_file(entry), race.task(entry.task))
    assert (result.picoseconds, result.score) == (entry.picoseconds, entry.score)


def test_the_references_have_the_times_that_the_leaderboard_says():
    references = [e for e in ENTRIES if e.model]
    assert len(references) == 4 and all(leaderboard.run(e, leaderboard.COURSE.parent) == e for e in references)


def test_the_entry_in_the_documents_works_as_written():
    text = (Path(__file__).parents[3] / "docs" / "race.md").read_text(encoding="utf-8")
    space = {}
    exec(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1], space)
    where = race.task("two-nodes")
    assert race.judge(space["schedule"](where), where).score == race.judge(schedules.ring_all_reduce(16), where).score


def test_the_documents_name_every_task_with_its_ranks():
    text = (Path(__file__).parents[3] / "docs" / "race.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (\d+) \|", text, flags=re.M)
    assert rows == [(t.name, t.collective, str(t.ranks)) for t in race.TASKS.values()]


@pytest.mark.nightly
def test_the_whole_leaderboard_holds():
    ran = run("--verify")
    assert ran.exit_code == 0 and ran.stdout.endswith(
        f"{len(ENTRIES)} of {len(ENTRIES)} entries hold, to the last digit.\n"
    )


# ------------------------------------------------------------------------------------------------------- wrong entries

HEAD = "from allranks.schedules import Move, Schedule\ndef schedule(task):\n    p = task.ranks\n"
WRONG = {
    "two-nodes rank 99": (
        "    return Schedule('all_reduce', 'x', p, 1, (Move(0, 0, 1, (0,), True), Move(1, 1, 99, (0,))))",
        "there is no rank 99; the 16 ranks are 0 to 15",
    ),
    "cube-mesh cycle": (
        "    return Schedule('all_gather', 'x', p, p, (Move(0, 0, 1, (7,)), Move(0, 1, 0, (7,))))",
        "step 0: rank 0 to rank 1, chunk 7: rank 0 does not hold chunk 7 yet; ranks 0, 1 wait for it from "
        "each other, a deadlock",
    ),
    "cube-mesh too early": (
        "    return Schedule('all_gather', 'x', p, p, (Move(0, 1, 2, (0,)), Move(1, 0, 1, (0,))))",
        "rank 1 does not hold chunk 0 yet; it comes in step 1, from rank 0",
    ),
    "cube-mesh nobody": (
        "    return Schedule('all_gather', 'x', p, p, (Move(0, 1, 2, (0,)),))",
        "no message brings it to rank 1",
    ),
    "cube-mesh no link": (
        "    from allranks.schedules import ring_all_gather\n    return ring_all_gather(p)",
        "DGX-1 has no link from rank 3 to rank 4",
    ),
    "big-world rank 4096": (
        "    return Schedule('all_reduce', 'x', p, 1, (Move(0, 0, 4096, (0,)),))",
        "message 0 (step 0, from rank 0 to rank 4096): there is no rank 4096; the 4096 ranks are 0 to 4095",
    ),
    "hundred endless": ("    while True: pass", "did not return within 1 s; does its loop end?"),
    "hundred memory": (
        "    return bytes(3 << 30)",
        "took more than 2 GiB of memory",
    ),
    "hundred huge": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 0, 1, (0,)),) * 300000)",
        "the schedule has 300000 messages; the race takes at most 200000",
    ),
    "hundred huge range": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 0, 1, range(10**30)),))",
        "the 100 chunks are 0 to 99",
    ),
    "hundred runs": (
        "    return Schedule('reduce_scatter', 'x', p, 100000, (Move(0, 0, 1, range(0, 100000, 2)),) * 100)",
        "more than 1000000 runs of neighbouring chunks",
    ),
    "hundred far step": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(10**12, 0, 1, (1,), True),))",
        "rank 0 should hold chunk 0 with the contributions of ranks 100 of them; it holds [0]",
    ),
    "hundred list": ("    return []", "returned list; it must return a Schedule"),
    "hundred parts": ("    return Schedule('reduce_scatter', 'x', p, 7, ())", "needs a multiple of the 100 ranks"),
    "hundred uneven": (
        "    return Schedule('reduce_scatter', 'x', p, 300, ())",
        "the schedule has 300 chunks; they must divide the 1000000 bytes, so that all parts are alike",
    ),
    "hundred self": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 3, 3, (0,), True),))",
        "message 0 (step 0, from rank 3 to rank 3): a rank sends nothing to itself",
    ),
    "hundred chunk": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 3, 4, (100,), True),))",
        "message 0 (step 0, from rank 3 to rank 4): there is no chunk 100; the 100 chunks are 0 to 99",
    ),
    "hundred chunk twice": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 3, 4, (7, 8, 7), True),))",
        "message 0 (step 0, from rank 3 to rank 4): chunk 7 is in it twice",
    ),
    "hundred other": (
        "    return Schedule('reduce', 'x', p, 1, (), root=0)",
        "hundred is reduce_scatter, and the schedule is for 'reduce'",
    ),
    "hundred ranks": (
        "    return Schedule('reduce_scatter', 'x', 4, 4, ())",
        "hundred has 100 ranks, and the schedule has 4",
    ),
    "torus-broadcast root": (
        "    return Schedule('broadcast', 'x', p, 1, (), root=3)",
        "is rank 0, and that of the schedule is 3",
    ),
    "hundred generator": (
        "    return Schedule('reduce_scatter', 'x', p, p, (m for m in ()))",
        "the moves of the schedule are generator; they must be a tuple of Move",
    ),
    "hundred float": (
        "    return Schedule('reduce_scatter', 'x', p, p, (Move(0, 0.5, 1, (0,)),))",
        "the sender of message 0 is 0.5; it must be a whole number",
    ),
    "hundred raises": ("    return 1 / 0", "schedule(task) raised ZeroDivisionError in line 4: division by zero"),
    "hundred leaves": (
        "    import os; os._exit(3)",
        "ended its process before schedule(task) returned (exit status 3)",
    ),
    "hundred forges": (
        "    import os, sys\n    open(sys.argv[3], 'w').write('{\"moves\": 3}')\n    os._exit(0)",
        "wrote over the schedule that its process hands in",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_entry_gets_one_sentence(case, tmp_path):
    body, sentence = WRONG[case]
    file = tmp_path / "mine.py"
    file.write_text(HEAD + body + "\n")
    where = race.task(case.split()[0])
    with pytest.raises(race.RaceError) as caught:
        race.judge(make(file, where, limit_s=1 if "endless" in case else 20, quiet=True), where)
    said = str(caught.value)
    assert sentence in said and "\n" not in said and len(said) < 300


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("def schedule(task)\n", "line 1: expected ':'"), ("x = 1\n", "defines no function schedule(task)"),
     ("import nothing_like_this\n", "raised ModuleNotFoundError in line 1")],
)  # fmt: skip
def test_a_file_without_a_function_is_refused(text, sentence, tmp_path):
    (tmp_path / "mine.py").write_text(text)
    ran = run("hundred", tmp_path / "mine.py")
    assert ran.exit_code == 2 and sentence in ran.stderr and ran.stdout == ""


def test_waiting_for_one_link_without_end_is_bounded(monkeypatch):
    monkeypatch.setattr("allranks.theory.race.scoring.MAX_LOOKS", 100)
    with pytest.raises(race.RaceError, match="more than 100 times"):
        race.judge(schedules.pairwise_all_to_all(64), race.task("oversubscribed"))


# ------------------------------------------------------------------------------------------------------------- command


def test_the_tasks_are_listed_and_shown():
    assert [line.split()[0] for line in run().stdout.splitlines()[:-1]] == list(race.TASKS)
    shown = run("torus_sum").stdout
    assert "all_reduce, 64 ranks" in shown and "1. 0.989889" in shown and "must send each other" in shown
    assert json.loads(run("torus-sum", "--json").stdout)["entries"][0]["name"] == "four quarters round the torus"
    assert len(json.loads(run("--json").stdout)["tasks"]) == len(race.TASKS)
    assert run("torus-sun").stderr == "There is no task 'torus-sun'; the nearest is torus-sum.\n"


def test_an_entry_is_scored_written_down_and_verified(tmp_path):
    """A class's leaderboard: entered, replaced by a second try of the same name, verified, and found out when its
    time is changed.
    """
    mine, own = tmp_path / "mine.py", tmp_path / "class.json"
    mine.write_text(
        "from allranks import schedules\ndef schedule(task):\n    print('hello')\n    return "
        "schedules.ring_reduce_scatter(100)\n"
    )
    scored = run("hundred", mine)
    assert (
        scored.exit_code == 0
        and "hundred: score 0.083426" in scored.stdout
        and "place        3 beside 4" in scored.stdout
    )
    assert json.loads(run("hundred", mine, "--board", own, "--by", "Ada", "--json").stdout)["place"] == 1
    mine.write_text(mine.read_text().replace("ring", "pairwise"))
    run("hundred", mine, "--board", own, "--by", "Ada")
    held = json.loads(own.read_text())["entries"]
    assert [(e["by"], e["file"], e["score"]) for e in held] == [("Ada", "mine.py", "0.083426")]
    ran = run("--verify", own)
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (0, "1 of 1 entries hold, to the last digit.")
    own.write_text(own.read_text().replace("0.083426", "0.983426"))
    ran = run("--verify", "--board", own)
    assert ran.exit_code == 1 and "the leaderboard says 534" in ran.stdout and "0 of 1 entries hold" in ran.stdout
    assert json.loads(run("--verify", own, "--json").stdout)["faults"][0]["name"] == "mine"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is no JSON"),
        ("[]", "is no leaderboard"),
        ('{"allranks_race": 2, "entries": []}', "has format 2"),
        ('{"allranks_race": 1, "entries": []}', "has no entries to verify"),
        ('{"allranks_race": 1, "entries": [3]}', "entry 0 is int"),
        (
            '{"allranks_race": 1, "entries": [{"task": "two-nodes", "picoseconds": 1.5}]}',
            "are 1.5; they are a whole number",
        ),
        (
            '{"allranks_race": 1, "entries": [{"task": "x", "name": "", "by": "", "picoseconds": 1, "score": ""}]}',
            "no task 'x'",
        ),
        (
            '{"allranks_race": 1, "entries": [{"task": "hundred", "name": "", "by": "", "picoseconds": 1, "score": '
            '""}]}',
            "needs a file, or a model",
        ),
    ],
)
def test_a_file_that_is_no_leaderboard_is_refused(text, sentence, tmp_path):
    (tmp_path / "board.json").write_text(text)
    ran = run("--verify", tmp_path / "board.json")
    assert ran.exit_code == 2 and sentence in ran.stderr and ran.stderr.count("\n") == 1


def test_an_entry_outside_the_folder_is_not_run(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.py").write_text("1 / 0\n")
    entry = leaderboard.Entry("hundred", "x", "y", 1, "0.1", file="../out.py")
    leaderboard.save(tmp_path / "in" / "board.json", [entry])
    assert "is not in the folder of the leaderboard" in run("--verify", tmp_path / "in" / "board.json").stdout
    assert "must be in the folder" in run("hundred", tmp_path / "out.py", "--board", tmp_path / "in" / "b.json").stderr


def test_the_page_has_every_task_and_asks_for_nothing(tmp_path):
    entry = leaderboard.Entry("hundred", "<b>", "Ada & Bob", 10**8, "0.465240", file="x.py")
    leaderboard.save(tmp_path / "own.json", [entry])
    ran = run("--page", tmp_path / "race.html", "--board", tmp_path / "own.json")
    text = (tmp_path / "race.html").read_text()
    assert ran.exit_code == 0 and all(f'id="{name}"' in text for name in race.TASKS)
    assert "&lt;b&gt; (Ada &amp; Bob)" in text and "http" not in text and "<script" not in text
