"""What tests of worlds share."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from allranks.ranks.world.call import Call
from allranks.ranks.world.rank_status import RankStatus

PATIENCE_S = 60


@pytest.fixture
def reached(monkeypatch):
    """A function that takes where a call's deadline must find the ranks that have not returned.

    On a busy machine they may not be there yet when a short deadline is over: then the call goes on until they are.
    """
    give_up = Call._give_up

    def expect(come: Callable[[list[RankStatus]], bool]) -> None:
        def once_there(self, reason, statuses=None):
            late = time.monotonic() > self.began + PATIENCE_S
            if late or not reason.startswith("Not every rank returned") or come(self._unfinished()):
                give_up(self, reason, statuses)

        monkeypatch.setattr(Call, "_give_up", once_there)

    return expect
