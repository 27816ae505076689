"""Real memory that live ranks share: what is put arrives, what is wrong is said on all ranks, and nothing is left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import allranks.ranks.memory as room
import pytest
import torch
import torch.distributed as dist
from allranks import SharedMemory, World
from allranks.ranks.memory import MemoryFault
from waiting import until

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def world():
    with World(ranks=3, backend="gloo") as made:
        yield made


def said(call) -> str:
    """What a call that must fail says."""
    try:
        call()
    except MemoryFault as fault:
        return str(fault)
    return "nothing"


def put_round():
    memory = SharedMemory(5, torch.float64)
    right, left = (memory.rank + 1) % memory.ranks, (memory.rank - 1) % memory.ranks
    got = []
    for turn in range(50):  # one slot: the writer waits until the reader is done
        memory.put(right, 2, torch.full((3,), 100.0 * turn + memory.rank, dtype=torch.float64))
        memory.fence()
        memory.signal(right, 1)
        memory.wait(left, 1)
        got.append(memory.get(memory.rank, 2, 3).unique().item() - 100.0 * turn)
        memory.signal(left, 2)
        memory.wait(right, 2)
    return left, set(got), memory.moved_nbytes


def test_what_is_put_and_signalled_is_there(world):
    for left, got, moved in world.run(put_round):
        assert got == {left}
        assert moved == 50 * 3 * 8


def locked_sum():
    memory = SharedMemory(1)
    for _ in range(500):
        with memory.lock():
            memory.tensor(0).fill_(memory.tensor(0).item() + 1)
    memory.barrier()
    return memory.tensor(0).item()


def test_a_lock_loses_nothing(world):
    assert world.run(locked_sum) == [1500.0] * 3


def wrong_calls():
    memory = SharedMemory(4)
    return [
        said(lambda: memory.put(3, 0, torch.ones(1))),
        said(lambda: memory.put(0, 3, torch.ones(2))),
        said(lambda: memory.put(0, 0, torch.ones(2, dtype=torch.int64))),
        said(lambda: memory.get(0, -1, 2)),
        said(lambda: memory.signal(memory.rank)),
        said(lambda: memory.wait((memory.rank + 1) % 3, 4)),
        said(lambda: SharedMemory(-1)),
    ]


def test_a_wrong_call_is_told_in_one_sentence(world):
    told = world.run(wrong_calls)[1]
    assert told == [
        "put() names rank 3, but the ranks are 0 to 2.",
        "put() reaches for 2 elements from 3 on in the memory of rank 0, which has 4.",
        "put() takes a tensor of torch.float32, as the memory is, but was given torch.int64.",
        "get() reaches for 2 elements from -1 on in the memory of rank 0, which has 4.",
        "signal() names rank 1 itself: a rank needs no signal of its own.",
        "wait() names channel 4, but the channels are 0 to 3.",
        "SharedMemory takes a number of elements and a dtype, not -1 and torch.float32.",
    ]


def disagree():
    return said(lambda: SharedMemory(4 + dist.get_rank())), said(lambda: SharedMemory(1 << 44))


def test_ranks_that_disagree_or_ask_for_too_much_all_hear_it(world):
    for sizes, space in world.run(disagree):
        assert sizes.endswith("rank 0 asks for 4 elements of torch.float32, but rank 1 for 5 of torch.float32.")
        assert "rank 0 found no room for it" in space and "more than the machine has" in space


def waits_in_vain():
    memory = SharedMemory(1, wait_s=0.2)
    return said(lambda: memory.wait((memory.rank + 1) % 3))


def test_a_wait_ends(world):
    assert world.run(waits_in_vain)[0] == "Rank 0 waited 0.2 s for rank 1, which gave no signal."


def closed():
    memory = SharedMemory(3)
    kept = memory.tensor(memory.rank)
    memory.barrier()
    memory.close()
    memory.close()
    kept.fill_(7)
    return kept.tolist(), said(lambda: memory.get(0, 0, 1)), said(lambda: memory.tensor(0)), said(memory.barrier)


def test_closed_memory_says_so_and_tensors_stay(world):
    assert world.run(closed)[2] == ([7.0, 7.0, 7.0], *["This memory was closed."] * 3)


def keep_a_memory():
    room.kept = SharedMemory(2, guests=1)  # in a module, where the next call finds it
    return room.kept.handle()


def answer_the_guest():
    memory = room.kept
    memory.put(3, 0, torch.full((1,), 5.0)) if memory.rank == 0 else None
    memory.fence()
    memory.signal(3)
    memory.wait(3)
    return memory.get(memory.rank, 0, 1).item()


def test_a_guest_takes_part(world):
    import threading

    handle = world.run(keep_a_memory)[0]
    guest = SharedMemory.attach(handle)

    def serve():
        for rank in range(3):
            guest.wait(rank)
        for rank in range(3):
            guest.put(rank, 0, guest.get(3, 0, 1) + rank)
            guest.fence()
            guest.signal(rank)

    serving = threading.Thread(target=serve)
    serving.start()
    assert world.run(answer_the_guest) == [5.0, 6.0, 7.0]
    serving.join()
    assert said(lambda: SharedMemory.attach(handle, guest=1)) == "The memory has 1 guests, so there is no guest 1."


def test_nothing_is_left_of_ranks_that_were_killed():
    def named() -> set[Path]:
        return {*Path("/dev/shm").glob("*allranks*"), *Path("/tmp").glob("allranks-memory-*")}

    before = named()
    with World(ranks=2, backend="gloo") as world:
        handle = world.run(keep_a_memory)[0]
        pids = world.run(os.getpid)
        assert Path(handle.path).exists()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(handle.path).exists())
        assert said(lambda: SharedMemory.attach(handle)).startswith("The memory is gone")
    assert named() <= before


def test_outside_of_a_group_it_says_what_to_do():
    with pytest.raises(MemoryFault, match="call it inside the ranks"):
        SharedMemory(1)
