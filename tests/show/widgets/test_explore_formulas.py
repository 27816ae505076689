"""The formulas of the explorables in JavaScript are those of `allranks.cost`, to 1e-9.

explore_answers.json has what the JavaScript says to the questions below. Without Node.js the package is compared with
this file; with Node.js a test compares the file with the JavaScript. After a change: `python
tests/show/widgets/test_explore_formulas.py`.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from allranks import cost, my_model, pipelines, race, run_schedule, schedules, topology
from allranks.show.widgets import explorables, explorables_first, first_figures, step_figures
from allranks.show.widgets import my_model_story as story
from allranks.theory.cost import workload
from allranks.theory.cost.plan import MODELS, plan
from allranks.theory.cost.step import TrainingStep, training_step
from allranks.theory.cost.workload import Cluster, WorkloadError

HERE = Path(__file__).resolve().parent
ANSWERS = HERE / "explore_answers.json"
SCRIPT = HERE.parents[2] / "utils" / "js" / "test" / "explore" / "answers.js"
ALGORITHMS = ("ring", "tree", "recursive doubling", "rabenseifner", "double binary tree")


def questions() -> list[dict[str, Any]]:
    """A grid of inputs for each formula; those of a step are a fixed choice of all splits."""
    found: list[dict[str, Any]] = []
    for p, n, link in itertools.product(
        (2, 3, 4, 5, 8, 24, 32, 100, 1000, 1024), (100, 2e6, 2e9), ((5e-6, 2e-11), (1e-3, 1e-12))
    ):
        found.append({"formula": "all_reduce", "p": p, "n": n, "alpha": link[0], "beta": link[1]})
    for ranks, bucket, backward in itertools.product((1, 2, 32, 1024), (1e6, 25 * 2**20, 1e9, 14e9, 2e10), (0.05, 0.3)):
        job = {"nbytes": 14e9, "ranks": ranks, "alpha": 5e-6, "bytesPerS": 200e9}
        found.append({"formula": "buckets", "job": job, "bucket": bucket, "backward": backward})
    for p, excess, capacity in itertools.product((2, 8, 64, 1024), (0.0, 0.3, 1.0), (0, 1, 2)):
        hottest = 1 / p + excess * (1 - 1 / p)
        found.append(
            {
                "formula": "skew",
                "p": p,
                "n": 8e6,
                "hottest": hottest,
                "alpha": 5e-6,
                "beta": 2e-11,
                "capacity": capacity,
            }
        )
    for p, parts, seed in itertools.product((2, 8, 32), (1, 4), (1, 7, 64, 123456789)):
        found.append({"formula": "spines", "p": p, "parts": parts, "seed": seed})
    return [*found, *splits(), *states(), *first_pictures()]


def first_pictures() -> list[dict[str, Any]]:
    """What the pictures with which chapters begin can be dragged to."""
    found: list[dict[str, Any]] = []
    for order, p, m in itertools.product(("gpipe", "1f1b", "interleaved", "zb-h1"), (2, 3, 4, 6, 8), range(1, 13)):
        found.append({"formula": "pipeline", "order": order, "p": p, "m": m})
    found += [{"formula": "attention", "owner": owner} for owner in ("in order", "zigzag")]
    for uneven, capacity in itertools.product((0, 0.7, 1, 4), (0.25, 1, 1.25, 3)):
        found.append({"formula": "router", "uneven": uneven, "capacity": capacity})
    for gather, room in itertools.product((0.25, 0.5, 1, 1.25, 2), range(1, 7)):
        found.append({"formula": "fsdp", "gather": gather, "room": room})
    data = explorables_first.recompute_data()
    for what, count in itertools.product(("full", "selective"), range(13)):
        found.append({"formula": "recompute", "data": data, "what": what, "count": count})
    for seconds, cost_s in itertools.product((120, 600, 1140, 7200), (10, 60, 300)):
        found.append({"formula": "interval", "seconds": seconds, "cost": cost_s, "mtbf": 11_135.0})
    for p, kind, order in itertools.product((2, 3, 64, 448, 1024), ("bfloat16", "float32"), ("ring", "tree")):
        found.append({"formula": "bits", "p": p, "type": kind, "order": order})
    for p, share in itertools.product((4, 8, 64), (0.25, 0.5, 0.9)):
        data = {"total": 64e6, "alpha": 1e-5, "beta": 2e-11}
        found.append({"formula": "uneven", "p": p, "share": share, "data": data})
    for looks, after in itertools.product((0, 6, 9.5, 26), ("nothing", "flag", "fence")):
        found.append({"formula": "writes", "looks": looks, "after": after})
    for p, library in itertools.product(range(2, 9), ("NCCL", "Gloo", "MPI")):
        found.append({"formula": "flag", "p": p, "steps": 12, "library": library})
    data = explorables_first.path().data
    for way, nvlink, card in itertools.product(
        ("one ring", "8 segments", "two levels"), (25, 150, 900), (12.5, 50, 400)
    ):
        found.append({"formula": "path", "way": way, "nvlink": nvlink, "card": card, "data": data})
    data = explorables_first.search().data
    for steps, rounds, nbytes in itertools.product((1, 2, 3, 8), (6, 7, 12), (3 << 11, 3 << 20, 3 << 25)):
        found.append({"formula": "search", "steps": steps, "rounds": rounds, "nbytes": nbytes, "data": data})
    for k, feedback in itertools.product((1, 4, 24, 64), (False, True)):
        found.append({"formula": "compress", "k": k, "feedback": feedback})
    return found


def splits() -> list[dict[str, Any]]:
    """Every 37th of all splits over the models and machines, possible or not."""
    machines, models = step_figures.machines(), step_figures.models()
    buckets = itertools.cycle((25 << 20, 0, 1 << 30))
    ways = itertools.product(MODELS, machines, (8, 64, 1024), range(4), (1, 4, 8), (1, 2, 8), (1, 2), (1, 8), (1, 2))
    found = []
    for model, machine, ranks, stage, tp, pp, cp, ep, microbatch in list(ways)[::37]:
        split = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "zero_stage": stage, "batch": 2048, "microbatch": microbatch}
        split |= {"dp": ranks / (tp * pp * cp), "bucket": next(buckets)}
        names = {"model_name": model, "machine_name": machine, "model": models[model], "machine": machines[machine]}
        found.append({"formula": "step", **names, "split": split, "assumed": step_figures.assumptions()})
    return found


PRESSED = {
    "ranks": (1, 8, 64, 1024),
    "bucket": (0, 25 << 20, 250 << 20, 1 << 30),
    "zero_stage": (0, 1, 2, 3),
    "tp": (1, 2, 4, 8),
    "pp": (1, 2, 4, 8),
    "cp": (1, 2, 4, 8, 16),
    "ep": (0, 1, 2, 4, 8),
}


def states() -> list[dict[str, Any]]:
    """What a reader may see in "my model": the course's choices, one press from there, any choices on the open axes."""
    drawn = random.Random(42)
    found = []
    for opened in range(1, 8):
        keys = [axis.key for axis in story.AXES[:opened]]
        course = story.values_after(opened)
        chosen = [course, *({**course, "ranks": ranks} for ranks in PRESSED["ranks"] if ranks != course["ranks"])]
        while len(chosen) < 16:
            own = {**story.START, **{key: drawn.choice(PRESSED[key]) for key in keys}}
            if drawn.random() < 0.3:
                own |= {"microbatch": 4, "sequence": 32768, "machine": "cloud-ethernet"}
            if _step(own):  # of the others only a sentence says that they are impossible
                chosen.append(own)
        data = my_model().data | {"opened": opened}
        found += [{"formula": "my_model", "data": data, "values": values} for values in chosen]
    return found


def _step(values: dict[str, Any]) -> TrainingStep | None:
    try:
        return story.step_of(values)
    except WorkloadError:
        return None


def numbered(name: str, values: Iterable[float]) -> dict[str, float]:
    return {f"{name} {i}": value for i, value in enumerate(values)}


def a_pipeline(q: dict[str, Any]) -> dict[str, Any]:
    """The orders of `theory.pipelines`, when each action starts, what is kept; what fits if this does not."""
    p, m = q["p"], q["m"]
    try:
        run = pipelines.timeline(pipelines.orders(q["order"], p, m))
    except pipelines.PipelineError:
        return {"allowed": max(n for n in range(1, m) if "makespan" in a_pipeline(q | {"m": n}))}
    starts = [
        sum(float(span.start) * (at + 1) * (span.action.micro_batch + 1) for at, span in enumerate(mine))
        for mine in run.spans
    ]
    figures = {"makespan": run.makespan, "idle": run.idle_share()}
    return figures | numbered("kept", run.peaks()) | numbered("starts", starts)


def a_ring(q: dict[str, Any]) -> dict[str, Any]:
    """Counted pair by pair from the mask of 64 tokens; a token's score of itself counts half."""
    chunks = {"in order": [[0, 1], [2, 3], [4, 5], [6, 7]], "zigzag": [[0, 7], [1, 6], [2, 5], [3, 4]]}[q["owner"]]
    tokens = [[8 * c + i for c in mine for i in range(8)] for mine in chunks]
    works = [
        sum((key < query) + 0.5 * (key == query) for query in tokens[r] for key in tokens[(r - s) % 4]) / 256
        for s in range(4)
        for r in range(4)
    ]
    assert works == [work for step in first_figures.ring_work(q["owner"]) for work in step]
    return numbered("work", works)


def a_router(q: dict[str, Any]) -> dict[str, Any]:
    most, dropped, empty = first_figures.room(q["uneven"], q["capacity"])
    counts = [n for mine in first_figures.routed(q["uneven"]) for n in mine]
    return {"most": most, "dropped": dropped, "empty": empty} | numbered("count", counts)


def a_sharded_step(q: dict[str, Any]) -> dict[str, Any]:
    found = first_figures.fsdp_step(q["gather"], q["room"])
    named = numbered("end", found.pop("ends")) | numbered("message", found.pop("messages"))
    assert found["most"] <= q["room"]
    return found | named


def a_recomputed_step(q: dict[str, Any]) -> dict[str, Any]:
    most, seconds = first_figures.kept_in_time(q["data"], q["what"], q["count"])
    return {"most": most, "seconds": seconds}


def an_interval(q: dict[str, Any]) -> dict[str, Any]:
    saving, again = first_figures.lost_shares(q["seconds"], q["cost"], q["mtbf"])
    return {"saving": saving, "again": again}


def an_uneven_gather(q: dict[str, Any]) -> dict[str, Any]:
    padded, broadcasts = first_figures.padded_gather_s(q["p"], q["share"], **q["data"])
    return {"padded": padded, "broadcasts": broadcasts}


def a_wish(q: dict[str, Any]) -> dict[str, Any]:
    wish, rings, why = first_figures.wished(q["steps"], q["rounds"], q["nbytes"], q["data"])
    return {"wish": wish, "rings": rings, "never": int(why != "")}


def a_sum(q: dict[str, Any]) -> dict[str, Any]:
    exact, result = first_figures.summed(q["p"], q["type"], q["order"])
    return {"exact": exact, "result": result}


def a_descent(q: dict[str, Any]) -> dict[str, Any]:
    bytes_sent = first_figures.step_bytes(q["k"])
    return numbered("loss", first_figures.losses(q["k"], q["feedback"])) | {"bytes": bytes_sent}


FIRST: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "pipeline": a_pipeline,
    "attention": a_ring,
    "router": a_router,
    "fsdp": a_sharded_step,
    "recompute": a_recomputed_step,
    "interval": an_interval,
    "writes": lambda q: first_figures.written(q["looks"], q["after"]),
    "uneven": an_uneven_gather,
    "flag": lambda q: numbered("byte", first_figures.flag_bytes(q["p"], q["steps"], q["library"])),
    "path": lambda q: first_figures.critical_path(q["way"], q["nvlink"], q["card"], **q["data"]),
    "search": a_wish,
    "bits": a_sum,
    "compress": a_descent,
}


def expected(question: dict[str, Any]) -> dict[str, Any]:
    """What the package says."""
    q = question
    if q["formula"] == "all_reduce":
        return {name: explorables.all_reduce_s(name, q["p"], q["n"], q["alpha"], q["beta"]) for name in ALGORITHMS}
    if q["formula"] == "buckets":
        job = q["job"]
        cluster = Cluster(job["ranks"], job["bytesPerS"], job["alpha"])
        found = workload.ddp(job["nbytes"] / 2, cluster, bucket_nbytes=q["bucket"], backward_s=q["backward"])
        return {"calls": found.calls, "all": found.seconds, "exposed": found.exposed_s}
    if q["formula"] == "skew":
        capacity = q["capacity"] or None
        seconds = cost.skewed_exchange_s(q["p"], q["n"], q["hottest"], q["alpha"], q["beta"], capacity)
        return {"seconds": seconds, "dropped": cost.dropped_share(q["p"], q["hottest"], capacity)}
    if q["formula"] == "spines":
        return {str(i): x for i, x in enumerate(topology.spine_loads(q["p"], q["p"], q["parts"], q["seed"]))}
    if q["formula"] in FIRST:
        return FIRST[q["formula"]](q)
    split = dict(q["split"])
    split["bucket_nbytes"] = split.pop("bucket") or None
    try:
        if split["dp"] != int(split["dp"]):
            return {"problem": True}
        split["dp"] = int(split["dp"])
        found = training_step(plan(q["model_name"], q["machine_name"], **split))
    except WorkloadError:
        return {"problem": True}
    return {**found.memory, **found.spent}


def javascript() -> list[dict[str, Any]]:
    """The answers of the JavaScript."""
    command = ["node", str(SCRIPT)]
    done = subprocess.run(command, input=json.dumps(questions()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def stored() -> list[dict[str, Any]]:
    return json.loads(ANSWERS.read_text(encoding="utf-8"))


def test_the_package_says_what_the_javascript_says():
    asked, answers = questions(), stored()
    assert len(asked) == len(answers), "run this file as a program, which asks again"
    for question, answer in zip(asked, answers, strict=True):
        if question["formula"] == "my_model":
            continue  # below
        assert answer == pytest.approx(expected(question), rel=1e-9, abs=1e-15), question


def test_the_chapters_own_sums_are_those_of_the_pictures():
    """FSDP by hand: g + c for each forward pass without prefetch, the larger of the two with it."""
    for g in (0.25, 1, 2):
        assert first_figures.fsdp_step(g, 1)["ends"][5] == 6 * (g + 1)
        assert first_figures.fsdp_step(g, 2)["ends"][5] == g + 5 * max(g, 1) + 1
    data = explorables_first.recompute_data()
    assert first_figures.kept_in_time(data, "full", 12)[1] == pytest.approx(36 * 4 / 3), "a third longer"
    assert first_figures.kept_in_time(data, "full", 0)[0] == 12 * data["whole"]


@pytest.mark.parametrize(("nvlink", "card"), [(371, 50), (50, 100), (900, 400), (100, 25)])
def test_a_path_is_that_of_the_clock(nvlink, card):
    """On nodes of two GPUs, each with a card: the seconds, the bound, and what the path is made of."""
    dgx = topology.preset("dgx-h100")
    links = {"inside": replace(dgx.inside, bytes_per_s=nvlink * 1e9), "nic": replace(dgx.nic, bytes_per_s=card * 1e9)}
    nodes = replace(dgx, name="nodes of 2 H100s", ranks_per_node=2, nics_per_node=2, **links)
    ring, levels = schedules.ring_all_reduce(4), schedules.hierarchical_all_reduce(4, 2)
    cut = (
        schedules.Move(8 * m.step + j, m.src, m.dst, tuple(8 * c + j for c in m.chunks), m.reduce)
        for m in ring.moves
        for j in range(8)
    )
    ways = {"one ring": ring, "8 segments": replace(ring, chunks=32, moves=tuple(cut)), "two levels": levels}
    for way, schedule in ways.items():
        schedule.verify()
        clock = run_schedule(schedule, 2**30, nodes)
        found = first_figures.critical_path(way, nvlink, card, **explorables_first.path().data)
        assert found["total"] == pytest.approx(clock.seconds, rel=1e-6), way
        assert found["bound"] == pytest.approx(clock.lower_bound_seconds, rel=1e-6)


def test_a_wish_is_priced_as_the_judge_of_the_race_prices_it():
    """Two steps that the search finds, and six rings, which send the least bytes."""
    task = race.task("cube-mesh")
    _, rings, _ = first_figures.wished(2, 7, task.nbytes, explorables_first.search().data)
    lanes = [[0] * 8 for _ in range(8)]
    for (_, src, dst), link in task.fabric.links.items():
        lanes[src][dst] = link.bytes_per_s // 25_000_000_000
    two = schedules.search_all_gather(lanes, chunks=1, rounds=(1, 1))
    wish, _, why = first_figures.wished(2, 12, task.nbytes, explorables_first.search().data)
    assert why == "" and 1e12 * wish == pytest.approx(race.judge(two, task).picoseconds, rel=1e-6)
    # the bound of the race has the least bytes too, and the latency of one step
    assert 1e12 * (rings - 6 * 2e-6) == pytest.approx(task.bound.picoseconds, rel=1e-6)


def test_the_lost_shares_are_those_of_lives_that_end_at_random():
    lives = [random.Random(i).expovariate(1 / 11_135) for i in range(40_000)]
    for seconds, cost_s in ((300, 60), (1140, 60), (3600, 300)):
        complete = sum(life // (seconds + cost_s) for life in lives)
        saving, again = first_figures.lost_shares(seconds, cost_s, 11_135)
        assert saving == pytest.approx(complete * cost_s / sum(lives), rel=0.03)
        assert 1 - saving - again == pytest.approx(complete * seconds / sum(lives), rel=0.03)


def test_a_rounded_sum_is_torchs_rounded_sum():
    parts = torch.tensor([first_figures.drawn(i) for i in range(1024)]).bfloat16()
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert first_figures.summed(1024, "bfloat16", "ring")[1] == total.item() == 256
    while len(parts) > 1:
        parts = parts[::2] + parts[1::2]
    assert first_figures.summed(1024, "bfloat16", "tree")[1] == parts.item()


def seen() -> list[tuple[dict[str, Any], list[str], dict[str, Any]]]:
    """Of each state of "my model": what is chosen, the open axes, what the page says."""
    pairs = zip(questions(), stored(), strict=True)
    return [
        (q["values"], [axis.key for axis in story.AXES[: q["data"]["opened"]]], answer)
        for q, answer in pairs
        if q["formula"] == "my_model"
    ]


def test_the_page_and_the_text_say_the_same_of_my_model():
    kinds = []
    for values, _, answer in seen():
        step = _step(values)
        assert ("problem" in answer) == (step is None), values
        if step is None:
            kinds.append("impossible")
            continue
        kinds.append(step.fits)
        assert answer["sentence"] == my_model(**values).text(), values
        assert ("MFU" in answer["sentence"]) == step.fits and ("too much" in answer["sentence"]) != step.fits
    assert min(kinds.count(kind) for kind in (True, False, "impossible")) >= 3


def test_what_would_help_is_true_and_what_no_choice_can_do_no_button_does():
    kinds = set()
    for values, keys, answer in seen():
        step = _step(values)
        if step is None:
            continue
        kinds.add(kind := answer["kind"])
        assert (kind in ("better", "best")) == step.fits, values
        if kind != "nothing":
            helped = story.step_of(answer["best"])
            assert helped.fits and helped.mfu == pytest.approx(answer["mfu"], rel=1e-9)
            changed = {key for key in values if answer["best"][key] != values[key]}
            assert changed <= set(keys), "only what the reader can press"
            assert ("ranks" in changed) == (kind == "other GPUs")
        # each button says what it would give; none may fit where the hint says that nothing does
        pressed = {
            key: [one for way in PRESSED[key] if (one := _step(values | {key: way})) and one.fits] for key in keys
        }
        helping = {"nothing": (), "other GPUs": ("ranks", "ep"), "no experts": ("ep",)}.get(kind, keys)
        assert not any(pressed[key] for key in keys if key not in helping), (values, answer["hint"])
        # the story's sentence is about the course's choice
        course = story.values_after(len(keys))
        told = len(keys) < len(story.AXES) and story.needs(story.AXES[len(keys)].chapter) in answer["hint"]
        assert not told or values == course, answer["hint"]
        assert "fits now" not in answer["hint"] or step.fits
    assert kinds >= {"room", "better", "best", "other GPUs", "nothing"}, kinds


def test_most_questions_have_an_answer():
    steps = [answer for q, answer in zip(questions(), stored(), strict=True) if q["formula"] == "step"]
    possible = [answer for answer in steps if "problem" not in answer]
    assert len(possible) > 40 and len(possible) < len(steps)
    for part in ("tensor", "context", "expert", "waits", "data", "sends"):
        assert any(answer[part] > 0 for answer in possible), part


def test_the_stored_answers_are_those_of_the_javascript():
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed, so the stored answers are not compared with the JavaScript")
    assert javascript() == stored()


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(javascript(), indent=None, separators=(",", ":")).replace("},{", "},\n{") + "\n")
