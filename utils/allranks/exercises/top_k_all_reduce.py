"""top_k_all_reduce(tensor, k, error) -> Tensor: the sum of every rank's k largest elements; the rest stays in `error`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from allranks.exercises.families import everywhere, only_where, steadied
from allranks.judge import rules
from allranks.judge.cases import DTYPES, Args, Expected, Setup, View, oracle_maker, plain, shape_of, summed
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import COLLECTIVES, About, Exercise, Group, Rule, Run

INDEX_NBYTES = 8
TOP, REST = 130, 90  # the chosen elements are larger than TOP, all others smaller than REST; bfloat16 holds both

Vectors = tuple[torch.Tensor, torch.Tensor]  # a rank's tensor and error, flat


def _inputs(setup: Setup, rng: Draws) -> Iterator[Args]:
    n, k = setup.size, min(setup.option("k"), setup.size)
    common = rng.integer(0, n) if n else 0  # an index that every rank chooses, so that sums overlap
    for rank in range(setup.ranks):
        own = rng.of_rank(rank)
        order = [common, *(i for i in own.permutation(n) if i != common)] if n else []
        chosen, rest = order[:k], order[k:]
        wanted = _rest(setup, own)
        wanted[chosen] = TOP + torch.tensor(own.distinct(len(chosen)), dtype=torch.float64)
        wanted *= 1 - 2 * own.integers(0, 2, n)
        error = own.integers(-20, 21, n).double()
        if n > k:
            # one element is large by its error alone, and one by its tensor alone
            small, large = chosen[-1], rest[0]
            error[small] = wanted[small] - (1 + own.integer(0, 9)) * wanted[small].sign()
            error[large] = -100 * wanted[large].sign()
            # the sign is no matter; and two ranks' values do not cancel
            wanted[chosen[0]] = -50 - wanted[chosen[0]].abs() if rank == 0 else wanted[chosen[0]].abs()
            if k == 1:
                error[small] = wanted[small] - 5 * wanted[small].sign()
        if setup.values == "random":
            wanted *= 1 + own.uniform(n) / 64
        kind, shape = DTYPES[setup.dtype], shape_of(setup)
        error = error.to(kind)
        tensor = (wanted - error.double()).to(kind)
        views = [View.of(t.reshape(shape), setup.layout) for t in (tensor, error)]
        yield views[0], setup.option("k"), views[1]


def _rest(setup: Setup, own: Draws) -> torch.Tensor:
    """Numbers up to REST, no two alike where the dtype holds so many: of two that are alike either may be taken."""
    n = setup.size
    if setup.dtype == "bfloat16" and n > REST:
        return (1 + own.integers(0, REST, n)).double()
    parts = 1 << (-(-max(n, 1) // REST) - 1).bit_length()
    return (1 + torch.tensor(own.permutation(REST * parts)[:n], dtype=torch.float64)) / parts


def _largest(vector: torch.Tensor, k: int) -> torch.Tensor:
    return vector.double().abs().topk(min(k, vector.numel())).indices


def _oracle(
    setup: Setup,
    args: Sequence[Args],
    choose: Callable[[Vectors, int], torch.Tensor] = lambda v, k: _largest(v[0] + v[1], k),
    sends: Callable[[Vectors], torch.Tensor] = lambda v: v[0] + v[1],
    keeps: Callable[[Vectors, torch.Tensor], torch.Tensor | None] = lambda v, sent: v[0] + v[1] - sent,
    last_wins: bool = False,
    through: torch.dtype | None = None,
) -> list[Expected]:
    """What each rank ends with: `choose` the indices, `sends` the vector they are taken from, `keeps` the new error."""
    vectors = [(plain(a[0]).reshape(-1), plain(a[2]).reshape(-1)) for a in args]
    k, shape = args[0][1], args[0][0].size
    sent, places = [], []
    for vector in vectors:
        place = choose(vector, k)
        places.append(place if through is None else place.to(through).long().clamp(max=len(vector[0]) - 1))
        sparse = torch.zeros_like(vector[0])
        sparse[place] = sends(vector)[place]
        sent.append(sparse)
    received = sent
    if through is not None:
        received = [torch.zeros_like(s) for s in sent]
        for sparse, vector, place, moved in zip(
            received, vectors, map(lambda v: choose(v, k), vectors), places, strict=True
        ):
            sparse.index_add_(0, moved, sends(vector)[place])
    total, atol = summed(received)
    if last_wins:
        total = torch.zeros_like(total)
        for place, sparse in zip(places, sent, strict=True):
            total[place] = sparse[place]
    made = []
    for vector, sparse in zip(vectors, sent, strict=True):
        kept = keeps(vector, sparse)
        kept = vector[1] if kept is None else kept  # None: as it was
        changed = {(2,): kept.to(sparse.dtype).reshape(shape)}
        made.append(Expected(total.reshape(shape), changed, atol))
    return made


_differs = oracle_maker(_oracle)


def _less_the_total(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The error is what the rank wanted minus what all ranks sent."""
    made = []
    for own, right in zip(args, _oracle(setup, args), strict=True):
        kept = plain(own[0]) + plain(own[2]) - right.returns
        made.append(Expected(right.returns, {(2,): kept}, right.atol))
    return made


def _zero_wherever_sent(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The error is zero where any rank sent."""
    right = _oracle(setup, args)
    anywhere = torch.stack([plain(a[0]) + plain(a[2]) - e.changed[2,] for a, e in zip(args, right, strict=True)]).any(0)
    return [Expected(e.returns, {(2,): e.changed[2,].masked_fill(anywhere, 0)}, e.atol) for e in right]


def _of_the_sum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The k largest of the sum over the ranks."""
    total = torch.stack([plain(a[0]).double() + plain(a[2]).double() for a in args]).sum(0).reshape(-1)
    place, (_, atol) = _largest(total, args[0][1]), summed([plain(a[i]).reshape(-1) for a in args for i in (0, 2)])
    returned, shape, kind = torch.zeros_like(total), args[0][0].size, args[0][0].base.dtype
    returned[place] = total[place]
    made = []
    for own in args:
        kept = (plain(own[0]) + plain(own[2])).reshape(-1)
        kept[place] = 0
        made.append(Expected(returned.to(kind).reshape(shape), {(2,): kept.reshape(shape)}, atol))
    return made


def _again_of_the_sum(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right exchange, and then only the k largest of the sum."""
    made = []
    for right in _oracle(setup, args):
        total = right.returns.reshape(-1)
        left, place = torch.zeros_like(total), _largest(total, args[0][1])
        left[place] = total[place]
        made.append(Expected(left.reshape(right.returns.shape), right.changed, right.atol))
    return made


def _at_own_indices(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The right error, but every rank's values at the receiver's own indices."""
    wanted = [(plain(a[0]) + plain(a[2])).reshape(-1) for a in args]
    chosen = [_largest(w, args[0][1]) for w in wanted]
    made = []
    for right, own in zip(_oracle(setup, args), chosen, strict=True):
        total = torch.zeros(len(wanted[0]), dtype=torch.float64)
        for vector, places in zip(wanted, chosen, strict=True):
            total.index_add_(0, own, vector[places].double())
        made.append(replace(right, returns=total.to(wanted[0].dtype).reshape(args[0][0].size)))
    return made


def _count(run: Run, call: int) -> int:
    return min(run.args[call][0][1], run.setup.size)


def _few_bytes(run: Run) -> str | None:
    """Each rank may receive k values and k indices of each other rank, and no more."""
    for call in range(run.setup.times):
        k = _count(run, call)
        enough = (run.ranks - 1) * k * (run.itemsize + INDEX_NBYTES)
        for rank in range(run.ranks):
            mine = [e for e in run.collectives if e.rank == rank and e.call == call]
            got = sum(map(rules.received_from_others, mine))
            if got > enough:
                worst = max(mine, key=lambda e: e.received_nbytes)
                dense = worst.numel >= run.setup.size > k
                advice = (
                    "a vector that is mostly zeros costs as much as a full one: send values and indices"
                    if dense
                    else "send each value and each index once"
                )
                return About(
                    f"rank {rank} receives {got} bytes{run.at(worst.line)}, but k = {k} values and indices of p-1 = "
                    f"{run.ranks - 1} ranks have {enough} at most: {advice}",
                    worst,
                )
    return None


def _others_values(run: Run, call: int, rank: int) -> int:
    """What each of the others sends; or their sum, which no rank need have apart, if that is less."""
    return min((run.ranks - 1) * _count(run, call), run.setup.size) * run.itemsize


def _case(ranks: int, size: int, k: int = 2, *more: str, **fields: object) -> Setup:
    return Setup(ranks, size, *more, **fields).with_options(k=k)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="top_k_all_reduce",
    promise="returns the sum of every rank's k largest elements of tensor + error, and keeps the rest in error",
    groups=(
        Group("right sum and error", 3, (_case(2, 16), _case(3, 24), _case(4, 40, 3))),
        Group("any k", 2, (_case(3, 20, 1), _case(2, 30, 5), _case(3, 4, 4), _case(3, 3, 7))),
        Group("any rank count", 1, (_case(1, 12, 3), _case(5, 60), _case(8, 90))),
        Group("many ranks", 2, (_case(9, 211).with_choices(ranks=(9, 11), size=(211, 223, 227), k=(2, 3)),)),
        Group("any size", 1, (_case(2, 1, 1), _case(3, 0))),
        Group(
            "any dtype",
            2,
            (
                _case(3, 24, 2, "float64", values="random"),
                _case(2, 30, 3, values="random"),
                _case(2, 30, 3, "bfloat16"),
                _case(2, 700, 8, "bfloat16"),  # indices that bfloat16 can't hold
                _case(2, 40000, 3),  # and such that int16 can't
            ),
        ),
        Group(
            "any layout",
            1,
            (
                _case(2, 18, layout="offset"),
                _case(2, 18, layout="strided"),
                _case(3, 30, layout="transposed"),
                _case(2, 24, layout="three dimensions"),
            ),
        ),
        circumstances(_case(3, 24)),
    ),
    inputs=_inputs,
    oracle=_oracle,
    allow=COLLECTIVES,
    rules=(
        rules.in_dtype(0, whole=True),
        Rule("k values and k indices a rank", 8, lambda run: rules.no_messages(run) or _few_bytes(run)),
        rules.carried(_others_values, lambda run, call, rank: _count(run, call) * run.itemsize),
    ),
    mistakes={
        "the error of earlier steps is not used: choose and send from tensor + error": [
            _differs(choose=lambda v, k: _largest(v[0], k), sends=lambda v: v[0], keeps=lambda v, sent: None),
            _differs(choose=lambda v, k: _largest(v[0], k), sends=lambda v: v[0], keeps=lambda v, sent: v[0] - sent),
        ],
        "chosen by the tensor alone: an element whose error has grown large must be chosen too": _differs(
            choose=lambda v, k: _largest(v[0], k)
        ),
        "the indices are right, but the values sent are the tensor's: send tensor + error": _differs(
            sends=lambda v: v[0], keeps=lambda v, sent: torch.where(sent != 0, 0, v[0] + v[1])
        ),
        "the right sum, but error did not change: what was not sent is lost for ever": _differs(
            keeps=lambda v, s: None
        ),
        "what was sent stays in error too, so it will be sent again: error is 0 where an element was sent": _differs(
            keeps=lambda v, sent: v[0] + v[1]
        ),
        "the old error is lost where nothing was sent: error becomes tensor + error there, not the tensor": _differs(
            keeps=lambda v, sent: torch.where(sent != 0, 0, v[0])
        ),
        "error was set to zero: keep what was not sent": _differs(keeps=lambda v, sent: torch.zeros_like(sent)),
        "error is what this rank wanted minus what it sent itself; here the other ranks' elements were "
        "subtracted too": _less_the_total,
        "chosen by value: a large negative element is large too, so compare absolute values": _differs(
            choose=lambda v, k: (v[0] + v[1]).double().topk(min(k, len(v[0]))).indices
        ),
        "the absolute values were sent: choose by absolute value, but send tensor + error with its sign": _differs(
            sends=lambda v: (v[0] + v[1]).abs(), keeps=lambda v, sent: torch.where(sent != 0, 0, v[0] + v[1])
        ),
        "k + 1 elements were chosen, not k": _differs(choose=lambda v, k: _largest(v[0] + v[1], k + 1)),
        "the k largest of the sum over the ranks were chosen: each rank chooses the k largest of its own": _of_the_sum,
        "only the k largest elements of the sum were returned: the sum has "
        "every element that some rank sent": _again_of_the_sum,
        "error is 0 wherever some rank sent: it is 0 only where this rank itself sent, and keeps its own element "
        "elsewhere": _zero_wherever_sent,
        "every rank's values were added at this rank's own indices: they belong where their sender's indices say": everywhere(
            _at_own_indices
        ),
        "several ranks chose the same index and only one of their values is left: result[indices] += values adds "
        "each index once, so use index_add_ or add rank by rank": _differs(last_wins=True),
        "the indices were sent in the values' dtype, which can't hold "
        "them: send them in a dtype of their own": only_where(
            lambda s, args: s.size > 1 / torch.finfo(args[0][0].base.dtype).eps,
            lambda s, args: _oracle(s, args, through=args[0][0].base.dtype),
        ),
    },
    collective="all_gather",
    demo_setup=_case(4, 40),
    forbidden_advice="Use collectives on tensors, such as all_gather.",
)
EXERCISE = steadied(
    EXERCISE,
    {
        "the absolute values were sent": lambda setup: True,
        "only the k largest": lambda setup: setup.layout != "contiguous",
        "error is 0 wherever": lambda setup: setup.layout != "contiguous",
        "at this rank's own indices": lambda setup: setup.layout != "contiguous",
        "the error of earlier steps": lambda setup: setup.size == 1,
        "the indices are right, but": lambda setup: setup.size == 1,
    },
)
