"""A rank differentiates what the function returned where the case has an upstream gradient, without handing that to the function."""

from __future__ import annotations

import pytest
import torch
from allranks.judge.cases import Expected, Parameter, Upstream, View, plain, views
from allranks.judge.compare import faults
from allranks.judge.exercise import FaultKind, Result
from allranks.judge.in_rank import driver
from allranks.judge.origin import _zeroed
from allranks.judge.running import _describe

X, GRADIENT = torch.tensor([[1.0, -2.0], [3.0, 4.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def called(function, layout: str = "contiguous") -> dict:
    """What a rank hands back for one argument x and an upstream gradient."""
    args = Parameter.without_gradient("x", X, layout), Upstream(View.of(GRADIENT, layout))
    case = {"environ": {}, "args": [_describe(a) for a in args], "call": 0, "last": True}
    return driver.call(function, case)


@pytest.mark.parametrize("layout", ["contiguous", "strided", "transposed"])
def test_the_gradient_arrives_and_the_function_sees_one_argument(layout):
    found = called(lambda x: x.square(), layout)
    assert torch.equal(found["returned"][1], X.square())
    (data, _), (gradient, base) = found["tensors"]
    assert torch.equal(data, X)
    assert torch.equal(gradient, 2 * X * GRADIENT)
    assert not base[base != 77].any()  # the memory of the gradient that there was not


@pytest.mark.parametrize(
    "function",
    [lambda x: x.detach(), lambda x: None, lambda x: x.sum(), lambda x: x.double(), lambda x: [x]],
    ids=["detached", "nothing", "another shape", "another dtype", "a list"],
)
def test_what_cannot_be_differentiated_leaves_no_gradient(function):
    assert called(function)["tensors"][1][0] is None


def test_a_missing_or_wrong_gradient_is_named_by_its_argument():
    given = Parameter.without_gradient("x", X), Upstream(View.of(GRADIENT))
    assert [path for path, _ in views(given)] == [(0, "data"), (0, "grad")]
    base = given[0].data.base
    for gradient, words in ((None, "is None; it must be a tensor"), (X, "has 4 of 4 elements wrong")):
        result = Result(None, ((X, base), (gradient, torch.zeros(4))))
        (found,) = faults("f", [given], [Expected(None, {(0, "grad"): 2 * X})], [result], 0)
        assert found.sentence.startswith(f"the gradient of x on rank 0 {words}")
    (found,) = faults("f", [given], [Expected(None, {})], [Result(None, ((X + 1, base), (None, torch.zeros(4))))], 0)
    assert found.kind is FaultKind.INPUT_CHANGED
    assert found.sentence == "rank 0 changed x, which is an input and not an output of f"


def test_an_oracle_may_see_zeros_in_place_of_an_upstream_gradient():
    assert torch.equal(plain(Upstream(View.of(GRADIENT))), GRADIENT)
    assert not plain(_zeroed(Upstream(View.of(GRADIENT)))).any()
