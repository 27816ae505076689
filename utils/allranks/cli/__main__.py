"""`python -m allranks.cli`, the same as `allranks`."""

from allranks.cli import main

main(prog_name="allranks")
