"""`python -m allranks`, the same as `allranks`."""

from allranks.cli import main

main(prog_name="allranks")
