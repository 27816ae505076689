# %% [markdown] name="title"
# # Bits
#
# {{here}}
#
# **1,024 ranks have one number each, between 0 and 1, in bfloat16. A ring adds them. The sum should be about 512. What comes out, and with how few bits can ranks still add?**
#
# {{picture}}
#
# A chunk goes round the ring, and each rank adds its part. A dot is a rounding. In the tree, no number is rounded more than $\lg p$ times.

# %% name="first_picture"
from allranks import explore

explore.bits(p=128, order="ring")

# %% [markdown] name="first_question"
# **Ask the picture.** Drag $p$ to the right until the sum stands still: which number does it stand at, and why at this one? What does a tree change, if every
# rank rounds just the same?

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions

world = World()
world

# %% [markdown] name="order_intro"
# ## 1. The order of addition
#
# A float32 has 24 binary digits. A sum that needs more is rounded, so the order of the additions matters: $(10^8 + 1) - 10^8$ is 0, and $(10^8 - 10^8) + 1$ is 1. Which order does an
# all-reduce take? Let rank 0 fill a vector with $10^8$, the rank half way round the ring with $-10^8$, and all others with 1. Then all elements have the same sum, if they are added in the same order.

# %% name="guess_equal"
equal = predict(
    "Each rank fills a vector with one number of its own. After an all-reduce, is every element of the sum the same?",
    choices=["all are the same", "a few differ, here and there", "they differ from chunk to chunk"],
    title="Equal inputs, elements of the sum",
)
equal

# %% name="equal_live"
# %%ranks
own = {0: 1e8, world_size // 2: -1e8}.get(rank, 1.0)
same = torch.full((4096,), own)
dist.all_reduce(same)
if rank == 0:
    values, counts = same.unique_consecutive(return_counts=True)
    print("sums:", values.tolist(), "in so many elements:", counts.tolist(), "exact:", world_size - 2)

# %% name="reveal_equal" jupyter={"source_hidden": true}
# the answer: run this cell
equal.reveal(
    "they differ from chunk to chunk",
    why="In a ring the sum of chunk c begins on rank c, or beside it, so each chunk is added in another order, and a 1 is lost where it is added to 100,000,000. (Two ranks have only one order, and a tree or a switch may give one value.)",
)

# %% [markdown] name="again_intro"
# So the sum depends on *where* a number stands in its vector. What stays the same? All ranks have the same bits: each chunk is added once and then copied. And the same call on the same
# ranks, with the same size, takes the same order. But if you cut the vector at another place, you get other chunks.

# %% name="again_live"
# %%ranks
torch.manual_seed(rank)
x = torch.randn(4096)
once, again, buckets = x.clone(), x.clone(), x.clone()
dist.all_reduce(once)
dist.all_reduce(again)
dist.all_reduce(buckets[:1000])  # the same numbers, in two buckets
dist.all_reduce(buckets[1000:])
if rank == 0:
    print("the same call again, changed bits:", int((again != once).sum()))
    print(f"in two buckets, changed elements: {100 * (buckets != once).double().mean():.0f} %")

# %% [markdown] name="again_explained"
# Hence a training run that is repeated with another `bucket_cap_mb`, another number of ranks or nodes, or another version of NCCL, differs in the last bits after one step, and every later step begins from there. To compare two runs bit by bit, keep all of these fixed. Even that may not be enough: with NVLS, where a switch adds, NVIDIA confirmed in 2024 that results could
# change from call to call, though all ranks agree ([nccl#1497](https://github.com/NVIDIA/nccl/issues/1497)). On H800s one user found that the bits depend on what the process did *before*: they alternated with the number of communicators that were made
# earlier, while other hosts with the same software did not change ([nccl#2360](https://github.com/NVIDIA/nccl/issues/2360)). A ring or a tree always adds in the same order.
#
# `torch.use_deterministic_algorithms(True)` therefore sets `NCCL_ALGO=^NVLS`, unless you have set `NCCL_ALGO`; call it before the first collective. **That is not enough.** It leaves NVLSTree on, which NCCL
# [chooses on two nodes of H100](../4_real_cluster/43_inside_nccl.ipynb), and the symmetric kernels, which may use the switch too. `NCCL_NVLS_ENABLE=0` turns the switch off for all of them. It costs speed.
#
# ## 2. Eight digits
#
# bfloat16 has 8 binary digits, a third of float32's. In a ring a chunk's sum is a chain: $((x_0 + x_1) + x_2) + \dots$, one addition on each rank. In a tree it is $(x_0 + x_1) + (x_2 + x_3)$, and so on. Is it so on live ranks? Compare
# a ring of sends and receives, in bfloat16, with the chain on one process.


# %% name="ring_sum"
# %%ranks
def ring_sum(part):
    """The sum on the last rank, added on the way, in the dtype of the part."""
    total = part.clone()
    if rank > 0:
        dist.recv(total, rank - 1)
        total = total + part
    if rank < world_size - 1:
        dist.send(total, rank + 1)
    return total


# %% name="ring_live"
# %%ranks
torch.manual_seed(9)  # all parts on all ranks, to compare
parts = torch.rand(world_size, 4096).bfloat16()
came = ring_sum(parts[rank])
alone = parts[0]
for part in parts[1:]:
    alone = alone + part
if rank == world_size - 1:
    print("the same bits as the chain on one process:", torch.equal(came, alone))

# %% [markdown] name="many_intro"
# The bits are the same. So one process can add for 1,024 ranks.


# %% name="three_sums"
def chain(parts):
    total = parts[0].clone()
    for part in parts[1:]:
        total = total + part
    return total


def tree(parts):
    while len(parts) > 1:
        parts = torch.cat([parts[::2][: len(parts) // 2] + parts[1::2], parts[len(parts) // 2 * 2 :]])
    return parts[0]


def in_float32(parts):
    return parts.float().sum(0).bfloat16()


# %% name="many_ranks"
generator, off = torch.Generator().manual_seed(0), {}
for p in (4, 16, 64, 256, 1024):
    parts = torch.rand(p, 4096, generator=generator).bfloat16()
    exact = parts.double().sum(0)
    for way in (chain, tree, in_float32):
        off.setdefault(way.__name__, {})[p] = ((way(parts) - exact).abs() / exact).mean().item()
print("the chain of 1,024:", chain(parts)[:3].tolist(), "exact:", [round(v) for v in exact[:3].tolist()])

# %% name="error_figure"
figure, axes = plots.chart("ranks", "mean relative error")
for name, errors in off.items():
    axes.loglog(list(errors), list(errors.values()), marker="o", label=name)
axes.legend()
figure

# %% [markdown] name="library_intro"
# From 256 on the next bfloat16 number is 258. A part below 1 is less than half of the way to it, so it is rounded off, about 512 times, without an error message.
#
# And the library on this machine? One rank brings 256, all others 1:

# %% name="library_live"
# %%ranks
x = torch.full((4096,), 256.0 if rank == 0 else 1.0).bfloat16()
dist.all_reduce(x)
if rank == 0:
    print("sums in bfloat16:", sorted(set(x.tolist())), "exact:", 256 + world_size - 1)

# %% [markdown] name="who_adds_how"
# With Gloo it is 256 where the ones came one by one to the 256, and with four ranks 260 where they were added first.
#
# Gradients have both signs, so their sums grow more slowly and stall later; but the chain's error grows with $\sqrt p$ all the same. Who adds how:
#
# | | adds in |
# |---|---|
# | NCCL's ring and tree | the data type; a sum is rounded at every hop |
# | NVLS, and symmetric memory's multimem | float32, inside the switch (for bfloat16 and float16; NVLS from NCCL 2.27.3 on, before it in the data type) |
# | NCCL's symmetric kernels (2.27) | float32 |
# | Gloo | the data type |
#
# (NCCL 2.30.7, `reduce_kernel.h`, `symmetric/primitives.cuh`.) The remedies: sum in float32 (`MixedPrecision(reduce_dtype=torch.float32)` in FSDP, `reduce_dtype` in FSDP2's policy,
# `accumulate_allreduce_grads_in_fp32` in Megatron) for twice the bytes; or inside a node in the switch, and between nodes in a tree.
#
# Or divide *before* the sum, so that it never gets large?

# %% name="guess_divide"
divide = predict(
    "1,024 ranks divide their numbers by 1,024 before a ring adds them in bfloat16, so the sum stays below 1. How much of the mean arrives?",
    choices=["all of it", "half, as without dividing", "less than half"],
    title="If one divides first, there arrives",
)
divide

# %% name="divide_first"
parts = torch.rand(1024, 4096, generator=torch.Generator().manual_seed(0)).bfloat16()
exact = parts.double().mean(0)
for name, mean in {"divided at the end": chain(parts) / 1024, "divided first": chain(parts / 1024)}.items():
    print(f"{name:20} mean {mean.double().mean():.3f}, exact {exact.mean():.3f}")

# %% name="reveal_divide" jupyter={"source_hidden": true}
# the answer: run this cell
divide.reveal(
    "half, as without dividing",
    why="bfloat16 has the same 8 digits at every size: the sum stands still at 1/4 instead of 256. In float16, which ends at 65,504, dividing first helps against overflow.",
)

# %% [markdown] name="divide_explained"
# ## 3. Half the bytes: a hook
#
# DDP lets you replace its all-reduce by a *communication hook*. torch 2.13 has `allreduce`, `fp16_compress`, `bf16_compress`, wrappers of both, `powerSGD` and `batched_powerSGD`, `quantization_pertensor`
# and `quantization_perchannel`, and `post_localSGD` (`torch.distributed.algorithms.ddp_comm_hooks`). The bytes of one step:


# %% name="one_step"
def with_hook(name):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(256, 256, bias=False))
    if name:
        ddp.register_comm_hook(None, getattr(default_hooks, name))
    torch.manual_seed(dist.get_rank())
    ddp(torch.randn(8, 256)).square().mean().backward()
    return ddp.module.weight.grad.double()


# %% name="hooks"
full = world.run(with_hook, None)[0]
for name in ("allreduce_hook", "fp16_compress_hook"):
    gradients, trace = world.trace(with_hook, name)
    nbytes = max(event.nbytes for event in trace if event.rank == 0 and event.op == "all_reduce")
    off_by = ((gradients[0] - full).norm() / full.norm()).item()
    print(f"{name:20} {nbytes:7,} bytes, gradient off by {off_by:.1e}")

# %% [markdown] name="hooks_explained"
# Half the bytes of float32, and a sum that is right to about three digits, which training usually forgives. (`bf16_compress_hook` keeps two digits; a torch that was built without CUDA refuses it.) But the sum is now *added* in
# 16 bits too. With bfloat16 on 1,024 ranks in a ring that is the chain above. float16 has 11 digits and loses less: about 0.5 % with normal numbers.
#
# ## 4. One byte
#
# int8 has 127 steps on each side of zero. A **scale** says how large a step is: the largest absolute value, divided by 127. One number far out makes the step large for all others; so each *block* of
# numbers has a scale of its own.

# %% name="guess_outlier"
outlier = predict(
    "4,096 normal numbers, and one of them is 1,000. With one scale for all: how many of the others become 0?",
    low=0,
    high=100,
    unit="%",
    title="Zeros beside one large number",
)
outlier


# %% name="quantised"
def quantised(values, block):
    """int8 numbers and one float32 scale a block."""
    rows = values.view(-1, block)
    scales = rows.abs().amax(1, keepdim=True) / 127
    return (rows / scales).round().to(torch.int8), scales


# %% name="blocks"
values = torch.randn(4096, generator=torch.Generator().manual_seed(0))
values[7] = 1000
for block in (4096, 256, 64):
    numbers, scales = quantised(values, block)
    zeros, nbytes = (numbers == 0).double().mean(), numbers.numel() + 4 * scales.numel()
    print(f"blocks of {block:4}: {nbytes} bytes, {100 * zeros:5.1f} % are 0")

# %% name="reveal_outlier" jupyter={"source_hidden": true}
# the answer: run this cell
outlier.reveal(
    100 * (quantised(values, 4096)[0] == 0).double().mean().item(),
    why="A step is 1000/127 = 7.9, and what is below half a step becomes 0; normal numbers are hardly ever above 3.9. With blocks of 64, only the 63 neighbours suffer.",
)

# %% [markdown] name="gather_intro"
# **A quantised all-gather** is easy: nobody adds. Each rank quantises its shard once, and everybody turns the bytes into floats. ZeRO++ gathers weights so (*qwZ*). Live, with a shard of 4,096 numbers:

# %% name="quantised_on_ranks"
# %%ranks
torch.manual_seed(rank)
shard = torch.randn(4096)


def quantised(values, block):
    rows = values.view(-1, block)
    scales = rows.abs().amax(1, keepdim=True) / 127
    return (rows / scales).round().to(torch.int8), scales


numbers, scales = quantised(shard, 64)


# %% name="gather_live"
# %%ranks
all_numbers = torch.empty(world_size * len(numbers), 64, dtype=torch.int8)
all_scales = torch.empty(world_size * len(scales), 1)
dist.all_gather_single(all_numbers, numbers)
dist.all_gather_single(all_scales, scales)
whole = (all_numbers * all_scales).flatten()

# %% name="gather_off"
# %%ranks
wide = torch.empty(world_size * 4096)
dist.all_gather_single(wide, shard)
brought = all_numbers.nbytes + all_scales.nbytes
off = (whole - wide).abs().max() / all_scales.max()
if rank == 0:
    print(f"{wide.nbytes / brought:.2f} times fewer bytes than float32, off by {off:.2f} steps at most")

# %% [markdown] name="sum_intro"
# **A quantised sum** is harder: two ranks' bytes have different scales, and can't be added as they are. A ring would turn a chunk into float32, add, and quantise again, *at each hop*. The alternative needs
# two roundings for any number of ranks: every rank sends the owner of each chunk its quantised part (an all-to-all); the owner adds in float32, quantises the *sum*, and all gather the sums. [Send less](60_send_less.ipynb) counted
# the bytes; now count the errors.

# %% name="guess_hops"
hops = predict(
    "64 ranks, normal numbers, int8 in blocks of 64. The ring quantises at each hop, the other way quantises twice. How many times larger is the ring's error?",
    low=1,
    high=64,
    unit="times",
    log=True,
    title="Quantised at each hop, the error is",
)
hops


# %% name="two_ways"
def rounded(values, most=127):
    rows = values.view(-1, 64)
    scales = rows.abs().amax(1, keepdim=True) / most
    return ((rows / scales).round() * scales).view(-1)


def at_each_hop(parts, most):
    total = parts[0]
    for part in parts[1:]:
        total = rounded(total, most) + part
    return rounded(total, most)


def twice(parts, most):
    return rounded(sum(rounded(part, most) for part in parts), most)


# %% name="count_errors"
generator, error = torch.Generator().manual_seed(0), {}
for p in (4, 16, 64, 256):
    parts = torch.randn(p, 4096, generator=generator)
    exact = parts.sum(0)
    for bits, most in ((8, 127), (4, 7)):
        for name, way in (("at each hop", at_each_hop), ("twice", twice)):
            error.setdefault(f"int{bits}, {name}", {})[p] = ((way(parts, most) - exact).norm() / exact.norm()).item()
figure, axes = plots.chart("ranks", "relative error of the sum")
for name, errors in error.items():
    axes.loglog(list(errors), list(errors.values()), marker="o", label=name)
axes.legend()
figure

# %% name="reveal_hops" jupyter={"source_hidden": true}
# the answer: run this cell
hops.reveal(
    error["int8, at each hop"][64] / error["int8, twice"][64],
    why="The ring rounds at each of 64 ranks, with a step as large as the sum so far. Errors with both signs partly cancel, so they grow only like the root of p. The other way rounds each part and the sum once. The ratio is about half the root of p.",
)

# %% [markdown] name="quantised_mine_task"
# ### Your turn
#
# The two roundings as one function. With a step of 1 small numbers become 0, and numbers above 127 do not fit into int8. **Give each block its scale**; what if a block has zeros only?


# %% name="quantised_mine"
def quantised_all_reduce(tensor, block):
    p, n = dist.get_world_size(), tensor.numel()
    size = -(-n // (p * block)) * block  # of a rank's chunk: whole blocks
    whole = torch.nn.functional.pad(tensor.flatten().float(), (0, p * size - n)).view(-1, block)

    def packed(rows):
        """A row of bytes for each block: its numbers as int8, then its scale as four bytes."""
        scales = torch.ones(len(rows))  # your turn: so that the largest number of a block becomes 127
        numbers = (rows / scales[:, None]).round().to(torch.int8)
        return torch.cat([numbers, scales.view(torch.int8).view(-1, 4)], 1)

    def unpacked(rows):
        return rows[:, :block].float() * rows[:, block:].contiguous().view(torch.float32)

    sent = packed(whole)
    parts = torch.empty_like(sent)
    dist.all_to_all_single(parts, sent)
    mine = packed(unpacked(parts).view(p, -1, block).sum(0))
    sums = mine.new_empty(p * len(mine), mine.shape[1])
    dist.all_gather_single(sums, mine)
    return unpacked(sums).flatten()[:n].view(tensor.shape).to(tensor.dtype)


check(quantised_all_reduce)

# %% [markdown] name="quantised_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def quantised_all_reduce(tensor, block):
#     p, n = dist.get_world_size(), tensor.numel()
#     size = -(-n // (p * block)) * block  # of a rank's chunk: whole blocks
#     whole = torch.nn.functional.pad(tensor.flatten().float(), (0, p * size - n)).view(-1, block)
#
#     def packed(rows):
#         """A row of bytes for each block: its numbers as int8, then its scale as four bytes."""
#         scales = rows.abs().amax(1) / 127
#         scales[scales == 0] = 1  # a block of zeros
#         numbers = (rows / scales[:, None]).round().to(torch.int8)
#         return torch.cat([numbers, scales.view(torch.int8).view(-1, 4)], 1)
#
#     def unpacked(rows):
#         return rows[:, :block].float() * rows[:, block:].contiguous().view(torch.float32)
#
#     sent = packed(whole)
#     parts = torch.empty_like(sent)
#     dist.all_to_all_single(parts, sent)
#     mine = packed(unpacked(parts).view(p, -1, block).sum(0))
#     sums = mine.new_empty(p * len(mine), mine.shape[1])
#     dist.all_gather_single(sums, mine)
#     return unpacked(sums).flatten()[:n].view(tensor.shape).to(tensor.dtype)
# ```
# </details>

# %% [markdown] name="zero_pp"
# **ZeRO++** has three parts, each with its own trick. $M$ is the model in 16 bits, and what crosses the nodes in one step is:
#
# | | all-gather, forward | all-gather, backward | reduce-scatter | together |
# |---|---|---|---|---|
# | ZeRO-3 | $M$ | $M$ | $M$ | $3M$ |
# | qwZ: weights as int8 in blocks | $0.5M$ | $0.5M$ | $M$ | $2M$ |
# | hpZ: a second copy of the shards inside each node | $M$ | 0 | $M$ | $2M$ |
# | qgZ: gradients as int4, two all-to-alls | $M$ | $M$ | $0.25M$ | $2.25M$ |
# | all three | $0.5M$ | 0 | $0.25M$ | $0.75M$ |
#
# (The paper has the first row and the last. In DeepSpeed's code qwZ quantises both gathers, so alone it saves twice.) qgZ goes in two levels: an all-to-all inside the node, a sum, another quantisation, then an all-to-all between nodes, with $1/g$ of the bytes on $g$ GPUs a node. The scales come on top:

# %% name="scale_bytes"
for bits, block in ((8, 8000), (8, 64), (4, 256), (4, 64)):
    print(f"int{bits}, float32 scale for each {block:4}: {(bits / 8 + 4 / block) / 2:.3f} of 16 bits")

# %% [markdown] name="fp8"
# ## 5. What fp8 asks for
#
# An fp8 number (`float8_e4m3fn`) has 4 binary digits, ends at 448, and below 1/512 there is only 0. Three things follow.
#
# **It can't be added in place.** Where does a chain of numbers between 0 and 1 stall? Round after each addition:

# %% name="guess_fp8"
fp8 = predict(
    "In bfloat16 a ring loses half of the sum on 1,024 ranks. From how many ranks on does it lose half in e4m3, with 4 binary digits instead of 8?",
    choices=["512", "256", "64", "16"],
    title="Half of an e4m3 sum is lost at",
)
fp8


# %% name="e4m3"
def e4m3(values):
    return values.to(torch.float8_e4m3fn).half()


# %% name="fp8_chain"
generator = torch.Generator().manual_seed(0)
for p in (8, 16, 32, 64):
    parts = e4m3(torch.rand(p, 4096, generator=generator))
    total = parts[0]
    for part in parts[1:]:
        total = e4m3(total + part)
    print(
        f"{p:3} ranks: {100 * total.double().sum() / parts.double().sum():5.1f} % arrive, largest sum {total.max():.0f}"
    )

# %% name="reveal_fp8" jupyter={"source_hidden": true}
# the answer: run this cell
fp8.reveal(
    "64",
    why="4 digits fewer are a factor of 16: the chain stalls at 16 instead of 256, and the sum of 64 numbers is about 32.",
)

# %% [markdown] name="fp8_scale"
# **It needs a scale, and all ranks need the same one**, if the gathered tensor is to have a single scale. The largest absolute value over all ranks is an all-reduce with `MAX`, *before* the data can go: one more small all-reduce, so at least $\lceil\lg p\rceil$ latencies. Transformer Engine can take the maximum from earlier steps (*delayed scaling*), so that it does not wait.

# %% name="fp8_live"
# %%ranks
torch.manual_seed(rank)
mine = torch.randn(4096) * (rank + 1)
largest = mine.abs().max()
dist.all_reduce(largest, op=dist.ReduceOp.MAX)
scale = 448 / largest
eight = (mine * scale).to(torch.float8_e4m3fn)

# %% name="fp8_gather"
# %%ranks
whole = torch.empty(world_size * 4096, dtype=torch.uint8)
dist.all_gather_single(whole, eight.view(torch.uint8))  # the bytes as they are
back = whole.view(torch.float8_e4m3fn).float()[rank * 4096 : (rank + 1) * 4096] / scale
print(f"largest {largest:.2f}, mean error {100 * ((back - mine).abs() / mine.abs()).mean():.1f} %")

# %% [markdown] name="fp8_rest"
# **It is for gathering, not for adding.** FSDP can gather fp8 weights (torchao, `enable_fsdp_float8_all_gather`: its shards are cast before the all-gather, and one all-reduce finds all scales). DeepSeek-V3 dispatches
# tokens to experts in fp8 with a scale for each 128 numbers, and *combines* them in bfloat16, since there one adds. NCCL 2.30.7 can all-reduce fp8, but its tuner avoids the ring on more than 8 ranks (`enqueue.cc`), and Gloo refuses the
# type; as bytes it takes it.
#
# ## 6. Check yourself
#
# <details><summary>1. A colleague sees another loss in the fourth digit after changing bucket_cap_mb. Is it a bug?</summary>
#
# Not by itself. Other buckets mean other chunks, so other orders of addition, so other last bits, which training amplifies.
# </details>
#
# <details><summary>2. Why may the rank that adds a chunk not keep its exact sum?</summary>
#
# All other ranks have the rounded one. Replicas that differ in the last bits drift apart, and nobody notices.
# </details>
#
# <details><summary>3. Why can't all ranks simply use one common scale and let the ring add int8?</summary>
#
# The sum of p numbers needs $\lg p$ more bits than one: either it overflows, or each rank has fewer steps: 127/p. On 64 ranks that is one step on each side.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An all-reduce rounds at each hop, in an order that depends on chunk, ranks, size and algorithm: all ranks agree, but two runs may not. In 16 bits a long chain loses what a tree or float32 keeps. Bytes with scales
# must be added by one rank, in float32, and are rounded twice; fp8 is gathered and not added. **Send numbers in few bits, and add them in many.**
#
# **Now you:** [Lab 21](../../labs/lab21_bits/bits.ipynb): an all-reduce in 8 bits, within an error bound and a byte bound.
#
# **Next question:** what if the parts are not equally long? [Uneven](62_uneven.ipynb). The core goes on with [Sharded training](../3_one_model/22_sharded_training.ipynb).
#
# **Sources.** G. Wang et al., *ZeRO++*, [arXiv:2306.10209](https://arxiv.org/abs/2306.10209), and DeepSpeed, `coalesced_collectives.py` ·
# [PyTorch, pull request 156381](https://github.com/pytorch/pytorch/pull/156381) (`use_deterministic_algorithms` and NVLS) ·
# [NVIDIA, nccl issue 1497](https://github.com/NVIDIA/nccl/issues/1497) (NVLS), [855](https://github.com/NVIDIA/nccl/issues/855) (ranks agree) and [1461](https://github.com/NVIDIA/nccl/issues/1461) (sizes and algorithms) ·
# P. Micikevicius et al., *FP8 formats for deep learning*, [arXiv:2209.05433](https://arxiv.org/abs/2209.05433) ·
# DeepSeek-AI, *DeepSeek-V3*, [arXiv:2412.19437](https://arxiv.org/abs/2412.19437) ·
# [PyTorch, DDP communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("61")
