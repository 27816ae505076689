# %% [markdown] name="title"
# # FSDP by hand
#
# {{here}}
#
# **Eight GPUs keep an eighth of every weight each, but a layer can only compute with whole weights. When do they come, when do they go, and how much
# memory do they take at the worst moment?**
#
# {{picture}}
#
# Four blocks of a model on one GPU, in one step from left to right. A pale box is a shard, always there. A full box is a whole block, for a moment: for its forward pass, F, or its backward pass, B.

# %% name="first_picture"
from allranks import explore

explore.fsdp(gather=1, room=1)

# %% [markdown] name="first_question"
# **Ask the picture.** Drag the room from one block to two: what does a second block buy? And what does a third? Then make the gather twice as long as a
# forward pass: can any room hide it?

# %% name="start_world"
import functools
import time

import torch
import torch.distributed as dist

from allranks import World, bench, check, plan, plots, predict, predictions, training_step, workload

world = World()
world

# %% [markdown] name="guess_intro"
# [Sharded training](22_sharded_training.ipynb) used torch's `fully_shard`, which cuts each parameter on its first dimension. Here you write the first FSDP, which lays a block's
# parameters in one flat vector and cuts that: fifty lines, and the order of calls is the same. First a guess for a real model: Llama 3 with 8 billion weights has 32
# blocks, an embedding and a head. In bfloat16 the weights take 16 GB.

# %% name="question"
peak_guess = predict(
    "At the worst moment these are whole: the embedding, the head, the block that computes, and the block after it. How many GB is that?",
    low=0.1,
    high=20,
    unit="GB",
    log=True,
    title="GB of whole weights, Llama 3 8B",
)
peak_guess

# %% [markdown] name="unit"
# ## 1. A block that comes and goes
#
# The weights of a block lie one after the other in one flat vector, padded so that all ranks have equal parts. Each rank keeps its part, `shard`. The
# weights are *views* into `whole`. To free it we take the memory away below them: `resize_(0)` on the storage. To gather it we give the memory
# back and fill it with one all-gather.


# %% name="flat"
class Flat:
    def __init__(self, block, group=None):
        self.group, self.p = group, dist.get_world_size(group)
        self.weights = list(block.parameters())
        flat = torch.cat([w.detach().flatten() for w in self.weights])
        self.used = len(flat)
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % self.p))
        self.shard = flat.chunk(self.p)[dist.get_rank(group)].clone()
        self.whole, self.nbytes = flat, flat.untyped_storage().nbytes()
        views = self.whole[: self.used].split([w.numel() for w in self.weights])
        for weight, view in zip(self.weights, views, strict=True):
            weight.data = view.view_as(weight)
        self.free()

    def free(self):
        self.whole.untyped_storage().resize_(0)


# %% name="flat_block"
class FlatBlock(Flat):
    def gather(self):
        self.whole.untyped_storage().resize_(self.nbytes)
        return dist.all_gather_single(self.whole, self.shard, group=self.group, async_op=True)

    def scatter(self):
        """Starts the sum of all ranks' gradients; each rank gets its part."""
        gradients = torch.cat([w.grad.flatten() for w in self.weights])
        gradients = torch.nn.functional.pad(gradients, (0, -len(gradients) % self.p))
        for weight in self.weights:
            weight.grad = None
        self.gradient = torch.empty_like(self.shard)
        return dist.reduce_scatter_single(
            self.gradient,
            gradients,
            group=self.group,
            async_op=True,
        ), gradients


# %% [markdown] name="hooks_intro"
# torch calls *hooks* before and after a module's forward and backward. Four of them make the whole of FSDP: gather before, free after, in both passes; and
# after backward the gradients are reduce-scattered. `log` notes what happens; `here` has the blocks that are whole.


# %% name="hooks"
class Hooks:
    def __init__(self, blocks, reshard=True, group=None):
        self.flats, self.log, self.under_way = [FlatBlock(block, group) for block in blocks], [], []
        self.arriving, self.here, self.reshard = {}, set(), reshard
        for i, block in enumerate(blocks):
            block.register_forward_pre_hook(lambda *_, i=i: self.before(i, "F"))
            block.register_forward_hook(lambda *_, i=i: self.after(i, "F"))
            block.register_full_backward_pre_hook(lambda *_, i=i: self.before(i, "B"))
            block.register_full_backward_hook(lambda *_, i=i: self.after(i, "B"))

    def note(self, what, i):
        self.log.append((f"{what}{i}", time.monotonic(), len(self.here)))

    def launch(self, i):
        if 0 <= i < len(self.flats) and i not in self.here:
            self.here.add(i)
            self.arriving[i] = self.flats[i].gather()
            self.note("gather ", i)


# %% name="sharded"
class Sharded(Hooks):
    def before(self, i, what):
        self.launch(i)
        if i in self.arriving:
            self.arriving.pop(i).wait()
            self.flats[i].whole[0].item()  # on a GPU, waits until it is here
        self.note(what, i)

    def after(self, i, what):
        if what == "B":
            self.under_way.append(self.flats[i].scatter())
            self.note("scatter ", i)
        if self.reshard or what == "B":
            self.flats[i].free()
            self.here.discard(i)
            self.note("free ", i)


# %% name="step"
def a_model(blocks=4, width=16):
    torch.manual_seed(0)
    pair = (width, 4 * width), (4 * width, width)
    parts = [[torch.nn.Linear(*pair[0]), torch.nn.GELU(), torch.nn.Linear(*pair[1])] for _ in range(blocks)]
    return torch.nn.Sequential(*(torch.nn.Sequential(*part) for part in parts))


def a_batch(rank, width=16):
    torch.manual_seed(rank)
    return torch.randn(8, width)


def a_step(kind=Sharded, **options):
    model = a_model()
    sharded = kind(list(model), **options)
    model(a_batch(dist.get_rank()).requires_grad_()).square().sum().backward()
    for work, _ in sharded.under_way:
        work.wait()
    return sharded.log, [flat.gradient / dist.get_world_size() for flat in sharded.flats]


results = world.run(a_step)
print(", ".join(what for what, *_ in results[0][0]))

# %% [markdown] name="step_explained"
# Read the line: gather, compute, free, four times; then the same from the last block to the first, with a scatter. Is it the right gradient? One
# process computes with all ranks' data and whole weights:


# %% name="alone"
def alone(ranks):
    model = a_model()
    for rank in range(ranks):
        model(a_batch(rank)).square().sum().backward()
    return [torch.cat([w.grad.flatten() for w in block.parameters()]) / ranks for block in model]


# %% name="right"
right = world.run(alone, world.ranks)[0]
for block, expected in enumerate(right):
    found = torch.cat([gradients[block] for _, gradients in results])[: len(expected)]
    print(f"block {block}: off by {((found - expected).norm() / expected.norm()).item():.0e}")

# %% [markdown] name="guess_once_intro"
# ## 2. What is gathered too often?
#
# The log has eight gathers for four blocks. Are all of them needed?

# %% name="guess_once"
once = predict(
    "Which gather can be left out without more memory at the worst moment?",
    choices=["the first, forward", "the last block's second", "the first block's second", "none"],
    title="The gather that is for nothing",
)
once


# %% name="keep_last_class"
class KeepLast(Sharded):
    def after(self, i, what):
        if not (what == "F" and i == len(self.flats) - 1):  # it is needed again at once
            super().after(i, what)


# %% name="keep_last"
for kind in (Sharded, KeepLast):
    log, _ = world.run(a_step, kind)[0]
    print(
        f"{kind.__name__:9} {sum('gather' in what for what, *_ in log)} gathers, at most {max(n for *_, n in log)} whole"
    )

# %% name="reveal_once" jupyter={"source_hidden": true}
# the answer: run this cell
once.reveal(
    "the last block's second",
    why="Between the last block's forward and its backward nothing else happens, so it can stay whole.",
)

# %% [markdown] name="keep_explained"
# torch's `fully_shard` frees it too: $2L$ gathers, and one for the root. Give the last block `reshard_after_forward=False`, and it is one less. With `False`
# everywhere there are $L$, and one for the root, but all blocks are whole from forward to backward.
#
# ## 3. The next one comes while this one computes
#
# A gather that begins when its block must compute is waited for in full. So start the next block's gather first: **prefetch**. The price is a second whole
# block. Here each block is larger, 8 MiB or, between fast GPUs, more. Instead of computing, a block *sleeps* in each pass as long as its gather takes, so that your cores are free for the messages.
# To time the three ways takes about ten seconds.


# %% name="prefetch"
class Prefetch(KeepLast):
    def before(self, i, what):
        self.launch(i)  # this one first, if nobody has asked for it yet
        self.launch(i + 1 if what == "F" else i - 1)
        super().before(i, what)


# %% name="slow"
class Slow(torch.nn.Module):
    def __init__(self, n, pause):
        super().__init__()
        self.weight, self.pause = torch.nn.Parameter(torch.ones(n)), pause

    def forward(self, x):
        time.sleep(self.pause)
        return Asleep.apply(x * self.weight[:1], self.pause)


class Asleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pause):
        ctx.pause = pause
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.pause)
        return gradient, None


# %% name="one_gather"
def one_gather(first):
    """The numbers of a block, and the seconds of its gather."""
    p = dist.get_world_size()

    def make(n):
        return functools.partial(dist.all_gather_single, torch.zeros(n // p * p), torch.zeros(n // p))

    return bench.lasting(make, first, most=2**26)


block_numel, gather_s = world.run(one_gather, 2**21)[0]
print(f"a block of {block_numel >> 18} MiB, its gather and each pass take {1e3 * gather_s:.1f} ms")


# %% name="timed_step"
def timed(kind, n, pause, times=3, **options):
    model = torch.nn.Sequential(*(Slow(n, pause) for _ in range(4)))
    shards = kind(list(model), **options)

    def step():
        shards.log.clear()  # only the last step's is shown
        shards.under_way.clear()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        for work, _ in shards.under_way:
            work.wait()

    return bench.seconds_of(step, iterations=times)[0], shards.log


# %% name="timed"
logs = {}
for name, kind, options in (
    ("no prefetch", KeepLast, {}),
    ("prefetch", Prefetch, {}),
    ("never freed", Prefetch, {"reshard": False}),
):
    ranks = world.run(timed, kind, block_numel, gather_s, **options)
    logs[name] = ranks[0][1]
    print(
        f"{name:12} {1e3 * max(took for took, _ in ranks):4.0f} ms, at most {max(n for *_, n in logs[name])} blocks whole"
    )

# %% name="curve"
figure, axes = plots.chart("ms since the step began", "whole blocks on rank 0")
for name, log in logs.items():
    axes.step([1e3 * (at - log[0][1]) for _, at, _ in log], [n for *_, n in log], where="post", label=name)
axes.set_yticks(range(5))
axes.legend()
figure

# %% [markdown] name="prefetch_explained"
# What is above eight passes is waiting, and the scatters. With a gather of $g$ and a pass of $c$ seconds, no prefetch costs $g + c$ for
# each pass, and prefetch the larger of the two. Never freeing costs no gather in backward, and the memory of the whole model.
#
# So the first picture's answers are these. If a gather takes as long as a forward pass, the GPU waits 49 % of the step with room for one block and 10 % with room for two; a third
# block changes nothing. If it takes twice as long, no room brings that below 47 %: the network is never idle, so more room can't help.
#
# On a GPU prefetch happens on another *stream*, and there is one more danger: memory that one stream frees may still be read by another one. FSDP2 waits with
# events. In backward it asks for one block ahead. Forward it asks for none: the CPU is ahead of the GPU, so the next gather is queued in time.
# (With two blocks whole anyway, the last *two* need no second gather. Lab 15 lets you try.)

# %% [markdown] name="step_mine_task"
# ### Your turn
#
# This step is right, but a GPU waits for each gather. **Change the loop** so that a gather runs while the block before it computes, with at most two whole blocks at a time. `check` runs it on a clock:
# it gives passes and gathers a length, and there may be no pause between two passes. Gather each block at most once forward and once backward.


# %% name="step_mine"
def fsdp_step(shards, compute):
    p, last = dist.get_world_size(), len(shards) - 1
    turns = [*range(last + 1), *range(last, -1, -1)]  # forward, then backward

    def gather(block):
        whole = shards[block].new_empty(p * shards[block].numel())
        return whole, dist.all_gather_single(whole, shards[block], async_op=True)

    gradients, scatters = [torch.empty_like(shard) for shard in shards], []
    for block in turns:
        whole, coming = gather(block)  # your turn: this gather must begin while the block before it computes
        coming.wait()
        gradient = compute(block, whole)
        if gradient is not None:  # on the way back
            gradient /= p
            scatters.append((dist.reduce_scatter_single(gradients[block], gradient, async_op=True), gradient))
    for work, _ in scatters:
        work.wait()
    return gradients


check(fsdp_step)

# %% [markdown] name="step_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def fsdp_step(shards, compute):
#     p, last = dist.get_world_size(), len(shards) - 1
#     turns = [*range(last + 1), *range(last, -1, -1)]  # forward, then backward
#
#     def gather(block):
#         whole = shards[block].new_empty(p * shards[block].numel())
#         return whole, dist.all_gather_single(whole, shards[block], async_op=True)
#
#     gradients, scatters = [torch.empty_like(shard) for shard in shards], []
#     following = gather(turns[0])
#     for turn, block in enumerate(turns):
#         whole, coming = following
#         coming.wait()
#         if turn < 2 * last + 1:
#             following = gather(turns[turn + 1])
#         gradient = compute(block, whole)
#         if gradient is not None:  # on the way back
#             gradient /= p
#             scatters.append((dist.reduce_scatter_single(gradients[block], gradient, async_op=True), gradient))
#     for work, _ in scatters:
#         work.wait()
#     return gradients
# ```
# </details>

# %% [markdown] name="llama_intro"
# ## 4. A real model
#
# The answer to the first question: for each block its size, the root that stays, and the worst moment.

# %% name="llama"
hidden, layers, wide, kv, words = 4096, 32, 14_336, 1024, 128_256
block = 2 * (2 * hidden**2 + 2 * hidden * kv + 3 * hidden * wide + 2 * hidden)  # bytes in bfloat16
root = 2 * (2 * words * hidden + hidden)
print(
    f"a block {block / 1e9:.2f} GB, embedding and head {root / 1e9:.2f} GB, all {(layers * block + root) / 1e9:.1f} GB"
)

# %% name="llama_peaks"
for name, whole in (("never freed", root + layers * block), ("prefetch", root + 2 * block)):
    print(f"{name:12} {whole / 1e9:5.2f} GB of whole weights at most")

# %% name="reveal_peak" jupyter={"source_hidden": true}
# the answer: run this cell
peak_guess.reveal(
    (root + 2 * block) / 1e9,
    why="The embedding and the head, 128,256 words wide, are as large as five blocks: wrap them as units of their own.",
    marks={"all whole": (root + layers * block) / 1e9},
)

# %% [markdown] name="bytes"
# torch's `fully_shard` needs room for two things more: the flat buffer into which a unit is gathered, until its weights are copied out
# (`foreach_all_gather_copy_out`), and the whole gradient of the unit whose backward pass ran last.
#
# And the bytes? Each weight is gathered twice and its gradient scattered once. In which number format is the gradient summed? In bfloat16, if you don't say
# otherwise: `MixedPrecisionPolicy(param_dtype=torch.bfloat16)` alone reduces in bfloat16 too. Llama 3 used float32 for the sums.

# %% name="bytes_table"
eight, billions = workload.Cluster(8, 450e9, 5e-6), (layers * block + root) / 2
for name, price in (
    ("DDP, sums in bfloat16", workload.ddp(billions, eight)),
    ("DDP, sums in float32", workload.ddp(billions, eight, "float32")),
    ("FSDP, sums in bfloat16", workload.zero(3, billions, eight)),
    ("FSDP, sums in float32", workload.zero(3, billions, eight, gradient_dtype="float32")),
    ("FSDP, never freed", workload.zero(3, billions, eight, gradient_dtype="float32", reshard_after_forward=False)),
):
    print(f"{name:23} {price.bytes_sent / 1e9:5.1f} GB a GPU and step")

# %% [markdown] name="hybrid"
# ## 5. Two dimensions: HSDP
#
# With 64 GPUs every gather would be a ring of 63 steps through all 8 nodes. **Hybrid sharding** (HSDP) shards inside a node and keeps a copy in each node. A
# *mesh* has two dimensions: in a row are the ranks of a node, in a column the ranks with the same shard. Weights are gathered in the row. Gradients are reduce-scattered in the
# row, and then all-reduced in the column.
#
# A step may have several **micro-batches**, whose gradients are added before the optimizer runs. Both ways gather and reduce-scatter for each of them. But HSDP needs the
# all-reduce between nodes only once, behind the last one.

# %% name="guess_hsdp"
hybrid = predict(
    "Llama 3 8B on 8 nodes with 8 GPUs: from how many micro-batches a step on does HSDP communicate for less time than FSDP over all 64 GPUs?",
    low=1,
    high=100,
    unit="micro-batches",
    log=True,
    title="Micro-batches from which HSDP is faster",
)
hybrid


# %% name="hybrid_gradient"
def hybrid_gradient(per_node, n=3360):  # n divides by up to 8 ranks
    rank, p = dist.get_rank(), dist.get_world_size()
    # every rank makes every group, in one order
    nodes = [dist.new_group(list(range(first, first + per_node))) for first in range(0, p, per_node)]
    copies = [dist.new_group(list(range(local, p, per_node))) for local in range(per_node)]
    gradient = torch.full((n,), float(rank))
    shard = torch.empty(n // per_node)
    dist.reduce_scatter_single(shard, gradient, group=nodes[rank // per_node])  # fast links, all bytes
    dist.all_reduce(shard, group=copies[rank % per_node])  # slow links, a part of the bytes
    return (shard / p)[0].item()


# %% name="hsdp_live"
per_node = world.ranks // 2 if world.ranks % 2 == 0 else world.ranks
means, trace = world.trace(hybrid_gradient, per_node)
print(f"nodes of {per_node}: mean {means[0]:g}, should be {(world.ranks - 1) / 2:g}")
print([(e.op, e.nbytes) for e in trace if e.rank == 0 and e.op in ("reduce_scatter_tensor", "all_reduce")])

# %% [markdown] name="hsdp_units"
# Now the price, with one call for each of the 33 units: 32 blocks, and the embedding with the head. A GPU sends 450 GB/s inside a node. Between nodes each has a card
# of 50 GB/s, and a ring over all 64 leaves a node over its eight cards together.


# %% name="hsdp_prices"
def over_units(price):
    """GB that a GPU sends, and seconds, if each unit is a call of its own."""
    units = [price(numbers / 2) for numbers in (*[block] * layers, root)]
    return sum(unit.bytes_sent for unit in units) / 1e9, sum(unit.seconds for unit in units)


sums = {"bucket_nbytes": None, "gradient_dtype": "float32"}
node, all_64 = workload.Cluster(8, 450e9, 5e-6), workload.Cluster(64, 8 * 50e9, 5e-6)
inside = over_units(lambda n: workload.zero(3, n, node, **sums))
outside = over_units(lambda n: workload.ddp(n / 8, workload.Cluster(8, 50e9, 5e-6), "float32", None))
flat = over_units(lambda n: workload.zero(3, n, all_64, **sums))

# %% name="hsdp_price"
for name, (sent, seconds) in {
    "FSDP over 64": flat,
    "HSDP, inside a node": inside,
    "HSDP, between nodes": outside,
}.items():
    print(f"{name:20} {sent:5.1f} GB, {seconds:.3f} s")
print(f"of FSDP's bytes {flat[0] / 8:.1f} GB for each GPU leave a node: one neighbour of eight is in another node")
print()
for m in (1, 2, 4, 8, 32):
    print(f"{m:2} micro-batches: FSDP {m * flat[1]:5.2f} s, HSDP {m * inside[1] + outside[1]:5.2f} s")

# %% name="reveal_hsdp" jupyter={"source_hidden": true}
# the answer: run this cell
hybrid.reveal(
    next(m for m in range(1, 100) if m * inside[1] + outside[1] < m * flat[1]),
    why="For one micro-batch HSDP sends nearly as many bytes between nodes as FSDP, and pays for the calls inside the node on top. With more micro-batches FSDP sends its bytes between nodes again for each of them, and HSDP once a step.",
    within=0,
)

# %% [markdown] name="hsdp_explained"
# With one micro-batch FSDP over 64 is *faster*: it sends everything once, and its ring of 63 steps costs only 0.3 ms a call, because a call is a whole block. HSDP pays when gradients are
# accumulated. The price is memory: a GPU keeps an eighth of all state instead of a sixty-fourth. (FSDP may also skip the reduce-scatters until the last micro-batch. Then each GPU keeps whole gradients, 32 GB here.)
#
# In torch a 2-D `DeviceMesh` given to `fully_shard` means HSDP, and `set_requires_all_reduce(False)` leaves out the all-reduce until the last micro-batch. `fully_shard` alone all-reduces behind each one.
# `reshard_after_forward=8` frees to shards inside a node only, in plain FSDP.
#
# ## 6. A fair scaling study
#
# Your sharded model runs on a few ranks, and a formula prices 64 GPUs. Does it scale? "It scales to 512 GPUs" can mean two things. **Strong scaling** keeps the *global* batch: $p$ ranks share the work of one, and the ideal step is $p$ times as short.
# **Weak scaling** keeps the batch *of a rank*: the work grows with $p$, and the ideal step stays as long. With $T_p$, the seconds of a step on $p$ ranks, the efficiency is
#
# $$E_{strong} = \frac{T_1}{p\,T_p}, \qquad E_{weak} = \frac{T_1}{T_p}.$$
#
# We measure both for the sharded model above. Hooks, memory, messages and waiting are real. The computing is a sleep, a fifteenth of a gather for each sample and pass of a block: $p$ ranks that
# compute would share your cores, and $p$ GPUs do not. One thing is not fair, and can't be mended here: all ranks share one memory, so with more ranks the messages slow down more than between $p$ machines.

# %% name="guess_scaling"
strong_guess = predict(
    "Strong: all ranks share the 120 samples that one rank had alone. What is the efficiency?",
    low=0,
    high=120,
    unit="%",
    title="Strong efficiency on all ranks",
)
weak_guess = predict(
    "Weak: every rank has 120 samples. What is the efficiency?",
    low=0,
    high=120,
    unit="%",
    title="Weak efficiency on all ranks",
)
display(strong_guess, weak_guess)


# %% name="study"
def study(ranks, samples, per_sample, n, kind=Prefetch, times=5):
    group = dist.new_group(list(range(ranks)))  # every rank makes it, the first ones use it
    if dist.get_rank() >= ranks:
        return None
    model = torch.nn.Sequential(*(Slow(n, per_sample * samples) for _ in range(4)))
    shards = kind(list(model), group=group)

    def step():
        shards.under_way.clear()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        for work, _ in shards.under_way:
            work.wait()

    return bench.times_of(step, iterations=times, group=group)[0]


# %% [markdown] name="study_rules"
# The rules: the same code for every $p$, also for 1; the first step is warm-up and does not count; a step is as long as on its slowest rank; of the five that
# count we give the median, and the fastest and the slowest beside it. `bench.times_of` does this, as `bench.seconds_of` does, and keeps all times. All runs together take 20 seconds, on a busy machine a minute.


# %% name="study_run"
sizes = sorted({p for p in (1, 2, 4, 8) if p < world.ranks} | {world.ranks})
numel, gather_s = world.run(one_gather, 2**19)[0]
per_sample = gather_s / 15
strong = {p: world.run(study, p, 120 / p, per_sample, numel)[0] for p in sizes}
weak = {1: strong[1]} | {p: world.run(study, p, 120, per_sample, numel)[0] for p in sizes[1:]}
print(f"a gather takes {1e3 * gather_s:.1f} ms, a pass of 120 samples {120e3 * per_sample:.1f} ms")

# %% name="study_table"
efficiency = {
    "strong": {p: strong[1][2] / (p * took[2]) for p, took in strong.items()},
    "weak": {p: weak[1][2] / took[2] for p, took in weak.items()},
}
for name, times in (("strong", strong), ("weak", weak)):
    for p, took in times.items():
        low, _, median, _, high = (1e3 * t for t in took)
        print(f"{name:6} {p} ranks: {median:6.1f} ms ({low:.1f} to {high:.1f}), efficiency {efficiency[name][p]:4.0%}")

# %% name="reveal_scaling" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    strong_guess.reveal(
        100 * efficiency["strong"][sizes[-1]],
        why="Prefetch hides the gathers behind the computing, and that gets p times shorter, while the bytes of a rank do not.",
    ),
    weak_guess.reveal(
        100 * efficiency["weak"][sizes[-1]],
        why="The messages are the same, but the computing stays long enough to hide most of them. So weak scaling often looks good, even if the communication is slow. The end of this section has a case where it does not.",
    ),
)

# %% [markdown] name="mistakes_intro"
# Now the same times again, as people report them (the last line is a new run of about ten seconds):


# %% name="mistakes"
class Unsharded:
    def __init__(self, blocks, group):
        self.under_way = []


p, alone = sizes[-1], world.run(study, 1, 120, per_sample, numel, Unsharded)[0]
for name, share in (
    ("fair", efficiency["strong"][p]),
    ("the baseline is 2 ranks", 2 * strong[2][2] / (p * strong[p][2])),
    ("fastest step against slowest", strong[1][-1] / (p * strong[p][0])),
    ("the batch grew, 'speed-up' by samples/s", efficiency["weak"][p]),
    ("the baseline has no sharding at all", alone[2] / (p * strong[p][2])),
):
    print(f"{name:40} {share:4.0%}")

# %% [markdown] name="mistakes_explained"
# - *The baseline is 2 ranks.* Two ranks communicate already, so what that costs is left out.
# - *Fastest against slowest.* With noise, some pair of steps always looks good. Take medians.
# - *The batch grew.* This is the weak efficiency under the name of the strong one. It also does not say whether the model learns as much from a sample in a larger batch.
# - *No sharding at all.* This one is stricter than ours. It asks whether sharding was worth it; ours asks how sharding scales. Both are fair, if you say which one you took.
#
# And tune the baseline as carefully as the rest: against a slow baseline everything scales.
#
# A real model may have no $T_1$: to train 7 billion parameters with Adam takes 16 bytes for each, 112 GB before any activation, and an H100 has 80. The smallest machine that holds it is the baseline, and must be named. `plan` prices both studies (in the shell: `allranks plan`):

# %% name="study_real"
for name, batch, together in (("strong", lambda p: 512, 1), ("weak", lambda p: 8 * p, 1), ("weak", lambda p: 8 * p, 4)):
    found = {}
    for p in (8, 64, 512):
        split = plan("7B", "dgx-h100", dp=p, zero_stage=3, batch=batch(p), microbatch=min(together, batch(p) // p))
        found[p] = training_step(split).seconds
    shares = [f"{p} GPUs {t:5.2f} s {found[8] * 8 * batch(p) / (batch(8) * p * t):4.0%}" for p, t in found.items()]
    print(f"{name:6}, {together} at a time:", ", ".join(shares))

# %% [markdown] name="real_explained"
# With one sample at a time weak scaling is no better than strong: the shards are gathered again for each. With four at a time they are gathered a quarter as often. So a study must
# also say the microbatch.

# %% [markdown] name="check_yourself"
# ## 7. Check yourself
#
# <details><summary>1. Why is the first gather of a step always waited for?</summary>
#
# Nothing computes before it that could hide it. (It can't start in the step before: the optimizer changes the very shard that is gathered.)
# </details>
#
# <details><summary>2. A parameter is used by two blocks (tied embedding and head). What goes wrong if both blocks free it?</summary>
#
# The second finds no memory below its weight, or gathers it twice, and its gradient is scattered before both parts are added. Tied weights belong to
# one unit, in torch to the root.
# </details>
#
# <details><summary>3. You call <code>clip_grad_norm_</code> on shards with plain tensors. What is missing?</summary>
#
# The sum of the squares over all ranks: each has the norm of its own shards only.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# FSDP is four hooks: gather, compute, free, and scatter in backward. The last block needs no second gather; prefetch hides gathers for one more whole block.
# The largest unit decides the memory, often the embedding. HSDP keeps gathers inside a node, and pays off when a step has several micro-batches. A scaling study says what it holds constant, its baseline and its spread. **Gather
# a block just before it computes, and free it just after.**
#
# **Now you:** [Lab 15](../../labs/lab15_fsdp_by_hand/fsdp_by_hand.ipynb) asks for the step itself, without a pause between blocks.
#
# **Next question:** whole weights come and go. What if no GPU ever needs a layer whole? [Tensor parallel](24_tensor_parallel.ipynb)
#
# **Sources.** S. Rajbhandari et al., *ZeRO*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# Y. Zhao et al., *PyTorch FSDP*, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277) (flat parameters, prefetch, hybrid sharding) ·
# [PyTorch, fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) ·
# Llama team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) (sizes; sums in float32) ·
# G. Amdahl, *Validity of the single processor approach*, AFIPS 1967 (strong scaling) · J. Gustafson, *Reevaluating Amdahl's law*, CACM 31(5), 1988 (weak scaling) ·
# P. Goyal et al., *Accurate, large minibatch SGD*, [arXiv:1706.02677](https://arxiv.org/abs/1706.02677) (what a larger batch asks of the learning rate)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("23")
