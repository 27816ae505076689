# %% [markdown] name="title"
# # Composing collectives
#
# {{here}}
#
# **A vocabulary of 131,072 words is split over 8 GPUs, so that each sees an eighth of every row of logits. How do they compute the loss of 8192 tokens if no GPU may hold a whole row?**
#
# {{picture}}
#
# One row of logits as bars, the colour says which rank holds them. Four ranks are drawn.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, check, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# The simple way is to gather: then every rank has all logits and calls `cross_entropy`. In float32 this takes the number of GB below on each GPU. But
# a summary is enough. Section 5 has the answer.

# %% name="question"
gathered = 8192 * 131_072 * 4
print(f"gathered logits: {gathered / 1e9:.2f} GB on every GPU")
first_guess = predict(
    "How many bytes per token must each rank contribute, if it sends a summary?",
    low=1,
    high=100_000,
    unit="B",
    log=True,
    title="Bytes per token",
)
first_guess

# %% [markdown] name="merge"
# ## 1. Send the summary, not the data
#
# Each rank holds a piece of some data, and all need one fact about the whole. What must a rank send to the others? Begin with the mean, as in [Reduce](12_reduce.ipynb). Rank $r$ has
# $r+1$ numbers, and all of them are $r$.
#
# Compare, for your $p$ ranks, the mean of all $\frac{p(p+1)}{2}$ numbers, and the average of the ranks' means.

# %% name="means"
# %%ranks
values = torch.full((rank + 1,), float(rank))
mean = values.mean()
dist.all_reduce(mean)

summary = torch.tensor([values.sum(), len(values)])
dist.all_reduce(summary)
print(f"mean of means {mean.item() / world_size:g}\nsum / count   {summary[0] / summary[1]:g}")

# %% [markdown] name="merge_explained"
# The means of the pieces are not enough; the pairs (sum, count) are. To **merge** two such pairs, add them; if you merge the pairs of all pieces, you
# get the pair of the whole. This is the idea of the whole chapter:
#
# 1. find a small summary that can be merged, in any grouping;
# 2. let a collective merge it;
# 3. compute the answer from it.
#
# | wanted | summary of a piece | merge |
# |---|---|---|
# | mean | sum, count | add both |
# | any NaN? | 0 or 1 | maximum |
# | argmax | value, where | the larger value's |
# | variance | count, mean, squared deviations | section 4 |
# | softmax | maximum, sum of exponentials | section 3 |
#
# The first row also gives the loss over batches of unequal length: reduce the sum of the losses *and* the number of tokens.

# %% [markdown] name="argmax"
# ## 2. Argmax
#
# Greedy decoding picks the word with the largest logit. An all-reduce with `MAX` gives the value, but not *which rank* has it. So each rank
# contributes a pair, value and index, and every rank compares $p$ pairs ([Scatter and gather](11_scatter_and_gather.ipynb) asked you for it). If values are equal, the lowest
# rank is taken.

# %% name="argmax_live"
# %%ranks
torch.manual_seed(rank)
logits = torch.randn(1000)
value, index = logits.max(dim=0)
pair = torch.stack([value.double(), index.double()])
pairs = pair.new_empty(2 * world_size)
dist.all_gather_single(pairs, pair)
pairs = pairs.view(-1, 2)
winner = int(pairs[:, 0].argmax())
print(f"{pairs[winner, 0]:.4f} on rank {winner}, index {int(pairs[winner, 1])}")

# %% name="argmax_check"
whole = torch.stack(world["logits"])
print(f"alone: {whole.max():.4f} at (rank, index)", tuple(divmod(int(whole.argmax()), whole.shape[1])))

# %% [markdown] name="float_index"
# Why `double`? The index is sent as a floating-point number. Look at the index 16,777,217 in float32:

# %% name="float_index_shown"
print(f"float32 {int(torch.tensor(16_777_217.0)):,}, float64 {int(torch.tensor(16_777_217).double()):,}")

# %% [markdown] name="nan"
# float32 has 24 bits for the digits. If you store integers in it, the result is right until the table grows.
#
# Now one rank has a NaN. `torch.max` and `torch.argmax` return a NaN if there is one, so that you notice it.

# %% name="guess_nan"
guess_nan = predict(
    "Rank 1 has a NaN, the others have 3. What does `all_reduce` with `MAX` give?",
    choices=["NaN on every rank", "3 on every rank", "NaN on some"],
    title="`MAX` of a NaN and threes",
)
guess_nan

# %% name="nan_live"
# %%ranks
x = torch.tensor([float("nan") if rank == 1 else 3.0])
dist.all_reduce(x, op=dist.ReduceOp.MAX)
print(x.item(), "| torch.max says", torch.tensor([3.0, float("nan")]).max().item())

# %% name="reveal_nan" jupyter={"source_hidden": true}
# the answer: run this cell
guess_nan.reveal(
    {0: "3 on every rank", world.ranks: "NaN on every rank"}.get(
        sum(x.isnan().item() for x in world["x"]), "NaN on some"
    ),
    why="A comparison with NaN is false, and the library does not define which of the two numbers it keeps.",
)

# %% [markdown] name="nan_explained"
# If you see 3, the NaN is lost without a warning.
# A collective's `MAX` is not `torch.max`. To find out whether any rank has a NaN, reduce `x.isnan()` as a number.

# %% [markdown] name="softmax"
# ## 3. Softmax
#
# $\text{softmax}(x)_i = e^{x_i} / \sum_j e^{x_j}$, and the columns of $x$ are split. The sum over *all* columns is one number per row: an all-reduce.

# %% name="guess_overflow"
guess_overflow = predict(
    "Softmax without any shift, in float32: at which value does it fail first?",
    choices=["x = 50", "x = 90", "x = 1000", "it never does"],
    title="Softmax fails first at",
)
guess_overflow

# %% name="naive_softmax"
# %%ranks
for x in (50.0, 90.0, 1000.0):
    exps = torch.tensor([x, x - 1]).exp()
    total = exps.sum()
    dist.all_reduce(total)
    print(f"{x:4g}: {total:8.3g} {exps[0] / total:7.4f}")

# %% name="reveal_overflow" jupyter={"source_hidden": true}
# the answer: run this cell
guess_overflow.reveal(
    "x = 90",
    why="e to the power of 90 is too large: float32 ends between e to the power of 88 and 89.",
)

# %% [markdown] name="shift"
# The cell prints $x$, the sum and the first softmax. The usual solution: subtract the same number
# $m$ from every $x$, which cancels in the fraction, and choose the row's maximum as $m$, so that no exponent is above 0. But *which rank's* maximum?
#
# **Your turn:** two lines are missing. Each is one collective. Run `check` before you write anything: it says what the result is without them.


# %% name="softmax_mine"
def distributed_softmax(logits):
    top = logits.amax(dim=-1, keepdim=True)
    # one maximum for all ranks: your turn
    exps = (logits - top).exp()
    total = exps.sum(dim=-1, keepdim=True)
    # one sum for all ranks: your turn
    return exps / total


check(distributed_softmax)

# %% [markdown] name="softmax_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
#     dist.all_reduce(top, op=dist.ReduceOp.MAX)
#     dist.all_reduce(total)
# ```
#
# The first goes where the first mark is, the second where the second is. Both reduce one number per row.
# </details>
#
# ### One round instead of two
#
# The sum needs the maximum, so there are two collectives, one after the other. One is enough if the *pair* can be merged. Rank
# $a$ has maximum $m_a$ and $s_a = \sum e^{x_i - m_a}$, rank $b$ likewise. With $m = \max(m_a, m_b)$,
#
# $$s = s_a\,e^{m_a - m} + s_b\,e^{m_b - m}.$$
#
# Each rank uses its own maximum, and its sum is corrected afterwards.

# %% name="one_round"
# %%ranks
torch.manual_seed(rank)
logits = 1000 + 10 * torch.randn(8)
top = logits.max()
pairs = torch.empty(2 * world_size)
dist.all_gather_single(pairs, torch.stack([top, (logits - top).exp().sum()]))
tops, sums = pairs.view(-1, 2).unbind(dim=1)
m = tops.max()
s = (sums * (tops - m).exp()).sum()
mine = (logits - m).exp() / s
print(f"my share {mine.sum():.4f}")

# %% name="one_round_check"
alone = torch.softmax(torch.cat(world["logits"]), dim=0)
print("largest difference from one process:", f"{(torch.cat(world['mine']) - alone).abs().max():.1e}")

# %% [markdown] name="flash"
# Other methods use this merge too. FlashAttention uses it to process its keys block by block. Flash-decoding merges blocks that one GPU's
# multiprocessors computed at the same time, and ring attention merges blocks that come from other GPUs. All of them add the weighted sum of values as
# a third part of the summary.
#
# A collective can do more than add numbers. Step through this one and read every cell as a *pair*: where the picture adds, merge. Why must the grouping not matter?

# %% name="watch"
Player(schedules.recursive_doubling_all_reduce(ranks=8))

# %% [markdown] name="grouping"
# Ranks merge in different orders, for example ((0 1) (2 3)) and ((2 3) (0 1)). All ranks get the same result, apart from rounding, only if the merge is associative and commutative.

# %% [markdown] name="layer_norm"
# ## 4. Layer norm
#
# Now compute mean and variance of a row whose features are split. Textbooks give a formula that needs one round: reduce $\sum x$ and $\sum x^2$, then
# $\sigma^2 = \overline{x^2} - \bar x^2$. Our features have mean 10,000 and variance 1.

# %% name="guess_variance"
guess_variance = predict(
    "Mean 10,000, variance 1, in float32: what variance does the one-round formula give?",
    choices=["1.0", "0.9 to 1.1", "anything, even below 0"],
    title="Variance from the one-round formula",
)
guess_variance

# %% name="variances"
# %%ranks
torch.manual_seed(0)
row = 10_000 + torch.randn(8192)
x, n = row.tensor_split(world_size)[rank], len(row)

sums = torch.stack([x.sum(), x.square().sum()])
dist.all_reduce(sums)
one_round = sums[1] / n - (sums[0] / n) ** 2

total = x.sum()
dist.all_reduce(total)
squares = (x - total / n).square().sum()
dist.all_reduce(squares)
two_rounds = squares / n

# %% [markdown] name="welford"
# The second method first finds the mean and then sums the squared deviations from it, which takes two rounds. The third method merges: each piece has a
# count $n_i$, a mean $\mu_i$ and squared deviations $M_i$ from *its own* mean, and
#
# $$\mu = \sum \frac{n_i}{n}\mu_i, \qquad M = \sum M_i + \sum n_i\,(\mu_i - \mu)^2.$$

# %% name="merged_variance"
# %%ranks
pieces = torch.empty(3 * world_size)
dist.all_gather_single(
    pieces,
    torch.stack([torch.tensor(float(len(x))), x.mean(), (x - x.mean()).square().sum()]),
)
count, mean, M = pieces.view(-1, 3).unbind(dim=1)
mu = (count * mean).sum() / count.sum()
merged = (M.sum() + (count * (mean - mu).square()).sum()) / count.sum()
right = row.double().var(correction=0)
print(f"one round {one_round:9.5f}\ntwo rounds {two_rounds:8.5f}\nmerged {merged:12.5f}\nfloat64 {right:11.5f}")

# %% name="reveal_variance" jupyter={"source_hidden": true}
# the answer: run this cell
guess_variance.reveal(
    "anything, even below 0",
    why="The formula subtracts two numbers near 100,000,000, and float32 has about seven digits, so the 1 is lost.",
)

# %% [markdown] name="layer_norm_explained"
# $x^2$ is 100,000,000, where neighbouring float32 numbers are 8 apart; the result of the subtraction is only rounding error. The merge
# (Chan, Golub & LeVeque) needs one round and three numbers a rank, and is safe.
#
# `SyncBatchNorm` does this: it gathers each rank's mean, inverse deviation and count, and merges them. For layer norm Megatron-LM needs no
# collective, because every rank has whole rows. **The best layout needs no collective at all.**

# %% [markdown] name="cross_entropy"
# ## 5. Vocabulary-parallel cross entropy
#
# Now the opening question. The loss of a token with target $t$ is
#
# $$\ell = \log \sum_j e^{x_j - m} + m - x_t .$$
#
# Its parts are the maximum $m$, a sum over columns, and one logit that exactly one rank has. What do the other ranks contribute?
#
# Here every rank gathers all ranks' summaries and merges them itself. With all-reduces it would get the merged summary at once.

# %% name="guess_rounds"
guess_rounds = predict(
    "How many all-reduces does the vocabulary-parallel loss need?",
    low=0,
    high=10,
    title="All-reduces for the loss",
)
guess_rounds


# %% name="vocab_parallel"
def merged_loss(logits, target_logit):
    """`target_logit` is each token's logit of the target, and 0 on the ranks that don't have it."""
    top = logits.amax(dim=1)
    summary = torch.stack([top, (logits - top[:, None]).exp().sum(dim=1), target_logit])
    every = summary.new_empty(dist.get_world_size(), *summary.shape)
    dist.all_gather_single(every.flatten(0, 1), summary)

    tops, sums, chosen = every.unbind(dim=1)  # a row of each rank
    m = tops.amax(dim=0)
    total = (sums * (tops - m).exp()).sum(dim=0)
    return (total.log() + m - chosen.sum(dim=0)).mean()


# %% name="gathered_loss"
def gathered_loss(logits, target):
    rows, width = logits.shape
    parts = logits.new_empty(dist.get_world_size() * rows, width)
    dist.all_gather_single(parts, logits)  # the parts in the order of ranks, one below the other
    whole = parts.view(-1, rows, width).transpose(0, 1).reshape(rows, -1)
    return torch.nn.functional.cross_entropy(whole, target)


# %% name="reveal_rounds" jupyter={"source_hidden": true}
# the answer: run this cell
guess_rounds.reveal(
    2,
    why="One is for the maximum; the sum and the target's logit are both sums and go in one call, to which a rank without the target contributes 0.",
)

# %% [markdown] name="both"
# `world.trace` shows what each rank gave to the collectives, for 32 tokens and 1024 columns a rank. Here the last rank has all targets, its column 7:


# %% name="compare"
def with_data(merge):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    logits = 50 * torch.randn(32, 1024)
    if merge:
        return merged_loss(logits, logits[:, 7] if rank == p - 1 else torch.zeros(32)).item()
    return gathered_loss(logits, torch.full((32,), 1024 * (p - 1) + 7)).item()


for name, merge in (("summaries", True), ("all logits", False)):
    results, trace = world.trace(with_data, merge)
    calls = [(event.op, event.nbytes) for event in trace if event.rank == 0]
    print(f"{name:10} {results[0]:.4f}  rank 0 contributes {calls}")

# %% name="answer"
print(
    f"8192 tokens: {8192 * 12 / 1e3:.1f} kB instead of {gathered / 1e9:.2f} GB, {gathered / (8192 * 12):,.0f} times less"
)

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    12,
    why="All that the others need are three numbers of 4 bytes: a maximum, a sum, and a logit or 0.",
    marks={"all logits": 65536},
)

# %% [markdown] name="backward"
# ### Backward sends nothing
#
# The gradient of the loss is $\text{softmax}(x) - \text{onehot}(t)$, divided by the number of tokens. How many bytes must be sent for the columns of
# *this* rank?


# %% name="gradient"
def gradient_error():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    whole = torch.randn(32, 64 * p, requires_grad=True)
    target = torch.arange(32) % (64 * p)
    torch.nn.functional.cross_entropy(whole, target).backward()

    columns = slice(64 * rank, 64 * (rank + 1))
    logits = whole.detach()[:, columns]
    top, total = whole.detach().amax(dim=1, keepdim=True), whole.detach().logsumexp(dim=1, keepdim=True)
    probability = (logits - top).exp() / (total - top).exp()  # the forward pass has both
    onehot = torch.nn.functional.one_hot(target, 64 * p)[:, columns]
    return ((probability - onehot) / 32 - whole.grad[:, columns]).abs().max().item()


print(f"largest difference from autograd: {max(world.run(gradient_error)):.1e}")

# %% [markdown] name="backward_explained"
# None. The rank still has the maximum and the sum of the forward pass, and otherwise needs only its own columns. (The matrix product *before* the
# logits is different: its backward pass needs an all-reduce, like every product that is split by columns.)

# %% [markdown] name="price"
# ## 6. What it costs
#
# $p$ ranks, $N$ tokens, $V$ columns in all, $\alpha$ seconds a message, $\beta$ seconds a byte, float32, rings:
#
# $$T_\text{gather} = (p-1)\,\alpha + \frac{p-1}{p}\,4NV\beta
# \qquad T_\text{compose} = 4(p-1)\,\alpha + 2\,\frac{p-1}{p}\,12\,N\beta$$
#
# The second sends far less, but in four times as many steps. Is it also faster for a *single* token, as in decoding?


# %% name="model"
def models(p, tokens, columns, alpha, beta):
    gather = schedules.ring_all_gather(p).price(4 * tokens * columns, alpha, beta)
    ring = schedules.ring_all_reduce(p)
    return gather, ring.price(4 * tokens, alpha, beta) + ring.price(8 * tokens, alpha, beta)


for tokens in (1, 64, 8192):
    gather, compose = models(8, tokens, 131_072, 5e-6, 1 / 200e9)
    print(f"{tokens:5} tokens on 8 GPUs: gather {1e3 * gather:8.3f} ms, compose {1e3 * compose:6.3f} ms")

# %% [markdown] name="measure"
# These figures assume 5 µs for each message and 200 GB/s. For one token the number of steps decides, and gathering is faster. (Recursive doubling
# would need 6 steps, not 28.) Now we measure the same on your ranks, with 4096 columns on each. Only the collectives are timed: `bench.seconds_of`
# makes both forms eleven times in turns, and gives the median for each.

# %% name="timings"
# %%ranks
from allranks import bench


def gather():
    dist.all_gather_single(whole, part)


def compose():
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(sums)


columns, measured = 4096 * world_size, {}
for tokens in (1, 16, 256):
    part, whole = torch.zeros(tokens, 4096), torch.empty(world_size * tokens, 4096)
    largest, sums = torch.zeros(tokens), torch.zeros(2, tokens)
    measured[tokens] = bench.seconds_of(gather, compose)

# %% [markdown] name="fit"
# $\alpha$ comes from the composed form with one token ($4(p-1)$ steps and almost no bytes), $\beta$ from the largest gather. The model agrees with
# those two figures by construction; the other four test it.

# %% name="table"
p, columns, measured = world.ranks, world["columns"][0], world["measured"][0]
alpha = measured[1][1] / (4 * (p - 1))
beta = max(measured[256][0] - (p - 1) * alpha, 0) / ((p - 1) / p * 4 * 256 * columns)
print(f"alpha {1e6 * alpha:.0f} µs a message\n{'tokens':>8}{'gather ms':>11}{'model':>8}{'compose ms':>12}{'model':>8}")
for tokens, (gather, compose) in measured.items():
    expected = models(p, tokens, columns, alpha, beta)
    print(f"{tokens:8}{1e3 * gather:11.2f}{1e3 * expected[0]:8.2f}{1e3 * compose:12.2f}{1e3 * expected[1]:8.2f}")

# %% [markdown] name="measure_explained"
# Look down the columns. The time of the gather must grow with the tokens; the composed form sends 3 kB at most, so its time should not grow. If yours
# varies much, remember its many steps: they come one after the other, and each may wait for a process to wake. On CPUs $\alpha$ is mostly this
# waiting.
#
# The model leaves out memory, which is often the real reason: gathered logits must *fit*.

# %% [markdown] name="where"
# ## 7. Find it in torch
#
# **Your task.** Open `torch/distributed/tensor/parallel/loss.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_log_softmax`. The vocabulary is split over the ranks. How many all-reduces does the log-softmax need, and with which operations?
#
# <details><summary><b>Answer</b></summary>
#
# Two: one with `MAX` for the largest logit, one with `SUM` for the sum of the exponentials: the summary of section 3. For the loss torch makes a third, for the target's logit, and so does
# Megatron-LM; its fused form (`fused_cross_entropy.py`) sends that logit with the sum and makes two, as section 5 counts them.
# </details>
#
# You also meet it here:
#
# - **Tensor parallelism**: the vocabulary-parallel loss (Megatron-LM), argmax and top-k when sampling.
# - **Context parallelism**: the softmax merge, in ring attention and in decoding with keys on several GPUs.
# - **FSDP, ZeRO**: the norm for gradient clipping. Each rank sums the squares of *its* shard, one all-reduce adds the sums, and the square root comes last.
# - **DDP**: `SyncBatchNorm`; a loss over unequal numbers of tokens.
#
# ## 8. Check yourself
#
# <details><summary>1. Numbers are distributed over ranks, and you need their median. Which small summary can be merged?</summary>
#
# No summary of fixed size gives it exactly. Programs merge histograms or sketches, or search with one count ("how many are below 0.5?") in each round.
# </details>
#
# <details><summary>2. Two ranks have gradient norms 3 and 4 on their shards. What is the norm of the whole?</summary>
#
# 5, the root of 9 + 16. Adding norms gives 7. (Parameters that both hold must be counted once.)
# </details>
#
# <details><summary>3. Why does the vocabulary-parallel loss contribute 0 for a target that is elsewhere, rather than skip the call?</summary>
#
# Every rank must call the collective. In a sum 0 changes nothing; in a maximum that number would be minus infinity.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# To find one fact about distributed data, merge summaries instead of moving the data. A summary is good if summaries can be merged in any grouping
# and if it is safe in floating point: sum and count, value and index, maximum and sum of exponentials, count and mean and squared deviations. A row
# of logits of any length needs only three numbers. **Compute a short summary on each rank, and send that instead of the data.**
#
# **Now you:** [Lab 6](../../labs/lab06_composition/composition.ipynb): softmax, top-k, and the loss over a split vocabulary, with all-reduces and targets on any rank.
#
# **Next question:** what else must the ranks agree on, so that a whole training run gives the same result? [Data parallel, by hand](../3_one_model/20_data_parallel.ipynb)
#
# **Sources.** M. Shoeybi et al., *Megatron-LM*, [arXiv:1909.08053](https://arxiv.org/abs/1909.08053) ·
# M. Milakov and N. Gimelshein, *Online normalizer calculation for softmax*, [arXiv:1805.02867](https://arxiv.org/abs/1805.02867) ·
# T. Dao et al., *FlashAttention*, [arXiv:2205.14135](https://arxiv.org/abs/2205.14135) ·
# H. Liu, M. Zaharia and P. Abbeel, *Ring attention*, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889) ·
# T. F. Chan, G. H. Golub and R. J. LeVeque, *Algorithms for computing the sample variance*, The American Statistician 37(3), 1983 ·
# [PyTorch, SyncBatchNorm](https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html) ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("18")
