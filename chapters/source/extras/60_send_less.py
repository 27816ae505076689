# %% [markdown] name="title"
# # Send less
#
# {{here}}
#
# **An all-reduce sends every number of every gradient, in every step. What if each rank sends only its largest numbers, or one bit a number, or nothing at all for 500 steps? What arrives, and what is lost?**
#
# {{picture}}
#
# Each rank sends its four largest numbers (full colour). It keeps the rest (outlined) and adds it to its next gradient.

# %% name="first_picture"
from allranks import explore

explore.compress(k=32, rest="forgotten")

# %% [markdown] name="first_question"
# **Ask the picture.** Drag $k$ down: where does the loss stop falling? Then keep the rest for the next step, and drag again. How many of the 64 numbers are enough?

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import World, check, plots, predict, predictions

world = World()
world

# %% [markdown] name="toy_intro"
# ## 1. The largest k
#
# Take a small problem, so that one sees everything. Each rank has a loss of its own, $f_r(x) = \frac12 |x - c - b_r|^2$, with 64 numbers in $x$. All
# ranks share $c$. On 8 of the 64 coordinates they disagree strongly, but their wishes $b_r$ sum to zero. So the best $x$ is $c$. In training,
# different data on the ranks do this.
#
# **Top-k**: each rank sends only the $k$ numbers with the largest absolute values, and their places. Here $k = 4$ of 64.

# %% name="guess_sent"
sent = predict(
    "In each of 200 steps rank 0 sends its 4 largest of 64 numbers, and forgets the rest. How many of the 64 coordinates does it send at least once?",
    low=4,
    high=64,
    unit="coordinates",
    title="Coordinates that rank 0 ever sends, without feedback",
)
sent

# %% name="problem"
# %%ranks
torch.manual_seed(3)
common = torch.randn(64)
signs = torch.tensor([(-1.0) ** r for r in range(world_size)])
apart = torch.zeros(world_size, 64)
apart[:, :8] = 4 * (signs - signs.mean())[:, None]  # the ranks' wishes on 8 coordinates cancel


def train(share, feedback, steps=200, lr=0.02):
    """Descends together. `share(wanted)` returns the sum over the ranks, and what this rank sent."""
    x, error, losses, sent_at = torch.zeros(64), torch.zeros(64), [], []
    for _ in range(steps):
        wanted = lr * (x - common - apart[rank]) + error
        total, sent = share(wanted)
        if feedback:
            error = wanted - sent
        x -= total / world_size
        losses.append(((x - common) ** 2).sum().item() / 2)
        sent_at.append(sent.nonzero().flatten().tolist())
    return losses, sent_at


# %% name="largest_first"
# %%ranks
gradient = -common - apart[rank]  # at x = 0
print("places of the 4 largest:", sorted(gradient.abs().topk(4).indices.tolist()))


# %% name="ways"
# %%ranks
def everything(wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    return total, wanted


def top_k(wanted, k=4):
    places = wanted.abs().topk(k).indices.int()
    values = wanted[places]
    all_values = torch.empty(k * world_size)
    all_places = torch.empty(k * world_size, dtype=torch.int32)
    dist.all_gather_single(all_values, values)
    dist.all_gather_single(all_places, places)
    total = torch.zeros_like(wanted).index_add_(0, all_places, all_values)
    return total, torch.zeros_like(wanted).index_add_(0, places, values)


# %% [markdown] name="gather_why"
# An all-reduce can't add vectors whose numbers are in different places. So the pairs are *gathered*, and each rank adds all of them. (`index_add_`
# matters: two ranks may choose the same place.) Now train three times. In the third, a rank remembers what it did not send and adds it to its next
# gradient: **error feedback**.

# %% name="train_live"
# %%ranks
runs = {
    "all numbers": train(everything, False),
    "top-4": train(top_k, False),
    "top-4 with feedback": train(top_k, True),
}
if rank == 0:
    for name, (losses, _) in runs.items():
        print(f"{name:20} loss {losses[0]:5.1f} at first, {losses[-1]:8.4f} after {len(losses)} steps")

# %% [markdown] name="which_intro"
# This shows which of the 64 coordinates rank 0 sent, step by step.

# %% name="which"
runs = world["runs"][0]
figure, panes = plots.chart("step", "coordinate", rows=2)
for axes, name in zip(panes, ("top-4", "top-4 with feedback"), strict=True):
    dots = [(step, place) for step, places in enumerate(runs[name][1]) for place in places]
    axes.plot(*zip(*dots, strict=True), marker=".", markersize=3, linestyle="", label=name)
    axes.set(ylim=(-2, 65), title=name)
    print(f"{name:20} {len({place for _, place in dots}):2} of the 64 coordinates were ever sent")
figure

# %% name="reveal_sent" jupyter={"source_hidden": true}
# the answer: run this cell
sent.reveal(
    len({place for places in runs["top-4"][1] for place in places}),
    why="Rank 0's gradient stays largest on the 8 coordinates on which the ranks disagree. What one rank gains there another one takes back, and the other 56 coordinates are never sent.",
    within=0,
)

# %% [markdown] name="which_explained"
# With feedback a small gradient that is not sent grows in the error from step to step, until it is among the largest. Nothing is lost; it only comes
# *later*. The price is memory for the error, as large as the gradient, and a floor: old gradients arrive late, so the loss stays above zero, by more if
# the learning rate is larger.
#
# Must ranks disagree for this? Let all have the *same* gradient, so that nothing that is sent cancels.

# %% name="guess_same"
same_goal = predict(
    "All ranks have the same gradient and send the 4 largest of 64 numbers. Do they still need feedback?",
    choices=["no, the loss ends as low without it", "yes, the loss stays far higher without it"],
    title="If all ranks agree, feedback is needed",
)
same_goal

# %% name="same_goal"
# %%ranks
kept, apart = apart, torch.zeros(world_size, 64)
agreed = {name: train(top_k, feedback)[0] for name, feedback in (("no feedback", False), ("feedback", True))}
apart = kept
if rank == 0:
    for name, losses in agreed.items():
        print(f"all agree, {name:11} loss {losses[0]:.2f} at first, {losses[-1]:.4f} after {len(losses)} steps")

# %% name="reveal_same" jupyter={"source_hidden": true}
# the answer: run this cell
same_goal.reveal(
    "yes, the loss stays far higher without it",
    why="Nothing cancels, so the loss does fall. But without feedback 60 of 64 numbers are thrown away in each step, and a coordinate moves only in the steps in which it is among the four largest.",
)

# %% name="loss_of_bytes"
p, n, k = world.ranks, 64, 4
kilobytes = {"all numbers": 2 * (p - 1) / p * 4 * n / 1e3, "top-4": (p - 1) * 8 * k / 1e3}
kilobytes["top-4 with feedback"] = kilobytes["top-4"]
figure, axes = plots.chart("kB that a rank has sent", "loss")
for name, (losses, _) in runs.items():
    axes.semilogy([kilobytes[name] * step for step in range(1, len(losses) + 1)], losses, label=name)
axes.legend()
figure

# %% [markdown] name="top_k_mine_task"
# ### Your turn
#
# Top-k over the ranks, with two lines missing: what was not sent before must be used now, and what is not sent now must be kept, in place.


# %% name="top_k_mine"
def top_k_all_reduce(tensor, k, error):
    p = dist.get_world_size()
    wanted = tensor.flatten()  # your turn: and what was not sent before?
    places = wanted.abs().topk(min(k, wanted.numel())).indices
    values = wanted[places]
    all_values = [torch.empty_like(values) for _ in range(p)]
    all_places = [torch.empty_like(places) for _ in range(p)]
    dist.all_gather(all_values, values)
    dist.all_gather(all_places, places)
    total = torch.zeros_like(wanted).index_add_(0, torch.cat(all_places), torch.cat(all_values))
    # your turn: what stays in error, in place, until the next step?
    return total.view(tensor.shape)


check(top_k_all_reduce)

# %% [markdown] name="top_k_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def top_k_all_reduce(tensor, k, error):
#     p = dist.get_world_size()
#     wanted = (tensor + error).flatten()
#     places = wanted.abs().topk(min(k, wanted.numel())).indices
#     values = wanted[places]
#     all_values = [torch.empty_like(values) for _ in range(p)]
#     all_places = [torch.empty_like(places) for _ in range(p)]
#     dist.all_gather(all_values, values)
#     dist.all_gather(all_places, places)
#     total = torch.zeros_like(wanted).index_add_(0, torch.cat(all_places), torch.cat(all_values))
#     wanted[places] = 0
#     error.copy_(wanted.view(error.shape))
#     return total.view(tensor.shape)
# ```
# </details>

# %% [markdown] name="when_wins"
# ## 2. When few numbers are fewer bytes
#
# A number and its place are 8 bytes (float32 and int32). In a ring, a rank sends
#
# $$\text{top-}k:\; 8k\,(p-1) \qquad\qquad \text{all-reduce of float32}:\; 8n\,\tfrac{p-1}{p}.$$
#
# The all-reduce adds on the way, so its bytes hardly grow with $p$. A gather can't add.

# %% name="guess_many"
many = predict(
    "1024 ranks send the largest 1 % of their gradients. Compared with an all-reduce of the whole gradient, each rank sends",
    choices=["100 times less", "10 times less", "about the same", "10 times more"],
    title="1 % of the numbers on 1024 ranks is",
)
many


# %% name="count_bytes"
def whole(n, k):
    dist.all_reduce(torch.zeros(n))


def largest(n, k):
    for kind in (torch.float32, torch.int32):
        pieces = torch.empty(k * dist.get_world_size(), dtype=kind)
        dist.all_gather_single(pieces, torch.zeros(k, dtype=kind))


p, n, k = world.ranks, 10_000, 100
ring = {whole: 2 * (p - 1) / p, largest: p - 1}  # what a rank sends in a ring, for each byte that it brings
for way, formula in ((whole, 8 * n * (p - 1) / p), (largest, 8 * k * (p - 1))):
    _, trace = world.trace(way, n, k)
    brought = sum(event.nbytes for event in trace if event.rank == 0)
    print(
        f"{way.__name__:8} the call gets {brought:6,} bytes; in a ring {brought * ring[way]:6,.0f}, formula {formula:6,.0f}"
    )

# %% name="many_ranks"
n, k = 1e9, 1e7
ranks = [2**i for i in range(1, 11)]
figure, axes = plots.chart("ranks", "times the bytes of the all-reduce")
axes.loglog(
    ranks,
    [8 * k * (p - 1) / (8 * n * (p - 1) / p) for p in ranks],
    marker="o",
    label="1 % of the numbers",
)
axes.loglog(ranks, [1] * len(ranks), label="all-reduce of float32")
axes.legend()
figure

# %% name="reveal_many" jupyter={"source_hidden": true}
# the answer: run this cell
many.reveal(
    "10 times more",
    why="8k(p-1) is less than 8n(p-1)/p only if k is less than n/p, and with 1 % that ends at 100 ranks.",
)

# %% [markdown] name="quantised"
# The rule is $k < n/p$. The same trap waits for **fewer bits**. torch has a hook for DDP, `quantization_pertensor_hook`, that turns float32 into
# uint8. Bytes of different ranks, each with a scale of its own, can't be added on the way either, so the hook *gathers* them.

# %% name="guess_uint8"
eighth = predict(
    "uint8 needs a quarter of float32's bytes. The hook gathers them: at how many ranks does it send as many bytes as the all-reduce of float32?",
    low=2,
    high=1000,
    unit="ranks",
    log=True,
    title="uint8, gathered, costs as much as float32 at",
)
eighth

# %% name="uint8_numbers"
n = 1e9
for p in (4, 8, 16, 64):
    gathered, reduced = (p - 1) * n, 8 * n * (p - 1) / p
    two = 2 * n * (p - 1) / p
    print(
        f"{p:3} ranks: gathered {gathered / 1e9:5.1f} GB, all-reduce of float32 {reduced / 1e9:.1f} GB, uint8 in two steps {two / 1e9:.1f} GB"
    )

# %% name="reveal_uint8" jupyter={"source_hidden": true}
# the answer: run this cell
eighth.reveal(
    8,
    why="(p-1)n against 8n(p-1)/p is a factor of p/8. In two steps it is a quarter for any p: each rank adds one chunk of everybody (all-to-all), quantises the sum again, and gathers the chunks.",
    within=0,
)

# %% [markdown] name="one_bit"
# ## 3. One bit a number
#
# How few bits are enough? Send only the *sign* of each number, and one scale for all of them, the mean absolute value. Eight signs go in a byte. Without feedback the numbers
# that cancel are again a problem: every rank says "plus the mean" or "minus the mean", however small a number is.


# %% name="one_bit_live"
# %%ranks
def one_bit(wanted):
    bit = 2 ** torch.arange(8)
    packed = ((wanted > 0).view(-1, 8) * bit).sum(1).to(torch.uint8)
    scale = wanted.abs().mean().view(1)
    all_bits, scales = torch.empty(world_size * len(packed), dtype=torch.uint8), torch.empty(world_size)
    dist.all_gather_single(all_bits, packed)
    dist.all_gather_single(scales, scale)
    signs = (all_bits[:, None] & bit).bool().view(world_size, -1) * 2.0 - 1
    vectors = scales[:, None] * signs
    return vectors.sum(0), vectors[rank]


runs["1 bit"] = train(one_bit, False)
runs["1 bit with feedback"] = train(one_bit, True)
if rank == 0:
    for name in ("1 bit", "1 bit with feedback"):
        print(f"{name:20} loss {runs[name][0][-1]:8.4f} after 200 steps")

# %% name="one_bit_bytes"
p, n = world.ranks, 64
runs = world["runs"][0]
kilobytes["1 bit"] = kilobytes["1 bit with feedback"] = (p - 1) * (n / 8 + 4) / 1e3
figure, axes = plots.chart("kB that a rank has sent", "loss")
for name in ("all numbers", "top-4 with feedback", "1 bit", "1 bit with feedback"):
    losses = runs[name][0]
    axes.semilogy([kilobytes[name] * step for step in range(1, len(losses) + 1)], losses, label=name)
axes.legend()
figure

# %% [markdown] name="one_bit_explained"
# In this problem one bit with feedback needs the fewest bytes for each loss below 1 that it reaches. (DeepSpeed sends the bits in two steps, as uint8 above, so its bytes do not grow with $p$.) **1-bit Adam** found one more trap: Adam divides by the root of
# averaged *squares*. Errors with both signs cancel in a sum, but not in a sum of squares. So it runs plain Adam for a while, freezes the squares, and only then sends the *momentum* in
# one bit, with feedback.
#
# <!-- DeepSpeed 84be831: runtime/comm/nccl.py, compressed_allreduce: all_to_all_single of packed signs, then all_gather, with an error for each -->
#
# ## 4. A thin matrix times a thin matrix: PowerSGD
#
# Top-k and signs can't be added on the way. This can: approximate rank $i$'s gradient $M_i$ of a layer, $n \times m$, by $P Q^\top$ with $r$ columns. With
# the same $Q$ on all ranks, $M_1 Q + M_2 Q = (M_1 + M_2) Q$: **a product with a common matrix can be summed**. Two all-reduces:
#
# 1. $P = $ all-reduce of $M_i Q$; make its columns orthonormal.
# 2. $Q = $ all-reduce of $M_i^\top P$, divided by $p$. Now $P Q^\top = P P^\top \bar M$: the mean, projected on $r$ columns.
#
# $Q$ is kept: the next step begins with it, and each step improves it, as in the power iteration.

# %% name="power_live"
# %%ranks
torch.manual_seed(0)
# three directions, and noise
mean_of_all = torch.randn(48, 3) @ torch.randn(3, 32) + 0.1 * torch.randn(48, 32)
q = torch.randn(32, 3)
torch.manual_seed(rank + 1)
matrix = mean_of_all + torch.randn(48, 32)  # this rank's gradient
mean_of_all = matrix.clone()
dist.all_reduce(mean_of_all)
mean_of_all /= world_size

off = []
for _ in range(4):
    p_columns = matrix @ q
    dist.all_reduce(p_columns)
    p_columns = torch.linalg.qr(p_columns).Q
    q = matrix.T @ p_columns
    dist.all_reduce(q)
    q /= world_size
    off.append(f"{(p_columns @ q.T - mean_of_all).norm() / mean_of_all.norm():.3f}")
u, s, v = torch.linalg.svd(mean_of_all)
if rank == 0:
    print("off by", *off, f"; the best 3 columns are off by {s[3:].norm() / s.norm():.3f}")

# %% [markdown] name="power_explained"
# After a round or two it is nearly the best that three columns can do. The rest, again, goes into an error: $e_i = M_i - PQ^\top$, added to the next gradient.
#
# torch has it as a communication hook of DDP. It compresses only matrices for which this saves enough (`min_compression_rate`, 2), and begins after
# `start_powerSGD_iter` steps (1000 by default), because the beginning of training is most sensitive to inexact gradients. Here is a layer of 64 x 64, and the state's own statistics.


# %% name="power_hook"
def with_hook(r, steps=100):
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    target = torch.randn(64, 64)
    ddp = DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
    state = PowerSGDState(None, matrix_approximation_rank=r, start_powerSGD_iter=2)
    if r:
        ddp.register_comm_hook(state, powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(steps):
        x = torch.randn(32, 64)
        loss = ((ddp(x) - x @ target.T) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), state.compression_stats()


# %% name="power_bytes"
for r in (0, 1, 4):
    results, trace = world.trace(with_hook, r)
    loss, (rate, _, _) = results[0]
    calls = [event for event in trace if event.rank == 0 and event.op == "all_reduce"]
    last = [event.nbytes for event in calls[-3:]] if r else [calls[-1].nbytes]
    formula = 4 * r * (64 + 64) if r else 4 * 64 * 64
    print(
        f"r = {r}: loss {loss:6.2f}, a step reduces {last}, {sum(last)} bytes; formula {formula}; statistics {rate:.0f} times"
    )

# %% [markdown] name="power_prices"
# The call of 0 bytes is for gradients that are not compressed; here there are none, but it still costs a latency. With a smaller $r$ more waits in
# the error: the loss falls more slowly, and with a large learning rate it *grows*. Try `lr=5.0` with $r=1$.
#
# The formula is $r(n+m)$ numbers instead of $nm$. For a large matrix that is much:

# %% name="power_formula"
n = m = 4096
for r in (1, 4, 32):
    print(f"r = {r:2}: {n * m / (r * (n + m)):6,.0f} times fewer numbers")

# %% [markdown] name="local"
# ## 5. Talk less often
#
# The other way: let each rank take $H$ steps alone, then average the *parameters*. This is **local SGD**: $1/H$ of the bytes, and of the latencies.
# To see its price, give the ranks different *curvatures* too, so that some walk faster than others.

# %% name="guess_local"
local = predict(
    "Local SGD with H = 20, and 400 steps in all. Where does it end, compared with averaging in every step?",
    choices=["at the same point", "at the same point, later", "at another point"],
    title="20 steps alone, again and again, end",
)
local

# %% name="local_live"
# %%ranks
curved = torch.linspace(0.5, 1.5, world_size)[:, None]
goals = common + apart
best = (curved * goals).sum(0) / curved.sum()


def mean_loss(x):
    return (curved * (x - goals) ** 2).sum().item() / 2 / world_size


def local_sgd(h, rounds, lr=0.02, outer_lr=1.0, beta=0.0):
    anchor, momentum, losses = torch.zeros(64), torch.zeros(64), []
    for _ in range(rounds):
        x = anchor.clone()
        for _ in range(h):  # alone
            x -= lr * curved[rank] * (x - goals[rank])
        difference = anchor - x
        dist.all_reduce(difference)
        difference /= world_size
        momentum = beta * momentum + difference
        anchor = anchor - outer_lr * (difference + beta * momentum)  # Nesterov
        losses.append(mean_loss(anchor) - mean_loss(best))
    return losses


# %% name="local_runs"
# %%ranks
by_h = {h: local_sgd(h, 400 // h) for h in (1, 5, 20)}
if rank == 0:
    for h, losses in by_h.items():
        print(f"H = {h:2}: {len(losses):3} all-reduces, loss above the best {losses[-1]:.5f}")

# %% name="reveal_local" jupyter={"source_hidden": true}
# the answer: run this cell
local.reveal(
    "at another point",
    why="In 20 steps alone each rank walks far towards its own best point. The mean of these points is not the point where the mean loss is least, because some ranks' losses are steeper. A smaller learning rate, or data that are alike, bring the two together.",
)

# %% [markdown] name="diloco"
# With `outer_lr=1` and `beta=0` the function above is local SGD. **DiLoCo** takes the difference between start and end as the gradient of an *outer* optimizer, with Nesterov momentum (rate
# 0.7, momentum 0.9), and AdamW for the inner steps. If the rounds agree on a direction, momentum makes the step longer. Same bytes, with $H=10$ and short inner steps:

# %% name="diloco_live"
# %%ranks
plain = local_sgd(10, 60, lr=0.001)
outer = local_sgd(10, 60, lr=0.001, outer_lr=0.7, beta=0.9)
if rank == 0:
    print(f"60 rounds: local SGD {plain[-1]:.3f}, with outer Nesterov momentum {outer[-1]:.3f}")

# %% name="local_curve"
figure, (alone, outside) = plots.chart("all-reduces", "loss above the best", size=(6.4, 5), rows=2)
for h, losses in world["by_h"][0].items():
    alone.loglog(range(1, len(losses) + 1), losses, label=f"H = {h}")
for name, losses in {"H = 10, short steps": world["plain"][0], "H = 10, outer momentum": world["outer"][0]}.items():
    outside.loglog(range(1, len(losses) + 1), losses, label=name)
for axes in (alone, outside):
    axes.legend()
figure

# %% [markdown] name="peak_intro"
# On this simple bowl the momentum swings past the best point and comes back. The price of DiLoCo, for 7 billion parameters and 8 workers: $2Pe\,\frac{p-1}{p}$ bytes a round, divided by $H$. Bytes *a step* are a mean. A network must also carry the *moment*
# when all workers exchange all parameters.

# %% name="guess_peak"
peak = predict(
    "DiLoCo exchanges float32 every 500 steps, DDP bfloat16 in each step. One exchange of DiLoCo must take no longer than one of DDP. How fast must its link be?",
    choices=["1/500 as fast as DDP's", "1/250 as fast", "as fast", "twice as fast"],
    title="For an exchange in the same time DiLoCo's link must be",
)
peak

# %% name="peak_numbers"
parameters, p, h = 7e9, 8, 500
ddp, round_ = (2 * parameters * nbytes * (p - 1) / p for nbytes in (2, 4))
print(f"DDP, bfloat16: {ddp / 1e9:.1f} GB a step")
print(
    f"DiLoCo, float32: {round_ / 1e9:.1f} GB a round, {round_ / h / 1e9:.3f} GB a step: {ddp / (round_ / h):.0f} times less"
)
for gigabytes in (50, 1):
    print(
        f"at {gigabytes} GB/s an exchange takes {ddp / gigabytes / 1e9:.1f} s for DDP, {round_ / gigabytes / 1e9:.1f} s for DiLoCo"
    )

# %% name="reveal_peak" jupyter={"source_hidden": true}
# the answer: run this cell
peak.reveal(
    "twice as fast",
    why="An exchange moves all parameters at once, and in float32 they are twice the bytes; only the mean over many steps is 250 times less.",
)

# %% [markdown] name="rare"
# So what is gained on a slow link? The exchange is *rare*. If a step takes 5 s:

# %% name="share"
for gigabytes in (50, 1, 0.1):
    wait = round_ / gigabytes / 1e9
    print(f"at {gigabytes:4} GB/s workers wait {wait:5.1f} s after {h} steps, {wait / (wait + 5 * h):.1%} of the time")

# %% [markdown] name="streaming"
# **Streaming DiLoCo** lowers the
# peak too: it sends the parameters in parts, at different steps, while the workers go on.
#
# torch has the pieces for local SGD: `post_localSGD_hook` for DDP, and a `PeriodicModelAverager`. Do you need both? How far are the ranks' weights from each other after each step?


# %% name="furthest"
def furthest(weight):
    """The largest difference of a parameter between two ranks."""
    both = torch.stack([weight, -weight])
    dist.all_reduce(both, op=dist.ReduceOp.MAX)
    return round(both.sum(0).max().item(), 3)


# %% name="averager"
def apart_after(average, steps=9):
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    ddp = DistributedDataParallel(torch.nn.Linear(8, 8, bias=False))
    alone = [dist.new_group([r]) for r in range(dist.get_world_size())][dist.get_rank()]
    state = local.PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=0)
    ddp.register_comm_hook(state, local.post_localSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    if average:
        optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=4, warmup_steps=0))
    torch.manual_seed(1 + dist.get_rank())
    spread = []
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 8)).pow(2).mean().backward()
        optimizer.step()
        spread.append(furthest(ddp.module.weight.detach()))
    return spread


# %% name="averager_live"
figure, axes = plots.chart("step", "largest difference of a weight")
for average, name in ((False, "hook alone"), (True, "hook and averager")):
    axes.plot(range(9), world.run(apart_after, average)[0], marker="o", label=name)
axes.legend()
figure

# %% [markdown] name="averager_explained"
# The hook alone averages *gradients* in its subgroup (here: one rank, so nothing). It never averages parameters over all: the ranks drift apart, and no error is
# raised. The averager does it, every 4th step here.
#
# ## 6. Is it worth it?
#
# Choosing and packing take time too. The next cell times it on your ranks, with 1 % of a million numbers.

# %% name="timings"
# %%ranks
from allranks import bench

n, k = 2**20, 2**20 // 100
big, small, all_small = torch.randn(n), torch.randn(2 * k), torch.empty(2 * k * world_size)
measured = bench.seconds_of(
    lambda: dist.all_reduce(big),
    lambda: big.abs().topk(k),
    lambda: dist.all_gather_single(all_small, small),
    iterations=7,
)

# %% name="worth"
p, (whole, choose, gather) = world.ranks, world["measured"][0]
print(f"all-reduce of 4 MiB {1e3 * whole:.2f} ms; choose 1 % {1e3 * choose:.2f} ms, gather it {1e3 * gather:.2f} ms")
saved = (8 * 2**20 * (p - 1) / p - 8 * (2**20 // 100) * (p - 1)) / 1e9
print(
    f"a rank sends {1e3 * saved:.1f} MB less: that pays for the choosing on links slower than {saved / choose:.2f} GB/s"
)

# %% [markdown] name="libraries"
# Inside a node it rarely pays: NVLink is fast, and bfloat16 gradients are already half the bytes. Between data centres it can.
#
# - **torch** 2.13, hooks of DDP: `fp16_compress_hook`, `bf16_compress_hook`, `powerSGD_hook`, `post_localSGD_hook`, two quantization hooks. On CPU
#   ranks (gloo) we tried them: fp16, PowerSGD and local SGD work; both quantization hooks raise an IndexError, and bf16 a TypeError where torch was built without CUDA.
# - **DeepSpeed** has 1-bit Adam; **torchft** has local SGD and DiLoCo with streaming (`sync_every`, `fragment_sync_delay`).
#
# ## 7. Check yourself
#
# <details><summary>1. PowerSGD makes P orthonormal after the all-reduce. Why not before?</summary>
#
# Each rank would have another basis, and a sum of bases is not a basis. $Q$ would belong to no common $P$.
# </details>
#
# <details><summary>2. A rank with error feedback crashes and starts from a checkpoint without its error. What is lost?</summary>
#
# All gradients that it had not sent yet. The error belongs in the checkpoint, and it is different on every rank.
# </details>
#
# <details><summary>3. Top-k with k = 0.1 % on 8 ranks. How many times fewer bytes?</summary>
#
# $n/(kp) = 1000/8 = 125$ times, for pairs of 8 bytes against float32; half of it against bfloat16.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# What is not sent must be *kept*: with error feedback nothing is lost, only late. Whether fewer numbers are fewer bytes depends on whether the network
# can *add* them. It can add PowerSGD's products. Top-k and bits must be gathered: top-k pays up to $n/k$ ranks, uint8 up to 8 and one bit up to 64, or any number in two steps. Talking every $H$ steps
# divides the mean by $H$ and leaves the peak. **Keep what you do not send, and count the bytes for your number of ranks before you trust a saving.**
#
# **Now you:** [Lab 16](../../labs/lab16_send_less/send_less.ipynb): top-k with error feedback, and a round of PowerSGD.
#
# **Next question:** a step can send less. Can a GPU keep less? [Sharded training](../3_one_model/22_sharded_training.ipynb)
#
# **Sources.** S. U. Stich et al., *Sparsified SGD with memory*, [arXiv:1809.07599](https://arxiv.org/abs/1809.07599) ·
# S. P. Karimireddy et al., *Error feedback fixes SignSGD*, [arXiv:1901.09847](https://arxiv.org/abs/1901.09847) ·
# T. Vogels et al., *PowerSGD*, [arXiv:1905.13727](https://arxiv.org/abs/1905.13727) ·
# H. Tang et al., *1-bit Adam*, [arXiv:2102.02888](https://arxiv.org/abs/2102.02888) ·
# S. U. Stich, *Local SGD converges fast and communicates little*, [arXiv:1805.09767](https://arxiv.org/abs/1805.09767) ·
# A. Douillard et al., *DiLoCo*, [arXiv:2311.08105](https://arxiv.org/abs/2311.08105), and *Streaming DiLoCo*, [arXiv:2501.18512](https://arxiv.org/abs/2501.18512) ·
# [PyTorch, DDP communication hooks](https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("60")
