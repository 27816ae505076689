# %% [markdown] name="title"
# # Capstone: one transformer, three ways
#
# {{here}}
#
# **The same small transformer trains on the same ranks in three ways: copied (DDP), with a sharded optimizer (ZeRO), with split layers
# (tensor parallel). Is the loss the same? And can you predict how many bytes each rank sends in a step, in how many calls, and how long that takes?**
#
# {{picture}}
#
# Four ranks in each of the three ways. Above: which quarters of the weights a rank keeps. Below: which quarters of the optimizer's state.

# %% name="first_picture"
from allranks import my_model

my_model("tensor_parallel", ranks=8, tokens=8 * 4096, bucket=25 << 20, zero_stage=0, tp=1)

# %% [markdown] name="first_question"
# **Ask the picture.** This is my model of the course on the eight GPUs of one node. Choose ZeRO stage 1; then stage 0 again, and *Tensor* 8. Which of the three
# ways can't run, and in which of them do the GPUs wait longest for messages? This chapter takes a model that is small enough to try all three.

# %% name="start_world"
import itertools
import sys

import psutil
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from allranks import Player, World, bench, check, plots, predict, predictions, rooflines, simulate, topology, workload

world = World()
world

# %% [markdown] name="model_intro"
# ## 1. The model, alone
#
# The model reads characters and predicts the next one. The text is PyTorch's documentation of its collectives, which every rank has already.

# %% name="text"
calls = "all_reduce broadcast reduce gather scatter all_gather reduce_scatter all_to_all_single barrier new_group"
text = "".join(getattr(dist, name).__doc__ for name in calls.split())
tokens = torch.tensor(list(text.encode("ascii", "ignore")))
print(f"{len(tokens)} characters; the first line: {text.split('.')[0].strip()}.")

# %% [markdown] name="block_intro"
# A layer has attention and a two-layer perceptron: four matrices, each with the dimension that can be *split* first. `enter` and `leave` do nothing yet.


# %% name="block"
layers, hidden, heads, length, vocabulary = 2, 64, 8, 32, 128


def weights(*shape):
    return torch.nn.Parameter(torch.randn(shape) / hidden**0.5)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.qkv, self.out = weights(heads, 3, hidden // heads, hidden), weights(heads, hidden // heads, hidden)
        self.up, self.down = weights(4 * hidden, hidden), weights(4 * hidden, hidden)
        self.enter = self.leave = torch.nn.Identity()

    def attention(self, x):
        q, k, v = torch.einsum("bsh,nkdh->kbnsd", x, self.qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.einsum("bnsd,ndh->bsh", y, self.out)

    def forward(self, x):
        x = x + self.leave(self.attention(self.enter(self.norm1(x))))
        return x + self.leave(F.gelu(self.enter(self.norm2(x)) @ self.up.T) @ self.down)


# %% name="model"
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = weights(vocabulary, hidden), weights(length, hidden)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(layers)))
        self.norm = torch.nn.LayerNorm(hidden)

    def forward(self, inputs, targets):
        x = self.blocks(F.embedding(inputs, self.tokens) + self.places)
        logits = self.norm(x) @ self.tokens.T
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


# %% [markdown] name="count_guess"
# How many parameters has it? For width $h$, attention has $4h^2$ of them in a layer and the perceptron $8h^2$.

# %% name="parameters"
N = sum(parameter.numel() for parameter in Model().parameters())
print(f"the layers' matrices have {12 * layers * hidden**2:,}, with embeddings and norms N = {N:,}")

# %% [markdown] name="alone_intro"
# Here is the rest of a training script: a batch that depends only on the step, so that every rank can make it, and a training step. The batch has four
# sequences for each rank. The tokens come from the notebook, so they are on the CPU until the batch moves its rows to the rank's device.


# %% name="batch"
def batch(number):
    torch.manual_seed(number)
    starts = torch.randint(len(tokens) - length, (4 * dist.get_world_size(),))
    rows = torch.stack([tokens[i : i + length + 1] for i in starts.tolist()]).to(starts.device)
    return rows[:, :-1], rows[:, 1:]


# %% name="alone"
def alone(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def step(inputs, targets):
        optimizer.zero_grad()
        loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# %% name="train"
def train(way, steps=50):
    if way.__name__ == "alone" and dist.get_rank() > 0:
        return None
    step = way(Model())
    return [step(*batch(number)).item() for number in range(steps)]


losses = {"alone": torch.tensor(world.run(train, alone)[0])}
print(", ".join(f"{loss:.3f}" for loss in losses["alone"][::7]))

# %% [markdown] name="ways"
# This is the reference for the three ways.

# %% [markdown] name="ddp_intro"
# ## 2. Three ways
#
# **DDP.** Every rank has the whole model and a share of the batch. The wrapper averages gradients during `backward`. We must average only the loss for the log.


# %% name="ddp"
def share(rows):
    return rows.chunk(dist.get_world_size())[dist.get_rank()]


def mean(loss):
    dist.all_reduce(loss)
    return loss / dist.get_world_size()


def ddp(model):
    step = alone(DistributedDataParallel(model))
    return lambda inputs, targets: mean(step(share(inputs), share(targets)))


# %% [markdown] name="zero_intro"
# **ZeRO.** The same shares, but no rank needs all of Adam's state. All parameters become views of one flat vector, padded to a multiple of $p$. Each
# rank gets the mean gradient of its own part (reduce-scatter), updates this part, and sends the new weights to all (all-gather).


# %% name="zero"
def zero(model):
    rank, p = dist.get_rank(), dist.get_world_size()
    parameters = list(model.parameters())
    flat = torch.cat([each.detach().flatten() for each in parameters])
    padding = -len(flat) % p
    flat = F.pad(flat, (0, padding))
    torch.nn.utils.vector_to_parameters(flat, parameters)
    shard = flat.chunk(p)[rank].clone()
    shard.grad = torch.empty_like(shard)
    optimizer = torch.optim.Adam([shard], lr=3e-3)

    def step(inputs, targets):
        model.zero_grad()
        loss = model(share(inputs), share(targets))
        loss.backward()
        gradient = torch.cat([each.grad.flatten() for each in parameters])
        dist.reduce_scatter_single(shard.grad, F.pad(gradient, (0, padding)))
        shard.grad /= p
        optimizer.step()
        dist.all_gather_single(flat, shard)
        return mean(loss.detach())

    return step


# %% [markdown] name="tensor_intro"
# **Tensor parallel.** Every rank sees the whole batch and has a part of each matrix: some heads, some columns of the perceptron. The results of the
# parts must be *added* before they are used: `leave` does this. `enter` does the opposite: forward every rank already has $x$, so there is nothing to
# do; backward each rank has only its own part's gradient of $x$, and these gradients are added. (They are $g$ and $f$ of [Tensor
# parallel](24_tensor_parallel.ipynb).)


# %% name="enter_leave"
def added(x):
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x)
    return x


class Enter(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x.view_as(x))
    backward = staticmethod(lambda ctx, gradient: added(gradient))


class Leave(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: added(x))
    backward = staticmethod(lambda ctx, gradient: gradient)


# %% name="tensor_parallel"
def split(model, enter, leave):
    for block in model.blocks:
        for name in ("qkv", "out", "up", "down"):
            mine = getattr(block, name).tensor_split(dist.get_world_size())[dist.get_rank()]
            setattr(block, name, torch.nn.Parameter(mine.detach().clone()))
        del block.enter, block.leave
        block.enter, block.leave = enter, leave
    return model


def tensor_parallel(model):
    return alone(split(model, Enter.apply, Leave.apply))


# %% name="losses"
for way in (ddp, zero, tensor_parallel):
    by_rank = torch.tensor(world.run(train, way))
    losses[way.__name__] = by_rank[0]
    far, apart = (by_rank[0] - losses["alone"]).abs().max(), (by_rank[0] - by_rank[-1]).abs().max()
    print(f"{way.__name__:16}last {by_rank[0, -1]:.6f}, at most {far:.0e} from alone; between ranks {apart:.0e}")

# %% [markdown] name="losses_explained"
# **Without `enter`.** It does nothing forward, so you might leave it out.

# %% name="guess_careless"
guess_careless = predict(
    "Tensor parallel without `enter`: what would you notice?",
    choices=["an error", "the loss does not fall", "the loss falls, nearly as before"],
    title="Tensor parallel without `enter`",
)
guess_careless


# %% name="careless_run"
def careless(model):
    return alone(split(model, torch.nn.Identity(), Leave.apply))


by_rank = torch.tensor(world.run(train, careless))
losses["careless"] = by_rank[0]
first = ((by_rank[0] - losses["alone"]).abs() > 1e-4).nonzero()[0].item() + 1
print(f"last {by_rank[0, -1]:.3f}, alone {losses['alone'][-1]:.3f}; they differ from step {first} on")
print(f"two ranks report losses that differ by {(by_rank[0] - by_rank[-1]).abs().max():.0e}")

# %% name="figure"
figure, axes = plots.chart("step", "difference from alone, + 1e-9")
for name in ("ddp", "zero", "tensor_parallel", "careless"):
    axes.semilogy((losses[name] - losses["alone"]).abs() + 1e-9, label=name)
axes.legend(loc="center right")
figure

# %% name="reveal_careless" jupyter={"source_hidden": true}
# the answer: run this cell
guess_careless.reveal(
    "the loss falls, nearly as before",
    why="Only the last perceptron and the last norm get their right gradients; the others' still point roughly downhill, so the curve looks healthy.",
)

# %% [markdown] name="careless_explained"
# It trains, but it is wrong: norms and embeddings should be equal on all ranks, but each rank gets a different part of their gradient, so they become
# different. You can hardly see this in the loss curve. **But you see it in one or two steps if you compare a small model with one process.** You also
# see it if you compare two ranks' losses: here all ranks compute the same number, so any difference is a bug.

# %% [markdown] name="bytes_intro"
# ## 3. Count every byte
#
# float32, $p$ ranks, bandwidth-optimal rings, batch $b$ (of all ranks together), length $s$, width $h$, $L$ layers, $N$ parameters. Bytes that one rank sends in a step:
#
# $$\text{DDP: } 2\tfrac{p-1}{p}\,4N \qquad \text{ZeRO: } \tfrac{p-1}{p}\,4N + \tfrac{p-1}{p}\,4N \qquad \text{tensor: } 4L \cdot 2\tfrac{p-1}{p}\,4\,bsh$$
#
# The last one does not depend on $N$, and the first two do not depend on the batch. (A layer calls `enter` twice and `leave` twice.)

# %% name="guess_bytes"
guess_bytes = predict(
    "The small model above, on your ranks: how many times DDP's bytes does tensor parallel send in a step?",
    low=0.1,
    high=100,
    log=True,
    title="Tensor parallel sends, compared with DDP",
)
guess_bytes


# %% name="plans"
def plans(cluster):
    b = 4 * cluster.ranks
    return {
        "ddp": workload.ddp(N, cluster, dtype="float32"),
        "zero": workload.zero(2, N, cluster, dtype="float32"),
        "tensor_parallel": workload.tensor_parallel(layers, b, length, hidden, cluster, dtype="float32"),
    }


p = world.ranks
planned = plans(workload.Cluster(p, bytes_per_s=1e9))

# %% [markdown] name="trace_intro"
# `world.trace` records the size of each call's input. To get one step, we take a trace of three steps and remove the events of a trace of two. Then
# we compute what a ring sends for each call: the input of an all-gather is a rank's part, that of the others is the whole vector. (Two calls appear
# by torch's older names, `reduce_scatter_tensor` and `all_gather_into_tensor`.)


# %% name="traced"
def of_rank_0(trace):
    return [(event.op, event.nbytes) for event in trace if event.rank == 0]


traces, one_step = {}, {}
for way in (ddp, zero, tensor_parallel):
    before, traces[way.__name__] = (of_rank_0(world.trace(train, way, k)[1]) for k in (2, 3))
    one_step[way.__name__] = traces[way.__name__][len(before) :]

ring = {
    "all_reduce": 2 * (p - 1) / p,
    "reduce_scatter_tensor": (p - 1) / p,
    "all_gather_into_tensor": p - 1,
}
traced = {name: sum(ring[op] * nbytes for op, nbytes in events) for name, events in one_step.items()}

# %% name="byte_table"
print(f"{'a step of':16}{'calls: planned':>15}{'traced':>8}{'kB: planned':>13}{'traced':>10}")
for name, plan in planned.items():
    counts = f"{plan.calls:15}{len(one_step[name]):8}"
    print(f"{name:16}{counts}{plan.bytes_sent / 1e3:13.3f}{traced[name] / 1e3:10.3f}")
for name, events in one_step.items():
    same = [(call, len([*group])) for call, group in itertools.groupby(events)]
    print(f"{name}:", ", ".join(f"{count} x {op} of {nbytes} B" for (op, nbytes), count in same))

# %% name="reveal_byte_table" jupyter={"source_hidden": true}
# the answer: run this cell
guess_bytes.reveal(
    planned["tensor_parallel"].bytes_sent / planned["ddp"].bytes_sent,
    why="DDP sends the weights' gradients, and tensor parallel sends activations four times a layer: 4 sequences of 32 tokens a rank are many, compared with so few weights.",
)

# %% [markdown] name="byte_explained"
# Now explain every difference. DDP and ZeRO make one call more than planned: the four bytes of the loss, for the log. A padded vector may add a few
# bytes to ZeRO. Tensor parallel needs no extra
# call, since each rank has the loss.
#
# Here is what DDP did before and in its first three steps. Which calls are not in the plan at all?

# %% name="setup"
for op, nbytes in traces["ddp"]:
    print(f"{op:12}{nbytes:8}")

# %% [markdown] name="setup_explained"
# It compares shapes and broadcasts rank 0's weights. After the first step it broadcasts the order in which gradients became ready, for its buckets.
# This happens once in a run, so plans leave it out.
#
# The player shows one step of ZeRO and one of tensor parallel; each lane is a rank, each bar a call:

# %% name="film"
in_zero, in_tensor_parallel = (world.trace(train, way, 1)[1] for way in (zero, tensor_parallel))
Player(in_zero, in_tensor_parallel, titles=("ZeRO", "Tensor parallel"))

# %% [markdown] name="wire_intro"
# ### What was really sent
#
# Plan and trace agree, but both *assume* the ring. The operating system gives a third count: the bytes that a process has written. NCCL does not use
# `write`, so on GPUs the cell prints nothing; the text tells what Gloo does.
# ([Reduce-scatter](../2_collectives/14_reduce_scatter.ipynb) has the hint.)

# %% name="guess_wire"
guess_wire = predict(
    "With Gloo, which of the three does not send what was planned?",
    choices=["none", "ddp", "zero", "tensor_parallel"],
    title="Not as planned with Gloo",
)
guess_wire


# %% name="wire"
def written(way, steps=10):
    step, data = way(Model()), [batch(number) for number in range(steps + 3)]
    for rows in data[:3]:
        step(*rows)
    dist.barrier()
    before = psutil.Process().io_counters().write_chars
    for rows in data[3:]:
        step(*rows)
    return (psutil.Process().io_counters().write_chars - before) / steps


sent = {}
if world.backend == "gloo" and sys.platform == "linux":  # only Linux counts it
    sent = {way.__name__: sum(world.run(written, way)) / p for way in (ddp, zero, tensor_parallel)}
for name, nbytes in sent.items():
    print(f"{name:16}{nbytes / 1e3:10.3f} kB, {nbytes / planned[name].bytes_sent:.3f} of the plan")

# %% name="reveal_wire" jupyter={"source_hidden": true}
# the answer: run this cell
guess_wire.reveal(
    "zero",
    why="Gloo's `reduce_scatter_single` all-reduces the vector and drops most of it; plan and trace only assume an algorithm. (On GPUs nothing was measured here; the answer is Gloo's.)",
)

# %% [markdown] name="wire_explained"
# With Gloo, DDP and tensor parallel send less than 2 % more than the ring's bytes, because each message has a header. ZeRO sends one and a half times
# the planned bytes. `reduce_scatter_single` in Gloo all-reduces the vector and drops most of it (torch 2.13,
# `ProcessGroupGloo.cpp`), so the step costs $2\frac{p-1}{p}n + \frac{p-1}{p}n$ with $n = 4N$. NCCL has a real reduce-scatter. **A plan assumes an algorithm, but the library chooses it.**

# %% [markdown] name="time_intro"
# ## 4. How long?
#
# If nothing overlaps, the time of a step is the time for computing plus the time for communication. We measure the two separately: $\alpha$ and
# $\beta$ from all-reduces of one number and of $N$ numbers; computing from the same steps *without* calls. Then we add.


# %% name="guess_slowest"
guess_slowest = predict(
    "Which of the three takes the longest for a step on your ranks?",
    choices=["ddp", "zero", "tensor_parallel"],
    title="The slowest of the three here",
)
guess_slowest


# %% name="clocks"
def reducing(count):
    x = torch.zeros(count)
    return bench.seconds_of(lambda: dist.all_reduce(x), iterations=20)[0]


def stepping(way):
    data = itertools.cycle([batch(number) for number in range(14)])  # a short step is made more often
    step = way(Model())
    step(*next(data))
    return bench.seconds_of(lambda: step(*next(data)), iterations=12)[0]


# %% name="quiet"
def on_its_share(model):
    step = alone(model)
    return lambda inputs, targets: step(share(inputs), share(targets))


def with_its_part(model):
    return alone(split(model, torch.nn.Identity(), torch.nn.Identity()))


quiet = {"ddp": on_its_share, "zero": on_its_share, "tensor_parallel": with_its_part}

# %% name="timings"
small, large = (max(world.run(reducing, count)) for count in (1, N))
alpha = small / (2 * (p - 1))
beta = max(large - small, 1e-9) / (2 * (p - 1) / p * 4 * N)
timed = plans(workload.Cluster(p, bytes_per_s=1 / beta, alpha_s=alpha))
computing = {name: max(world.run(stepping, way)) for name, way in quiet.items()}
measured = {way.__name__: max(world.run(stepping, way)) for way in (ddp, zero, tensor_parallel)}

# %% name="alpha_beta"
print(f"alpha {1e6 * alpha:.0f} µs a message, 1/beta {1e-9 / beta:.2f} GB/s")

# %% [markdown] name="report_intro"
# ## 5. The report
#
# The next cell prints what was planned and what was measured, side by side. *Held* is the memory for weights, gradients and Adam's two moments, 4 bytes each (without Adam's step
# counters, one small tensor for each parameter, which torch may keep on the CPU); the last four columns are milliseconds a step.

# %% name="report" jupyter={"source_hidden": true}
# the report: run this cell
matrices = [w for b in Model().blocks for w in (b.qkv, b.out, b.up, b.down)]
tp = N - sum(w.numel() - w.tensor_split(p)[0].numel() for w in matrices)
state = {"ddp": 16 * N, "zero": 8 * N + 8 * N / p, "tensor_parallel": 16 * tp}
columns = ("loss", "off by", "calls", "kB plan", "trace", "sent", "held kB", "compute", "+ comm", "= ms", "took")
print(f"{'':16}" + "".join(f"{column:>8}" for column in columns))
for name, plan in timed.items():
    compute, comm, whole = (1e3 * t for t in (computing[name], plan.seconds, measured[name]))
    print(
        f"{name:16}{losses[name][-1]:8.4f}{(losses[name] - losses['alone']).abs().max():8.0e}{plan.calls:8}"
        f"{plan.bytes_sent / 1e3:8.0f}{traced[name] / 1e3:8.0f}{sent.get(name, float('nan')) / 1e3:8.0f}{state[name] / 1e3:8.0f}"
        f"{compute:8.1f}{comm:8.1f}{compute + comm:8.1f}{whole:8.1f}"
    )

# %% name="reveal_slowest" jupyter={"source_hidden": true}
# the answer: run this cell
guess_slowest.reveal(
    max(measured, key=measured.get),
    why="The three compute nearly the same, so the calls decide: how many there are, what they carry, and how long a rank waits in each. Tensor parallel makes the most.",
)

# %% [markdown] name="report_explained"
# Compare the last two columns. These are some reasons for a difference; look for them in this order:
#
# - **Waiting.** Ranks that share cores take turns, and a late rank makes all others late. This grows with the number of *calls*, so tensor parallel
#   suffers most. (On GPUs a model this small waits for the CPU, which queues many short kernels.)
# - **Overlap.** DDP sends while backward still runs, so it may be *below* the sum. Our model fits into one bucket, so little can overlap.
# - **The algorithm.** ZeRO's plan has a reduce-scatter, Gloo does an all-reduce.
# - **More work.** Copies, padding, hooks; ZeRO's Adam, on the other hand, updates only a $p$-th.
#
# If a column is off by a factor, run the timing again before you explain it.

# %% [markdown] name="dgx_intro"
# ## 6. On a machine that you don't have
#
# Divide tensor parallel's bytes by DDP's, with $N \approx 12Lh^2$:
#
# $$\frac{4L \cdot bsh}{12Lh^2} = \frac{bs}{3h}$$
#
# Tensor parallel sends more as soon as the batch has more tokens than $3h$. Take 32 layers of width 4096, 8 sequences of 4096 tokens, bfloat16, on one DGX H100: 8 GPUs, NVLink.

# %% name="guess_dgx"
guess_dgx = predict(
    "That model on 8 H100s: how many ms of communication has a step of tensor parallel?",
    low=1,
    high=10000,
    unit="ms",
    log=True,
    title="ms of tensor parallel's communication",
)
guess_dgx

# %% name="dgx"
machine = topology.preset("dgx-h100")
node = workload.Cluster(8, machine.inside.bytes_per_s, machine.inside.alpha_s)
big = rooflines.gpt_parameters(32, 4096)
compute = rooflines.model_flop(big, 8 * 4096) / (8 * 400e12)  # at an assumed 400 TFLOP/s a GPU
rows = {
    "DDP": (workload.ddp(big, node, backward_s=2 / 3 * compute, compute_s=compute), 16 * big),
    "ZeRO-1, 2": (workload.zero(2, big, node), 4 * big + 12 * big / 8),
    "ZeRO-3": (workload.zero(3, big, node), 16 * big / 8),
    "tensor": (workload.tensor_parallel(32, 8, 4096, 4096, node), 16 * big / 8),
}
print(f"computing {1e3 * compute:.0f} ms")
for name, (plan, nbytes) in rows.items():
    sends = f"{plan.calls:5} calls{plan.bytes_sent / 1e9:7.1f} GB{1e3 * plan.seconds:7.0f} ms"
    print(f"{name:10}{sends}, state {nbytes / 1e9:5.0f} GB a GPU")
seconds, exposed = rows["DDP"][0].seconds, rows["DDP"][0].exposed_s
print(f"of DDP's {1e3 * seconds:.0f} ms, {1e3 * exposed:.1f} can't hide behind backward")
print(f"bs/3h is {8 * 4096 / (3 * 4096):.2f}, and with our own model {4 * p * length / (3 * hidden):.2f}")

# %% name="reveal_dgx" jupyter={"source_hidden": true}
# the answer: run this cell
guess_dgx.reveal(
    1e3 * rows["tensor"][0].seconds,
    why="DDP sends its gradients once a step, and tensor parallel its activations four times in each layer: bs/3h times as many bytes.",
    marks={"DDP": 1e3 * rows["DDP"][0].seconds},
)

# %% [markdown] name="dgx_explained"
# (State: 2 bytes for the weight, 2 for its gradient, 12 for float32 weight and moments. The row shows ZeRO-1, which keeps whole gradients; ZeRO-2, which frees each at once, needs a third less, 24 GB.)
#
# (DDP and ZeRO-1 take equally long: they send the same bytes in the same 492 buckets of 25 MiB, whose $\alpha$ takes 14 ms. DDP does not split a
# matrix, so it would make fewer buckets.)
#
# Two of these facts our CPUs could not show. DDP's state does not fit into a GPU of 80 GB. And DDP's bytes hide behind backward, but most of tensor
# parallel's do not, because the next matrix waits for them. The third fact is the same on every machine: the ratio of their bytes is $bs/3h$, so
# our small model shows it too. (Its embeddings count in $N$ as well, so its own ratio is a little lower.)
#
# Now use tensor parallel over two such nodes, connected by 400 Gb/s for each GPU, with the same activations and 16 ranks.

# %% name="guess_nodes"
guess_nodes = predict(
    "Tensor parallel over two nodes instead of one: how many times longer does a flat ring's all-reduce take?",
    low=0.5,
    high=100,
    log=True,
    title="A ring over two nodes takes longer by",
)
guess_nodes

# %% name="nodes"
activations = 8 * 4096 * 4096 * 2
inside = simulate("all_reduce", "ring", 8, activations, machine).seconds
for algorithm in ("ring", "hierarchical"):
    across = simulate("all_reduce", algorithm, 16, activations, machine).seconds
    print(f"{algorithm:13} one node {1e3 * inside:.2f} ms, two {1e3 * across:.2f} ms: {across / inside:.1f} times")
both = workload.ddp(big / 8, workload.Cluster(2, machine.nic.bytes_per_s, machine.nic.alpha_s))
gradients = f"{both.bytes_sent / 1e9:.1f} GB and {1e3 * both.seconds:.0f} ms of gradients"
print(f"tensor inside, DDP between: {gradients}, which can hide")

# %% name="reveal_nodes" jupyter={"source_hidden": true}
# the answer: run this cell
guess_nodes.reveal(
    simulate("all_reduce", "ring", 16, activations, machine).seconds / inside,
    why="A ring is as slow as its slowest hop, and between the nodes that is a network card, not NVLink.",
)

# %% [markdown] name="nodes_explained"
# A flat ring uses one link between the nodes; the hierarchical form uses all eight cards and is still slower than one node. So tensor parallelism
# stays inside a node, and data parallelism goes between nodes: it sends only the *eighth* that each rank holds, and this can be hidden. Narayanan et
# al. give the same rule for large runs; you have just computed the reason.
#
# ## 7. Your turn
#
# This is DDP's step for plain SGD. It is right, but every rank does the whole update. **Make it ZeRO's step**: each rank averages and updates only
# its own part of the flat vector. `check` counts the bytes that you send. (If you have it from [Sharded training](22_sharded_training.ipynb), it is right here too.)


# %% name="zero_sgd_step"
def zero_sgd_step(parameters, lr):
    for parameter in parameters:
        dist.all_reduce(parameter.grad)
        parameter.data -= lr * parameter.grad / dist.get_world_size()


check(zero_sgd_step)

# %% [markdown] name="zero_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def zero_sgd_step(parameters, lr):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     count = sum(each.numel() for each in parameters)
#     padding = (0, -count % p)
#     flat = F.pad(torch.cat([each.data.flatten() for each in parameters]), padding)
#     gradient = F.pad(torch.cat([each.grad.flatten() for each in parameters]), padding)
#     mine = torch.empty(len(flat) // p, dtype=flat.dtype)
#     dist.reduce_scatter_single(mine, gradient)
#     dist.all_gather_single(flat, flat.chunk(p)[rank] - lr * mine / p)
#     for each, part in zip(parameters, flat[:count].split([each.numel() for each in parameters])):
#         each.data.copy_(part.view_as(each))
# ```
# </details>

# %% [markdown] name="quiz"
# ## 8. Check yourself
#
# <details><summary>1. You double the length of the sequences. What happens to the bytes of each of the three?</summary>
#
# DDP and ZeRO: nothing. Tensor parallel: doubled.
# </details>
#
# <details><summary>2. Four micro-batches are accumulated before each optimizer step (DDP with <code>no_sync</code>). How do the bytes per sample change?</summary>
#
# DDP: a quarter. ZeRO too, as it is written here, with whole gradients kept until the step; ZeRO-2 reduces after every micro-batch, and saves on the all-gather only.
# Tensor parallel: they stay the same, because every token's activations are added.
# </details>
#
# <details><summary>3. Does tensor parallel work with 16 ranks and 8 heads?</summary>
#
# `tensor_split` would leave half the ranks without a head. (With 3, 5, 6 or 7 ranks some have one head more than others.) The number of ranks should divide the number of heads; with fewer heads than ranks, some ranks are idle in attention.
# </details>
#
# <details><summary>4. The counted bytes agree with the plan, but the step takes three times as long as planned. What do you do next?</summary>
#
# Look at the starts of the calls on all ranks, as in [When it hangs](../4_real_cluster/45_when_it_hangs.ipynb): do the ranks wait or send?
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# DDP, ZeRO and tensor parallelism compute the same step and differ in what they split: the batch, the optimizer, the layers. You can compute their
# bytes from a few numbers before the run, and each additional byte has a reason: a loss for the log, a header, a library that used another algorithm.
# The time also depends on which ranks wait and what can be hidden. **Predict the bytes, count them, measure the time, and explain what is left.**
#
# **Now you:** [Lab 5](../../labs/lab05_sharding/sharding.ipynb) grades `zero_sgd_step`. Then take one of your own training scripts, write down plan,
# trace and time for it, and explain the differences.
#
# **Next question:** three ways work on one machine. On a real cluster, which ranks should stand on one node? [Topology](../4_real_cluster/40_topology.ipynb)
#
# **Besides:** [Price a training run](29_price_a_training_run.ipynb) plans larger runs than you can trace; [Nine pictures](../1_first_hours/01_nine_pictures.ipynb) has a quiz about the whole course.
#
# **Sources.** S. Li et al., *PyTorch Distributed: experiences on accelerating data parallel training*, [arXiv:2006.15704](https://arxiv.org/abs/2006.15704) ·
# S. Rajbhandari et al., *ZeRO: memory optimizations toward training trillion parameter models*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# M. Shoeybi et al., *Megatron-LM*, [arXiv:1909.08053](https://arxiv.org/abs/1909.08053) (the pair `enter`, `leave` is its *f*, *g*) ·
# D. Narayanan et al., *Efficient large-scale language model training on GPU clusters using Megatron-LM*, SC 2021, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) (tensor inside nodes, data and pipeline between) ·
# [PyTorch, ProcessGroupGloo.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp) ·
# [Linux manual, proc_pid_io(5)](https://man7.org/linux/man-pages/man5/proc_pid_io.5.html) (what `write_chars` is)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("30")
