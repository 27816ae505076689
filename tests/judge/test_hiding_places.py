"""What a rank keeps is found in each exercise with a rule on memory, in whatever form it keeps it."""

import pytest
from allranks.exercises import fsdp_step, get, ring_attention, sequence_parallel_linear
from allranks.judge.run import CaseRunner, one_torch_thread
from allranks.judge.source import from_text

# `keep(tensor)` for each form; `kept` lives as long as the answer's own object
PLACES = {
    "a list of whole numbers": "kept.append([int.from_bytes(raw[i : i + 8], 'little') for i in range(0, len(raw), 8)])",
    "large whole numbers": "kept.append([int.from_bytes(raw[i : i + 200], 'little') for i in range(0, len(raw), 200)])",
    "short texts": "kept.append([raw[i : i + 20].hex() for i in range(0, len(raw), 20)])",
    "one text": "kept.append(raw.hex())",
    "short bytes": "kept.append([raw[i : i + 8] for i in range(0, len(raw), 8)])",
    "tuples in tuples": "kept.append(tuple(tuple(raw[i : i + 60]) for i in range(0, len(raw), 60)))",
    "keys of a dict": "kept.append({(i, raw[i : i + 12]): None for i in range(0, len(raw), 12)})",
    "closures": "kept.extend((lambda piece: lambda: piece)(raw[i : i + 12]) for i in range(0, len(raw), 12))",
    "default arguments": "def found(raw=raw.decode('latin-1')): return raw\n    kept.append(found)",
    "a generator": "def found(raw): yield; yield raw\n    held = found(raw.hex()); next(held); kept.append(held)",
    "class attributes": "kept.append(type('Kept', (), {f'a{i}': raw[i : i + 300].hex() for i in range(0, len(raw), 300)}))",
    "the values of weak references": (
        "import weakref\n    class Held: pass\n    held = Held(); held.raw = raw.hex()\n    kept.append((held, weakref.ref(held)))"
    ),
    "numpy scalars": "kept.append(list(tensor.numpy().flatten()))",
    "a memoryview": "kept.append(memoryview(raw))",
    "a memoryview of text": "kept.append(memoryview(raw.hex().encode()))",
    "a pickle": "import pickle\n    kept.append(pickle.dumps(tensor.tolist()))",
    "a file in memory": "import io\n    kept.append(io.BytesIO(raw)); kept[-1].read()",
    "a map of memory": "import mmap\n    kept.append(mmap.mmap(-1, len(raw))); kept[-1].write(raw)",
    "a compressed file": "import zlib\n    kept.append(zlib.compress(raw, 1))",
    "a buffer of C": "import ctypes\n    kept.append(ctypes.create_string_buffer(raw, len(raw)))",
    "an array": "import array\n    kept.append(array.array('B', raw))",
    "a storage": "kept.append(tensor.clone().untyped_storage())",
    "what autograd saved": (
        "with torch.enable_grad():\n        one = torch.ones((), requires_grad=True)\n"
        "        kept.append((one * (tensor + 1).sigmoid()).sum())"
    ),
    "names of globals": "globals().update({f'_{len(kept)}_{i}': raw[i : i + 12] for i in range(0, len(raw), 12)}); kept.append(0)",
    "complex numbers": "import struct\n    kept.append([complex(*pair) for pair in struct.iter_unpack('ff', raw)])",
    "fractions": (
        "from fractions import Fraction\n"
        "    kept.append([Fraction(int.from_bytes(raw[i : i + 16], 'little'), 3) for i in range(0, len(raw), 16)])"
    ),
    "slices and ranges": (
        "kept.append([slice(int.from_bytes(raw[i : i + 8], 'little'), range(i)) for i in range(0, len(raw), 8)])"
    ),
}
DAILY = ("large whole numbers", "one text", "a storage")  # the others take longer, most of them of many small objects
KEEPER = """
import torch
import torch.distributed as dist

kept = []


def keep(tensor):
    raw = tensor.detach().contiguous().numpy().tobytes()
    {place}


"""
ATTENTION = (
    ring_attention,
    ring_attention.WIDE,
    ring_attention._few_blocks,
    """
def ring_attention(q, k, v, positions):
    kept.clear()
    rank, p, block = dist.get_rank(), dist.get_world_size(), [k.contiguous(), v.contiguous()]
    for _ in range(p - 1):
        coming = [torch.empty_like(one) for one in block]
        ops = [dist.P2POp(dist.isend, one, (rank + 1) % p) for one in block]
        ops += [dist.P2POp(dist.irecv, one, (rank - 1) % p) for one in coming]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        block = coming
        for one in block:
            keep(one)
    return q
""",
)
LINEAR = (
    sequence_parallel_linear,
    sequence_parallel_linear.LARGE,
    sequence_parallel_linear._own_rows_kept,
    """
def gathered(x):
    rows = torch.empty(dist.get_world_size() * len(x), x.shape[1], dtype=x.dtype)
    dist.all_gather_into_tensor(rows, x.contiguous())
    return rows


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        rows = gathered(x)
        keep(rows)
        return rows @ w

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        own = torch.empty(x.shape, dtype=x.dtype)
        dist.reduce_scatter_tensor(own, (gradient @ w.T).contiguous())
        return own, gathered(x).T @ gradient


def sequence_parallel_linear(x, w):
    kept.clear()
    return Linear.apply(x, w)
""",
)
BLOCKS = (
    fsdp_step,
    next(s for group in fsdp_step.EXERCISE.groups for s in group.setups if s.note == "large blocks"),
    fsdp_step._in_memory,
    """
def fsdp_step(shards, compute):
    kept.clear()
    p, gradients = dist.get_world_size(), [None] * len(shards)
    for turn, block in enumerate([*range(len(shards)), *reversed(range(len(shards)))]):
        whole = torch.empty(p * len(shards[block]), dtype=shards[block].dtype)
        dist.all_gather_into_tensor(whole, shards[block].contiguous())
        if turn < len(shards):
            compute(block, whole)
            keep(whole)
        else:
            gradients[block] = torch.empty_like(shards[block])
            dist.reduce_scatter_tensor(gradients[block], compute(block, whole) / p)
    return gradients
""",
)
WITH_A_RULE = {"ring_attention": ATTENTION, "sequence_parallel_linear": LINEAR, "fsdp_step": BLOCKS}


def breach(name, place, pool):
    """What the rule on memory says of an answer of the exercise that keeps what came in this place."""
    _, setup, rule, answer = WITH_A_RULE[name]
    source = from_text(KEEPER.format(place=place) + answer, name, "answer.py")
    with one_torch_thread():
        run = CaseRunner(get(name), source, pool, secret=0, wall_s=60).run(setup)
    assert run.failure is None, run.failure
    return rule(run)


@pytest.mark.parametrize("name", WITH_A_RULE)
def test_who_keeps_nothing_breaks_no_rule(name, pool):
    assert breach(name, "pass", pool) is None


@pytest.mark.parametrize("place", [p if p in DAILY else pytest.param(p, marks=pytest.mark.nightly) for p in PLACES])
@pytest.mark.parametrize("name", WITH_A_RULE)
def test_what_a_rank_keeps_is_found_in_each_place(name, place, pool):
    assert breach(name, PLACES[place], pool)
