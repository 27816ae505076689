"""Memory that an operation still uses can't be read or changed before wait()."""

from __future__ import annotations

import pytest
import torch
from allranks.ranks.nccl_rules import Flight, NcclRuleError, Operation, Placement, Rule

READS = {
    "add": lambda x: x + 1,
    "item": lambda x: x[0].item(),
    "tolist": lambda x: x.tolist(),
    "print": str,
    "a view of it": lambda x: x[1:3].sum(),
    "copied out": lambda x: torch.empty(4).copy_(x),
    "compared": lambda x: bool((x > 0).all()),
    "out of a function": lambda x: torch.nn.functional.relu(x),
}
WRITES = {
    "zero_": lambda x: x.zero_(),
    "assigned": lambda x: x.__setitem__(0, 1.0),
    "a view of it": lambda x: x[1:].mul_(2),
    "copied into": lambda x: x.copy_(torch.ones(4)),
    "out=": lambda x: torch.add(torch.ones(4), 1, out=x),
    "fill of a row": lambda x: x.view(2, 2)[1].fill_(0),
    "in a list": lambda x: torch._foreach_add_([x], 1),
}


@pytest.fixture
def flight():
    with Placement() as placement:
        yield placement.flight


def early(program, tensor) -> str:
    with pytest.raises(NcclRuleError) as refused:
        program(tensor)
    assert refused.value.rule == Rule.IN_FLIGHT
    return str(refused.value)


@pytest.mark.parametrize("program", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
def test_what_is_being_filled_can_be_neither_read_nor_changed(flight, program):
    x = torch.ones(4)
    flight.begin(Operation("all_reduce", 7, writes=(x,)))
    assert "all_reduce, begun in line 7," in early(program, x)


@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_what_is_being_sent_can_be_read_but_not_changed(flight, program):
    x = torch.ones(4)
    flight.begin(Operation("send", None, reads=(x,)))
    for read in READS.values():
        read(x)
    assert "may still be sending" in early(program, x)


@pytest.mark.parametrize("program", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
def test_after_wait_it_can_and_the_program_meets_the_end_of_the_operation(flight, program):
    x, ended = torch.ones(4), []
    operation = Operation("all_reduce", 7, writes=(x,), finish=lambda: ended.append(True))
    flight.begin(operation)
    operation.ordered = True
    program(x)
    assert ended == [True] and not flight.operations


def test_other_memory_is_free(flight):
    whole = torch.ones(4, 4)
    flight.begin(Operation("send", None, reads=(whole[1],), writes=(whole[2],)))
    whole[0].add_(1)
    whole[3].add_(whole[0])
    whole[::3].mul_(2)  # rows 0 and 3, around the rows in flight
    assert "sending" in early(lambda t: t.zero_(), whole[:2, 0])
    assert "filling" in early(torch.sum, whole)


def test_looking_at_its_shape_or_making_a_view_reads_nothing(flight):
    x = torch.ones(4)
    flight.begin(Operation("all_reduce", None, writes=(x,)))
    assert (x.shape, x.view(2, 2).shape, x[1:].numel(), x.detach().dtype) == ((4,), (2, 2), 3, torch.float32)


def test_synchronize_ends_all():
    ended = []
    with Placement() as placement:
        x = torch.ones(4)
        placement.flight.begin(Operation("all_reduce", None, writes=(x,), finish=lambda: ended.append(True)))
        torch.cuda.synchronize()
        assert x.sum().item() == 4
    assert ended == [True]


def test_what_is_done_and_waited_for_is_forgotten():
    flight, x = Flight(), torch.ones(4)
    for number in range(100):
        flight.begin(Operation("send", number, reads=(x,), ordered=True, done=lambda: True))
    assert len(flight.operations) == 1
