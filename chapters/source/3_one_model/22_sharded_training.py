# %% [markdown] name="title"
# # Sharded training
#
# {{here}}
#
# **Eight GPUs with 80 GB each train a model with data parallelism and Adam. With 5 billion parameters each GPU is full, and all eight hold the same
# data. How large can the model be if no GPU keeps a copy of another's data, and how many more bytes does a step send?**
#
# {{picture}}
#
# What each of the eight GPUs holds today, to scale: eight times the same.

# %% name="first_picture"
from allranks import explore

explore.sharded(billions=5, p=8, stage=0)

# %% [markdown] name="first_question"
# **Ask the picture.** The optimizer's state is sharded, weights and gradients are whole: which model fits on 8 GPUs, and which on 64? What must be
# sharded so that eight times the GPUs hold eight times the model?

# %% [markdown] name="my_model_needs"
# A step of **my model** takes 1.13 s on 64 GPUs, but it does not fit: each GPU needs 134 GB and has 80 GB. Of these, 84 GB are the
# optimizer's state, and all 64 GPUs hold the same.

# %% name="start_world"
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from allranks import Player, World, bench, check, predict, predictions, workload

world = World()
world

# %% [markdown] name="guess_intro"
# What is sharded must be sent to where it is used. The picture does not say what that costs; section 4 does.

# %% name="question"
bytes_guess = predict(
    "Nothing is kept twice: how many times the bytes of data parallelism does a step send?",
    low=0.1,
    high=100,
    log=True,
    title="Bytes, compared with data parallelism",
)
bytes_guess

# %% [markdown] name="state"
# ## 1. What a rank keeps
#
# Let us count for one float32 matrix and one step of Adam. How many bytes does each parameter take: weights, gradients and the optimizer's state
# together? (This chapter leaves out activations.)

# %% name="state_run"
# %%ranks
matrix = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.Adam(matrix.parameters())
matrix(torch.ones(1, 256)).sum().backward()
optimizer.step()
weight = matrix.weight
state = sum(value.nbytes for value in optimizer.state[weight].values() if value.shape == weight.shape)
print(*(nbytes / weight.numel() for nbytes in (weight.nbytes, weight.grad.nbytes, state)))

# %% [markdown] name="state_explained"
# 4 + 4 + 8 = 16, because Adam keeps two moments. In mixed precision the sum is 16 as well, as in [Reduce-scatter](../2_collectives/14_reduce_scatter.ipynb): 2 for a
# bfloat16 weight, 2 for its gradient, and 12 for a float32 master copy and the moments (Rajbhandari et al.).
#
# All $p$ ranks hold the same 16 bytes. ZeRO, the *zero redundancy optimizer*, shards them in three stages: **1** the optimizer's state, **2** also gradients, **3** also parameters. For stage $s$ and $P$ parameters:
#
# $$M_s = P\left(\frac{2}{p^{[s\ge3]}} + \frac{2}{p^{[s\ge2]}} + \frac{12}{p^{[s\ge1]}}\right)\ \text{bytes}$$
#
# where a bracket is 1 if it is true, else 0.


# %% name="capacity"
def bytes_per_parameter(stage, p):
    sharded = [p if stage >= least else 1 for least in (3, 2, 1)]
    return sum(nbytes / share for nbytes, share in zip((2, 2, 12), sharded, strict=True))


for p in (8, 64):
    largest = [80 / bytes_per_parameter(stage, p) for stage in range(4)]
    print(
        f"{p:3} GPUs of 80 GB: " + ", ".join(f"ZeRO-{s} {size:.1f}" for s, size in enumerate(largest)),
        "billion parameters",
    )


# %% [markdown] name="capacity_explained"
# Activations come on top; the picture at the end of this chapter counts them. Stage 0 is plain data parallelism. Only with stage 3 can the model grow without limit when you add GPUs. In stages 1 and 2 each GPU keeps all weights, in stage 1 also all gradients.
#
# ## 2. Stage 1: each rank updates a part
#
# [Reduce-scatter](../2_collectives/14_reduce_scatter.ipynb) did this with momentum on one vector. Here we do it with a model and AdamW: all parameters are in one flat
# vector, padded to a multiple of $p$, and rank $r$ owns the $r$-th part. One function trains with and without sharding.


# %% name="model_and_data"
class Block(torch.nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def make_model(blocks=3):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[Block() for _ in range(blocks)], torch.nn.Linear(48, 1))


def loss_of(model, step):
    torch.manual_seed(100 * step + dist.get_rank())  # other samples on each rank
    return model(torch.randn(4, 48)).square().mean()


# %% name="train"
def train(sharded, steps=3):
    rank, p, model = dist.get_rank(), dist.get_world_size(), make_model()
    flat = parameters_to_vector(model.parameters()).detach()
    length, size = flat.numel(), -(-flat.numel() // p)
    flat = torch.nn.functional.pad(flat, (0, size * p - length))
    owned = torch.nn.Parameter(flat[rank * size : (rank + 1) * size].clone() if sharded else flat)
    optimizer = torch.optim.AdamW([owned], lr=0.01)
    for step in range(steps):
        gradients = torch.autograd.grad(loss_of(model, step), list(model.parameters()))
        gradient = torch.nn.functional.pad(parameters_to_vector(gradients), (0, size * p - length))
        if sharded:
            owned.grad = torch.empty(size)
            dist.reduce_scatter_single(owned.grad, gradient)
        else:
            dist.all_reduce(gradient)
            owned.grad = gradient
        owned.grad /= p
        optimizer.step()
        if sharded:
            dist.all_gather_single(flat, owned.detach())
        vector_to_parameters(flat[:length], model.parameters())
    return flat[:length], sum(value.nbytes for value in optimizer.state[owned].values())


# %% [markdown] name="train_guess"
# Do the two ways differ in what they send, or in the weights after three steps? (`workload` predicts the bytes, by the formulas of section 5.)

# %% name="train_run"
(plain, plain_trace), (sharded, sharded_trace) = world.trace(train, False), world.trace(train, True)
print(f"largest difference {(plain[0][0] - sharded[0][0]).abs().max():.1e}")
# 4 of them count the steps
print(f"optimizer state on rank 0: {plain[0][1]} bytes plain, {sharded[0][1]} sharded")


# %% name="sent_by_a_rank"
def sent_by_a_rank(trace):
    """Bytes that a rank sends if each call uses a ring. A trace has the bytes that go *into* a call on a rank."""
    p = trace.ranks
    share = {
        "all_reduce": 2 * (p - 1) / p,
        "reduce_scatter_tensor": (p - 1) / p,
        "all_gather_into_tensor": p - 1,
    }
    share["broadcast"] = (p - 1) / p  # along a chain all ranks but the last send; over all roots that is the mean
    return sum(share.get(event.op, 0) * event.nbytes for event in trace if event.rank == 0)


# %% name="volume"
parameters = len(plain[0][0])
here = workload.Cluster(world.ranks, bytes_per_s=1e9)
for name, trace, price in (
    ("plain", plain_trace, workload.ddp(parameters, here, "float32")),
    ("sharded", sharded_trace, workload.zero(1, parameters, here, "float32")),
):
    print(f"{name:8} counted {sent_by_a_rank(trace) / 3:9.0f} bytes a step, predicted {price.bytes_sent:9.0f}")

# %% [markdown] name="volume_explained"
# Both send the same: an all-reduce is a reduce-scatter and an all-gather, and sharding does its update between the two. Training is the same too; the small difference from the prediction is padding.
# (A trace has torch's older names for two calls, `reduce_scatter_tensor` and `all_gather_into_tensor`.) We write $2P$ for this volume of
# $2\frac{p-1}{p}P$ elements. Only the optimizer's state is smaller, $\frac1p$ of the whole.
#
# ### Stage 1 in torch
#
# `ZeroRedundancyOptimizer` wraps any optimizer and works together with DDP: each rank updates the parameters that it owns.

# %% name="guess_redundancy"
guess_redundancy = predict(
    "`ZeroRedundancyOptimizer` with DDP: what does a step send, in units of P?",
    choices=["1 P", "2 P", "3 P"],
    title="`ZeroRedundancyOptimizer` sends",
)
guess_redundancy


# %% name="redundancy"
def step_with_zero_redundancy():
    model = DistributedDataParallel(make_model())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01)
    dist.barrier()
    loss_of(model, 0).backward()
    optimizer.step()


# %% name="redundancy_run"
_, trace = world.trace(step_with_zero_redundancy)
barrier = max(event.start for event in trace if event.op == "barrier")  # before it DDP sends its weights
step = trace.with_events(event for event in trace if event.start > barrier)
calls = [event.op for event in step if event.rank == 0]
print({op: calls.count(op) for op in sorted(set(calls))})
print(f"{sent_by_a_rank(step) / ((world.ranks - 1) / world.ranks * 4 * parameters):.2f} P")

# %% name="reveal_redundancy" jupyter={"source_hidden": true}
# the answer: run this cell
guess_redundancy.reveal(
    "3 P",
    why="DDP all-reduces whole gradients, 2 P, and then each owner broadcasts its parameters, one P more.",
)

# %% [markdown] name="redundancy_explained"
# (DeepSpeed's stages 1 and 2 also all-reduce each bucket, and each rank keeps its part: `use_multi_rank_bucket_allreduce` is on by default. They
# send 3 P too.) This saves memory as promised and is easy to use, but sends one and a half times as many bytes. Megatron-LM's
# [distributed optimizer](https://github.com/NVIDIA/Megatron-LM/blob/main/docs/user-guide/features/dist_optimizer.md) is stage 1 as we wrote it: it reduce-scatters the gradients and all-gathers the
# parameters, 2 P. **The volume depends on the implementation, not on the name.**
#
# ## 3. Stage 2: don't keep gradients either
#
# After the reduce-scatter no rank needs the whole gradient. So reduce-scatter the gradient of each layer as soon as it is ready, with the hooks of
# [the last chapter](21_overlap_and_bucketing.ipynb), and then drop it. There are eight layers of 9 KiB. Without dropping 72 KiB of whole gradients exist at the end.


# %% name="guess_dropped"
guess_dropped = predict(
    "Each of the eight gradients is dropped after its reduce-scatter: how many KiB of whole gradients at the worst moment?",
    low=0,
    high=72,
    unit="KiB",
    title="Whole gradients at the worst moment",
)
guess_dropped


# %% name="gradients_held"
def gradients_held(drop):
    """KiB of whole gradients at the worst moment, and KiB of reduced shards at the end."""
    layers, most, shards = (
        torch.nn.Sequential(*[torch.nn.Linear(48, 48, bias=False) for _ in range(8)]),
        [0],
        [],
    )

    def ready(weight):
        most.append(sum(p.grad.nbytes for p in layers.parameters() if p.grad is not None))
        if drop:
            ranks = dist.get_world_size()
            gradient = torch.nn.functional.pad(weight.grad.flatten(), (0, -weight.numel() % ranks))
            shard = torch.empty(len(gradient) // ranks)
            dist.reduce_scatter_single(shard, gradient)
            shards.append(shard)
            weight.grad = None

    for weight in layers.parameters():
        weight.register_post_accumulate_grad_hook(ready)
    layers(torch.ones(1, 48)).sum().backward()
    return max(most) / 1024, sum(shard.nbytes for shard in shards) / 1024


# %% name="peak_run"
for drop in (False, True):
    whole, shards = world.run(gradients_held, drop)[0]
    print(
        f"{'dropping' if drop else 'keeping':9} {whole:g} KiB of whole gradients, {shards:g} KiB of shards",
    )

# %% name="reveal_dropped" jupyter={"source_hidden": true}
# the answer: run this cell
guess_dropped.reveal(
    whole,
    why="A gradient is dropped before the next one is ready, so there is never more than one whole gradient of 9 KiB.",
)

# %% [markdown] name="peak_explained"
# At each moment there is the whole gradient of one layer (in a real implementation: of one bucket), and the $\frac1p$ that stays. The volume is still
# $2P$. With gradient accumulation you must choose: either reduce after every micro-batch, or keep whole gradients as in stage 1.
#
# ## 4. Stage 3: fetch the parameters when they are needed
#
# Now a rank keeps only its shard of each weight. Before a layer's forward pass its weight is all-gathered, and freed after it; the same happens for
# its backward pass; then its gradient is reduce-scattered. This is **FSDP**, *fully sharded data parallel*. In torch you call `fully_shard` once for
# each block, from the inside out, and once for the whole model, for the parameters that are left.


# %% name="sharded_model"
def sharded_model(reshard=None):
    model = make_model()
    for block in model[:3]:
        fully_shard(block, reshard_after_forward=reshard)
    return fully_shard(model, reshard_after_forward=reshard)


# %% name="shapes"
def shapes():
    named = sharded_model().named_parameters()
    return {name: (*p.shape, "->", *p.to_local().shape) for name, p in named if name.startswith(("2.up", "3."))}


first, *_, last = world.run(shapes)
for name in first:
    print(f"{name:12} rank 0: {first[name]}   last rank: {last[name]}")

# %% [markdown] name="shapes_explained"
# The parameters are `DTensor`s now, split along their first dimension. The head has only one row, so rank 0 has all of it and the others have nothing (it is padded when it is sent).

# %% name="guess_calls"
guess_calls = predict(
    "Three blocks and the head: how many all-gathers does one step make?",
    low=0,
    high=16,
    title="All-gathers in a step of FSDP",
)
guess_calls


# %% name="fsdp_trace"
def fsdp_step(reshard=None):
    loss_of(sharded_model(reshard), 0).backward()


_, fsdp_trace = world.trace(fsdp_step)
short = {"all_gather_into_tensor": "gather", "reduce_scatter_tensor": "scatter"}
print(*(f"{short[event.op]} {event.nbytes}" for event in fsdp_trace if event.rank == 0), sep=", ")

# %% name="reveal_calls" jupyter={"source_hidden": true}
# the answer: run this cell
guess_calls.reveal(
    sum(event.op == "all_gather_into_tensor" and event.rank == 0 for event in fsdp_trace),
    why="Each block is gathered forward and backward, and the head only once: it belongs to the root module, whose weights stay after forward.",
)

# %% name="fsdp_player"
Player(fsdp_trace, titles=("One step of FSDP",))

# %% [markdown] name="fsdp_explained"
# The number of a gather is the size of one shard, that of a scatter the whole size. The head comes first and is small: it belongs to the root module,
# whose parameters are gathered when the model is called. Then come blocks 0, 1, 2. Backward gathers block 2 and *immediately* block 1, before it
# scatters 2. This is **prefetch**: the next weights arrive while this block computes. In all there are 7 gathers and 4 scatters. The head is gathered
# only once: `reshard_after_forward=None` frees the weights after forward in all modules except the root.
#
# With `False` the weights stay after forward. Then a step sends the bytes of stage 2, and whole weights are in memory from forward to backward.

# %% name="fsdp_volume"
unit = (world.ranks - 1) / world.ranks * 4 * parameters
for reshard in (None, True, False):
    _, trace = world.trace(fsdp_step, reshard)
    price = workload.zero(3, parameters, here, "float32", reshard_after_forward=reshard is not False)
    counted, predicted = sent_by_a_rank(trace) / unit, price.bytes_sent / unit
    print(f"reshard_after_forward={reshard!s:6} counted {counted:.3f} P, predicted {predicted:.3f} P")


# %% name="reveal_bytes" jupyter={"source_hidden": true}
# the answer: run this cell
bytes_guess.reveal(
    1.5,
    why="A step gathers the weights twice and scatters the gradients once, 3 P, and data parallelism sends 2 P.",
    it="1.5 times",
)

# %% [markdown] name="volume_of_fsdp"
# The small remaining difference is the padding of the head. **One and a half times the bytes, and $\frac1p$ of the memory**: that answers the opening
# question (40 billion, times 1.5). Is it still the same training?


# %% name="same"
def weights_after(kind, steps=5):
    model = sharded_model() if kind == "FSDP" else DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    kept = [p.to_local() if kind == "FSDP" else p for p in model.parameters()]
    whole = [p.full_tensor() if kind == "FSDP" else p for p in model.parameters()]
    return parameters_to_vector(whole).detach(), sum(p.nbytes for p in kept)


# %% name="same_run"
ddp, fsdp = world.run(weights_after, "DDP"), world.run(weights_after, "FSDP")
print(f"largest difference {(ddp[0][0] - fsdp[0][0]).abs().max():.1e}")
print("bytes of weights by rank, DDP ", [nbytes for _, nbytes in ddp])
print("bytes of weights by rank, FSDP", [nbytes for _, nbytes in fsdp])

# %% [markdown] name="price"
# ## 5. What it costs
#
# A ring all-gather or reduce-scatter of $n$ bytes takes $(p-1)\,\alpha + \frac{p-1}{p}\,n\,\beta$. With $n$ the bytes of all weights and $L$ layers, each with its own calls:
#
# $$T_\text{DDP} = 2(p-1)\,K\alpha + 2\,\tfrac{p-1}{p}\,n\,\beta \qquad T_\text{ZeRO-3} = 3(p-1)\,L\alpha + 3\,\tfrac{p-1}{p}\,n\,\beta$$
#
# ($K$ buckets, as in [Overlap and bucketing](21_overlap_and_bucketing.ipynb).) For 7 billion bfloat16 weights in 32 layers, at 200 GB/s and 5 µs a
# message, what is the ratio of stage 3's time to that of one all-reduce of all weights, on 8 and on 1024 GPUs?

# %% name="prices"
for p in (8, 32, 128, 1024):
    cluster = workload.Cluster(p, bytes_per_s=200e9, alpha_s=5e-6)
    ddp = workload.ddp(7e9, cluster, bucket_nbytes=None).seconds
    layer = workload.zero(3, 7e9 / 32, cluster, bucket_nbytes=None).seconds  # one call a layer
    memory = [7 * bytes_per_parameter(stage, p) for stage in (0, 3)]
    print(
        f"{p:5} GPUs: all-reduce {1e3 * ddp:4.0f} ms, ZeRO-3 {32e3 * layer:4.0f} ms, ratio {32 * layer / ddp:.2f}",
        end="",
    )
    print(f"; {memory[0]:.0f} GB a GPU become {memory[1]:.1f}")

# %% [markdown] name="prices_explained"
# On few ranks the ratio is 1.5, and prefetch hides most of the communication behind computing. On many ranks, the pieces are short, but the $\alpha$s
# remain: every layer uses the ring of all $p$ ranks three times. A way out is **hybrid sharding** (HSDP): shard among the GPUs of a node, and
# all-reduce the shards' gradients between nodes.
#
# ### Measured here
#
# The next cell times only the collectives of each stage on your ranks, for 8 MiB of weights in 4 layers. `bench.seconds_of` times the stages in
# turns; for each it gives the median of six times of the slowest rank. $\alpha$ and $\beta$ come from an all-reduce of one number and from DDP's row,
# so that row agrees by construction.


# %% name="stage_seconds"
def four_times(*calls):
    for call, *tensors in calls * 4:
        call(*tensors)


def stage_seconds():
    p = dist.get_world_size()
    size = (1 << 19) // p
    shard, whole, one = torch.zeros(size), torch.zeros(size * p), torch.zeros(1)
    gather, scatter = (dist.all_gather_single, whole, shard), (dist.reduce_scatter_single, shard, whole)
    stages = {
        "alpha": lambda: four_times((dist.all_reduce, one)),
        "DDP": lambda: four_times((dist.all_reduce, whole)),
        "ZeRO-2": lambda: four_times(scatter, gather),
        "ZeRO-3": lambda: four_times(gather, gather, scatter),
    }
    return dict(zip(stages, bench.seconds_of(*stages.values(), iterations=6), strict=True))


# %% name="measured"
took, p, nbytes = world.run(stage_seconds)[0], world.ranks, 8 << 20
alpha = took["alpha"] / (4 * 2 * (p - 1))
beta = max(took["DDP"] - took["alpha"], 1e-9) / (2 * (p - 1) / p * nbytes)
machine = workload.Cluster(p, 1 / beta, alpha)

# %% name="measured_table"
layer = nbytes / 4 / 4  # parameters in one of four layers
prices = {
    "DDP": workload.ddp(layer, machine, "float32"),
    "ZeRO-2": workload.zero(2, layer, machine, "float32"),
}
prices["ZeRO-3"] = workload.zero(3, layer, machine, "float32")
for name, price in prices.items():
    print(f"{name:7} measured {1e3 * took[name]:7.1f} ms, model {4e3 * price.seconds:7.1f} ms,", end=" ")
    print(f"ratio {took[name] / took['DDP']:.2f}, model {price.seconds / prices['DDP'].seconds:.2f}")

# %% [markdown] name="measured_explained"
# On NCCL with rings the ratio should be near the model (not run here). If NVLink's switch adds (NVLS), the all-reduce becomes cheaper and the ratio grows.
#
# With Gloo the ratio differs more from the model, for the reason found in [Reduce-scatter](../2_collectives/14_reduce_scatter.ipynb): Gloo's `reduce_scatter_single`
# all-reduces a copy, so a scatter costs as much as an all-reduce. "ZeRO sends no more than DDP" is a statement about the bytes that the *algorithm*
# needs.
#
# ## 6. Your turn
#
# Write one SGD step in which each rank updates only its shard. With the code below all ranks end with the same parameters, but these are wrong: each
# part was updated with its owner's gradient alone. **Fix it.** `check` also counts your bytes; at most $2P$ are allowed.


# %% name="zero_mine"
def zero_sgd_step(parameters, lr):
    rank, p = dist.get_rank(), dist.get_world_size()
    data = torch.cat([parameter.data.flatten() for parameter in parameters])
    gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
    size = -(-data.numel() // p)
    data, gradient = (torch.nn.functional.pad(v, (0, size * p - v.numel())) for v in (data, gradient))
    my_part = slice(rank * size, (rank + 1) * size)

    my_gradient = gradient[my_part]  # your turn: so far this is nobody's but yours
    dist.all_gather_single(data, data[my_part] - lr * my_gradient)

    pieces = data[: sum(parameter.numel() for parameter in parameters)].split(
        [q.numel() for q in parameters],
    )
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data.copy_(piece.view_as(parameter))


check(zero_sgd_step)

# %% [markdown] name="zero_hint"
# <details><summary><b>A hint</b></summary>
#
# `train` in section 2 does this for AdamW: a reduce-scatter into an empty tensor of the right size *and dtype*, then a division.
# </details>
#
# [Lab 5](../../labs/lab05_sharding/sharding.ipynb) grades this function; there you write the whole of it.
#
# ## 7. Pitfalls
#
# **Only rank 0 evaluates.** With DDP many programs do this.

# %% name="guess_evaluate"
guess_evaluate = predict(
    "Sharded weights, and only rank 0 evaluates. What happens?",
    choices=["it works", "rank 0 computes with its shard only", "rank 0 waits for the others"],
    title="Only rank 0 evaluates",
)
guess_evaluate


# %% tags=["raises-exception"] name="evaluate"
def evaluate_on_rank_0():
    model = sharded_model()
    if dist.get_rank() == 0:
        loss_of(model, 0)


world.run(evaluate_on_rank_0, deadline=3)

# %% name="reveal_evaluate" jupyter={"source_hidden": true}
# the answer: run this cell
guess_evaluate.reveal(
    "rank 0 waits for the others",
    why="Here a forward pass contains communication: rank 0's all-gather waits for the shards of the others.",
)

# %% [markdown] name="evaluate_explained"
# Now a forward pass *contains* communication. All ranks must run it equally often. (Had the others gone on to a barrier or to the next step, their
# call would meet rank 0's all-gather: a hang with Gloo; undefined with NCCL, and perhaps wrong weights.) The same holds for saving: a `state_dict` holds shards, and putting them together is a collective.
#
# **The head is forgotten.** The blocks are sharded, but the call for the whole model is missing, so no call of `fully_shard` manages the head. What happens to it in training?


# %% name="forgotten"
def head_after_two_steps(forget):
    model = make_model()
    for module in [*model[:3]] if forget else [*model[:3], model]:
        fully_shard(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    bias = model[3].bias
    return round((bias if forget else bias.full_tensor()).item(), 5)


for forget in (False, True):
    print(f"forgotten={forget}: {world.run(head_after_two_steps, forget)}")

# %% [markdown] name="forgotten_explained"
# Its gradient is not averaged, and there is no error: the ranks' copies become different.
#
# **An optimizer made too early, and a norm of one rank.** The optimizer below is made before `fully_shard` replaces the parameters; and each rank
# computes the norm of only its own gradients. What comes of both?


# %% name="early"
def early_and_own():
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # holds the parameters as they were
    for module in [*model[:3], model]:
        fully_shard(module)
    before = [p.to_local().clone() for p in model.parameters()]
    loss_of(model, 0).backward()
    optimizer.step()
    moved = sum((p.to_local() - b).abs().sum().item() for p, b in zip(model.parameters(), before, strict=True))
    own = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm().item()
    return moved, own, torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item()


for rank, (moved, own, norm) in enumerate(world.run(early_and_own)):
    print(f"rank {rank}: moved by {moved:g}; own norm {own:.3f}, clip_grad_norm_ {norm:.3f}")

# %% [markdown] name="early_explained"
# The optimizer updates tensors that the model no longer uses: make it *after* sharding. And each rank's own norm is too small, and different on each
# rank. The squares must be summed over all ranks; for `DTensor`s `clip_grad_norm_` does this with one small all-reduce.

# %% [markdown] name="where"
# ## 8. Find it in torch
#
# **Your task.** Open `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `reshard_after_forward`. What does `None` mean for a block, what for the root, and why are they different?
#
# <details><summary><b>Answer</b></summary>
#
# A block is resharded after its forward pass; the root is kept whole, because backward needs it at once.
# </details>
#
# You also meet it here:
#
# - **FSDP2** is `fully_shard`. Apply it to blocks: a single call for the whole model gathers all weights at once, and a call for each small layer
#   pays $\alpha$ each time. **FSDP1** (`FullyShardedDataParallel`) flattens a block's parameters into one.
# - Prefetch of backward gathers is *on* by default in both; forward prefetch can be made earlier (`set_modules_to_forward_prefetch`).
# - `MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)`: each collective has its own dtype, and so its own bytes.
# - **DeepSpeed** calls the stages by number. It can also offload to the host, at the speed of PCIe.
# - `set_requires_gradient_sync(False)` is FSDP2's `no_sync`; until the next sync it keeps whole gradients.

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. Stage 3 on 16 GPUs fits, stage 2 does not. Which number tells you that before you try?</summary>
#
# Stage 2 needs $P(2 + 14/16)$ bytes, stage 3 $P \cdot 16/16$: 2.9 and 1 byte for each parameter. Activations and, in stage 3, one or two whole blocks are added.
# </details>
#
# <details><summary>2. Why is block 2's second all-gather in section 4 a waste?</summary>
#
# Its weights were freed after its forward, although its backward comes next. `block.set_reshard_after_forward(False)` for the last block saves it.
# </details>
#
# <details><summary>3. Does FSDP need less memory for activations?</summary>
#
# No. Activations belong to a rank's own samples. Checkpointing, sequence or tensor parallelism make them smaller.
# </details>
#
# <details><summary>4. With 4 micro-batches a step, how many bytes does stage 3 send?</summary>
#
# The weights are gathered for each micro-batch: $4\cdot2P$ for the gathers, and $4P$ or (without sync until the last) $P$ for the gradients. Stage 1 stays at $2P$.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# In data parallelism everything is stored $p$ times. ZeRO gives each rank a shard of the optimizer's state, then of the gradients, then of the
# weights. The first two need only $2P$, because an all-reduce is a reduce-scatter followed by an all-gather; some libraries all-reduce all the same and send $3P$. The third gathers the
# weights twice and sends $3P$. The training is the same. **At work begin with stage 1. With a
# reduce-scatter, stages 1 and 2 send no more bytes than data parallelism. Take stage 3 if the weights do not fit, for one and a half times the bytes.**
#
# **Now you:** [Lab 5](../../labs/lab05_sharding/sharding.ipynb).
#
# **Next question:** even sharded, every rank *computes* with the whole layer. What if one layer is too large for one GPU? [Tensor parallel](24_tensor_parallel.ipynb).
#
# {{side_trips}}
#
# **Sources.** S. Rajbhandari et al., *ZeRO: memory optimizations toward training trillion parameter models*, SC 2020, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# Y. Zhao et al., *PyTorch FSDP: experiences on scaling fully sharded data parallel*, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277) ·
# [PyTorch, fully_shard](https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html) ·
# [PyTorch, ZeroRedundancyOptimizer](https://docs.pytorch.org/docs/stable/distributed.optim.html) ·
# [DeepSpeed, stage_1_and_2.py](https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py) (an all-reduce in stages 1 and 2) ·
# [Gloo in PyTorch, ProcessGroupGloo.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("sharded_training")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("22")
