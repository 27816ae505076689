# %% [markdown] name="title"
# # Mixture of experts
#
# {{here}}
#
# **A layer has 256 experts on 8 nodes, and each token wants 8 of them. How often must a token travel, and what becomes of a token for which there is no room?**
#
# {{picture}}
#
# *Above:* tokens in the colour of their rank, each with a line to its expert. *Below:* each expert has room for four.

# %% name="first_picture"
from allranks import explore

explore.router(uneven=1, capacity=1.25)

# %% [markdown] name="first_question"
# **Ask the picture.** Drag the line down to 1: does it drop nothing when the router is even? Then find the room that drops less than 1 % of the choices
# when the busiest expert has twice the mean. How much of it stays empty?

# %% [markdown] name="my_model_needs"
# **My model** should know more and compute only a little more: each layer gets 8 experts, and a token uses 2 of them. That makes 37 billion
# parameters. On 64 GPUs ZeRO stage 2 now needs 105 GB. Stage 3 fits, but a step takes 2.51 s; without experts it was 1.13 s.

# %% name="start_world"
import math

import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions, wire

world = World()
world

# %% [markdown] name="layer"
# ## 1. The whole layer
#
# [All-to-all](../2_collectives/15_all_to_all.ipynb) sent each token to one expert and back. A real layer does more. A **router**, a small matrix, gives each token a score for each
# expert. The token goes to the $k$ experts with the highest scores, and their results are added with the scores as **weights**:
#
# $$y = \sum_{j=1}^{k} w_j\, E_{e_j}(x).$$
#
# Each rank has $L$ experts: expert $e$ is on rank $\lfloor e/L \rfloor$. This is **expert parallelism**, EP.
#
# For training, the exchange must have a backward pass. Autograd needs to know it:


# %% name="exchange"
class Exchange(torch.autograd.Function):
    """Rows for each rank out, rows from each rank in."""

    @staticmethod
    def forward(ctx, rows, gives, gets, group):
        ctx.sizes, ctx.group = (gives, gets), group
        out = rows.new_empty(sum(gets), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), gets, gives, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        gives, gets = ctx.sizes
        back = grad.new_empty(sum(gives), grad.shape[1])
        dist.all_to_all_single(back, grad.contiguous(), gives, gets, group=ctx.group)
        return back, None, None, None


# %% [markdown] name="backward"
# In the backward pass the two lists of sizes are swapped. Every row's gradient goes back to where the row came from: **the backward pass of a dispatch is a combine**, and of a
# combine a dispatch.
#
# Now the layer. Find the counts, the dispatch, the combine and the weights.


# %% name="moe"
def moe(x, router, mine, k=2, group=None):
    """Each token to its k experts and back; `mine` are the weights of this rank's experts."""
    p, local = dist.get_world_size(group), len(mine)
    weights, experts = torch.softmax(x @ router, dim=-1).topk(k)
    order = torch.argsort(experts.flatten(), stable=True)  # row j of the dispatch is choice order[j]

    sending = torch.bincount(experts.flatten(), minlength=p * local)  # for each expert
    arriving = torch.empty_like(sending)
    dist.all_to_all_single(arriving, sending, group=group)
    gives, gets = (counts.view(p, local).sum(1).tolist() for counts in (sending, arriving))

    inbox = Exchange.apply(x[order // k], gives, gets, group)
    which = torch.arange(p * local) % local
    which = which.repeat_interleave(arriving)  # the expert of each row
    done = torch.zeros_like(inbox)
    for i, expert in enumerate(mine):
        done[which == i] = torch.relu(inbox[which == i] @ expert)
    back = Exchange.apply(done, gets, gives, group)

    results = back[torch.argsort(order)].view(*experts.shape, -1)
    return (weights[:, :, None] * results).sum(1)


# %% [markdown] name="try_intro"
# All numbers come from seeds, so each rank can also compute its tokens alone, with all experts. The results must be equal, and so must the gradients of the tokens.


# %% name="alone"
def numbers(experts, width=16):
    """The router and all experts, the same on every rank."""
    torch.manual_seed(0)
    return torch.randn(width, experts), torch.randn(experts, width, width) / width**0.5


def alone(x, router, experts, k=2):
    """The same layer in one process."""
    weights, chosen = torch.softmax(x @ router, dim=-1).topk(k)
    results = torch.relu(torch.einsum("nd,nkdh->nkh", x, experts[chosen]))
    return (weights[:, :, None] * results).sum(1)


def step(tokens=32, local=2, width=16):
    rank, p = dist.get_rank(), dist.get_world_size()
    router, experts = numbers(p * local, width)
    torch.manual_seed(rank + 1)
    x = torch.randn(tokens, width, requires_grad=True)
    y = moe(x, router, experts[rank * local : (rank + 1) * local])
    (grad,) = torch.autograd.grad(y.square().sum(), x)
    wanted = alone(x, router, experts)
    (right,) = torch.autograd.grad(wanted.square().sum(), x)
    return (y - wanted).abs().max().item(), (grad - right).abs().max().item()


# %% name="guess_calls"
calls = predict(
    "One forward and one backward pass of this layer: how many all-to-alls does each rank call, the counts included?",
    choices=["2", "3", "4", "5", "6"],
    title="All-to-alls of a layer, forward and backward",
)
calls

# %% name="step_live"
results, trace = world.trace(step)
for rank, (off, grad_off) in enumerate(results):
    print(f"rank {rank}: results off by {off:.0e}, gradients by {grad_off:.0e}")
exchanges = [[e for e in trace if e.rank == r and e.op == "all_to_all_single"] for r in range(world.ranks)]
print(len(exchanges[0]), "calls a rank")

# %% name="reveal_calls" jupyter={"source_hidden": true}
# the answer: run this cell
calls.reveal(
    "5",
    why="Forward has counts, dispatch and combine; backward sends the gradients along the same two ways, turned round, and knows the counts already.",
)

# %% [markdown] name="bytes_intro"
# ## 2. The bytes
#
# With $T$ tokens a rank, width $h$ and $e$ bytes a number, all ranks together put $p\,T\,k\,h\,e$ bytes into each of the four exchanges. How much leaves a rank depends on the router;
# evenly routed it is $T\,k\,h\,e\,\frac{p-1}{p}$. Count:

# %% name="bytes_live"
T, k, h, e = 32, 2, 16, 4
for place, name in enumerate(("counts", "dispatch", "combine", "backward of combine", "backward of dispatch")):
    calls_of_ranks = [mine[place].nbytes for mine in exchanges]
    formula = f", the formula says {world.ranks * T * k * h * e:,}" if place else ""
    print(f"{name:22}{sum(calls_of_ranks):7,} bytes{formula}; by rank {calls_of_ranks}")

# %% [markdown] name="bytes_explained"
# The formula is exact for the sum. But look at the ranks: each puts as many bytes into its dispatch, and *different* numbers into its combine, because it gives back what the router sent to
# it.
#
# For a large model, 4096 tokens a rank of width 7168, $k = 8$, EP over 64 ranks, numbers of 2 bytes:

# %% name="large"
one = 4096 * 8 * 7168 * 2 * 63 / 64
print(f"one exchange {one / 1e6:.0f} MB, a layer forward and backward {4 * one / 1e9:.2f} GB a rank")
print(f"on a network card of 50 GB/s, 8 ranks a node: {4 * one * 56 / 63 / 50e9 * 1e3:.0f} ms")

# %% [markdown] name="nodes_intro"
# ## 3. One copy a node
#
# The layer above sends one copy of a token for each of its $k$ experts, even if two of them are on one rank. One copy would do: let the receiver keep it for both, add the
# weighted results there, and give one sum back. It matters most between nodes, where the bytes are slow. Take 256 experts on 8 nodes and $k = 8$.

# %% name="guess_nodes"
nodes = predict(
    "8 of 256 experts at random, 32 experts on each of 8 nodes: on how many different nodes are a token's experts, on average?",
    low=1.0,
    high=8.0,
    title="Different nodes of a token",
)
nodes


# %% name="nodes_counted"
def node_table(tokens=20_000, experts=256, on_nodes=8, k=8, limit=None):
    """For each token the number of nodes on which its experts are. `limit`: only the best so many nodes may be chosen."""
    scores = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(0))
    if limit:
        by_node = scores.view(tokens, on_nodes, -1).topk(k // limit).values.sum(-1)
        allowed = torch.zeros(tokens, on_nodes).scatter_(1, by_node.topk(limit).indices, 1.0)
        scores = scores * allowed.repeat_interleave(experts // on_nodes, dim=1)
    where = scores.topk(k).indices // (experts // on_nodes)
    return torch.zeros(tokens, on_nodes).scatter_(1, where, 1.0).sum(1)


expected = 8 * (1 - math.comb(224, 8) / math.comb(256, 8))
free, limited = node_table(), node_table(limit=4)
print("a copy for each expert   8.00")
print(f"a copy for each node     {free.mean():.2f} (formula {expected:.2f}), at most {free.max():.0f}")
print(f"at most 4 nodes          {limited.mean():.2f}, at most {limited.max():.0f}")

# %% name="reveal_nodes" jupyter={"source_hidden": true}
# the answer: run this cell
nodes.reveal(
    expected,
    why="A node has none of the 8 with probability 0.34, about (7/8) to the power of 8, so a third of the nodes need no copy.",
    marks={"at most 4 nodes": 4},
)

# %% [markdown] name="nodes_explained"
# With one copy a node, a token is sent 5.3 times on average instead of 8 times. (In both cases an eighth of the copies stays on the token's own node, so 4.6 cross the network instead of 7.) Inside the node it is then copied
# over NVLink, which is faster.
#
# **Node-limited routing** goes further. In DeepSeek-V3 a token first chooses its 4 best nodes, and then 8 experts on these nodes only. This does two things:
#
# - On average there are 4 copies instead of 5.3, a quarter less.
# - There are never more than 4 copies, even if the router comes to prefer a few experts. Without the limit there may be 8.
#
# DeepSeek counts with 160 GB/s for NVLink and 50 GB/s for InfiniBand. So in the time of one copy over the network, 160 / 50 = 3.2 copies can be made inside the node.
#
# ## 4. No room
#
# The counts have a price: the CPU waits for them before it can start the dispatch. The other way is a fixed **capacity**: each rank has room for
#
# $$C = \left\lceil c \, \frac{T k}{E} \right\rceil$$
#
# tokens with each of $E$ experts, where $c$ is the **capacity factor**. All parts have the same size, and no counts are needed. Rows that nobody uses are sent as padding, and tokens for which
# there is no room are **dropped**: they pass the layer unchanged, through the residual connection. How many?

# %% name="guess_drops"
drops = predict(
    "A perfectly fair router, 64 experts, k = 2, capacity factor 1.25, and 256 tokens in a micro-batch: how many choices are dropped?",
    choices=["none", "0.5 %", "5 %", "25 %"],
    title="Choices dropped with a fair router",
)
drops


# %% name="dropped"
def chosen(tokens, skew, experts=64, k=2, batches=40):
    """How often each expert is chosen in each batch; the i-th is wanted in proportion to 1 / i^skew."""
    draws = torch.Generator().manual_seed(0)
    wanted = (1 / torch.arange(1, experts + 1) ** skew).expand(tokens, -1)
    picks = (torch.multinomial(wanted, k, generator=draws).flatten() for _ in range(batches))
    return torch.stack([torch.bincount(pick, minlength=experts) for pick in picks])


def dropped(factor, counts):
    """The share of choices without room."""
    room = math.ceil(factor * counts.sum(dim=1)[0].item() / counts.shape[1])
    return ((counts - room).clamp(min=0).sum() / counts.sum()).item()


factors = [1.0, 1.1, 1.25, 1.5, 2.0]
figure, axes = plots.chart("capacity factor", "% of choices dropped")
for name, tokens, skew in (("fair", 4096, 0.0), ("fair, 256 tokens", 256, 0.0), ("Zipf 0.5", 4096, 0.5)):
    counts = chosen(tokens, skew)
    lost = [100 * dropped(c, counts) for c in factors]
    axes.plot(factors, lost, marker="o", label=name)
    print(f"{name:18}" + "".join(f"{c:6}: {x:5.2f} %" for c, x in zip(factors, lost, strict=True)))
axes.legend()
figure

# %% name="reveal_drops" jupyter={"source_hidden": true}
# the answer: run this cell
drops.reveal(
    "5 %",
    why="Fair means fair on average: an expert should get 8 of these 256 tokens' choices, but chance gives some of them 12, and there is room for 10.",
)

# %% [markdown] name="drops_explained"
# With 4096 tokens a fair router needs little more than a factor of 1.1. But **small micro-batches drop too**, by chance alone. And skew is worse: even if expert 64 is wanted only 8 times less
# than the first, a factor of 2 is not enough. (The first picture, with 1,024 tokens, drops 4 % at factor 1 even if the router is even. If the busiest expert has twice the mean, a factor of 1.9 drops less than 1 %, and
# nearly half of the room stays empty.) So a model with a capacity needs a router that is trained to share the tokens out.
#
# - **Auxiliary loss**: $\alpha E \sum_i f_i P_i$, with $f_i$ the share of choices and $P_i$ the mean score of expert $i$. The next cell has its two ends.
# - **Bias**: DeepSeek-V3 adds a number to each expert's score when it *chooses*, lowers it for crowded experts, and drops nothing.


# %% name="auxiliary"
def auxiliary(shares, scores, alpha=0.01):
    return alpha * len(shares) * sum(f * s for f, s in zip(shares, scores, strict=True))


E = 64
print(f"all experts alike {auxiliary([1 / E] * E, [1 / E] * E):.3f}")
print(f"one expert only   {auxiliary([1.0] + [0.0] * (E - 1), [1.0] + [0.0] * (E - 1)):.3f}")

# %% [markdown] name="capacity_mine_task"
# ### Your turn
#
# A layer with a fixed room: `capacity` rows with each expert for this rank's tokens, `experts` says which expert a token wants. The code below puts every token into row 0. **Give each token the next free row** of its
# expert, in the order of tokens; a token without room passes unchanged.


# %% name="capacity_mine"
def moe_capacity(tokens, experts, capacity, expert_fns):
    p, local = dist.get_world_size(), len(expert_fns)
    room = tokens.new_zeros(p * local, capacity, tokens.shape[1])
    places = {}  # of the tokens that are sent: the expert, and the row in its room
    for i, expert in enumerate(experts.tolist()):
        places[i] = expert, 0  # your turn: the next free row, and only if there is one
        room[places[i]] = tokens[i]
    arrived, back = torch.empty_like(room), torch.empty_like(room)
    dist.all_to_all_single(arrived, room)
    rooms = arrived.view(p, local, *room.shape[1:]).unbind(1)  # one for each expert of this rank
    made = [fn(rows.flatten(0, 1)).view_as(rows) for fn, rows in zip(expert_fns, rooms, strict=True)]
    dist.all_to_all_single(back, torch.stack(made, 1).reshape(room.shape))
    result = tokens.clone()
    for i, place in places.items():
        result[i] = back[place]
    return result


check(moe_capacity)

# %% [markdown] name="capacity_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def moe_capacity(tokens, experts, capacity, expert_fns):
#     p, local = dist.get_world_size(), len(expert_fns)
#     room = tokens.new_zeros(p * local, capacity, tokens.shape[1])
#     places = {}  # of the tokens that are sent: the expert, and the row in its room
#     used = [0] * len(room)
#     for i, expert in enumerate(experts.tolist()):
#         if used[expert] < capacity:
#             places[i] = expert, used[expert]
#             room[places[i]] = tokens[i]
#             used[expert] += 1
#     arrived, back = torch.empty_like(room), torch.empty_like(room)
#     dist.all_to_all_single(arrived, room)
#     rooms = arrived.view(p, local, *room.shape[1:]).unbind(1)  # one for each expert of this rank
#     made = [fn(rows.flatten(0, 1)).view_as(rows) for fn, rows in zip(expert_fns, rooms, strict=True)]
#     dist.all_to_all_single(back, torch.stack(made, 1).reshape(room.shape))
#     result = tokens.clone()
#     for i, place in places.items():
#         result[i] = back[place]
#     return result
# ```
# </details>

# %% [markdown] name="overlap"
# ## 5. Hide the exchange
#
# An expert can't start before its tokens are there. But *half* of the tokens can be computed while the other half travels. Cut the batch in $n$ chunks: dispatch takes $D$ in all, the experts $G$,
# combine $C$. Without chunks the layer takes $D + G + C$. With them, only the first dispatch and the last combine are exposed, if the experts take longer than the network:
#
# $$T_n = \frac{D}{n} + G + \frac{C}{n}.$$
#
# `wire.run` gives your program a virtual clock, and `wire.compute` lets a rank work on it. Let $D = C = 1$ and $G = 2$ seconds.


# %% name="chunks"
def send_all(outgoing, incoming):
    rank, p = dist.get_rank(), dist.get_world_size()
    ops = []
    for i in range(1, p):
        up, down = (rank + i) % p, (rank - i) % p
        ops += [dist.P2POp(dist.isend, outgoing[up], up), dist.P2POp(dist.irecv, incoming[down], down)]
    return dist.batch_isend_irecv(ops)


def layer_in_chunks(n, rows=960):
    p, works = dist.get_world_size(), []
    inboxes = [torch.zeros(p, rows // n) for _ in range(n)]
    dispatches = [send_all(torch.zeros(p, rows // n), inbox) for inbox in inboxes]
    for dispatch, inbox in zip(dispatches, inboxes, strict=True):
        for work in dispatch:
            work.wait()
        wire.compute(2 / n)  # this chunk's experts; the next chunks are under way
        works += send_all(inbox, torch.zeros(p, rows // n))
    for work in works:
        work.wait()


# %% name="chunks_timed"
def seconds(n, launch=0.0, p=4):
    return wire.run(layer_in_chunks, p, (n,), alpha=launch / (p - 1), beta=1 / (960 * 4 * (p - 1)))


for n in (1, 2, 4, 8):
    print(f"{n} chunks: {seconds(n).seconds:.2f} s, the formula says {2 + 2 / n:.2f} s")

# %% name="chunks_watch"
plots.timeline(seconds(4).trace)

# %% [markdown] name="chunks_cost"
# In each row a rank's computing and waiting are above, its messages below. It waits only for the first dispatch and the last combine. Now each exchange also takes 0.05 seconds to start, however short it is.

# %% name="guess_chunks"
best = predict(
    "Each exchange costs 0.05 s more. Which number of chunks is the fastest?",
    choices=["1", "2", "4", "8"],
    title="With a cost for each exchange the best number of chunks is",
)
best

# %% name="chunks_live"
took = {n: float(seconds(n, launch=0.05).seconds) for n in (1, 2, 4, 8)}
for n, time in took.items():
    print(f"{n} chunks: {time:.2f} s")

# %% name="reveal_chunks" jupyter={"source_hidden": true}
# the answer: run this cell
best.reveal(
    str(min(took, key=took.get)),
    why="With 8 chunks there are 16 exchanges, 2.8 seconds for the network, and it becomes the slowest part. Small chunks also make small matrices, on which a GPU is slower.",
)

# %% [markdown] name="gradients"
# ## 6. Gradients of experts
#
# Large jobs have more ranks than an expert group. With $p$ ranks and groups of $ep$, rank $r$ has the experts of place $r \bmod ep$, and $p/ep$ ranks have the same ones: the **expert-data group**, $edp$ of
# them. Everything else, such as attention, is on all $p$ ranks and averaged over them, as in DDP. And the experts? Each rank's loss is the mean over *its* tokens. Let us average an
# expert's gradient over its $edp$ copies.

# %% name="guess_factor"
factor = predict(
    "p ranks in groups of ep. Averaged over the ranks with the same expert, the expert's gradient is",
    choices=["right", "ep times too large", "ep times too small", "edp times too small"],
    title="The averaged gradient of an expert is",
)
factor


# %% name="expert_gradient"
def expert_gradient(ep, local=2, tokens=8):
    rank, p = dist.get_rank(), dist.get_world_size()
    rows = [dist.new_group(list(range(first, first + ep))) for first in range(0, p, ep)]
    copies = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    router, experts = numbers(ep * local)
    torch.manual_seed(100)
    x = torch.randn(p, tokens, len(router))
    place = slice(rank % ep * local, (rank % ep + 1) * local)
    mine = experts[place].clone().requires_grad_()
    moe(x[rank], router, mine, group=rows[rank // ep]).square().sum(1).mean().backward()
    dist.all_reduce(mine.grad, group=copies[rank % ep])
    averaged = mine.grad / (p // ep)

    experts.requires_grad_()  # all tokens in one process, the mean loss of all ranks
    alone(x.flatten(0, 1), router, experts).square().sum(1).mean().backward()
    right = experts.grad[place]
    return (averaged.norm() / right.norm()).item(), (averaged / ep - right).abs().max().item()


ep = 2 if world.ranks % 2 == 0 else world.ranks
for rank, (ratio, off) in enumerate(world.run(expert_gradient, ep)):
    print(f"rank {rank}: {ratio:.2f} times the right gradient; divided by ep = {ep}, off by {off:.0e}")

# %% name="reveal_factor" jupyter={"source_hidden": true}
# the answer: run this cell
factor.reveal(
    "ep times too large",
    why="The backward exchange brought the gradients of all ep ranks' tokens to this rank, so it is a sum over ep losses already: divide the sum over the copies by p, not by edp.",
)

# %% [markdown] name="gradients_explained"
# Each rank divided its loss by its own tokens. So the sum over the copies is a sum over all $p$ losses, and must be divided by $p$: the mean over the copies times $edp/p$. Megatron-LM calls it
# `expert_gradient_scaling_factor`. The wrong size was reported for MegaBlocks, DeepSpeed and torchtitan's layer (see the sources), once with the remark that the loss curves look the same. One step shows why:

# %% name="hidden_by_adam"
for name, make in (("SGD", torch.optim.SGD), ("Adam", torch.optim.Adam)):
    moved = []
    for scale in (1.0, 2.0):
        weight = torch.zeros(4, requires_grad=True)
        weight.grad = scale * torch.tensor([1.0, -2.0, 0.5, 3.0])
        make([weight], lr=0.1).step()
        moved.append(weight.detach())
    print(f"{name:4} steps with twice the gradient: {(moved[1] / moved[0]).mean():.2f} times as far")

# %% [markdown] name="adam_explained"
# Adam divides by the size of the gradients, so a constant factor disappears. Clipping by the norm doesn't: there, experts that are $ep$ times too large push all others down.
#
# ## 7. A layer as it is built
#
# **The router learns too.** The choice of experts is a list of numbers, through which no gradient flows. It flows through the *weights* $w_j$: a chosen expert that helped gets a higher score. Some models divide the $k$ weights by their sum first, so that they add up to 1. The router's matrix is the same on every rank; its gradient is averaged over all of them.
#
# <!-- Shazeer et al. arXiv:1701.06538 section 2.1; arXiv:2101.03961 section 2.1 (k = 1, the score is the weight). torchtitan b5bcd76: models/common/moe.py:309-330 (gather of the scores, route_norm). Megatron-LM d98e8a6: core/transformer/transformer_config.py:2661-2669 -->

# %% name="guess_router"
router_guess = predict(
    "k = 1, and the one weight is divided by the sum of the weights, which is itself. The router's gradient from the loss is then",
    choices=["as before", "smaller, but not zero", "zero"],
    title="The router's gradient with one weight of 1",
)
router_guess


# %% name="router_gradient"
def router_gradient(k, normalised):
    rank, p = dist.get_rank(), dist.get_world_size()
    router, experts = numbers(p)  # an expert a rank
    router.requires_grad_()
    torch.manual_seed(rank + 1)
    x = torch.randn(32, 16)
    y = moe(x, router, experts[rank : rank + 1], k)
    if normalised:
        y = y / torch.softmax(x @ router, dim=-1).topk(k).values.sum(1, keepdim=True)
    y.square().mean().backward()
    dist.all_reduce(router.grad)
    return (router.grad / p).norm().item()


for k in (1, 2):
    for normalised in (False, True):
        [norm, *_] = world.run(router_gradient, k, normalised)
        print(f"k = {k}, {'weights sum to 1' if normalised else 'weights as they are':19}: norm {norm:.1e}")

# %% name="reveal_router" jupyter={"source_hidden": true}
# the answer: run this cell
router_guess.reveal(
    "zero",
    why="A number divided by itself is 1, whatever the router says, so the loss does not depend on it.",
)

# %% [markdown] name="router_explained"
# (What is left is rounding.) Megatron-LM refuses the mistake: with $k = 1$ the softmax must come before the choice.
#
# **A shared expert** takes every token, beside the chosen ones. It is on every rank, so nothing is exchanged for it, and it fills the time in which the dispatch travels. With section 5's clock, and half a second for the shared expert:
#
# <!-- arXiv:2412.19437 section 2.1.2 (one shared expert). Megatron-LM d98e8a6: transformer_config.py:717, moe_shared_expert_overlap, default False: "Without this, the shared experts execute before the router" -->


# %% name="shared_expert"
def with_shared(during, rows=960):
    p = dist.get_world_size()
    inbox = torch.zeros(p, rows)
    if not during:
        wire.compute(0.5)
    dispatch = send_all(torch.zeros(p, rows), inbox)
    if during:
        wire.compute(0.5)
    for work in dispatch:
        work.wait()
    wire.compute(2)
    for work in send_all(inbox, torch.zeros(p, rows)):
        work.wait()


for during in (False, True):
    took = wire.run(with_shared, 4, (during,), alpha=0, beta=1 / (960 * 4 * 3)).seconds
    print(
        f"shared expert {'during the dispatch' if during else 'before the dispatch'}: {float(took):.2f} s",
    )

# %% [markdown] name="grouped"
# **One call for all experts.** Section 1's loop makes a small product for each expert. A *grouped* product makes all in one kernel: rows in the order of the experts, and where each expert's rows end. Rows come in the order of their senders, so they are sorted once more.
#
# <!-- torch 2.13: torch.nn.functional.grouped_mm(input, mat2, offs=...). torchtitan b5bcd76: models/common/moe.py:81 (cumsum to int32), :120 -->

# %% name="grouped_live"
# %%ranks
torch.manual_seed(rank)
local, width = 4, 16
arriving = torch.randint(0, 6, (world_size, local))  # from each rank, for each of my experts
rows = torch.randn(int(arriving.sum()), width, dtype=torch.bfloat16)
weights = torch.randn(local, width, width, dtype=torch.bfloat16)

which = torch.arange(local).repeat(world_size).repeat_interleave(arriving.flatten())
order = torch.argsort(which, stable=True)
ends = arriving.sum(0).cumsum(0).to(torch.int32)
at_once = torch.nn.functional.grouped_mm(rows[order], weights, offs=ends)

one_by_one = torch.cat([rows[which == i] @ weights[i] for i in range(local)])
print(
    f"experts' rows end at {ends.tolist()}; one call differs from the loop by {(at_once - one_by_one).abs().max():.0e}"
)

# %% [markdown] name="meshes"
# The ends are a tensor *on the device*, so the CPU need not know them before it starts the kernel. The all-to-all above does need its sizes on the CPU. Buffers with room for the worst case avoid that, as in DeepEP with `do_cpu_sync=False`.
#
# <!-- DeepEP dd758ca (2026-07-14): README.md (V2, NCCL Gin backend); deep_ep/buffers/elastic.py:870-911 (do_cpu_sync, by default True without a cached handle) -->
#
# **The same ranks, cut in two ways.** For attention, 64 GPUs may be 8 (FSDP) × 8 (tensor parallel), and for the experts 2 (FSDP) × 32 (expert parallel): then each expert's weights are sharded over 2 ranks. torchtitan calls the second pair `efsdp` and `ep`. FSDP averages an
# expert's gradient over its own 2 ranks, which section 6 found wrong. But its divisor can be set. In your World, two experts a rank:
#
# <!-- torchtitan b5bcd76: distributed/parallel_dims.py, build_mesh (efsdp = fsdp * tp // ep); fsdp.py:99, set_gradient_divide_factor(1.0) with a loss divided by all tokens. Megatron-LM d98e8a6: core/distributed/distributed_data_parallel.py:273 -->


# %% name="experts_in_fsdp" jupyter={"source_hidden": true}
# the layer as a module, for FSDP: run this cell
class Experts(torch.nn.Module):
    def __init__(self, mine, group):
        super().__init__()
        self.mine, self.group = torch.nn.Parameter(mine), group

    def forward(self, x, router):
        return moe(x, router, self.mine, group=self.group)


# %% name="in_fsdp" jupyter={"source_hidden": true}
# its gradient against that of one process: run this cell
def in_fsdp(ep, divisor):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    rank, p = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(torch.get_default_device().type, (p // ep, ep), mesh_dim_names=("efsdp", "ep"))
    router, experts = numbers(2 * ep)
    place = slice(2 * mesh.get_local_rank("ep"), 2 * mesh.get_local_rank("ep") + 2)
    layer = fully_shard(Experts(experts[place].clone(), mesh.get_group("ep")), mesh=mesh["efsdp"])
    # gloo can't multiply while it adds; in a group of one rank torch 2.13 would then divide twice
    layer.set_force_sum_reduction_for_comms(p > ep)
    layer.set_gradient_divide_factor(float(divisor))
    torch.manual_seed(100)
    x = torch.randn(p, 8, len(router))
    layer(x[rank], router).square().sum(1).mean().backward()

    experts.requires_grad_()
    alone(x.flatten(0, 1), router, experts).square().sum(1).mean().backward()
    return (layer.mine.grad.full_tensor().norm() / experts.grad[place].norm()).item()


# %% name="divisors"
for divisor in (world.ranks // ep, world.ranks):
    ratios = ", ".join(f"{ratio:.2f}" for ratio in world.run(in_fsdp, ep, divisor))
    print(f"sum divided by {divisor}: {ratios} times the right gradient")

# %% [markdown] name="watch_intro"
# **Watch the load.** Log for each layer, over all ranks, the busiest expert's tokens against the mean. At 1 all experts have equally much to do. Here the router prefers some of 16 experts, and section 4's *bias* works against it: after each step it rises for experts below the mean and falls for those above.
#
# <!-- arXiv:2408.15664 (the bias, and MaxVio = largest load / mean - 1). torchtitan b5bcd76: components/optimizer/optimizer.py:512 (coefficient times the sign), models/common/moe.py:362 (1e-3). Megatron-LM d98e8a6: core/transformer/moe/moe_utils.py:1225, transformer_config.py:821 (1e-3) -->


# %% name="watched"
def loads(rate, steps=61, experts=16, k=2):
    """The busiest expert's tokens against the mean, step by step."""
    torch.manual_seed(0)
    router, preferred, bias = 0.3 * torch.randn(16, experts), torch.linspace(1, -1, experts), torch.zeros(experts)
    torch.manual_seed(dist.get_rank() + 1)
    seen = []
    for _ in range(steps):
        scores = torch.sigmoid(torch.randn(256, 16) @ router + preferred)
        counts = torch.bincount((scores + bias).topk(k).indices.flatten(), minlength=experts).float()
        dist.all_reduce(counts)  # the load of all ranks; one rank's own says little
        seen.append((counts.max() / counts.mean()).item())
        bias += rate * torch.sign(counts.mean() - counts)
    return seen


figure, axes = plots.chart("step", "busiest expert / mean")
for rate in (0.0, 0.002, 0.01, 0.05):
    seen = world.run(loads, rate)[0]
    axes.plot(seen, label=f"rate {rate:g}")
    print(f"rate {rate:<5g} first {seen[0]:.2f}, then {seen[30]:.2f} and {seen[60]:.2f}")
axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
figure

# %% [markdown] name="libraries"
# Too small a rate takes long, too large a one swings. The bias only *chooses*; the weights $w_j$ stay the plain scores, so no gradient flows through it.
#
# **On your own cluster.** Log this number for each layer, and the largest number of tokens that a *rank* received: that rank sets the pace. If the first number rises over thousands of steps, the router prefers fewer and fewer experts.
#
# ## 8. Find it in your library
#
# **Your task.** In the library that you train with, find out what happens to a token for which an expert has no room, and how many bytes a number takes on its way to the expert and back. Begin with these options:
#
# - **DeepEP**: dispatch and combine for NVLink and InfiniBand, one copy a node; tokens may travel in FP8, results in bfloat16. Its V2 has one `ElasticBuffer` over NCCL; code from before uses `Buffer` over NVSHMEM.
# - **Megatron-LM**: capacity by `moe_expert_capacity_factor`, without it nothing is dropped; EP groups beside tensor, context and data parallel ones.
# - **DeepSpeed-MoE, torchtitan**: the same ideas, other defaults. Look up whether yours drops.
#
# ## 9. Check yourself
#
# <details><summary>1. Why may a capacity make training faster, although it sends padding?</summary>
#
# No counts: the CPU does not wait, shapes are fixed, and no expert gets more rows than its room has.
# </details>
#
# <details><summary>2. Two experts of a token are on one rank. What goes there, what comes back?</summary>
#
# The token once, with both experts' numbers and both weights. The weighted sum once.
# </details>
#
# <details><summary>3. An expert got no token on one rank of its expert-data group. What must this rank do?</summary>
#
# Take part in the all-reduce with zeros. Else the others wait, or meet its next call.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A layer of experts has four large all-to-alls: dispatch and combine, forward and backward. Send a token once to a rank or a node, not once to an expert. A capacity saves the counts and drops
# tokens, by skew and by chance. Chunks hide the exchange as long as the network is not the slowest part. Experts' gradients are divided by *all* ranks. **Tokens are sent to their experts, and their gradients come back the same way.**
#
# **Now you:** [Lab 18](../../labs/lab18_mixture_of_experts/mixture_of_experts.ipynb): top-k with one copy a rank, a capacity, and the gradients. The plain dispatch is in [Lab 7](../../labs/lab07_all_to_all/all_to_all.ipynb).
#
# **Next question:** every way to split a model is there, on paper. On a real cluster, which GPUs should share a layer, and which may stand on other nodes?
# [Topology](../4_real_cluster/40_topology.ipynb)
#
# {{side_trips}}
#
# **Sources.** D. Lepikhin et al., *GShard*, [arXiv:2006.16668](https://arxiv.org/abs/2006.16668) ·
# W. Fedus, B. Zoph and N. Shazeer, *Switch transformers*, [arXiv:2101.03961](https://arxiv.org/abs/2101.03961) ·
# DeepSeek-AI, *DeepSeek-V3 technical report*, [arXiv:2412.19437](https://arxiv.org/abs/2412.19437) ·
# [DeepEP](https://github.com/deepseek-ai/DeepEP) · [Megatron-LM](https://github.com/NVIDIA/Megatron-LM) ·
# reports of the scaling: [MegaBlocks 20](https://github.com/databricks/megablocks/pull/20), [DeepSpeed 5259](https://github.com/deepspeedai/DeepSpeed/pull/5259), [PyTorch 160285](https://github.com/pytorch/pytorch/issues/160285)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("mixture_of_experts")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("27")
