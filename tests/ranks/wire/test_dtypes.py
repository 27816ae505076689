"""The router's table of dtypes says what torch says, and the router needs no torch."""

import subprocess
import sys

import torch
from allranks.ranks.wire.dtypes import ITEMSIZES


def test_the_table_has_every_dtype_of_torch_and_its_bytes():
    of_torch = {str(d).removeprefix("torch."): d.itemsize for d in vars(torch).values() if isinstance(d, torch.dtype)}
    assert {name: nbytes for name, nbytes in ITEMSIZES.items() if name in of_torch} == of_torch


def test_the_router_and_its_words_import_where_there_is_no_torch():
    absent = "import sys; sys.modules.update(dict.fromkeys(('torch', 'numpy', 'fcntl')))\n"
    code = absent + "import allranks.ranks.wire.router, allranks.ranks.wire.ending, allranks.ranks.wire.record"
    subprocess.run([sys.executable, "-c", code], check=True)
