"""A web server on loopback, which no account of the machine can take from the others by connections that it opens."""

from __future__ import annotations

import os
from collections.abc import Hashable

from tornado.iostream import IOStream

from allranks.base.web_service import FairServer
from allranks.ranks.engines.strangers import other_end


class AccountsServer(FairServer):
    """Each account has 64 connections; root, whose proxy asks for everybody, and this process's account have any number."""

    most_of_source = 64

    def source(self, stream: IOStream, address: tuple[str, int]) -> Hashable:
        """The account at the other end; the address of another machine."""
        uid = other_end(stream.socket)
        if uid is None:
            return address[0]
        return None if uid in (0, os.geteuid()) else uid
