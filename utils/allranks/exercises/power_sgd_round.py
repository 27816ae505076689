"""power_sgd_round(matrix, q, error) -> (Tensor, Tensor): the mean of the ranks' matrices, approximated with r columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from allranks.judge import rules
from allranks.judge.cases import DTYPES, Args, Expected, Setup, View, oracle_maker, plain
from allranks.judge.common import circumstances
from allranks.judge.drawing import Draws
from allranks.judge.exercise import About, Exercise, Group, Rule, Run

STEEPEST = 20.0  # the largest condition number of a case: no rounding can be mistaken for a mistake
Matrices = list[torch.Tensor]


def _inputs(setup: Setup, rng: Draws) -> list[Args]:
    n, m, r = setup.size, setup.option("columns"), setup.option("r")
    kind, p = DTYPES[setup.dtype], setup.ranks
    while True:
        q = rng.normal(m, r)
        own = [rng.of_rank(rank) for rank in range(p)]
        drawn = [(stream.normal(n, m), stream.normal(n, m)) for stream in own]
        mean = torch.stack([a + b for a, b in drawn]).mean(0)
        if (
            torch.linalg.cond(mean @ q) < STEEPEST
            and torch.linalg.cond(torch.stack([a for a, _ in drawn]).mean(0) @ q) < STEEPEST
        ):
            break
    return [
        (View.of(a.to(kind), setup.layout), View.of(q.to(kind), setup.layout), View.of(b.to(kind), setup.layout))
        for a, b in drawn
    ]


def _orthonormal(p: torch.Tensor) -> torch.Tensor:
    return torch.linalg.qr(p).Q


def _one_by_one(p: torch.Tensor) -> torch.Tensor:
    """The columns as Gram and Schmidt make them: QR's, each in the direction of what is left of P's own."""
    q, r = torch.linalg.qr(p)
    return q * r.diagonal().sign()


def _mean(of: Matrices) -> torch.Tensor:
    return torch.stack(of).mean(0)


def _read(args: Sequence[Args], with_error: bool = True) -> tuple[Matrices, torch.Tensor]:
    """What each rank wants to send, and the common q, in float64."""
    wanted = [plain(a[0]).double() + (plain(a[2]).double() if with_error else 0) for a in args]
    return wanted, plain(args[0][1]).double()


def _ended(args: Sequence[Args], approximations: Matrices, errors: Sequence[torch.Tensor | None]) -> list[Expected]:
    kind = args[0][0].base.dtype
    size = max(float(plain(a[0]).double().abs().max()) for a in args)
    atol = size * (1e-8 if kind == torch.float64 else 2e-3)
    return [
        Expected((x.to(kind), None), {} if e is None else {(2,): e.to(kind)}, atol)
        for x, e in zip(approximations, errors, strict=True)
    ]


def _oracle(
    setup: Setup,
    args: Sequence[Args],
    with_error: bool = True,
    orthonormal: Callable[[torch.Tensor], torch.Tensor] = _orthonormal,
    early: bool = False,
    first: bool = True,
    second: bool = True,
    scale: int = 1,
    divided: bool = True,
    error_in: str = "PQ",
    raw_p: bool = False,
) -> list[Expected]:
    """`early`: P made orthonormal before it is averaged. `first`, `second`: whether P and Q are averaged at all. `divided`: whether
    the sum that becomes P is. `error_in`: which of the two have the error in them.
    `raw_p`: whether Q is made of P as the first all_reduce left it."""
    wanted, q = _read(args, with_error)
    in_p, in_q = (wanted if name in error_in else _read(args, False)[0] for name in "PQ")
    ranks = 1 if divided else len(args)
    if early:
        ps = [ranks * _mean([orthonormal(w @ q) for w in in_p])] * len(args)
    elif first:
        ps = [orthonormal(ranks * _mean([w @ q for w in in_p]))] * len(args)
    else:
        ps = [orthonormal(w @ q) for w in in_p]
    qs = [w.T @ p for w, p in zip(in_q, ps, strict=True)]
    if raw_p:
        qs = [w.T @ (ranks * _mean([v @ q for v in in_p])) for w in in_q]
    if second:
        qs = [_mean(qs)] * len(args)
    made = [scale * p @ new.T for p, new in zip(ps, qs, strict=True)]
    return _ended(args, made, [w - x for w, x in zip(wanted, made, strict=True)])


_differs = oracle_maker(_oracle)


@oracle_maker
def _with_error(
    setup: Setup, args: Sequence[Args], new: Callable[[torch.Tensor, torch.Tensor, Args], torch.Tensor | None]
) -> list[Expected]:
    """The right approximation with another error: `new(what the rank wanted, approximation, its arguments)`."""
    right, (wanted, _) = _oracle(setup, args), _read(args)
    made = [e.returns[0].double() for e in right]
    return _ended(args, made, [new(w, x, a) for w, x, a in zip(wanted, made, args, strict=True)])


@oracle_maker
def _orthonormal_q(setup: Setup, args: Sequence[Args], divided: bool) -> list[Expected]:
    """The columns of q were made orthonormal, those of P not."""
    wanted, q = _read(args)
    p = _mean([w @ _orthonormal(q) for w in wanted]) * (1 if divided else len(args))
    made = p @ _mean([w.T @ p for w in wanted]).T
    return _ended(args, [made] * len(args), [w - made for w in wanted])


def _own_projection(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    """The error is what is left of the rank's own matrix in the common columns."""
    wanted, q = _read(args)
    p = _orthonormal(_mean([w @ q for w in wanted]))
    return _ended(args, [p @ p.T @ _mean(wanted)] * len(args), [w - p @ p.T @ w for w in wanted])


def _exact(setup: Setup, args: Sequence[Args]) -> list[Expected]:
    wanted, _ = _read(args)
    mean = _mean(wanted)
    return _ended(args, [mean] * len(args), [w - mean for w in wanted])


def _reduces_it_whole(run: Run) -> bool:
    """Whether an all_reduce had as many elements as the matrix."""
    return any(e.numel >= run.setup.size * run.setup.option("columns") for e in run.collectives)


def _two_thin(run: Run) -> str | None:
    """Two all_reduces: P of n r elements and Q of m r, in the matrix's own dtype."""
    n, m, r = run.setup.size, run.setup.option("columns"), run.setup.option("r")
    if broken := rules.messages_in_dtype(run):
        return broken
    for entry in run.collectives:
        if entry.numel > r * max(n, m):
            return About(
                f"rank {entry.rank} reduces {entry.numel} elements{run.at(entry.line)}: P has n r = {n * r} and Q has "
                f"m r = {m * r}, and nothing else is sent",
                entry,
                f"{entry.numel} elements",
                f"{n * r} or {m * r}",
            )
    if words := rules.calls(run, "all_reduce", "P and then Q, so two are enough", least=2, most=2):
        return words
    for _, rank, mine in run.by_rank(run.collectives):
        sizes = [e.numel for e in mine]
        if sizes != [n * r, m * r]:
            return f"rank {rank} reduces {sizes} elements, but P has n r = {n * r} and Q has m r = {m * r}"
    return None


def _next_q(run: Run) -> str | None:
    """The second value must be the mean Q, in the basis of any orthonormal P, the same on all ranks."""
    shape = (run.setup.option("columns"), run.setup.option("r"))
    for call in range(run.setup.times):
        wanted, q = _read(run.args[call])
        right = _mean(wanted).T @ _orthonormal(_mean([w @ q for w in wanted]))
        got = [None if result is None else result.returned[1] for result in run.results[call]]
        for rank, found in enumerate(got):
            if (
                not isinstance(found, torch.Tensor)
                or tuple(found.shape) != shape
                or found.dtype != run.first_view.base.dtype
            ):
                return f"item 1 of what rank {rank} returned must be the new q, a tensor of shape {shape} and the matrix's dtype"
            room = float((right @ right.T).abs().max()) * (1e-8 if found.dtype == torch.float64 else 2e-3)
            new = found.double()
            if _far(new, plain(run.args[call][rank][1]).double() - new, room):
                return f"item 1 of what rank {rank} returned is the old q: return the new Q, with which the next round begins"
            if not bool(((new @ new.T - right @ right.T).abs() <= room).all()):
                return (
                    f"item 1 of what rank {rank} returned is not the mean over the ranks of Q = M^T P: the next round begins "
                    "with it, and the approximation gets better from round to round"
                )
            if not bool(((new - got[0].double()).abs() <= room).all()):
                return (
                    f"rank {rank} returned another q than rank 0: all ranks must begin the next round with the same one"
                )
    return None


def _far(new: torch.Tensor, difference: torch.Tensor, room: float) -> bool:
    """Whether the new q is the old one."""
    return bool((difference.abs() <= min(room, 1e-6)).all())


def _case(ranks: int, rows: int, columns: int, r: int = 1, **fields: object) -> Setup:
    return Setup(ranks, rows, **fields).with_options(columns=columns, r=r)  # type: ignore[arg-type]


EXERCISE = Exercise(
    name="power_sgd_round",
    promise="returns the approximation P Q^T of the mean of matrix + error, and the new q; error keeps what is missing",
    groups=(
        Group("right approximation and error", 3, (_case(2, 6, 5), _case(3, 8, 7, 2), _case(4, 9, 10, 2))),
        Group("any rank of the approximation", 2, (_case(3, 9, 8, 3), _case(2, 12, 11, 4), _case(2, 7, 7))),
        Group("any rank count", 1, (_case(1, 6, 5, 2), _case(5, 8, 6), _case(8, 7, 9, 2))),
        Group("many ranks", 2, (_case(9, 19, 12).with_choices(ranks=(9, 11, 13), size=(19, 23, 29), r=(2, 3)),)),
        Group("wide and tall", 1, (_case(2, 5, 23, 2), _case(2, 23, 5, 2), _case(3, 4, 31))),
        Group("any dtype", 1, (_case(3, 8, 7, 2, dtype="float64"), _case(2, 10, 9, 3, dtype="float64"))),
        Group("any layout", 1, (_case(3, 8, 7, 2, layout="strided"), _case(2, 9, 6, 2, layout="transposed"))),
        circumstances(_case(3, 8, 7, 2)),
    ),
    inputs=_inputs,
    labels={"columns": "{} columns"},
    oracle=_oracle,
    allow=frozenset({"all_reduce"}),
    rules=(
        Rule("two all_reduces, of n r and m r", 6, _two_thin),
        Rule("the q of the next round", 3, _next_q, lambda setup: True),
        rules.exchanged(rules.numbers(lambda s: s.option("r") * (s.size + s.option("columns")))),
    ),
    mistakes={
        "the error of earlier rounds is not used: M is matrix + error": _differs(with_error=False),
        "the columns of P are not orthonormal: P Q^T = P P^T M is a projection only if they are": [
            _differs(orthonormal=lambda p: p),
            _differs(orthonormal=lambda p: p, divided=False),
        ],
        "the columns of q were made orthonormal, not those of P: P = M q as q is, and the columns of the reduced "
        "P must be orthonormal": [_orthonormal_q(divided) for divided in (False, True)],
        "only the p-th part of the approximation was subtracted for error: it is that of the mean already, "
        "subtract it as it is": lambda s, a: _with_error(lambda w, x, _: w - x / s.ranks)(s, a),
        "the columns of P have length 1, but are not at right angles: first subtract from each what it has in "
        "common with the columns before it, or take torch.linalg.qr": _differs(orthonormal=lambda p: p / p.norm(dim=0)),
        "P was made orthonormal before the all_reduce: a sum of orthonormal matrices is not orthonormal, so "
        "reduce first": [
            _differs(early=True, divided=divided, orthonormal=columns)
            for divided in (True, False)
            for columns in (_orthonormal, _one_by_one)
        ],
        "the error of earlier rounds is missing in Q: Q = M^T P with M = matrix + error": _differs(error_in="P"),
        "Q was made with P before its columns were orthonormal: first make them so, then Q = M^T P": [
            _differs(raw_p=True, divided=divided) for divided in (False, True)
        ],
        "the first all_reduce is missing: each rank has a P of its own, and Q belongs to no common P": _differs(
            first=False
        ),
        "the second all_reduce is missing: each rank ends with an approximation of its own matrix": _differs(
            second=False
        ),
        "error did not change: it must keep what the approximation lacks": _with_error(
            lambda w, x, a: plain(a[2]).double()
        ),
        "error was set to zero: it must keep what the approximation lacks": _with_error(
            lambda w, x, a: torch.zeros_like(x)
        ),
        "the old error is in error twice: M = matrix + error has it already, and error becomes M minus the "
        "approximation": _with_error(lambda w, x, a: w - x + plain(a[2]).double()),
        "error has the wrong sign: it is what this rank wanted minus the approximation": _with_error(
            lambda w, x, a: x - w
        ),
        "error lacks the old error: it is matrix + error minus the approximation": _with_error(
            lambda w, x, a: plain(a[0]).double() - x
        ),
        "error is what this rank's own P Q^T lacks: subtract the approximation that all ranks apply": _own_projection,
        "the whole mean was reduced and returned: nothing is compressed": (_exact, _reduces_it_whole),
        "the sum instead of the mean: divide Q by the number of ranks": lambda s, a: _oracle(s, a, scale=s.ranks),
    },
    unit="row",
    collective="all_reduce",
    algorithm="PowerSGD",
    demo_setup=_case(4, 8, 7, 2),
    only_sums=True,
    forbidden_advice="It needs dist.all_reduce, twice.",
)
