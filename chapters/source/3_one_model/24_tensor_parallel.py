# %% [markdown] name="title"
# # Tensor parallel
#
# {{here}}
#
# **A transformer of 96 layers and width 12,288 does not fit on one GPU. You give each of eight GPUs an eighth of *every* layer. How often must they
# talk in one layer, how many bytes do they send, and which links can carry that?**
#
# {{picture}}
#
# The square is the model, its layers from top to bottom; one shade is one GPU's part. This chapter is the left one, [Pipelines](25_pipelines.ipynb) the right one.

# %% name="first_picture"
from allranks import explore

explore.tensor(p=8, width=12_288, machine="dgx-h100")

# %% [markdown] name="first_question"
# **Ask the picture.** A GPU has 80 GB: over how many GPUs must the weights be cut at least, and what does the next doubling buy, on nodes of 8, in a
# rack of 72 and over Ethernet? How wide must layers be, so that 8 H100 wait less than a third of the time?

# %% [markdown] name="my_model_needs"
# **My model** fits now: 52 GB of 80 GB, and a step takes 1.13 s on 64 GPUs. I want it faster, on 1,024 GPUs. But a step has 256 sequences,
# and a replica needs at least one: at most 256 replicas. The other GPUs can help only if several GPUs share every layer.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, predict, predictions, schedules, workload

world = World()
world

# %% [markdown] name="guess_intro"
# A layer of width $h$ has about $12h^2$ weights. Section 5 has the answer.

# %% name="question"
parameters = 96 * 12 * 12_288**2
print(f"{parameters / 1e9:.0f} billion weights, {2 * parameters / 1e9:.0f} GB in bfloat16")
tensor_guess = predict(
    "An eighth of each layer on each of 8 GPUs: how many GB does each send for one sequence of 2048 tokens, forward and backward?",
    low=0.01,
    high=1000,
    unit="GB",
    log=True,
    title="GB sent with layers cut",
)
tensor_guess

# %% [markdown] name="cut"
# ## 1. Two ways to split a product
#
# Let $Y = XA$. If $A$ is split by **columns**, a rank needs all of $X$ and computes some columns of $Y$. If $A$ is split by **rows**, a rank needs
# only the matching columns of $X$, and computes a matrix of full size. Which of the two results can't be used before a collective?

# %% name="cut_live"
# %%ranks
torch.manual_seed(0)
x, a = torch.randn(2, 24), torch.randn(24, 24)
columns = x @ a.tensor_split(world_size, dim=1)[rank]
rows = x.tensor_split(world_size, dim=1)[rank] @ a.tensor_split(world_size, dim=0)[rank]
right = (x @ a).tensor_split(world_size, dim=1)[rank]
print(f"columns off by {(columns - right).abs().max():.0e}")
print(f"rows    off by {(rows - x @ a).abs().max():.0e}")
dist.all_reduce(rows)
print(f"summed  off by {(rows - x @ a).abs().max():.0e}")

# %% [markdown] name="pair"
# Split by columns, each rank has some of the numbers, and these are complete. Split by rows, each rank has all of the numbers, but each lacks $p-1$ terms.
#
# The feed-forward part of a layer is $\text{relu}(XA)\,B$, two products. What is the smallest number of collectives, if all ranks begin with $X$ and all need the result?

# %% [markdown] name="pair_explained"
# Split $A$ by columns and $B$ by rows. After the first product a rank has exactly the columns that its rows of $B$ need; and relu uses single, *complete*
# numbers. **Your turn**: one line is missing.


# %% name="column_row_linear"
def column_row_linear(x, a_shard, b_shard):
    hidden = torch.relu(x @ a_shard)
    y = hidden @ b_shard
    # your turn
    return y


check(column_row_linear)

# %% [markdown] name="column_row_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
#     dist.all_reduce(y)
# ```
# </details>
#
# One collective is enough, after the *pair* of products, not after each. The opposite order, rows first, needs a collective before the relu, because
# $\text{relu}(u+v)$ is not $\text{relu}(u)+\text{relu}(v)$.
#
# Attention is such a pair too: each rank takes some *heads* (columns of the three projections), and the output projection is split by rows. So a
# layer has two pairs, and two all-reduces forward. The heads limit $p$. Many models have few heads for keys and values, 8 in Llama 3 (*grouped-query attention*).
# With more than 8 ranks several need the same one, and Megatron-LM demands that $p$ divides the number of key heads, or that this number divides $p$ (`transformer_config.py`).

# %% [markdown] name="backward"
# ## 2. Backward
#
# After the pair, $y = \sum_r z_r$, so the gradient of each $z_r$ is the gradient of $y$: nothing must be sent. Before the pair, all $p$ ranks used
# the same $x$, each for a piece of the result. The gradient of $x$ is the **sum** of all ranks' gradients. So the pair needs two operations, one
# before and one after it, which Megatron-LM calls $f$ and $g$:
#
# | | forward | backward |
# |---|---|---|
# | $f$, before | nothing | all-reduce |
# | $g$, after | all-reduce | nothing |


# %% name="f_and_g"
def summed(x):
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x)
    return x


def same(x):
    return x.view_as(x)


def with_backward(forward, backward):
    """A function for models that does `forward`, and `backward` with the gradient."""

    class Pair(torch.autograd.Function): ...

    Pair.forward = staticmethod(lambda ctx, x: forward(x))
    Pair.backward = staticmethod(lambda ctx, gradient: backward(gradient))
    return Pair.apply


f, g = with_backward(same, summed), with_backward(summed, same)


# %% [markdown] name="forgot"
# (autograd does not know a plain `dist.all_reduce` inside a model, and warns of it.) Now compare two pairs, one after the other, with one process
# that has whole matrices. `leave_out` leaves out $f$.


# %% name="two_pairs"
def network(x, a1, b1, a2, b2, f, g):
    y = torch.relu(g(torch.relu(f(x) @ a1) @ b1))
    return g(torch.relu(f(y) @ a2) @ b2)


def pairs(leave_out=False):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = [torch.randn(shape).requires_grad_() for shape in ((4, 8), (8, 24), (24, 8), (8, 24), (24, 8))]
    network(*whole, same, same).square().sum().backward()

    def mine(t, cut):
        return t if cut is None else t.tensor_split(p, cut)[rank]

    cuts = [None, 1, 0, 1, 0]  # x whole, A by columns, B by rows
    parts = [mine(t.detach(), cut).clone().requires_grad_() for t, cut in zip(whole, cuts, strict=True)]
    network(*parts, same if leave_out else f, g).square().sum().backward()
    right = [mine(t.grad, cut) for t, cut in zip(whole, cuts, strict=True)]
    return [((t.grad - r).norm() / r.norm()).item() for t, r in zip(parts, right, strict=True)]


# %% [markdown] name="guess_forgot_intro"
# Now leave out $f$ and look at the gradients of $x, A_1, B_1, A_2, B_2$.

# %% name="guess_forgot"
guess_forgot = predict(
    "Without `f`, which gradients are wrong?",
    choices=["none", "only x", "x, A1, B1", "all", "an error"],
    title="Without `f`, wrong are the gradients of",
)
guess_forgot

# %% name="forgot_run"
print(" " * 12 + "".join(f"{name:>8}" for name in ("x", "A1", "B1", "A2", "B2")))
for leave_out in (False, True):
    errors = world.run(pairs, leave_out)
    print(
        f"{'without f' if leave_out else 'with f':12}" + "".join(f"{max(e):8.0e}" for e in zip(*errors, strict=True)),
    )

# %% name="reveal_forgot" jupyter={"source_hidden": true}
# the answer: run this cell
guess_forgot.reveal(
    "x, A1, B1",
    why="The last pair gets the right gradient from the loss; only what comes before it lacks the other ranks' parts.",
)

# %% [markdown] name="forgot_explained"
# There is no error. The forward pass is right too, so the first loss is right. A test of one
# pair and its weights finds nothing: compare the gradient of the **input** with a single process.

# %% name="guess_calls"
guess_calls = predict(
    "How many all-reduces did the two pairs call, forward and backward?",
    low=0,
    high=16,
    title="All-reduces of two pairs",
)
guess_calls

# %% name="count_calls"
_, trace = world.trace(pairs)
print([(event.op, event.nbytes) for event in trace if event.rank == 0])
Player(trace)

# %% name="reveal_calls" jupyter={"source_hidden": true}
# the answer: run this cell
guess_calls.reveal(
    sum(event.op == "all_reduce" and event.rank == 0 for event in trace),
    why="Each pair needs one forward, for its result, and one backward, for the gradient of its input.",
)

# %% [markdown] name="calls_explained"
# Each is as large as the *activations* ($4 \times 8$ floats here), not as the weights. A layer has two pairs: **four
# all-reduces of $b\,s\,h$ elements** for $b$ sequences of $s$ tokens.
#
# **The bias.** Each rank computes `part + bias`, then the parts are summed. The product should be 10, the bias is 1. What is the result on your ranks?

# %% name="bias"
# %%ranks
part, bias = torch.full((1,), 10.0 / world_size), torch.ones(1)
everywhere = part + bias
dist.all_reduce(everywhere)
once = part.clone()
dist.all_reduce(once)
once += bias
print(f"before {everywhere.item():g}, after {once.item():g}")

# %% [markdown] name="sequence"
# ## 3. Sequence parallel
#
# After $g$ every rank has the same $y$ and does the same layer norm, dropout and addition with it: this is $p$ times the work and, worse, $p$ times
# the memory for backward. These steps treat each *token* separately. So $g$ can give each rank only its own tokens: a **reduce-scatter**. Then $f$
# must collect them again: an **all-gather**. In backward the two are exchanged.


# %% name="gather_and_scatter"
def gather(x):
    whole = x.new_empty(len(x) * dist.get_world_size(), *x.shape[1:])
    dist.all_gather_single(whole, x.contiguous())
    return whole


def scatter(x):
    mine = x.new_empty(len(x) // dist.get_world_size(), *x.shape[1:])
    dist.reduce_scatter_single(mine, x.contiguous())
    return mine


f_split, g_split = with_backward(gather, scatter), with_backward(scatter, gather)


# %% name="one_pair"
def one_pair(before, after, share):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    tokens, a, b = torch.randn(4 * p, 8), torch.randn(8, 24), torch.randn(24, 8)
    x = (tokens.tensor_split(p)[rank] if share else tokens).clone().requires_grad_()
    y = after(torch.relu(before(x) @ a.tensor_split(p, 1)[rank]) @ b.tensor_split(p, 0)[rank])
    y.sum().backward()
    right = (torch.relu(tokens @ a) @ b).tensor_split(p)[rank] if share else torch.relu(tokens @ a) @ b
    return (y - right).abs().max().item(), tuple(y.shape)


rings = {
    "all_gather_into_tensor": schedules.ring_all_gather,
    "reduce_scatter_tensor": schedules.ring_reduce_scatter,
}
for form in ((f, g, False), (f_split, g_split, True)):
    results, trace = world.trace(one_pair, *form)
    ops = [event.op for event in trace if event.rank == 0]
    n = 4 * world.ranks * 8 * 4  # bytes of all tokens' activations
    sent = sum(rings.get(op, schedules.ring_all_reduce)(world.ranks).bytes_sent(n)[0] for op in ops)
    print(f"off by {results[0][0]:.0e}, keeps {results[0][1]}, rings send {sent} bytes a rank: {ops}")

# %% [markdown] name="sequence_explained"
# The same: an all-reduce *is* a reduce-scatter and an all-gather. The memory between the pairs becomes $1/p$, with the same bytes. (For the weight's
# gradient backward needs the gathered $x$ once more. Either a rank keeps the whole of it, or gathers it again, as Megatron-LM does: that is one more
# collective, which overlaps with a product.)
#
# ### Layer norm's gradients
#
# Between the pairs each rank normalises its own tokens, with the same weight as all others. So the weight's gradient on a rank comes from that rank's
# tokens only.

# %% name="guess_norm_gradient"
guess_norm_gradient = predict(
    "Right is the sum of all ranks' gradients. If each rank takes p times its own gradient instead, the result is",
    choices=["right", "a few percent off", "far off"],
    title="One rank's gradient times p",
)
guess_norm_gradient


# %% name="norm_gradient"
def normed(tokens, weight):
    return torch.nn.functional.layer_norm(tokens, weight.shape, weight)


def norm_gradients():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    tokens, a, b = torch.randn(4 * p, 8), torch.randn(8, 24), torch.randn(24, 8)
    alone, mine = (torch.ones(8, requires_grad=True) for _ in range(2))
    (torch.relu(normed(tokens, alone) @ a) @ b).square().sum().backward()

    whole = f_split(normed(tokens.tensor_split(p)[rank], mine))
    y = g_split(torch.relu(whole @ a.tensor_split(p, 1)[rank]) @ b.tensor_split(p, 0)[rank])
    y.square().sum().backward()
    own, total = mine.grad.clone(), mine.grad
    dist.all_reduce(total)
    right = alone.grad
    return [((g - right).norm() / right.norm()).item() for g in (own, p * own, total)]


# %% name="norm_gradient_run"
own, scaled, total = zip(*world.run(norm_gradients), strict=True)
print(f"own gradient:  off by {', '.join(f'{e:.0%}' for e in own)}")
print(f"times p:       off by {', '.join(f'{e:.0%}' for e in scaled)}")
print(f"sum over ranks: off by {max(total):.0e}")

# %% name="reveal_norm_gradient" jupyter={"source_hidden": true}
# the answer: run this cell
guess_norm_gradient.reveal(
    "far off",
    why="Each rank has other tokens, so the gradients differ in every element, and no factor makes one of them the sum.",
)

# %% [markdown] name="norm_gradient_explained"
# Nothing fails. Every rank steps with another gradient, and after some steps there are $p$ different layer norms. The repair is an all-reduce, and one
# is enough for all such parameters: put their gradients into one tensor first, as Megatron-LM does. (In torch, `SequenceParallel` leaves such a gradient as a DTensor whose
# placement is `Partial`: `.to_local()` is one rank's part.)
#
# ### The norm of all gradients
#
# To clip gradients you need $\sqrt{\sum g^2}$ over the *whole* model. Some parameters are split, others are the same on every rank. The obvious code adds
# the squares of what a rank has, then all-reduces.

# %% name="guess_clip"
guess_clip = predict(
    "Each rank adds the squares of all its gradients, and an all-reduce adds the ranks' sums. What happens to the clipped gradients?",
    choices=["they are right", "too small", "too large", "different on each rank"],
    title="After clipping, the gradients are",
)
guess_clip

# %% name="clip_live"
# %%ranks
torch.manual_seed(0)
layer_norms = torch.randn(100)  # gradients that every rank has
torch.manual_seed(1 + rank)
shard = torch.randn(100)  # and those of its own columns

everything = shard.square().sum() + layer_norms.square().sum()
dist.all_reduce(everything)
once = shard.square().sum() + (layer_norms.square().sum() if rank == 0 else 0)
dist.all_reduce(once)
print(f"counted {world_size} times {everything.sqrt():.1f}, counted once {once.sqrt():.1f}")

# %% name="reveal_clip" jupyter={"source_hidden": true}
# the answer: run this cell
guess_clip.reveal(
    "too small",
    why="The gradients that all ranks have are counted p times, so the norm is too large, and the factor max_norm / norm too small, the same on every rank.",
)

# %% [markdown] name="clip_explained"
# Again nothing fails: with SGD the model learns a little slower, with Adam one hardly sees it, and a run with another $p$ is not the same run. Count what all ranks have on *one* rank. One
# number is all that must be sent.
#
# ## 4. Tensor parallelism in torch
#
# `parallelize_module` does all this for a model written for one process. Here each rank begins with *different* weights. What does the first plan send, before and in the step?


# %% name="with_torch"
def with_torch(split_tokens):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    p, device = dist.get_world_size(), torch.get_default_device().type
    torch.manual_seed(dist.get_rank())
    model = torch.nn.Sequential(torch.nn.Linear(8, 6 * p), torch.nn.ReLU(), torch.nn.Linear(6 * p, 8))
    where = Shard(0) if split_tokens else None
    plan = {"0": ColwiseParallel(input_layouts=where), "2": RowwiseParallel(output_layouts=where)}
    parallelize_module(model, init_device_mesh(device, (p,)), plan)
    y = model(torch.ones(4, 8, requires_grad=True))
    y.sum().backward()
    return tuple(model[0].weight.to_local().shape), y[0, 0].item()


# %% name="torch_run"
for split_tokens in (False, True):
    results, trace = world.trace(with_torch, split_tokens)
    print(f"rank 0 has {results[0][0]} of the first weights; y begins with {results[0][1]:.4f}, {results[-1][1]:.4f}")
    print("   ", [event.op for event in trace if event.rank == 0])

# %% [markdown] name="torch_explained"
# First rank 0's weights are scattered, and its second bias, which all keep whole, is broadcast: the ranks agree. Then there is one all-reduce forward and one backward, or an all-gather and a
# reduce-scatter in each direction. The bias of the second product is added once. torch 2.13
# calls this API experimental.
#
# ### The last layer
#
# The last product gives the logits, and it is split by columns: each rank has some words of the vocabulary. [Composing collectives](../2_collectives/18_composing.ipynb)
# merged the loss from three numbers a token. Its gradient is $\text{softmax} - \text{onehot}$: the sum for the softmax is there from the forward pass, and the
# 1 belongs to the one rank that has the target's column. So what is sent backward?


# %% name="split_loss"
def split_loss():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    rank, p, device = dist.get_rank(), dist.get_world_size(), torch.get_default_device().type
    torch.manual_seed(0)
    whole, target = torch.randn(32, 64 * p, requires_grad=True), torch.arange(32) * 7 % (64 * p)
    torch.nn.functional.cross_entropy(whole, target).backward()
    shard = whole.detach().tensor_split(p, 1)[rank].clone().requires_grad_()
    logits = DTensor.from_local(shard, init_device_mesh(device, (p,)), [Shard(1)], run_check=False)
    with loss_parallel():
        torch.nn.functional.cross_entropy(logits, target).backward()
    return (shard.grad - whole.grad.tensor_split(p, 1)[rank]).abs().max().item()


# %% name="split_loss_run"
errors, trace = world.trace(split_loss)
print(f"gradient off by {max(errors):.0e}, sent {[(e.op, e.nbytes) for e in trace if e.rank == 0]}")
gathered, summary = 2 * 8192 * 128_256 * 7 / 8, 3 * 2 * 7 / 8 * 4 * 8192
print(
    f"8192 tokens, 128,256 words, 8 GPUs: {summary / 1e6:.2f} MB a rank; gathered {gathered / 1e6:,.0f} MB",
)

# %% [markdown] name="split_loss_explained"
# Three all-reduces of one number a token, all of them forward; backward, nothing. (Megatron-LM's fused loss makes two: the sum and the target's logit go in one call. Before the product stands an $f$, which adds the gradients of its
# input as always.)

# %% [markdown] name="price"
# ## 5. What it costs
#
# Each layer has four ring all-reduces of $n = b\,s\,h\,e$ bytes:
#
# $$T_\text{layer} = 4\left[2(p-1)\,\alpha + 2\,\tfrac{p-1}{p}\,b\,s\,h\,e\,\beta\right]$$
#
# First a test of the model on your ranks: 32 calls with 4 bytes give $\alpha$, one with 4 MiB gives $\beta$; the 32 all-reduces of eight layers with
# 64 KiB of activations test it. `bench.seconds_of` times the three in turns and gives the median of seven times for each.

# %% name="timings"
# %%ranks
from allranks import bench


def reduce_all(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)


small, large, layers = [torch.zeros(1)] * 32, [torch.zeros(2**20)], [torch.zeros(2**14)] * 32
measured = bench.seconds_of(
    lambda: reduce_all(small), lambda: reduce_all(large), lambda: reduce_all(layers), iterations=7
)

# %% name="table"
p, (small, large, layers) = world.ranks, world["measured"][0]
alpha = small / 32 / (2 * (p - 1))
beta = max(large - small / 32, 0) / (2 * (p - 1) / p * 2**22)
model = 32 * schedules.ring_all_reduce(p).price(2**16, alpha, beta)
print(bench.fitted_words(world, alpha, beta))
print(f"eight layers: measured {1e3 * layers:.1f} ms, model {1e3 * model:.1f} ms")

# %% [markdown] name="guess_share_intro"
# If the measurement is far above the model, you may have fewer cores than ranks: then ranks take turns, and each of the 32 calls waits until the slowest rank is awake.
#
# Now the large model on 8 GPUs. Assume 400 TFLOP/s each, 5 µs for each message, and links of 450 GB/s in each direction (NVLink 4) or 50 GB/s (a 400
# Gb/s network card). What share of the time does communication take with each of the two links?

# %% name="share"
links = {"NVLink": 450e9, "network": 50e9}
compute_s = 6 * parameters * 2048 / (8 * 400e12)  # 2 FLOP forward and 4 backward, a weight and token
for name, bytes_per_s in links.items():
    step = workload.tensor_parallel(96, 1, 2048, 12_288, workload.Cluster(8, bytes_per_s, 5e-6))
    share = step.seconds / (step.seconds + compute_s)
    print(
        f"{name:8} computing {compute_s:.2f} s, {step.calls} all-reduces {step.seconds:.2f} s: {share:.0%}",
    )
print(f"a GPU sends {step.bytes_sent / 1e9:.2f} GB")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
tensor_guess.reveal(
    step.bytes_sent / 1e9,
    why="The activations of one sequence are only 50 MB, but they are all-reduced four times in each of 96 layers.",
)

# %% [markdown] name="share_explained"
# Data parallelism can hide its all-reduce behind the whole backward pass. Here the next product *needs* the result, so most of these bytes are on the critical path, in every layer. **That is why tensor
# parallelism stays where the links are fast**: inside the NVLink domain, which is a node or a whole rack. It also stays at few ranks: with 64 the pieces of each product would be small, and small
# products use a GPU badly (Narayanan et al. 2021).
#
# (For the same eight GPUs the first picture says 22 %: there they compute nearly twice as fast as the 400 TFLOP/s assumed here. Its answers: the weights need 8 GPUs; 16 take a
# sequence 1.4 times as fast on nodes of 8 and in a rack of 72, and over Ethernet they are slower than 8. With layers 8192 wide 8 H100 wait 30 % of the time, with 4096 wide 46 %.)
#
# ### Hide it: the product in pieces
#
# A part can be hidden. In backward the input's gradient can be sent while the weight's is computed, as in Megatron-LM. Forward, the gather of sequence
# parallelism can go round a ring: each block is multiplied while the next one is on its way.


# %% name="pieces"
# %%ranks
def ring_product(x, product, hide):
    """product() of all ranks' blocks, in rank order; with `hide` it computes while the next block is on its way."""
    block, results = x, [None] * world_size
    for step in range(world_size):
        works = []
        if step < world_size - 1:
            coming = torch.empty_like(block)
            sides = (
                (dist.isend, block, (rank + 1) % world_size),
                (dist.irecv, coming, (rank - 1) % world_size),
            )
            works = dist.batch_isend_irecv([dist.P2POp(*side) for side in sides])
        if hide:
            results[(rank - step) % world_size] = product(block)
        for work in works:
            work.wait()
        if not hide:
            _ = works and coming.flatten()[0].item()  # on a GPU, waits until it is here
            results[(rank - step) % world_size] = product(block)
        block = coming
    return torch.cat(results)


# %% name="pieces_right"
# %%ranks
x, a = torch.full((2**17, 8), float(rank)), torch.ones(8, 2)  # 4 MiB a rank
y = ring_product(x, lambda block: block @ a, hide=True)
print("right:", torch.equal(y[:: len(x), 0].cpu(), 8.0 * torch.arange(world_size).cpu()))

# %% [markdown] name="pieces_price"
# If the product takes $G$ and the gather $C$, then a piece takes $g = G/p$ and a block $c = C/(p-1)$, with its $\alpha$:
#
# $$T = g + (p-1)\max(g, c) \qquad\text{instead of}\qquad G + C.$$
#
# A sleep replaces a GPU's computing time, as long for a block as its journey, which is where the most can be gained. `bench.lasting` times the ring alone, with 4 MiB a rank or, between fast GPUs, more. It takes about ten seconds.


# %% name="pieces_live"
# %%ranks
import functools
import time

from allranks import bench


def slow_product(block):
    time.sleep(piece_s)
    return block @ a


def ring_alone(numel):
    return functools.partial(ring_product, torch.zeros(numel // 8, 8), lambda block: block @ a, hide=False)


numel, ring_s = bench.lasting(ring_alone, 2**20)
x, piece_s = torch.zeros(numel // 8, 8), ring_s / (world_size - 1)
pieces = bench.seconds_of(
    lambda: ring_product(x, lambda block: block @ a, hide=False),
    lambda: ring_product(x, slow_product, hide=False),
    lambda: ring_product(x, slow_product, hide=True),
    iterations=5,
)

# %% name="pieces_table"
p, piece, (C, after, hidden) = world.ranks, world["piece_s"][0], world["pieces"][0]
print(f"a block computes               {1e3 * piece:10.1f} ms")
print(f"the ring alone                     {1e3 * C:6.1f} ms")
print(f"one after the other: measured {1e3 * after:6.1f} ms, formula {1e3 * (p * piece + C):6.1f} ms")
formula = piece + (p - 1) * max(piece, C / (p - 1))
print(f"in pieces:           measured {1e3 * hidden:6.1f} ms, formula {1e3 * formula:6.1f} ms")

# %% [markdown] name="pieces_explained"
# (If you measured more than the formula, your ranks share cores: messages take some of the time in which others sleep.) The most is gained where both take about equally long, and never
# more than a factor of 2. More pieces hide more, but each product is smaller and each message pays its $\alpha$. Transformer Engine does this for Megatron-LM (`tp_comm_overlap`); torch has it for compiled models, experimental
# (`torch.ops.symm_mem.fused_all_gather_matmul`).

# %% [markdown] name="quiz"
# ## 6. Check yourself
#
# <details><summary>1. Each rank drops out different units of the <i>hidden</i> layer between A and B. Is that a bug? And after g?</summary>
#
# Between A and B ranks hold different columns, so different masks are right. After $g$ all hold the same $y$ and must draw the same mask, or they
# become different. (With sequence parallelism they hold different tokens again.)
# </details>
#
# <details><summary>2. The same model generates text on the 8 GPUs, one token at a time. What limits its tensor parallelism now?</summary>
#
# There are two all-reduces a layer, of $2h = 24.6$ kB: very few bytes, but 192 all-reduces one after the other. NCCL's tuner expects 15 µs for each on eight H100s: 2.9 ms for
# each token. (With the 5 µs a message that we assumed, its 14 steps would even take 70 µs.) The latency is the limit, so libraries use other algorithms here
# ([Without messages](../4_real_cluster/44_without_messages.ipynb)).
# </details>
#
# <details><summary>3. Is it true that tensor parallelism all-reduces after each parallel product?</summary>
#
# No: after each pair of a column-parallel and a row-parallel product. A layer has two all-reduces forward and two backward.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# If a pair of products is split by columns, then by rows, it needs one all-reduce forward and, for its input, one backward. Sequence parallelism
# replaces each by a reduce-scatter and an all-gather, and saves memory with the same bytes. These bytes are activations, in every layer, and the next
# product waits for them. **Tensor parallelism communicates in every layer, so use it only over the fastest links.**
#
# **Now you:** the last layer is split too, by the words of the vocabulary; [Lab 6](../../labs/lab06_composition/composition.ipynb) asks for the loss
# over it, [Lab 9](../../labs/lab09_tensor_parallel/tensor_parallel.ipynb) for the column and row layers themselves.
#
# **Next question:** what if each GPU keeps whole layers instead? [Pipelines](25_pipelines.ipynb)
#
# {{side_trips}}
#
# **Sources.** M. Shoeybi et al., *Megatron-LM*, [arXiv:1909.08053](https://arxiv.org/abs/1909.08053) ·
# D. Narayanan et al., *Efficient large-scale language model training on GPU clusters using Megatron-LM*, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) (which axis on which links) ·
# V. Korthikanti et al., *Reducing activation recomputation in large transformer models*, [arXiv:2205.05198](https://arxiv.org/abs/2205.05198) (sequence parallelism) ·
# [NVIDIA, Megatron-LM, tensor_parallel/layers.py](https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/layers.py) (what it overlaps and gathers again) ·
# [PyTorch, tensor parallelism](https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("tensor_parallel")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("24")
