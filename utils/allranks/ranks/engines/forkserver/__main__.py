"""Runs a fork server: python -m allranks.ranks.engines.forkserver PATH LIFELINE LISTENING [lasting]."""

import sys

from allranks.ranks.engines.forkserver.server import main

if __name__ == "__main__":
    main(*sys.argv[1:])
