# %% [markdown] name="title"
# # Overlap and bucketing
#
# {{here}}
#
# **On 32 GPUs a model of 7 billion parameters all-reduces 14 GB of gradients in every step: 136 ms at 200 GB/s. Its backward pass takes 300 ms.
# How many of the 136 ms must the step really wait?**
#
# {{picture}}
#
# The step without any overlap, to scale: the GPU waits for the whole all-reduce.

# %% [markdown] name="my_model_needs"
# On 64 GPUs a step of **my model** takes 1.20 s. For 75 ms of it all GPUs wait for the all-reduce of 14 GB of gradients. Can they be sent
# while the GPUs still compute?

# %% name="start_world"
import functools
import math
import statistics
import time
from dataclasses import replace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from allranks import Event, Player, World, bench, check, explore, predict, predictions, workload

world = World()
world

# %% [markdown] name="guess_intro"
# Section 6 has the answer.

# %% name="question"
first_guess = predict(
    "136 ms of all-reduce, 300 ms of backward: how many ms must the step wait, with good buckets?",
    low=0.1,
    high=1000,
    unit="ms",
    log=True,
    title="ms that the step must wait",
)
first_guess

# %% [markdown] name="ready"
# ## 1. When is a gradient ready?
#
# The step of the last chapter had three parts, one after the other: backward, all-reduce, optimizer. The all-reduce of a gradient needs only that
# gradient. PyTorch calls a *post-accumulate-grad hook* as soon as a parameter's `.grad` is complete.

# %% name="guess_ready"
guess_ready = predict(
    "Layers 0 to 2 in the order of the forward pass: whose gradient is ready first?",
    choices=["layer 0", "layer 2", "all at the same time"],
    title="Ready first is the gradient of",
)
guess_ready

# %% name="ready_run"
# %%ranks
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(3)])
ready = []
for name, parameter in model.named_parameters():
    parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
model(torch.ones(1, 4)).sum().backward()
print(", ".join(ready))

# %% name="reveal_ready" jupyter={"source_hidden": true}
# the answer: run this cell
guess_ready.reveal(
    "layer 2",
    why="Backward goes from the loss to the input, so the last layer is ready while most of the work is still to do.",
)

# %% [markdown] name="ready_explained"
# Communication can run during this remaining work.
#
# ## 2. Start now, wait later
#
# `async_op=True` makes a collective return at once, with a handle. The work then runs elsewhere: with Gloo in separate threads, with NCCL on a
# separate stream. In the next cell rank 0 is 0.3 s late. (The cell uses Gloo and the CPU, also in a world on GPUs.)

# %% name="guess_async"
guess_async = predict(
    "`async_op=True`, and rank 0 is late. What does `x` hold on rank 1 right after the call?",
    choices=["1", "the sum of all ranks", "nobody can say"],
    title="`x` right after an asynchronous call",
)
guess_async

# %% name="async_run"
# %%ranks
import time

gloo = dist.new_group(backend="gloo")
if rank == 0:
    time.sleep(0.3)
x = torch.ones(1, device="cpu")
work = dist.all_reduce(x, group=gloo, async_op=True)
print(f"at once:    {x.item():g}, completed: {work.is_completed()}")
work.wait()
print(f"after wait: {x.item():g}")

# %% name="reveal_async" jupyter={"source_hidden": true}
# the answer: run this cell
guess_async.reveal(
    "nobody can say",
    why="Until `wait()` the memory belongs to the backend: it may hold your number, a partial sum or the total.",
)

# %% [markdown] name="async_explained"
# Before `wait()` you must neither read nor write the memory, as this cell did on purpose. If an
# optimizer steps too early, there is no error, but the copies of the model become different. (On a GPU `wait()` makes the stream wait, not the Python
# program; `item()` makes the program wait, but only for the stream. Without the `wait()` before it, it reads too early there too.)
#
# ## 3. Hide it
#
# Now combine the two: the hook starts the all-reduce, and after `backward()` we wait for all of them. The step below can all-reduce after or during
# backward, and a clock notes when each gradient was ready; its code is folded. (On a GPU a hook fires when its layer's work is *queued*; so there
# the clock queues events, and the GPU notes when it reaches them.)


# %% name="clock" jupyter={"source_hidden": true}
# a clock that works on GPUs too: run this cell
class Clock:
    """Notes when this rank's device comes to a point, in the seconds that a trace has."""

    def __init__(self):
        self.gpu, self.marks = torch.get_default_device().type == "cuda", []

    def mark(self):
        self.marks.append(torch.cuda.Event(enable_timing=True) if self.gpu else time.monotonic())
        if self.gpu:
            self.marks[-1].record()

    def seconds(self):
        if not self.gpu:
            return self.marks
        self.mark()  # a moment that the GPU's clock and the computer's clock both know
        self.marks[-1].synchronize()
        now = time.monotonic()
        return [now - 1e-3 * mark.elapsed_time(self.marks[-1]) for mark in self.marks[:-1]]


# %% name="one_step"
def one_step(overlap, width=512, layers=6):
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    weights, clock, works = list(model.parameters()), Clock(), []

    def gradient_is_ready(weight):
        clock.mark()
        if overlap:
            works.append(dist.all_reduce(weight.grad, async_op=True))

    for weight in weights:
        weight.register_post_accumulate_grad_hook(gradient_is_ready)
    loss = model(torch.randn(256, width)).square().mean()
    clock.mark()
    dist.barrier()
    clock.mark()
    loss.backward()
    if not overlap:
        works = [dist.all_reduce(weight.grad, async_op=True) for weight in reversed(weights)]
    for work in works:
        work.wait()
    return clock.seconds(), [weight.grad / dist.get_world_size() for weight in weights]


# %% [markdown] name="one_step_guess"
# Do both ways give the same gradients?


# %% name="traced" jupyter={"source_hidden": true}
# both kinds of bars in one trace: run this cell
def traced(overlap):
    """The trace of a step, with the computing of each layer that the ranks noted; and the gradients of rank 0."""
    for _ in range(2):  # the first is a warm-up
        results, trace = world.trace(one_step, overlap)
    zero = min(clock[0] for clock, _ in results)  # the barrier, which is the first event of a trace
    bars = [
        Event(rank, "compute", start=clock[i] - zero, end=clock[i + 1] - zero, label=f"layer {len(clock) - 2 - i}")
        for rank, (clock, _) in enumerate(results)
        for i in range(1, len(clock) - 1)
    ]
    events = tuple(sorted([*trace, *bars], key=lambda event: event.start))
    return replace(trace, events=events, algorithm="overlapped" if overlap else "late"), results[0][1]


# %% name="one_step_run"
(after, gradients_after), (during, gradients_during) = traced(False), traced(True)
difference = max((a - b).abs().max() for a, b in zip(gradients_after, gradients_during, strict=True))
print(f"largest difference: {difference:.1e}")
print(f"from the barrier to the end: {1e3 * after.seconds:.0f} ms after, {1e3 * during.seconds:.0f} ms during")

# %% name="one_step_player"
Player(after, during, titles=("After", "During"))

# %% [markdown] name="one_step_explained"
# In the lanes each rank has two rows: its layers that compute, and its all-reduces. Above, in *After*, the all-reduces follow the layers; below, in *During*, they overlap.
# The result is the same, because what is added is the same.
#
# The times don't mean much yet: if ranks share cores, an all-reduce *takes* cores from the computing that should hide it. Section 7 measures this.
# (On GPUs these layers are done in microseconds, and the all-reduces can hardly hide behind them.)

# %% [markdown] name="order"
# ## 4. The same order everywhere
#
# Collectives are matched by their order (last chapter), and hooks fire in the order in which gradients become ready. Here is a model whose branches A and B run in an order that depends
# on the data. A's gradient is 1 on every rank, B's is 10; even ranks ran A first, odd ranks B.


# %% name="branches"
class Branches(torch.nn.Module):
    def __init__(self, size_of_a=2):
        super().__init__()
        self.A, self.B = torch.nn.Parameter(torch.zeros(size_of_a)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, order):
        branches = {"A": lambda: self.A.sum(), "B": lambda: 10 * self.B.sum()}
        return torch.stack([branches[name]() for name in order]).sum()


def reduced_by_hooks():
    model, works = Branches(), []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: works.append(dist.all_reduce(p.grad, async_op=True)),
        )
    model("AB" if dist.get_rank() % 2 == 0 else "BA").backward()
    for work in works:
        work.wait()
    return [p.grad[0].item() / dist.get_world_size() for p in model.parameters()]


# %% name="order_run"
for rank, (a, b) in enumerate(world.run(reduced_by_hooks)):
    print(f"rank {rank}: A {a:g}, B {b:g}")

# %% [markdown] name="order_explained"
# A was added to B: the first call of one rank is matched with the first call of the others, and the sizes agree, so nothing is said. So all ranks must use the same fixed order, whichever gradient is ready first. DDP numbers its buckets and launches bucket
# $k+1$ only after bucket $k$.
#
# To see this, we give DDP a *communication hook*, which DDP calls to launch a bucket. We record a list of events: a name when a gradient becomes ready, brackets when a bucket is launched.


# %% name="diary"
def diary(model, inputs, **options):
    """What this rank saw in each of two backward passes, with one bucket a parameter."""
    ddp, pages = DistributedDataParallel(model, bucket_cap_mb=1e-6, **options), []
    names = {parameter: name for name, parameter in model.named_parameters()}

    def launch(state, bucket):
        pages[-1].append("[" + " ".join(names[p] for p in bucket.parameters()) + "]")
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    ddp.register_comm_hook(None, launch)
    for parameter, name in names.items():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: pages[-1].append(name))
    for _ in range(2):
        pages.append([])
        ddp(inputs).sum().backward()
    return [" ".join(page) for page in pages]


# %% [markdown] name="diary_guess"
# In the second pass rank 1 has A ready first. Which bucket does it launch first?


# %% name="branches_in_ddp"
def branches_in_ddp():
    model = Branches(size_of_a=3)
    first, second = diary(model, "AB" if dist.get_rank() % 2 == 0 else "BA")
    return first, second, model.A.grad[0].item(), model.B.grad[0].item()


# %% name="diary_run"
results, trace = world.trace(branches_in_ddp)
for rank, (first, second, a, b) in enumerate(results):
    nbytes = [event.nbytes for event in trace if event.rank == rank and event.op == "all_reduce"]
    print(f"rank {rank}:  {first:10}  then  {second:12}  bytes {nbytes}  gradients {a:g} and {b:g}")

# %% [markdown] name="diary_explained"
# In the second pass a rank that has A first delays it until B has been launched, so all ranks send the same buckets in the same order, and the
# gradients agree (twice the mean, after two passes without `zero_grad`).
#
# In the first pass DDP puts everything into *one* bucket, which can't overlap with anything, and records the order in which gradients become ready.
# Then it builds buckets in that order. All ranks use rank 0's order, which DDP broadcasts; the trace shows this.

# %% name="rebuilt"
print([(event.op, event.nbytes) for event in trace if event.rank == 0])

# %% [markdown] name="rebuilt_explained"
# So **profile from the second step on**.
#
# ## 5. Gradients that are late or never come
#
# **Tied weights.** Language models often use one matrix twice: as the embedding at the beginning, and as the head at the end.


# %% name="guess_tied"
guess_tied = predict(
    "A matrix is used as the embedding and as the head. When does its hook fire in a backward pass?",
    choices=[
        "twice: at the head and at the embedding",
        "once, at the head: first of all",
        "once, at the embedding: last of all",
    ],
    title="The hook of a tied matrix fires",
)
guess_tied


# %% name="tied"
class Tied(torch.nn.Module):
    def __init__(self, skip=0):
        super().__init__()
        self.skip = skip
        self.body = torch.nn.Sequential(*[torch.nn.Linear(4, 4, bias=False) for _ in range(2)])
        self.head = torch.nn.Linear(4, 10, bias=False)

    def forward(self, tokens):
        embedded = torch.nn.functional.embedding(tokens, self.head.weight)
        return self.head(self.body[self.skip :](embedded))


# %% name="tied_run"
def tied_diary(skip):
    return diary(Tied(skip), torch.arange(3), find_unused_parameters=skip > 0)[1]


print("every layer used:     ", world.run(tied_diary, 0)[0])
print("body.0 skipped, found:", world.run(tied_diary, 1)[0])

# %% name="reveal_tied" jupyter={"source_hidden": true}
# the answer: run this cell
guess_tied.reveal(
    "once, at the embedding: last of all",
    why="Its gradient is a sum of two terms, and backward computes the embedding's term last of all.",
)

# %% [markdown] name="tied_explained"
# So in many models the largest gradient can't be hidden.
#
# The second line is worse. Here a layer is skipped, which needs `find_unused_parameters=True`, and with that option DDP doesn't rebuild its buckets.
# They stay in the reverse order of *registration*. This model registers the matrix last, as its head, so its bucket is the first in the order; all other
# buckets are ready but must wait for it. (GPT-2 registers it first, as its embedding: then its bucket is the last, and nothing waits.) The option is needed for
# correctness (last chapter), and this is its cost.
#
# **Never.** On the last rank a layer is skipped, as in stochastic depth. What do the hooks of section 3 do?

# %% tags=["raises-exception"] name="never"
# %%ranks --deadline 3
layers, works = [torch.zeros(2, requires_grad=True) for _ in range(3)], []
for layer in layers:
    layer.register_post_accumulate_grad_hook(lambda p: works.append(dist.all_reduce(p.grad, async_op=True)))

used = layers[: 2 if rank == world_size - 1 else 3]
sum(layer.sum() for layer in used).backward()
for work in works:
    work.wait()

# %% [markdown] name="never_explained"
# The last rank makes two calls and the others three. (And the two calls that matched are not of the same layer. On GPUs `wait()` returns, and the
# report shows that the others wait for their GPU.) If hooks launch all-reduces, the
# program must launch the missing ones after backward, with zeros, in the agreed order. Or it must know them before: `find_unused_parameters` searches
# the graph for them.
#
# ## 6. Buckets
#
# With one all-reduce for each parameter the order can be right, but each call costs $2(p-1)\alpha$. So gradients are put together into **buckets**, in the order in which they become ready.
#
# **Your turn.** Divide the list of gradients into buckets: go from the last parameter to the first, and make each bucket as large as possible without
# exceeding `bucket_bytes` (one gradient alone may exceed it). Run it first as it is; `check` says what is wrong.


# %% name="bucketed_mine"
def bucketed_gradients(parameters, bucket_bytes):
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]  # a tied one once, at its first place
    for parameter in trained:
        if parameter.grad is None:  # unused on this rank
            parameter.grad = torch.zeros_like(parameter)

    buckets = [[parameter.grad for parameter in reversed(trained)]]  # your turn: this is one for all

    for bucket in buckets:
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for gradient, mean in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            gradient.copy_(mean.view_as(gradient))


check(bucketed_gradients)

# %% [markdown] name="bucketed_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
#     buckets = []
#     for gradient in [parameter.grad for parameter in reversed(trained)]:
#         if not buckets or sum(g.nbytes for g in buckets[-1]) + gradient.nbytes > bucket_bytes:
#             buckets.append([])
#         buckets[-1].append(gradient)
# ```
# </details>
#
# [Lab 8](../../labs/lab08_data_parallel/data_parallel.ipynb) grades this function and continues with `overlapped_gradients`, which launches each bucket as soon as it is complete.

# %% [markdown] name="size"
# ### How large?
#
# Let $n$ bytes of gradients go in $K=\lceil n/b\rceil$ buckets of $b$ bytes, over a ring of $p$ ranks with $\alpha$ seconds a message and $\beta$ seconds a byte. One bucket takes
#
# $$t(b) = 2(p-1)\,\alpha + 2\,\tfrac{p-1}{p}\,b\,\beta ,$$
#
# and all of them, one after the other, take $T = K\,t(b)$. Let backward take $T_\text{bwd}$, and let the buckets become ready evenly over it: the
# first after $T_\text{bwd}/K$, the last at the end of backward. Then nothing hides the last bucket. If communication takes longer than backward, even
# more of it stays **exposed**:
#
# $$T_\text{exposed} \approx \max\bigl(t(b),\; T - T_\text{bwd}\,(1 - \tfrac1K)\bigr)$$
#
# This is an approximation. It assumes that communication does not slow computing down. And DDP never splits a gradient: a matrix larger than $b$ is
# one bucket, and $K$ is smaller. `workload.ddp` computes the formula. For the opening question, with 5 µs for each message, which size is
# best?

# %% name="guess_size"
sizes_mib = [1, 5, 25, 50, 100, 400, 3200]
choices = [f"{size} MiB" for size in sizes_mib] + ["one bucket for all"]
size_guess = predict(
    "14 GB of gradients on 32 GPUs, 300 ms of backward: which bucket size leaves the least exposed?",
    choices=choices,
    title="The best bucket size",
)
size_guess

# %% name="sizes"
cluster = workload.Cluster(ranks=32, bytes_per_s=200e9, alpha_s=5e-6)
prices = [
    workload.ddp(7e9, cluster, bucket_nbytes=nbytes, backward_s=0.3)
    for nbytes in (*(size << 20 for size in sizes_mib), None)
]
exposed_ms = {name: 1e3 * price.exposed_s for name, price in zip(choices, prices, strict=True)}

# %% name="reveal_size" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    size_guess.reveal(
        min(exposed_ms, key=exposed_ms.get),
        why="Small buckets pay the latency many times, and a large last bucket has nothing to hide behind; the best size lies between.",
    ),
    first_guess.reveal(
        min(exposed_ms.values()),
        why="Backward goes on while the first buckets are sent; only the last bucket has nothing to hide behind.",
        marks={"no overlap": 136},
    ),
)

# %% name="sizes_explored"
explore.overlap(7e9, cluster.ranks, cluster.bytes_per_s, cluster.alpha_s, bucket_nbytes=1e9, backward_s=0.3)

# %% [markdown] name="sizes_explained"
# Drag the bucket to both ends, and look at the two lanes. If buckets are too small, the $\alpha$s add up until backward can't hide them. If they are too large, the last bucket is exposed for a long time;
# with one bucket for all gradients nothing is hidden. Many sizes between these are good, and only a millisecond or two of the 136 ms remain. **Overlap
# makes the all-reduce of a long backward pass nearly free, which is why DDP scales.** If backward took only 100 ms, at least 36 of the 136 ms
# would stay exposed, whatever the bucket size.
#
# The best size depends on $p$ (through $2(p-1)\alpha$) and on your links; 25 MiB is only DDP's default.

# %% [markdown] name="measure"
# ## 7. Measured here
#
# The next cells run DDP on your ranks, with 8 layers and several bucket sizes, for two kinds of backward pass. A layer has 1 MiB or, between fast GPUs, so much more that its all-reduce takes a millisecond. In `"cores"` the layers
# really compute, on the cores that also do the all-reduce (on a GPU: on its multiprocessors, of which NCCL's kernels take some). In `"elsewhere"` each
# layer sleeps instead, one and a half times as long as its all-reduce: it takes time but no core, like an accelerator that computes while another unit sends.
# (The layers and the clock are folded.)
#
# What percentage of the communication do you expect to be hidden?


# %% name="two_modules" jupyter={"source_hidden": true}
# layers that compute, or sleep: run this cell
class Elsewhere(torch.autograd.Function):
    """Passes on what it gets; on the way back it takes time and no core."""

    @staticmethod
    def forward(ctx, x, pause_s):
        ctx.pause_s = pause_s
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.pause_s)
        return gradient, None


class Layers(torch.nn.Module):
    def __init__(self, width, pause_s):
        super().__init__()
        self.pause_s = pause_s
        self.linears = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(8))

    def forward(self, x):
        for linear in self.linears:
            x = linear(x)  # backward: first the pause, then this layer's gradient
            x = Elsewhere.apply(x, self.pause_s) if self.pause_s else x
        return x


# %% name="elsewhere"
def one_layer():
    """The numbers of a layer, and the seconds of its all-reduce."""
    return bench.lasting(lambda n: functools.partial(dist.all_reduce, torch.zeros(n)), 512 * 512)


numel, layer_s = world.run(one_layer)[0]
width, layer_mib = math.isqrt(numel), numel >> 18
print(
    f"a layer has {width} x {width} numbers, {layer_mib} MiB; its all-reduce takes {1e3 * layer_s:.1f} ms",
)


# %% name="seconds_of" jupyter={"source_hidden": true}
# the clock of this section: run this cell
def now():
    if torch.get_default_device().type == "cuda":
        torch.cuda.synchronize()  # the calls have only been queued
    return time.perf_counter()


def seconds_of(action):
    dist.barrier()
    start = now()
    action()
    return now() - start


def reduce_all(buckets):
    for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
        work.wait()


# %% name="measured"
def measured(pause_s, together, width):
    """Medians in seconds: backward without communication, with it, and the communication alone, with so many layers in a bucket."""
    rows, inputs = [], torch.randn(1 if pause_s else 128, width, requires_grad=True)
    mib = together * width**2 >> 18
    ddp = DistributedDataParallel(Layers(width, pause_s), bucket_cap_mb=mib, gradient_as_bucket_view=True)
    buckets = [torch.zeros(together * width**2) for _ in range(8 // together)]
    for _ in range(7):
        with ddp.no_sync():
            loss = ddp(inputs).square().mean()
            alone = seconds_of(loss.backward)
        loss = ddp(inputs).square().mean()
        both = seconds_of(loss.backward)
        rows.append((alone, both, seconds_of(lambda: reduce_all(buckets))))
    return [statistics.median(column) for column in zip(*rows[2:], strict=True)]


# %% [markdown] name="measured_intro"
# The next cell measures all eight cases; it takes about 20 seconds. The cell after it fits this machine's $\alpha$ and $\beta$ for the model, from the communication
# alone: with eight buckets and with one.


# %% name="measured_run"
def slowest(ranks):
    return [max(column) for column in zip(*ranks, strict=True)]


rows = {
    (kind, together): slowest(world.run(measured, pause_s, together, width))
    for kind, pause_s in (("cores", 0), ("elsewhere", 1.5 * layer_s))
    for together in (1, 2, 4, 8)
}

# %% name="measured_fit"
p, nbytes = world.ranks, 8 * 4 * numel
eight, one = (statistics.median(rows[kind, together][2] for kind in ("cores", "elsewhere")) for together in (1, 8))
alpha = max(eight - one, 0) / 7 / (2 * (p - 1))
beta = max(one - 2 * (p - 1) * alpha, 1e-9) / (2 * (p - 1) / p * nbytes)
here = workload.Cluster(p, 1 / beta, alpha)
print(f"{bench.fitted_words(world, alpha, beta)}; times in ms")

# %% name="measured_table" jupyter={"source_hidden": true}
# the table: run this cell
print(
    f"{'backward':12}{'layers in a bucket':>18}{'backward':>10}{'communication':>15}{'both':>8}{'model':>8}{'hidden':>8}"
)
hidden = {}
for (kind, together), (alone, both, comm) in rows.items():
    price = workload.ddp(nbytes / 4, here, dtype="float32", bucket_nbytes=together * 4 * numel, backward_s=alone)
    hidden[kind, together] = 1 - (both - alone) / comm
    print(f"{kind:12}{together:18}{1e3 * alone:10.1f}{1e3 * comm:15.1f}{1e3 * both:8.1f}", end="")
    print(f"{1e3 * (alone + price.exposed_s):8.1f}{hidden[kind, together]:8.0%}")

# %% [markdown] name="measured_explained"
# "hidden" is $1-\frac{\text{both}-\text{backward}}{\text{communication}}$: 100 % if communication cost nothing extra, 0 % if it cost as much as alone, below zero if overlap even hurt.
#
# *Elsewhere* behaves like the model: small buckets hide more than large ones, and one bucket hides almost nothing. *Cores* is different. The
# all-reduce copies, adds and wakes processes on the same cores that multiply, so overlap saves little or no time; the more ranks share a core, the
# less it saves, and figures may differ much between runs.
#
# **Overlap uses resources that would be idle. If nothing is idle, overlap saves nothing.** On GPUs the links are idle during backward. Still, NCCL's
# kernels take some of the multiprocessors, so computing becomes a little slower; the model leaves this out.

# %% [markdown] name="where"
# ## 8. Find it in torch
#
# **Your task.** Open `torch/nn/parallel/distributed.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_DEFAULT_FIRST_BUCKET_BYTES`. Which bucket is smaller than the others by default, and why?
#
# <details><summary><b>Answer</b></summary>
#
# From the second step on the first one that is sent, with 1 MiB instead of 25: sending begins earlier in the backward pass. (With
# `find_unused_parameters=True` the buckets are never rebuilt, and the small one is the last that is sent, so that little is left when backward ends. torch's
# comment beside the name is about that case.)
# </details>
#
# You also meet it here:
#
# - **DDP**: `bucket_cap_mb` (25 MiB; the first bucket has 1 MiB, but only while you leave this option alone: with `bucket_cap_mb=25` it has 25 too), `gradient_as_bucket_view=True` (gradients are stored in
#   the buckets: one copy less), `static_graph=True` (find unused parameters once, then rebuild the buckets).
# - **FSDP** hides its all-gathers behind the forward pass of the layer before, and its reduce-scatters behind backward: the next chapter.
# - **Tensor parallelism** hides less: the next product *needs* the all-reduced activations. In backward, Megatron-LM all-reduces the gradient of the
#   input while it computes that of the weight. Its `tp_comm_overlap`, and torchtitan's async TP, also cut a product in pieces and send each piece while
#   they compute the next.
#
# With **gradient accumulation** DDP would reduce after each backward. Here are the all-reduces of a step of 4 micro-batches in one bucket, without
# `no_sync()` and with `no_sync()` around the first three.


# %% name="accumulate"
def accumulate(save, microbatches=4):
    ddp = DistributedDataParallel(torch.nn.Linear(4, 1))
    for number in range(microbatches):
        if save and number < microbatches - 1:
            with ddp.no_sync():
                ddp(torch.ones(2, 4)).sum().backward()
        else:
            ddp(torch.ones(2, 4)).sum().backward()


# %% name="no_sync_run"
for save in (False, True):
    _, trace = world.trace(accumulate, save)
    print(f"no_sync={save}: {sum(event.op == 'all_reduce' and event.rank == 0 for event in trace)} all-reduces")

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. A profile shows one large all-reduce after backward, and nothing during it. Name two causes.</summary>
#
# It is the first step, where DDP has one bucket. Or the bucket is larger than all gradients. (*Several* after backward, and none during it: the head is tied to the
# embedding and registered last, *and* DDP runs with `find_unused_parameters=True`. Its bucket comes first in the order but is ready last, so all others wait.)
# </details>
#
# <details><summary>2. You double the GPUs from 512 to 1024. Should buckets grow or shrink?</summary>
#
# They should grow: a call on a ring costs $2(p-1)\alpha$, which is now twice as much, while the bytes cost the same.
# </details>
#
# <details><summary>3. Your network is ten times slower, so that $T > T_\text{bwd}$. What can overlap still give you?</summary>
#
# At most $T_\text{bwd}$. To reduce the rest you must send fewer bytes: a smaller dtype, compression, or fewer steps (accumulate under `no_sync`).
# </details>
#
# <details><summary>4. Why does clipping by the global norm come after the wait?</summary>
#
# The norm needs every element of every *averaged* gradient. Before the wait some are local, some are partial.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# Backward finishes the last layers' gradients first, so their all-reduce can run during the rest of backward. Hooks start it, `wait()` ends it, and
# between the two you must not use the memory. Gradients are sent in buckets, large enough that $\alpha$ matters little and small enough that the last
# one takes little time, and all ranks launch them in the same order. **Overlap hides communication only as far as it uses what computing leaves idle.**
#
# **Now you:** [Lab 8](../../labs/lab08_data_parallel/data_parallel.ipynb): `bucketed_gradients`, then `overlapped_gradients`.
#
# **Next question:** the all-reduce is now nearly free, but every GPU holds the whole model, its gradients and its optimizer state. Is that necessary?
# [Sharded training](22_sharded_training.ipynb).
#
# {{side_trips}}
#
# **Sources.** S. Li et al., *PyTorch Distributed: experiences on accelerating data parallel training*, [arXiv:2006.15704](https://arxiv.org/abs/2006.15704) (buckets, order, unused parameters) ·
# [PyTorch, DistributedDataParallel](https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html) ·
# [PyTorch, DDP's design note](https://docs.pytorch.org/docs/stable/notes/ddp.html) ·
# [PyTorch, DDP communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) (asynchronous collectives)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("overlap_and_bucketing")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("21")
