"""What the exercises on experts share: which tokens a message carries, and whether all of them went and came back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from allranks.judge import provenance, rules
from allranks.judge.cases import Args
from allranks.judge.exercise import Run
from allranks.ranks.wire import LogEntry

Counts = list[list[int]]  # [rank][rank of the experts]: how many tokens go there


def counted(args: Sequence[Args], homes: Callable[[Args], Sequence[int]]) -> Counts:
    """How many tokens each rank has for each other one; `homes` are the ranks to which a rank's tokens go, one for each that goes."""
    return [[to.count(peer) for peer in range(len(args))] for to in map(homes, args)]


def not_there_and_back(run: Run, counts: Callable[[Sequence[Args]], Counts], row_nbytes: int, which: str) -> str | None:
    """Two ranks must give each other at least the tokens that go there, and as many results; `which` tokens these are, in words."""
    for call, args in enumerate(run.args):
        wanted = counts(args)
        for rank, row in enumerate(rules.between(run, call)):
            for peer, nbytes in enumerate(row):
                least = (wanted[rank][peer] + wanted[peer][rank]) * row_nbytes
                if rank != peer and nbytes < least:
                    return rules.no_messages(run) or (
                        f"rank {rank} sends {nbytes} bytes to rank {peer}, but {which} and the results that it gives back have "
                        f"{least}: each of them must go to its expert's rank, and come back"
                    )
    return None


def carried(entry: LogEntry, tokens: torch.Tensor) -> Iterator[tuple[int, int, int]]:
    """(token, rank, how often) of each of these tokens in a message to each rank."""
    sent, width = provenance.numbers(entry), tokens.shape[-1]
    if sent is None or entry.group is None or sent.dtype != tokens.dtype:
        return
    at = 0
    for peer, nbytes in zip(entry.group, entry.splits, strict=True):
        part, at = sent[at : at + nbytes // sent.element_size()], at + nbytes // sent.element_size()
        if len(part) >= width:
            windows = part.unfold(0, width, 1)
            for number, token in enumerate(tokens):
                yield number, peer, int((windows == token).all(1).sum())
