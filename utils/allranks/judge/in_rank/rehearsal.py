"""Runs a small answer in the process that forks ranks, so that no rank need do for itself what only the first run does.

In its first run torch finds its functions in its libraries, Python adapts its code, and each layer sets itself up.
"""

from __future__ import annotations

import gc
import socket

import torch

from allranks.judge.in_rank import driver
from allranks.judge.in_rank.arguments import View, describe
from allranks.ranks.wire import values
from allranks.ranks.wire.body import Body
from allranks.ranks.wire.codec import Channel
from allranks.ranks.wire.frames import FrameKind
from allranks.ranks.wire.leftovers import Leftovers
from allranks.ranks.wire.messages import Program
from allranks.ranks.wire.rank import Rank

_ANSWER = """
import torch
import torch.distributed as dist

def answer(tensor):
    dist.all_reduce(tensor)
    chunks = list(tensor.tensor_split(2))
    received = torch.empty_like(chunks[1])
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, chunks[0], 1), dist.P2POp(dist.irecv, received, 1)])
    for work in works:
        work.wait()
    chunks[1] += received
    tensor[:2] = torch.cat(chunks)[2:]
"""
_NELEMENTS = 4
_TIMES = 8  # Python adapts a function's code to what it sees after so many calls


def rehearse() -> None:
    """Runs the small answer as rank 0 of 2 some times, here. What a router would tell this rank is written before."""
    ours, theirs = socket.socketpair()
    router, rank = Channel(ours, blocking=True), Rank(theirs, guarded=False)
    program = Program(driver.wrapped(_ANSWER, "answer"), driver.WRAPPER, "<rehearsal>")
    tensor = torch.zeros(_NELEMENTS)
    argument = describe(View.of(tensor))
    case = {"environ": {}, "args": [argument], "call": 0, "last": True}
    job = {
        "ranks": 2,
        "rank": 0,
        "filename": program.filename,
        "seed": 0,
        "contiguous": True,
        "nccl": False,
        "alone": True,
        "ahead": True,
        "guard": False,
        "final_args": False,
        "memory": None,
        "cpu_s": 0,
        "memory_bytes": 0,
    }
    leftovers = Leftovers()
    for _ in range(_TIMES):
        router.send(*values.pack(job, (values.Pickled(program), [(case,)]), trusting=True))
        router.send({}, Body(bytes(tensor.nbytes)))  # the sum
        router.send({"source": 1}, Body(bytes(tensor.nbytes // 2)))  # the other rank's message
        rank.run(*rank.channel.receive(), leftovers)
        while (last := router.receive()[0][-1])["do"] != FrameKind.DONE:
            if last["do"] == FrameKind.FAULT:
                raise RuntimeError(f"the rehearsal failed: {last}")
    router.close()
    rank.channel.close()
    gc.collect()
    gc.freeze()  # as after the imports
