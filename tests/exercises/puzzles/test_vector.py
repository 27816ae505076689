"""The puzzles' vectors do what torch's do: each expression is computed by both."""

import math

import pytest
import torch
from allranks.exercises.puzzles import vector

EXPRESSIONS = """
x + y; x - y; x * y; x / y; -x; x + 2; 2 + x; 2 - x; 2 / x; x / 4; x ** 2; abs(y)
x[1:3]; x[::2]; x[-2:]; x[5:]; x[2]; x[-1]; x[2:2]; x[1:][1:]; x[1:5][::2]
x.sum(); x.mean(); x.max(); y.min(); y.argmax(); y.argmin(); x.exp(); x.log(); maximum(x, y); minimum(x, y)
x.sum() + x; x - x.max(); x / x.sum(); x[1] * y; x[0] + y[1]; x.sum().item(); float(x[2]); int(x[2]); len(x)
x.numel(); x.shape[0]; x.size(0); x.dim(); x[1].dim(); x.tolist(); x[1].tolist(); x.is_contiguous(); x[::2].is_contiguous()
cat([x, y[:2]]); stack([x[0], y[1]]); zeros(3); ones(2); full((2,), 1.5); tensor([1.0, 2]); zeros_like(x); ones_like(y); arange(4) + 0.0
cat(list(x.tensor_split(4))); [len(c) for c in x.tensor_split(4)]; [len(c) for c in x.tensor_split(9)]; [len(c) for c in x.chunk(4)]
[len(c) for c in x.split(4)]; [len(c) for c in x.split([1, 5])]; [len(c) for c in tensor_split(x, [2, 4])]; [len(c) for c in x[:0].chunk(3)]
x.clone() is x; x.clone().add_(y); x.view(-1) + 1; x.reshape(6) * 2; x.clone().mul_(3); x.clone().zero_(); x.clone().fill_(2)
bool(x[0] < x[1]); bool(x.sum() == 21); sum([x, y]); x.maximum(y); x[3:] + y[:3]; x.clone().copy_(y); x + x[2]; x[0] - x
""".replace("\n", ";")
STATEMENTS = """
a += y
a[1:3] += 10
a[2] = 7
a[:2] = y[4:]
a[1:] = a[:-1].clone()
a *= 2; a /= 4; a -= y
b = a[2:]; b += 1
b = a.view(-1); b[0] = 9
c = list(a.tensor_split(3)); c[1] += y[:2]
a[0], a[1] = a[1].clone(), a[0].clone()
a[3:] = 0
a[::2] = y[:3]
for one in a: one += 1
a.copy_(y[0])
"""


def spaces():
    made = []
    for module in (torch, vector):
        names = vector.NAMES if module is vector else {name: getattr(torch, name, None) for name in vector.NAMES}
        x, y = names["tensor"]([1.0, 2, 3, 4, 5, 6]), names["tensor"]([0.5, -1, 8, 2, 0.25, -3])
        made.append(dict(names) | {"x": x, "y": y, "a": names["clone"](x)})
    return made


def plain(value):
    return value.tolist() if hasattr(value, "tolist") else value


def same(one, other):
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return math.isclose(one, other, rel_tol=1e-6) if isinstance(one, float) else one == other


@pytest.mark.parametrize("expression", [e.strip() for e in EXPRESSIONS.split(";") if e.strip()])
def test_an_expression_gives_what_torch_gives(expression):
    of_torch, ours = (plain(eval(expression, space)) for space in spaces())
    assert same(of_torch, ours), (of_torch, ours)


@pytest.mark.parametrize("statement", STATEMENTS.strip().splitlines())
def test_a_statement_changes_what_torch_changes(statement):
    found = []
    for space in spaces():
        exec(statement, space)
        found.append(space["a"].tolist())
    assert same(*found)


REFUSED = "x + y[:2]; x[7]; x[1.0]; x[::-1]; x[:2] + y[:3]; x.item(); bool(x); cat([x, 1]); x.view(2, 4); x[1:3].fill_('a'); x.split([1, 2]); len(x[0]); x[:0].max(); x.tensor_split(0)"


@pytest.mark.parametrize("expression", REFUSED.split("; "))
def test_what_torch_refuses_is_refused(expression):
    for space in spaces():
        with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)):
            eval(expression, space)


def test_it_says_that_a_vector_is_no_torch():
    assert "no torch" in vector.__doc__ and math.isnan(vector.empty(1).item())
