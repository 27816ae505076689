# %% [markdown] name="title"
# # Memory and rooflines
#
# {{here}}
#
# **A paper of 2021 trains a model on 3072 GPUs at 52 % of their peak. How much of this is the model's own arithmetic, and how much is work done twice to save memory? And from how many tokens a GPU on does computing hide the network?**
#
# {{picture}}
#
# What one layer of GPT-3 keeps for its backward pass on one GPU. On eight GPUs each keeps less. How much less depends on how the layer is split, and on what is computed again.

# %% name="first_picture"
from allranks import explore

explore.recompute(count=6, what="full")

# %% [markdown] name="first_question"
# **Ask the picture.** Drag to 12 layers: what is left in memory, and how much longer is the step? Then choose *attention only*: is it the better trade?

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions, rooflines

world = World()
world

# %% [markdown] name="guess_intro"
# Weights, gradients and the optimizer's state are 16 bytes a parameter, and sharding divides them. This chapter is about the rest of the memory, the
# **activations**: what the forward pass keeps for the backward pass. Then about speed: what a step could take at best, and what keeps it from that.

# %% name="guess_tensor"
guess = predict(
    "A layer of GPT-3 keeps 2869 MB of activations for one sequence. Its matrices are split over 8 tensor parallel ranks. How many MB does each rank keep?",
    low=100,
    high=3000,
    unit="MB",
    title="MB a rank keeps, of 2869",
)
guess

# %% [markdown] name="count_intro"
# ## 1. What a layer keeps
#
# `torch.autograd.graph.saved_tensors_hooks` calls a function for every tensor that autograd saves. So the bytes can be counted. Two saved tensors may be
# views of one storage, which counts once; weights are kept anyway, and don't count.


# %% name="count"
# %%ranks
def kept(function, *inputs):
    """What function(*inputs) returns, and the bytes that autograd saves for its backward pass."""
    storages = {}
    known = {p.untyped_storage().data_ptr() for p in weights}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = function(*inputs)
    return out, sum(storages.values())


# %% [markdown] name="layer_intro"
# The layer is that of GPT: layer norm, attention, layer norm, an MLP of four times the width; dropout at three places. The two functions `enter` and `leave`
# stand where tensor parallelism communicates. For now they do nothing.


# %% name="layer"
# %%ranks
import torch.nn.functional as F


def layer(x, enter=lambda t: t, leave=lambda t: t):
    """One layer for x of shape (tokens, hidden); each rank has some heads, and some columns of the MLP."""
    w_qkv, w_out, w_up, w_down = weights
    rows = enter(F.layer_norm(x, x.shape[-1:]))
    q, k, v = (rows @ w_qkv).view(len(rows), 3, -1, 16).permute(1, 2, 0, 3)
    scores = q @ k.transpose(1, 2) / 4 + later
    seen = torch.native_dropout(scores.softmax(-1), 0.1, True)[0]
    mixed = (seen @ v).transpose(0, 1).reshape(len(rows), -1)
    x = x + torch.native_dropout(leave(mixed @ w_out), 0.1, True)[0]
    rows = enter(F.layer_norm(x, x.shape[-1:]))
    return x + torch.native_dropout(leave(F.gelu(rows @ w_up) @ w_down), 0.1, True)[0]


# %% name="count_sizes"
# %%ranks
tokens, heads = 48 * world_size, 2 * world_size
hidden = 16 * heads
later = torch.full((tokens, tokens), float("-inf")).triu(1)  # what a token must not see


# %% name="drawn"
# %%ranks
def drawn(shards):
    """The four weights of one of so many shards."""
    shapes = [(hidden, 3 * hidden // shards), (hidden // shards, hidden), (hidden, 4 * hidden // shards)]
    return [(torch.randn(shape) / hidden**0.5).requires_grad_() for shape in (*shapes, shapes[2][::-1])]


# %% name="count_live"
# %%ranks
torch.manual_seed(0)
x, weights = torch.randn(tokens, hidden).requires_grad_(), drawn(1)
out, whole = kept(layer, x)
unit = tokens * hidden * x.element_size()
print(f"kept {whole / unit:.2f} tensors of the size of x")

# %% [markdown] name="formula"
# Korthikanti et al. counted by hand, for numbers of 2 bytes and one-byte masks of dropout, with $s$ tokens, $b$ sequences, width $h$ and $a$ heads:
#
# $$s\,b\,h\,\left(34 + 5\,\tfrac{a\,s}{h}\right)\ \text{bytes a layer}.$$
#
# The 34 are 16 tensors of the size of $x$ and two masks: inputs of both layer norms (2), of the first products (2), queries, keys and values (3), the result
# of attention (1), the two wide tensors of the MLP (8). The second term has the softmax's result, the dropout's, and its mask, for each head and *pair* of tokens. `rooflines` has the formula:

# %% name="compare"
tokens, heads, hidden, counted = (
    world["tokens"][0],
    world["heads"][0],
    world["hidden"][0],
    world["whole"][0],
)
shape = {"tokens": tokens, "hidden": hidden, "heads": heads, "sequence": tokens}
formula = rooflines.layer_activation_nbytes(**shape, element_nbytes=4)
print(f"counted {counted:,} bytes, the formula says {formula:,.0f}: {100 * (counted / formula - 1):.2f} % more")

# %% [markdown] name="compare_explained"
# (Numbers of 4 bytes here, so 66 in place of 34.) The small rest are means and deviations of the layer norms, two numbers a token, which the formula leaves out.
#
# ## 2. Split it
#
# Tensor parallelism splits the matrices, so that each rank has some heads and some columns of the MLP. `enter` and `leave` are $f$ and $g$ of [Tensor parallel](24_tensor_parallel.ipynb): an
# all-reduce on the way back, and one on the way forward. Sequence parallelism splits the *tokens* between them too: `enter` gathers, `leave` reduces and scatters.


# %% name="enter_leave"
# %%ranks
class Moves(torch.autograd.Function):
    """One move forward, and the opposite one backward."""

    @staticmethod
    def forward(ctx, t, forward, backward):
        ctx.backward_move = backward
        return forward(t)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.backward_move(gradient), None, None


# %% name="summed"
# %%ranks
def summed(t):
    t = t.clone()
    dist.all_reduce(t)
    return t


def gathered(t):
    rows = t.new_empty(world_size * len(t), t.shape[1])
    dist.all_gather_single(rows, t.contiguous())
    return rows


def scattered(t):
    rows = t.new_empty(len(t) // world_size, t.shape[1])
    dist.reduce_scatter_single(rows, t.contiguous())
    return rows


def same(t):
    return t.view_as(t)


tensor = (lambda t: Moves.apply(t, same, summed), lambda t: Moves.apply(t, summed, same))
sequence = (lambda t: Moves.apply(t, gathered, scattered), lambda t: Moves.apply(t, scattered, gathered))

# %% name="split_live"
# %%ranks
weights = drawn(world_size)
_, by_tensor = kept(layer, x, *tensor)
mine = x.detach().tensor_split(world_size)[rank].clone().requires_grad_()
_, by_sequence = kept(layer, mine, *sequence)
print(f"of {whole:,} bytes: TP {by_tensor / whole:.0%}, TP and SP {by_sequence / whole:.0%}")

# %% name="compare_split"
t = world.ranks
for name, counted, parallel in (("TP", world["by_tensor"][0], False), ("TP and SP", world["by_sequence"][0], True)):
    says = rooflines.layer_activation_nbytes(**shape, tp=t, sequence_parallel=parallel, element_nbytes=4)
    print(f"{name:9} counted {counted:9,}, the formula says {says:11,.0f}: {counted - says:+9,.0f}")
print(f"two gathered tensors, without a rank's own rows: {2 * 4 * tokens * hidden * (t - 1) // t:,} bytes")

# %% [markdown] name="split_explained"
# Tensor parallelism leaves some tensors whole on every rank: $sbh\,(10 + 24/t + 5as/ht)$. Layer norms and dropouts work on all tokens everywhere. Sequence parallelism
# divides these too: $\frac{sbh}{t}(34 + 5as/h)$.
#
# Our count is above this by nearly two tensors: the *gathered* inputs of both first products, which autograd saves whole. Megatron-LM keeps the own rows
# only, and gathers them **again** in the backward pass. You write this in the lab. Here are the eight ranks of the question:

# %% name="gpt3"
gpt3 = {"tokens": 2048, "hidden": 12288, "heads": 96, "sequence": 2048}
ways = {
    "one rank": {},
    "TP 8": {"tp": 8},
    "TP 8 and SP": {"tp": 8, "sequence_parallel": True},
    "TP 8 and SP, attention recomputed": {"tp": 8, "sequence_parallel": True, "recompute": "selective"},
    "TP 8, all recomputed": {"tp": 8, "recompute": "full"},
}
megabytes = {name: rooflines.layer_activation_nbytes(**gpt3, **way) / 1e6 for name, way in ways.items()}
for name, size in megabytes.items():
    on_stage = size * rooflines.layers_kept(96, stages=8, chunks=3) / 1e3
    print(f"{name:34}{size:6.0f} MB a layer, {on_stage:6.1f} GB on the first of 8 stages, 3 chunks each")

# %% name="reveal_tensor" jupyter={"source_hidden": true}
# the answer: run this cell
guess.reveal(
    megabytes["TP 8"],
    why="Of the 34 bytes 10 belong to layer norms and dropouts, which every rank computes for all tokens.",
    marks={"an eighth": megabytes["TP 8 and SP"]},
)

# %% [markdown] name="stage_explained"
# A *stage* is some of the layers, whole, on one rank of a [pipeline](25_pipelines.ipynb). The first of $p$ stages holds $p$ micro-batches at once, so splitting into stages saves nothing here: $L/p$ layers times $p$. With
# $v$ short stages a rank, *chunks*, it holds $1 + \frac{p-1}{pv}$ times as much.
#
# ## 3. Compute it again
#
# **Recomputation** keeps only the input of a layer. When its backward pass comes, it runs the layer forward once more. `torch.utils.checkpoint` does
# that, and takes care of the random numbers of dropout.

# %% name="guess_again"
again = predict(
    "Every layer is recomputed. Of all that the GPU then computes in a step, how much has it computed before?",
    choices=["an eighth", "a quarter", "a third", "a half"],
    title="Computed a second time, of all",
)
again

# %% name="recompute_live"
# %%ranks
from torch.utils.checkpoint import checkpoint

from allranks import bench


def recomputed(x):
    return checkpoint(layer, x, use_reentrant=True)


torch.manual_seed(0)
weights = drawn(1)
_, little = kept(recomputed, x)
forward_s, once_s, twice_s = bench.seconds_of(
    lambda: layer(x),
    lambda: layer(x).sum().backward(),
    lambda: recomputed(x).sum().backward(),
    iterations=21,
    warmups=5,
)
print(f"{whole:,} bytes become {little:,}; a step takes {twice_s / once_s:.2f} times as long")

# %% [markdown] name="recompute_explained"
# (`use_reentrant=True`, because the hooks see what it saves. torch recommends `False` for your own code.) What is left is $x$ itself. A step
# takes a third longer, if forward is a third of it. On a CPU forward may be more than a third, and `checkpoint` itself keeps and restores the random
# state; the last line has the price with the measured share of forward.

# %% name="again_operations"
parameters = rooflines.gpt_parameters(1, hidden)
work = (tokens, 1, hidden, tokens)
model = rooflines.model_flop(parameters, *work)
for way in rooflines.RECOMPUTES:
    more = rooflines.recomputed_flop(way, parameters, *work)
    print(f"{way:9} {(model + more) / model:.3f} times the operations")

# %% name="again_price"
forward, once, twice = (world[name][0] for name in ("forward_s", "once_s", "twice_s"))
print(f"forward is {forward / once:.0%} of a step here, so {1 + forward / once:.2f} times; measured {twice / once:.2f}")

# %% name="reveal_again" jupyter={"source_hidden": true}
# the answer: run this cell
again.reveal(
    "a quarter",
    why="Forward is one part and backward two. With the second forward pass there are four, and one of them repeats another.",
)

# %% [markdown] name="selective"
# **Selective** recomputation is the better trade: only the core of attention, whose scores are most of the bytes for long sequences and few of the operations.
# FlashAttention does it inside the kernel, so the term $5as/h$ is gone in most jobs today. A gated MLP (SwiGLU) or grouped keys change the 34, not the idea.

# %% [markdown] name="linear_mine_task"
# ### Your turn
#
# The tokens are split over the ranks, and the product needs all of them. The code below keeps the gathered rows until the backward pass: $p$ times as many bytes as its own. **Keep less**: gather a second time. It is recomputation of a
# message instead of a product.


# %% name="linear_mine"
def gathered(x):
    rows = x.new_empty(dist.get_world_size() * len(x), x.shape[1])
    dist.all_gather_single(rows, x.contiguous())
    return rows


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        rows = gathered(x)
        ctx.save_for_backward(rows, w)  # your turn: keep less, and gather again on the way back
        return rows @ w

    @staticmethod
    def backward(ctx, gradient):
        rows, w = ctx.saved_tensors
        mine = gradient.new_empty(len(rows) // dist.get_world_size(), rows.shape[1])
        dist.reduce_scatter_single(mine, gradient @ w.T)
        return mine, rows.T @ gradient


def sequence_parallel_linear(x, w):
    return Linear.apply(x, w)


# %% name="linear_mine_check"
check(sequence_parallel_linear)

# %% [markdown] name="linear_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def gathered(x):
#     rows = x.new_empty(dist.get_world_size() * len(x), x.shape[1])
#     dist.all_gather_single(rows, x.contiguous())
#     return rows
#
#
# class Linear(torch.autograd.Function):
#     @staticmethod
#     def forward(ctx, x, w):
#         ctx.save_for_backward(x, w)
#         return gathered(x) @ w
#
#     @staticmethod
#     def backward(ctx, gradient):
#         x, w = ctx.saved_tensors
#         mine = x.new_empty(x.shape)
#         dist.reduce_scatter_single(mine, gradient @ w.T)
#         return mine, gathered(x).T @ gradient
#
#
# def sequence_parallel_linear(x, w):
#     return Linear.apply(x, w)
# ```
# </details>

# %% [markdown] name="roofline_intro"
# ## 4. The roofline
#
# Is a kernel limited by arithmetic or by bytes? Divide: operations a byte, its **arithmetic intensity**. A machine with peak $C$ operations a second and
# bandwidth $W$ reaches at most
#
# $$\min(C,\ \text{intensity} \times W).$$
#
# A product of $n$ rows and a matrix reads the matrix once: the more rows, the more operations for each byte. Measured on your ranks:


# %% name="roofline_sizes"
# %%ranks
width = 2048
matrix, counts = torch.randn(width, width), [1, 2, 4, 8, 16, 32, 64, 128]
operands = [torch.randn(count, width) for count in counts]

# %% name="roofline_live"
# %%ranks
took = bench.seconds_of(*(lambda a=a: a @ matrix for a in operands), iterations=7)
rates = [2 * count * width**2 / s for count, s in zip(counts, took, strict=True)]
print(f"1 row {rates[0] / 1e9:.1f} GFLOP/s, 128 rows {rates[-1] / 1e9:.1f} GFLOP/s")

# %% name="roofline_points"
rates, width = world["rates"][0], world["width"][0]
across = [rooflines.matmul_intensity(count, width, width, 4) for count in world["counts"][0]]
top, bandwidth = max(rates), rates[0] / across[0]

# %% name="roofline_plot"
figure, axes = plots.chart("operations a byte", "GFLOP/s")
roof = [rooflines.attainable_flop_per_s(intensity, top, bandwidth) / 1e9 for intensity in across]
axes.loglog(across, roof, label="roofline")
axes.loglog(across, [rate / 1e9 for rate in rates], marker="o", label="measured, slowest rank")
axes.legend()
print(
    f"bandwidth {bandwidth / 1e9:.1f} GB/s by the first point, peak {top / 1e9:.1f} GFLOP/s by the highest",
)
figure

# %% [markdown] name="roofline_explained"
# The slope comes from the first point, the roof from the highest. Points below the line reach neither bound: the kernel is not perfect, or ranks share cores
# and memory. Slope and roof meet at $C/W$ operations a byte: there machine and work balance. With an H100's figures (989 TFLOP/s in bfloat16) there are several such points, one for each kind of memory or link:

# %% name="balance"
peak = 989e12
for name, bandwidth in {
    "memory (HBM), 3.35 TB/s": 3.35e12,
    "NVLink, 450 GB/s": 450e9,
    "network, 50 GB/s": 50e9,
}.items():
    print(f"{name:24} {rooflines.flop_per_byte(peak, bandwidth):8,.0f} operations a byte")
print(f"a product of 8192 x 8192 x 8192: {rooflines.matmul_intensity(8192, 8192, 8192):,.0f} a byte of memory")

# %% [markdown] name="bounds"
# ## 5. When the network sets the pace
#
# The same division with bytes *sent*. All bounds assume perfect overlap, and arithmetic and links at their peak.
#
# | | computes | sends, in bytes | hidden if |
# |---|---|---|---|
# | FSDP, forward: a layer of $P$ parameters, $B$ tokens a GPU | $2PB$ | $2P$, a gather | $B > C/W$ |
# | FSDP, backward, sums in bfloat16 | $4PB$ | $4P$, a gather and a reduce-scatter | $B > C/W$ |
# | FSDP, backward, sums in float32 | $4PB$ | $6P$ | $B > \frac32\,C/W$ |
# | tensor parallel: an MLP of inner width $F$ on $t$ ranks | $4BhF/t$ | $4Bh$ | $t < F\,W/C$ |
# | expert parallel: a token and an expert | $4hF$ | $4h$ | $F > C/W$ |
#
# $B$ is the tokens of one micro-batch (each micro-batch gathers again). A mixture of experts gathers all $E$ experts and uses $k$ of them, so its $B$ must be $E/k$ times as large. A gated MLP (SwiGLU) computes half as much again behind the same bytes: $t$ may be
# $\frac32$ times as large, and $F$ only $\frac23$ as wide.
#
# In FSDP's bound the number of GPUs does not appear, in tensor parallel's the tokens cancel, in expert parallel's the tokens and $k$.

# %% name="guess_tokens"
tokens_guess = predict(
    "FSDP over many nodes of 8 H100 with 400 GB/s a node: how many tokens must a GPU compute in one micro-batch, so that its forward pass hides the gathers?",
    low=10,
    high=100_000,
    unit="tokens",
    log=True,
    title="Tokens a GPU that hide FSDP",
)
tokens_guess

# %% name="gather_live"
# %%ranks
side = 144 * world_size
shard, matrix = torch.randn(144, side), torch.empty(side, side)
few, many = torch.randn(16, side), torch.randn(2048, side)
gather_s, few_s, many_s = bench.seconds_of(
    lambda: dist.all_gather_single(matrix, shard),
    lambda: few @ matrix,
    lambda: many @ matrix,
    iterations=9,
)
print(f"gather {1e3 * gather_s:.2f} ms; 16 tokens {1e3 * few_s:.2f} ms, 2048 tokens {1e3 * many_s:.2f} ms")

# %% name="gather_bound"
p, side = world.ranks, world["side"][0]
gather, small, large = world["gather_s"][0], world["few_s"][0], world["many_s"][0]
speed, bandwidth = 2 * 2048 * side**2 / large, 4 * side**2 * (p - 1) / p / gather
bound = (p - 1) / p * rooflines.data_parallel_tokens(speed, bandwidth, element_nbytes=4)

# %% name="gather_price"
print(
    f"{speed / 1e9:.1f} GFLOP/s and {bandwidth / 1e9:.2f} GB/s a rank: hidden from {bound:,.0f} tokens on",
)
print(
    f"with 16 tokens the gather takes {gather / small:.1f} times as long as the product, with 2048 {gather / large:.2f} times"
)

# %% [markdown] name="bound_explained"
# The bound between them is that of *your* ranks: slow computing, slow links. (With few ranks $\frac{p-1}{p}$ of the bytes travel.) And for real GPUs:

# %% name="bounds_real"
machines = {
    "H100, inside a node": (989e12, 450e9),
    "H100, nodes of 400 GB/s": (989e12, 400e9),
    "B200, inside a node": (2250e12, 900e9),
    "B200, nodes of 400 GB/s": (2250e12, 400e9),
}
for name, (speed, bandwidth) in machines.items():
    forward = rooflines.data_parallel_tokens(speed, bandwidth)
    wide = (
        (2 + 4) / 4 * rooflines.flop_per_byte(speed, bandwidth)
    )  # bytes a parameter over operations a parameter and token
    print(f"{name:24} FSDP from {forward:6,.0f} tokens a GPU; backward, sums in float32, from {wide:6,.0f}")
print(f"TP of an MLP of 28,672 over NVLink: up to {rooflines.tensor_parallel_ranks(28672, 989e12, 450e9):.0f} ranks")
print(f"EP over cards of 50 GB/s: experts from a width of {rooflines.expert_parallel_width(989e12, 50e9):,.0f}")
print(f"Llama 3 405B: {16 * 2**20 / 16384:,.0f} tokens a GPU in a whole step")

# %% name="reveal_tokens" jupyter={"source_hidden": true}
# the answer: run this cell
tokens_guess.reveal(
    rooflines.data_parallel_tokens(989e12, 400e9),
    why="989 TFLOP/s divided by 400 GB/s is that many tokens, and a huge job has fewer on each GPU in a whole step: 16 million tokens on 16,384 GPUs are 1024 each.",
    marks={"Llama 3 405B": 1024},
)

# %% [markdown] name="bounds_explained"
# So with FSDP alone Llama 3 would wait for its gathers: 1024 tokens a GPU are too few, even in one micro-batch. Pipeline stages help: a node then gathers the layers of its stage
# only, and computes them for the tokens of all stages. Tensor parallelism inside a node does not change what the node's cards must bring.
# And a faster GPU needs *more* tokens, if the network stays the same: the B200 between nodes. Few experts are as wide as 19,780, or 13,187 if they are gated, so expert parallelism over
# network cards is bound by communication; real systems send fewer bytes, use NVLink, and overlap with other layers.

# %% [markdown] name="mfu"
# ## 6. MFU and HFU
#
# **MFU**, model FLOP utilization: the operations that the *model* needs, over what the GPUs could do in that time. **HFU** counts what the *hardware* did,
# with everything that was computed again. Recomputing raises HFU and lowers MFU.
#
# $$\text{model FLOP a step} = 72\,B\,L\,s\,h^2\left(1 + \tfrac{s}{6h} + \tfrac{V}{12hL}\right)$$
#
# for $B$ sequences and $V$ words: 6 operations a parameter and token, and $12Lhs$ a token for attention.

# %% name="guess_52"
paper = predict(
    'Narayanan et al. (2021): a model of a trillion parameters on 3072 A100, every layer recomputed, 163 TFLOP/s a GPU, "52 % of peak". They count the recomputation. What is the MFU?',
    choices=["52 %", "47 %", "39 %", "26 %"],
    title="The MFU behind 52 %",
)
paper

# %% name="megatron"
layers, width, words = 128, 25600, 51200
tokens = 3072 * 2048  # sequences a step, tokens each
parts = (tokens, layers, width, 2048)
model = rooflines.model_flop(rooflines.gpt_parameters(layers, width, words), *parts)
done = model + rooflines.recomputed_flop("full", rooflines.gpt_parameters(layers, width), *parts)
step = done / (163e12 * 3072)  # the paper has no seconds: they follow from its TFLOP/s
print(f"a step takes {step:.1f} s")
print(
    f"HFU {rooflines.utilization(done, step, 3072, 312e12):.1%}, MFU {rooflines.utilization(model, step, 3072, 312e12):.1%}"
)

# %% name="reveal_52" jupyter={"source_hidden": true}
# the answer: run this cell
paper.reveal(
    "39 %",
    why="A quarter of what the GPUs did was the second forward pass, which the model does not need.",
)

# %% [markdown] name="others"
# A year later the same group recomputed attention only. Less was computed twice, so the model's share rose. And an MFU depends on how attention is counted:

# %% name="published"
for name, layers, width, batch, gpus, took in (
    ("530B, 280 A100", 105, 20480, 280, 280, 37.83),
    ("1T, 512 A100", 128, 25600, 512, 512, 71.49),
):
    flop = rooflines.model_flop(rooflines.gpt_parameters(layers, width, 51200), batch * 2048, layers, width, 2048)
    print(f"{name:15} {took:.2f} s a step: MFU {rooflines.utilization(flop, took, gpus, 312e12):.1%}")
dense = 8.03e9 - 128256 * 4096  # Llama 3.1 8B without its embedding
for name, counted, scores in (
    ("all scores", dense, (32, 4096, 8192)),
    ("half of them (causal)", dense, (32, 4096, 4096)),
    ("no scores, all 8.03B", 8.03e9, ()),
):
    flop = rooflines.model_flop(counted, 5762, *scores)
    print(f"8B, 5762 tokens/s on an H100, {name:22} {rooflines.utilization(flop, 1, 1, 989e12):.1%}")

# %% [markdown] name="libraries"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/utils/checkpoint.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `set_checkpoint_early_stop`. When does recomputation stop, and why may that be before the end of the block?
#
# <details><summary><b>Answer</b></summary>
#
# As soon as all tensors that backward needs are there again. What comes behind the last saved tensor need not run.
# </details>
#
# You also meet it here:
#
# - **torch**: `torch.utils.checkpoint`; `torch.cuda.max_memory_allocated()`; `saved_tensors_hooks` can also move tensors to the CPU (`save_on_cpu`).
# - **Megatron-LM**: `--recompute-granularity selective` or `full`, `--sequence-parallel`; **torchtitan**: `activation_checkpoint=SelectiveAC.Config()` or `FullAC.Config()` in a configuration.
# - [Price a training run](29_price_a_training_run.ipynb) uses these formulas: `training_step(..., recompute="full")`.
# - Before you compare two MFUs, ask: which peak (sparse figures are twice the dense ones), with recomputation or without, and which attention?
#
# ## 8. Check yourself
#
# <details><summary>1. Why does sequence parallelism send as many bytes as tensor parallelism alone?</summary>
#
# An all-reduce is a reduce-scatter and an all-gather. Sequence parallelism does one before and one after the layer norm, and keeps $1/t$ in between. Only the second gather backward is extra.
# </details>
#
# <details><summary>2. You double the number of GPUs and keep the batch. FSDP's gathers were hidden before. Are they still?</summary>
#
# Tokens a GPU halve, also in a micro-batch, and the bytes of a gather stay. If $B$ falls below $C/W$, they are not.
# </details>
#
# <details><summary>3. A team turns on full recomputation. HFU rises from 45 to 52 %. Did training get faster?</summary>
#
# No. MFU is three quarters of 52 %, 39 %: slower than 45 %. Unless the memory allows larger micro-batches that were not possible before.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A layer keeps 34 bytes for each token and element of width, and more for the scores of attention. Tensor and sequence parallelism divide this by $t$, recomputation of
# the whole layer leaves 2 bytes and costs a third more time. A collective hides if there are $C/W$ operations for each byte: for FSDP on H100s from about 2500 tokens a GPU and micro-batch on forward, and from 3700 on backward if gradients are summed in float32. Of the
# 52 % of the question, 39 % were the model. **Compare jobs by the operations that the model needs, not by those that the machine did.**
#
# **Now you:** [Lab 19](../../labs/lab19_memory_and_rooflines/memory_and_rooflines.ipynb): a product that gathers its input again, and one that hides the gather.
#
# **Next question:** what if each GPU keeps whole layers, and only these? [Pipelines](25_pipelines.ipynb)
#
# **Sources.** V. Korthikanti et al., *Reducing activation recomputation in large transformer models*, [arXiv:2205.05198](https://arxiv.org/abs/2205.05198) ·
# D. Narayanan et al., *Efficient large-scale language model training on GPU clusters*, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) ·
# A. Chowdhery et al., *PaLM*, [arXiv:2204.02311](https://arxiv.org/abs/2204.02311) (MFU) ·
# S. Williams, A. Waterman, D. Patterson, *Roofline*, [CACM 52 (2009)](https://doi.org/10.1145/1498765.1498785) ·
# J. Austin et al., *How to scale your model*, [jax-ml.github.io/scaling-book](https://jax-ml.github.io/scaling-book/) (bounds, GPUs) ·
# Llama Team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) ·
# [torchtitan, benchmarks](https://github.com/pytorch/torchtitan/tree/main/benchmarks) (5762 tokens/s) · peaks and bandwidths: NVIDIA's datasheets of A100, H100 and B200

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("28")
