"""The verdict under NCCL's rules: what NCCL refuses gets its reason, and what runs on NCCL passes."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from allranks.cli.check import command
from allranks.exercises import check, get, names
from allranks.judge import judging
from allranks.judge.cases import DTYPES, Setup
from allranks.judge.exercise import Exercise
from allranks.judge.judging import judge, judge_text
from allranks.judge.source import read_source
from allranks.ranks.nccl_rules import Rule
from allranks.ranks.wire import Ranks
from allranks.ranks.wire.failures import DeadlockCause
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
RIGHT = sorted((ROOT / "tests/exercises/right").glob("*/*.py"))
MOST_RANKS = 4

# right answers that hang on NCCL: an isend or irecv outside a batch holds up the rank's next operation
UNBATCHED = {
    "async_tp_linear/directly",
    "async_tp_linear/row_by_row",
    "halo_exchange/isends_first",
    "hierarchical_all_reduce/rings_of_messages",
    "mirror/isend",
    "pairwise_all_to_all/rotating",
    "recursive_doubling_all_reduce/fold",
    "ring_all_reduce/isend_recv",
    "ring_all_reduce/own_chunk_last",
    "ring_all_reduce/padded",
    "ring_all_reduce/registry",
    "ring_attention/log_sum_exp",
    "ring_attention/row_by_row",
    "ring_reduce_scatter/isend_recv",
    "ring_reduce_scatter/travelling_sum",
    "ring_shift/isend_recv",
    "run_pipeline/nested_functions",
    "run_pipeline/sends_wait_at_the_end",
    "run_pipeline/with_autograd",
}
# right answers that send a tensor which can only be made in the CPU's memory
ON_THE_CPU = {"distributed_argmax/packed_bytes"}


def few_cases(exercise: Exercise) -> Exercise:
    """The exercise with one case for each property, of few ranks, so that all answers can be judged in a test."""
    groups = []
    for group in exercise.groups:
        small = [s for s in group.setups if s.ranks <= MOST_RANKS]
        if small:
            groups.append(replace(group, setups=(min(small, key=lambda s: (not s.earns_credit, s.ranks)),)))
            chosen = [setup for one in groups for setup in one.setups]
            # and what a rule needs that applies to none of these
            for rule in exercise.rules:
                more = [s for s in small if rule.applies(s)]
                if more and not any(rule.applies(s) for s in chosen):
                    groups[-1] = replace(groups[-1], setups=(*groups[-1].setups, more[0]))
    demo = exercise.demo_setup
    return replace(exercise, groups=tuple(groups), demo_setup=replace(demo, ranks=min(demo.ranks, MOST_RANKS)))


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Ranks for all answers of this file."""
    with pytest.MonkeyPatch.context() as patch, Ranks(MOST_RANKS) as ranks:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("answers")))
        yield ranks


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.nightly  # the reference solutions below run with everything
@pytest.mark.parametrize("path", RIGHT, ids=_name)
def test_a_right_answer_passes_or_is_known_to_hang_on_nccl(path, pool):
    exercise = path.parent.name
    verdict = judge(few_cases(get(exercise)), read_source(path, exercise), pool=pool, rules="nccl")
    if _name(path) in UNBATCHED:
        assert DeadlockCause.NOT_IN_A_BATCH in verdict.code, verdict.text()
    elif _name(path) in ON_THE_CPU:
        assert "NCCL moves only tensors on the rank's GPU" in verdict.reason, verdict.text()
    else:
        assert verdict.passed, verdict.text()


def test_the_known_ones_exist():
    assert {_name(path) for path in RIGHT} >= UNBATCHED | ON_THE_CPU


def reference_solutions() -> dict[str, Path]:
    """The notebook in solutions/ that defines each exercise's function."""
    found = {}
    for path in sorted((ROOT / "solutions").glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        found |= {name: path for name in names() if f"def {name}(" in code}
    return found


SOLUTIONS = reference_solutions()


def test_every_exercise_has_a_reference_solution():
    assert set(SOLUTIONS) == set(names())


@pytest.mark.parametrize("exercise", names())
def test_a_reference_solution_passes(exercise, pool):
    verdict = judge(few_cases(get(exercise)), read_source(SOLUTIONS[exercise], exercise), pool=pool, rules="nccl")
    assert verdict.passed, verdict.text()


@dataclass(frozen=True)
class Planted:
    """A fault in an answer to an exercise: its code, what the verdict must say, and whether only NCCL's rules see it."""

    exercise: str
    body: str
    code: Rule | DeadlockCause
    says: str
    line: str
    only_here: bool = True


HEAD = "import torch\nimport torch.distributed as dist\n\n\n"
PLANTED = {
    "CPU tensor": Planted(
        "distributed_mean",
        """
        def distributed_mean(tensor):
            total = torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
            total.copy_(tensor)
            dist.all_reduce(total)
            return total / dist.get_world_size()
        """,
        Rule.HOST_TENSOR,
        "all_reduce: NCCL moves only tensors on the rank's GPU, and this one is in the CPU's memory",
        "line 8",
    ),
    "mixed devices": Planted(
        "distributed_mean",
        """
        def distributed_mean(tensor):
            total = tensor.clone().contiguous()
            dist.all_reduce(total)
            return total + torch.zeros(tensor.shape, dtype=tensor.dtype, device="cpu")
        """,
        Rule.MIXED_DEVICES,
        "expected all tensors on the same device",
        "line 8",
        only_here=False,
    ),
    "numpy()": Planted(
        "distributed_mean",
        """
        def distributed_mean(tensor):
            total = tensor.clone().contiguous()
            dist.all_reduce(total)
            if total.dtype is torch.bfloat16:
                return total / dist.get_world_size()
            return torch.from_numpy(total.numpy() / dist.get_world_size()).to(tensor.dtype)
        """,
        Rule.NUMPY,
        "NumPy can't read a tensor on the rank's GPU",
        "line 10",
    ),
    "gap": Planted(
        "ring_shift",
        """
        def ring_shift(tensor, k):
            rank, p = dist.get_rank(), dist.get_world_size()
            if k % p == 0:
                return tensor.clone()
            wide = torch.empty(*tensor.shape, 2, dtype=tensor.dtype)
            wide[..., 0] = tensor
            arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
            pair = [dist.P2POp(dist.isend, wide[..., 0], (rank + k) % p), dist.P2POp(dist.irecv, arrived, (rank - k) % p)]
            for work in dist.batch_isend_irecv(pair):
                work.wait()
            return arrived
        """,
        Rule.GAPS,
        "NCCL takes only a contiguous tensor",
        "line 13",
        only_here=False,  # gloo refuses it too
    ),
    "int16": Planted(
        "count_samples",
        """
        def count_samples(batch):
            p = dist.get_world_size()
            counts = torch.zeros(p, dtype=torch.int16)
            counts[dist.get_rank()] = len(batch)
            dist.all_reduce(counts)
            return counts.long()
        """,
        Rule.DTYPE,
        "all_reduce: NCCL has no int16",
        "line 9",
    ),
    "any source": Planted(
        "hand_out",
        """
        def hand_out(table):
            rank, p = dist.get_rank(), dist.get_world_size()
            if rank:
                row = table[0].clone()
                dist.recv(row)
                return row
            for peer in range(1, p):
                dist.send(table[peer].contiguous(), peer)
            return table[0].clone()
        """,
        Rule.ANY_SOURCE,
        "NCCL can't receive from any source",
        "line 9",
    ),
    "unbatched circle": Planted(
        "ring_shift",
        """
        def ring_shift(tensor, k):
            rank, p = dist.get_rank(), dist.get_world_size()
            if k % p == 0:
                return tensor.clone()
            arrived = torch.empty(tensor.shape, dtype=tensor.dtype)
            sending = dist.isend(tensor.contiguous(), (rank + k) % p)
            dist.recv(arrived, (rank - k) % p)
            sending.wait()
            return arrived
        """,
        DeadlockCause.NOT_IN_A_BATCH,
        "in recv (line 11), which starts only when its isend (line 10) is complete",
        "dist.batch_isend_irecv",
    ),
    "value read too early": Planted(
        "distributed_mean",
        """
        def distributed_mean(tensor):
            total = tensor.clone().contiguous()
            work = dist.all_reduce(total, async_op=True)
            largest = total.abs().sum()
            work.wait()
            return total / dist.get_world_size()
        """,
        Rule.IN_FLIGHT,
        "this reads a tensor that all_reduce may still be filling. Call wait() on its handle first",
        "The all_reduce was begun in line 7",
    ),
    "tag order": Planted(
        "halo_exchange",
        """
        def halo_exchange(edge):
            rank, p = dist.get_rank(), dist.get_world_size()
            mine = edge.contiguous()
            if p == 1:
                return mine.clone(), mine.clone()
            left, right = (rank - 1) % p, (rank + 1) % p
            from_left, from_right = torch.empty_like(mine), torch.empty_like(mine)
            four = [
                dist.P2POp(dist.isend, mine, right, tag=1),
                dist.P2POp(dist.isend, mine, left, tag=2),
                dist.P2POp(dist.irecv, from_right, right, tag=2),
                dist.P2POp(dist.irecv, from_left, left, tag=1),
            ]
            for work in dist.batch_isend_irecv(four):
                work.wait()
            return from_left, from_right
        """,
        Rule.TAG_ORDER,
        "NCCL ignores tags",
        "recv with tag 2 meets a message that rank 1 sent with tag 1",
    ),
    "group order": Planted(
        "distributed_mean",
        """
        def distributed_mean(tensor):
            everyone = list(range(dist.get_world_size()))
            groups = [dist.new_group(everyone), dist.new_group(everyone)]
            total, again = tensor.clone().contiguous(), tensor.clone().contiguous()
            pairs = [(total, groups[0]), (again, groups[1])]
            if dist.get_rank() % 2:
                pairs.reverse()
            for work in [dist.all_reduce(values, group=group, async_op=True) for values, group in pairs]:
                work.wait()
            return total / dist.get_world_size()
        """,
        DeadlockCause.GROUP_ORDER,
        "call them in the same order on all ranks",
        "rank 0 waits for rank 1 in wait() of all_reduce (line 13)",
        only_here=False,  # the exercise allows one all_reduce
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name, pool):
    planted = PLANTED[name]
    text = HEAD + textwrap.dedent(planted.body).strip("\n") + "\n"
    exercise = few_cases(get(planted.exercise))
    verdict = judge_text(exercise, text, pool=pool, rules="nccl")
    assert not verdict.passed
    assert planted.code in verdict.code, verdict.text()
    assert planted.says in verdict.reason
    assert planted.line in verdict.reason
    without = judge_text(exercise, text, pool=pool)
    assert without.passed is planted.only_here, without.text()
    assert planted.code not in without.code


def test_a_verdict_says_under_which_rules_it_is(pool):
    text = "def ring_shift(tensor, k):\n    return tensor\n"
    under = judge_text(few_cases(get("ring_shift")), text, pool=pool, rules="nccl")
    assert under.text().startswith("ring_shift under NCCL's rules: not yet")
    assert "under NCCL&#x27;s rules" in under.html()
    assert (under.to_dict()["rules"], under.to_dict()["skipped"]) == ("nccl", [])
    without = judge_text(few_cases(get("ring_shift")), text, pool=pool)
    assert "NCCL" not in without.text() + without.html()
    assert "rules" not in without.to_dict()


def test_a_case_whose_input_nccl_lacks_is_skipped(pool, monkeypatch):
    monkeypatch.setitem(DTYPES, "int16", torch.int16)
    exercise = few_cases(get("ring_shift"))
    lacking = replace(exercise.groups[0], name="any dtype", setups=(Setup(2, 3, "int16").with_options(k=1),))
    exercise = replace(exercise, groups=(exercise.groups[0], lacking))
    source = read_source(ROOT / "tests/exercises/right/ring_shift/batch.py", "ring_shift")
    verdict = judge(exercise, source, pool=pool, rules="nccl")
    assert verdict.passed
    assert verdict.score == 1.0
    assert verdict.skipped == (
        "any dtype: 2 ranks, 3 elements, int16, k=1: NCCL has no int16, which this case is about.",
    )
    assert "skipped: any dtype" in verdict.text()
    assert "Skipped: any dtype" in verdict.html()
    assert judge(exercise, source, pool=pool).skipped == ()


def test_a_secret_withholds_the_text_of_an_error(pool):
    text = HEAD + "def distributed_mean(tensor):\n    return tensor.numpy()\n"
    verdict = judge_text(few_cases(get("distributed_mean")), text, pool=pool, rules="nccl", secret=7)
    assert "rank 0 breaks one of NCCL's rules: numpy (line 6)." in verdict.reason


def test_check_in_a_notebook():
    def mirror(tensor):
        return tensor

    with pytest.raises(judging.RulesError, match="rules='gloo' is unknown; it is 'nccl', or leave it out"):
        check(mirror, rules="gloo")
    assert check(mirror, rules="nccl").rules == "nccl"


def test_check_on_the_command_line():
    path = ROOT / "tests/exercises/right/mirror/isend.py"
    ran = CliRunner().invoke(command, ["mirror", str(path), "--rules", "nccl"])
    assert ran.exit_code == 1
    place, verdict = ran.stdout.split("\n", 1)
    assert place.startswith(f"{path}:11: ") and verdict.startswith("mirror under NCCL's rules: not yet")
    assert CliRunner().invoke(command, ["mirror", str(path)]).exit_code == 0
