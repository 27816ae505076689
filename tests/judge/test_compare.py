"""What counts as equal, what as wrong, and in which words: on values at hand, without ranks."""

from __future__ import annotations

import pytest
import torch
from allranks.judge.cases import GUARD, AllOrNothing, Expected, Parameter, Text, Texts, View, views
from allranks.judge.compare import difference, faults, same
from allranks.judge.exercise import FaultKind, Result
from allranks.judge.in_rank import driver

NAN, INF = float("nan"), float("inf")
VECTOR = torch.tensor([1.0, 2.0, 3.0])
WORDS = Texts("a list of words", lambda texts: "lacks F0" if "F0" not in texts else None)


@pytest.mark.parametrize(
    ("got", "wanted", "atol"),
    [
        (5, None, None),
        (VECTOR, VECTOR.clone(), None),
        (torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]), None),
        (torch.tensor([1.0, 2.0 + 1e-7]), torch.tensor([1.0, 2.0]), 1e-6),
        (torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.5])),
        (torch.tensor([1 + 1e-7j]), torch.tensor([1 + 0j]), 1e-6),
        (torch.tensor([INF]), torch.tensor([INF]), 1e-6),
        (torch.zeros(0), torch.zeros(0), None),
        (7, 7, None),
        (7.0, 7, None),
        (torch.tensor([7]), 7, None),
        (torch.tensor(7.0), 7.0, None),
        (NAN, NAN, None),
        (INF, INF, 1.0),
        (7.25, 7.0, 0.25),
        (10**400, 10**400, 1.0),
        ((1, VECTOR), [1, VECTOR], None),
        ((1.0, 2.5), (1.0, 2.0), (0.0, 0.5)),
        ([], (), None),
        ([Text("B0"), Text("F0")], WORDS, None),
        ((Text("F0"),), WORDS, None),
    ],
)
def test_right(got, wanted, atol):
    assert difference(got, wanted, atol) is None


@pytest.mark.parametrize(
    ("got", "wanted", "atol", "kind", "words"),
    [
        (None, VECTOR, None, "returned", "it is None; it must be a tensor"),
        (3.0, VECTOR, None, "returned", "it is a float; it must be a tensor"),
        ("ndarray", VECTOR, None, "returned", "it is of type ndarray; it must be a tensor"),
        ("a secret", VECTOR, None, "returned", "it is of a type of its own; it must be a tensor"),
        (Text("a secret"), VECTOR, None, "returned", "it is of type str; it must be a tensor"),
        (Text("F0"), WORDS, None, "returned", "it is of type str; it must be a list of words"),
        (None, WORDS, None, "returned", "it is None; it must be a list of words"),
        ([Text("F0"), None], WORDS, None, "returned", "it has an item that is None; it must be a list of words"),
        ([Text("F0"), "bytes"], WORDS, None, "returned", "it has an item that is of type bytes; it must be a list of words"),
        ([VECTOR], WORDS, None, "returned", "it has an item that is a tensor of shape (3,); it must be a list of words"),
        ([Text("a secret")], WORDS, None, "values", "it lacks F0"),
        (VECTOR.double(), VECTOR, None, "dtype", "it has dtype float64; it must be float32"),
        (VECTOR.reshape(1, 3), VECTOR, None, "shape", "it has shape (1, 3); it must be (3,)"),
        (VECTOR + 1, VECTOR, None, "values", "it has 3 of 3 elements wrong, the first at index 0"),
        (VECTOR * torch.tensor([1, 1, 2]), VECTOR, None, "values", "it has 1 of 3 elements wrong, the first at index 2"),
        (torch.tensor([4.0]), torch.tensor([3.0]), None, "values", "it has the wrong value"),
        (torch.tensor([NAN, 1.0]), torch.tensor([1.0, NAN]), None, "values", "it has 2 of 2 elements wrong, the first at index 0"),
        (torch.tensor([1.0, 2.1]), torch.tensor([1.0, 2.0]), 0.05, "values", "it has 1 of 2 elements wrong, the first at index 1"),
        (torch.tensor([0.5, 2.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.4, 9.0]), "values", "it has 1 of 2 elements wrong, the first at index 0"),
        (torch.tensor([True]), torch.tensor([False]), None, "values", "it has the wrong value"),
        (True, 1, None, "returned", "it is a bool; it must be a number"),
        (None, 1, None, "returned", "it is None; it must be a number"),
        ((1,), 1, None, "returned", "it is a tuple of 1; it must be a number"),
        (torch.tensor([1, 1]), 1, None, "returned", "it is a tensor of shape (2,); it must be a number"),
        (8, 7, None, "values", "it is wrong"),
        (NAN, 7, None, "values", "it is wrong"),
        (7, NAN, None, "values", "it is wrong"),
        (7.3, 7.0, 0.25, "values", "it is wrong"),
        (7.25, 7.0, None, "values", "it is wrong"),
        (INF, 7.0, 1.0, "values", "it is wrong"),
        (10**400, 7.0, 1.0, "values", "it is wrong"),
        ((1, 2), (1, 2, 3), None, "returned", "it is a tuple of 2; it must be a tuple of 3"),
        ([1, 2], 3, None, "returned", "it is a list of 2; it must be a number"),
        (5, (1, 2), None, "returned", "it is a int; it must be a tuple of 2"),
        ((1, 3), (1, 2), None, "values", "item 1 of it is wrong, but item 0 is right"),
        ((1.4, 2.6), (1.0, 2.0), (0.5, 0.5), "values", "item 1 of it is wrong, but item 0 is right"),
        ((1, (2, VECTOR)), (1, (2, VECTOR + 1)), None, "values", "item 1 of item 1 of it has 3 of 3 elements wrong, the first at index 0, but item 0 is right"),
    ],
)  # fmt: skip
def test_wrong(got, wanted, atol, kind, words):
    found = difference(got, wanted, atol)
    assert found is not None and (found.kind, found.sentence("it")) == (kind, words)


def test_the_wrong_elements_are_given_by_their_flat_indices():
    got = torch.arange(6.0).reshape(2, 3)
    wanted = got.clone()
    wanted[0, 2] = wanted[1, 1] = -1
    assert difference(got, wanted, None).wrong == (2, 4)


def test_a_whole_is_right_or_wrong_as_one():
    wanted = AllOrNothing((3, 4), "largest value and its place")
    assert difference((3, 4), wanted, None) is None
    found = difference((3, 5), wanted, None)
    assert (found.kind, found.sentence("it")) == (FaultKind.VALUES, "it is not the largest value and its place")
    assert difference(3, wanted, None).kind is FaultKind.RETURNED


def test_same_is_shape_dtype_and_every_value():
    assert same(torch.tensor([NAN, 1.0]), torch.tensor([NAN, 1.0]))
    assert not same(VECTOR, VECTOR.double())
    assert not same(VECTOR, VECTOR.reshape(3, 1))
    assert not same(VECTOR, VECTOR + torch.tensor([0.0, 0.0, 1e-6]))
    assert same(torch.zeros(0), torch.zeros(0))


def one_rank(given: tuple, expected: Expected, result: Result | None) -> list:
    return faults("f", [given], [expected], [result], 0)


@pytest.mark.parametrize("layout", ["contiguous", "offset", "strided", "transposed"])
def test_an_input_must_stay_and_nothing_be_written_beside_it(layout):
    values = torch.arange(6.0).reshape(2, 3)
    view = View.of(values, layout)
    untouched = (view.tensor().clone(), view.base.clone())
    nothing = Expected(None, {})
    assert one_rank((view,), nothing, Result(None, (untouched,))) == []
    (changed,) = one_rank((view,), nothing, Result(None, ((values + 1, view.base.clone()),)))
    assert (changed.kind, changed.sentence) == (
        FaultKind.INPUT_CHANGED,
        "rank 0 changed the tensor, which is an input and not an output of f",
    )
    (unread,) = one_rank((view,), nothing, Result(None, ((None, view.base.clone()),)))
    assert unread.kind == FaultKind.INPUT_CHANGED
    if layout in ("offset", "strided"):
        assert (view.base == GUARD).any()
        beside = view.base.clone()
        beside[beside == GUARD] = 0
        (found,) = one_rank((view,), nothing, Result(None, ((view.tensor().clone(), beside),)))
        assert (found.kind, found.sentence) == (
            FaultKind.WROTE_BESIDE,
            "rank 0 wrote into memory beside the tensor: it is a window on a larger tensor",
        )
    (list_changed,) = one_rank((view,), nothing, Result(None, (untouched,), (0,)))
    assert (list_changed.kind, list_changed.sentence) == (
        FaultKind.LIST_CHANGED,
        "rank 0 changed the items of an argument, which is an input and not an output of f",
    )
    # storage of another shape or dtype tells nothing of what lies beside
    for base in (view.base[:-1].clone(), view.base.double()):
        assert one_rank((view,), nothing, Result(None, ((view.tensor().clone(), base),))) == []


@pytest.mark.parametrize(
    ("which", "named"),
    [
        (0, "parameter 0"),
        (1, "parameter 0's gradient"),
        (2, "parameter 1"),
        (3, "parameter 1's gradient"),
        (4, "tensor 2 of the list"),
    ],
)
def test_what_lies_in_a_list_is_named_by_its_place(which, named):
    given = (
        [Parameter(View.of(VECTOR), View.of(VECTOR)), Parameter(View.of(VECTOR), View.of(VECTOR)), View.of(VECTOR)],
    )
    kept = [(view.tensor().clone(), view.base.clone()) for _, view in views(given)]
    kept[which] = (VECTOR + 1, kept[which][1])
    (found,) = one_rank(given, Expected(None, {}), Result(None, tuple(kept)))
    assert found.sentence == f"rank 0 changed {named}, which is an input and not an output of f"


def test_each_rank_has_its_first_fault_and_the_thing_is_named():
    both = (View.of(VECTOR), View.of(VECTOR))
    kept = tuple((v.tensor().clone(), v.base.clone()) for v in both)
    expected = Expected(None, {(1,): VECTOR * 2})
    right = Result(None, (kept[0], (VECTOR * 2, View.of(VECTOR * 2).base)))
    wrong = Result(None, kept)
    found = faults("f", [both] * 3, [expected] * 3, [right, wrong, None], 1)
    assert [(f.kind, f.rank, f.call, f.sentence, f.wrong) for f in found] == [
        ("values", 1, 1, "tensor argument 2 on rank 1 has 3 of 3 elements wrong, the first at index 0", (0, 1, 2)),
        ("returned", 2, 1, "rank 2 returned nothing that can be read", ()),
    ]
    (returned,) = faults("f", [both], [Expected(1, {})], [Result(2, kept)], 0)
    assert returned.sentence == "what rank 0 returned is wrong"


@pytest.mark.parametrize("layout", ["contiguous", "offset", "strided"])
def test_a_result_in_other_memory_than_the_callers_is_no_result(layout):
    view, expected = View.of(VECTOR, layout), Expected(None, {(0,): VECTOR * 2})
    there = View.of(VECTOR * 2, layout).base
    assert one_rank((view,), expected, Result(None, ((VECTOR * 2, there),))) == []
    for base in (view.base.clone(), there[:-1].clone(), there.double()):
        (found,) = one_rank((view,), expected, Result(None, ((VECTOR * 2, base),)))
        assert found.kind == FaultKind.OTHER_MEMORY
        assert found.sentence == "the tensor on rank 0 was given other memory, and the caller's own memory is unchanged"


def test_a_parameter_may_be_given_other_data():
    given = ([Parameter(View.of(VECTOR), View.of(VECTOR))],)
    kept = [(view.tensor().clone(), view.base.clone()) for _, view in views(given)]
    kept[0] = (VECTOR * 2, kept[0][1])
    assert one_rank(given, Expected(None, {(0, 0, "data"): VECTOR * 2}), Result(None, tuple(kept))) == []


def test_an_item_that_was_not_compared_is_not_called_right():
    found = difference((VECTOR, VECTOR), (VECTOR + 1, None), None)
    assert found is not None and found.sentence("it") == "item 0 of it has 3 of 3 elements wrong, the first at index 0"


@pytest.mark.parametrize(("which", "named"), [(0, "start[0]"), (1, "moved[0]"), (2, "scale")])
def test_of_several_arguments_each_is_named_as_the_contract_names_it(which, named):
    given = ([View.of(VECTOR)], [View.of(VECTOR)], View.of(VECTOR), View.of(VECTOR))
    kept = [(view.tensor().clone(), view.base.clone()) for _, view in views(given)]
    kept[which] = (VECTOR + 1, kept[which][1])
    (found,) = faults(
        "f", [given], [Expected(None, {})], [Result(None, tuple(kept))], 0, ("start", "moved", "scale", "rest")
    )
    assert found.sentence == f"rank 0 changed {named}, which is an input and not an output of f"


@pytest.mark.parametrize(
    ("change", "places"),
    [
        (lambda chunks, table: None, []),
        (lambda chunks, table: chunks.reverse(), [0]),
        (lambda chunks, table: chunks.append(chunks[0]), [0]),
        (lambda chunks, table: chunks.__setitem__(1, chunks[1].clone()), [0]),
        (lambda chunks, table: table["lists"][0].pop(), [1]),
        (lambda chunks, table: table.update(more=1), [1]),
        (lambda chunks, table: table["lists"][0].__setitem__(0, 2**70), []),
    ],
)
def test_a_rank_tells_which_lists_hold_something_else(change, places):
    chunks, table = [torch.zeros(1), torch.zeros(1)], {"lists": [[2**70, "a"]], "nan": NAN}
    held = driver._items([chunks, table])
    change(chunks, table)
    assert [place for place, one in enumerate([chunks, table]) if not driver._unchanged(one, held[place])] == places
