"""`allranks plan` as a reader types it."""

import json

import pytest
from allranks.cli import main
from allranks.theory.cost.ranking import ranked_plans
from click.testing import CliRunner


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


def test_the_table_and_the_json_are_the_ranking():
    ran = run("--model", "llama 65b", "--batch", "2048", "--top", "3")
    best = ranked_plans("LLaMA 65B", "dgx-h100", 64, 2048)
    assert ran.exit_code == 0 and f"{len(best)} splits fit into 80 GB" in ran.stdout
    assert len(ran.stdout.splitlines()) == 6 and "(8 of 10 published steps), most likely" in ran.stdout
    found = json.loads(run("--model", "LLaMA 65B", "--batch", "2048", "--top", "3", "--json").stdout)
    assert found["fit"] == len(best) and len(found["plans"]) == 3
    assert found["plans"][0]["seconds"] == best[0].seconds and found["plans"][0]["bytes"] <= 80e9
    first = found["plans"][0]
    assert first["low_seconds"] == first["low"] < first["median"] < first["high"] == first["high_seconds"]
    assert first["points"] > 20 and first["coverage"] == 0.8
    assert found["plans"][0]["bytes"] == pytest.approx(sum(found["plans"][0]["memory"].values()))


@pytest.mark.parametrize("model", ["7B", "LLaMA 65B"])
@pytest.mark.parametrize("ranks", [16, 64, 512])
def test_no_step_is_faster_than_its_arithmetic_at_the_peak(model, ranks):
    asked = ("--model", model, "--ranks", str(ranks), "--batch", "1024")
    for plan in json.loads(run(*asked, "--top", "20", "--json").stdout)["plans"]:
        useful = plan["spent"]["useful"]
        assert useful <= plan["low"] <= plan["median"] <= plan["high"]
        assert plan["seconds"] * plan["mfu"] / plan["low"] <= 1 + 1e-9  # the MFU of the fastest step
    assert "Measured: " in run(*asked).stdout


def test_own_figures_and_a_split_of_ones_own():
    own = ("--parameters", "13e9", "--layers", "40", "--hidden", "5120", "--heads", "40", "--ranks", "16", "--tp", "2")
    found = json.loads(run(*own, "--recompute", "none", "--json").stdout)
    assert found["model"] == "own figures"
    assert {(plan["tp"], plan["recompute"]) for plan in found["plans"]} == {(2, "none")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "gpt"), "There is no model 'gpt'; there are 7B, LLaMA 65B"),
        (("--topology", "nope"), "There is no topology 'nope'; there are dgx-a100"),
        (("--model", "GPT-3 175B", "--topology", "p4d", "--ranks", "8"), "None of "),
        (("--tp", "3"), "Tp x pp x cp is 3, which does not divide 64 ranks."),
        (("--zero", "7"), "No split of 64 ranks is possible: there is no ZeRO stage 7"),
        (("--parameters", "nan"), "The model has nan parameters"),
        (("--parameters", "inf"), "Parameters is inf"),
        (("--heads", "0", "--recompute", "none"), "The model (own figures) has no heads"),
        (("--ranks", "99999999"), "No split of 99999999 ranks is possible: dp x tp x pp x cp"),
    ],
)
def test_a_mistake_gets_one_sentence_and_status_2(arguments, words):
    ran = run(*arguments, "--json")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith(words), ran.stderr
    assert ran.stderr.count("\n") == 1


def test_options_fix_the_split():
    fixed = "--sequence 32768 --cp 4 --tp 4 --pp 2 --chunks 2 --zero 1 --recompute full --json"
    plans = json.loads(run(*fixed.split()).stdout)["plans"]
    names = ("cp", "tp", "pp", "chunks", "zero_stage", "recompute")
    assert plans and {tuple(plan[name] for name in names) for plan in plans} == {(4, 4, 2, 2, 1, "full")}
