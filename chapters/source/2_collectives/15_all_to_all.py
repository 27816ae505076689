# %% [markdown] name="title"
# # All-to-all
#
# {{here}}
#
# **A mixture-of-experts layer keeps its experts on different GPUs. Each token must be sent to the rank of its expert and back to its old place. Which
# rank sends what to which rank, and is that really "the most expensive collective"?**
#
# {{picture}}
#
# *Above:* each rank has one part for every rank. *Below:* it has one part from every rank. Nothing is added, everything changes its place.

# %% [markdown] name="my_model_needs"
# **My model** will have experts on several GPUs. Then each GPU has 67 MB of tokens for them in every layer, and wants their results back.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, explore, predict, predictions, schedules, wire

world = World()
world

# %% [markdown] name="myth"
# You will read that all-to-all is the most expensive collective. Section 5 measures it.

# %% name="guess_ratio"
first_guess = predict(
    "On tensors of the same size in one machine: how many times as long as an all-reduce does an all-to-all take?",
    low=0.1,
    high=100,
    log=True,
    title="An all-to-all takes, compared with an all-reduce",
)
first_guess

# %% [markdown] name="definition"
# ## 1. What it promises
#
# Every rank has one part for every rank. Afterwards it has one part *from* every rank, in rank order: part $s$ of rank $r$'s output is part $r$ of
# rank $s$'s input. Nothing is added, and each part has only one receiver.
#
# In the next cell the number 10 reads "from rank 1, for rank 0". Which is the *last* number that rank 1 receives?

# %% name="exchange_numbers"
# %%ranks
sent = 10 * rank + torch.arange(world_size)
received = torch.empty_like(sent)
dist.all_to_all_single(received, sent)
print(f"{sent.tolist()}\n{received.tolist()}")

# %% name="transpose"
table = torch.stack(world["sent"])
print(f"rank 1 has {world['received'][1][-1]} there")
print("the outputs are the inputs transposed:", torch.equal(table.T, torch.stack(world["received"])))

# %% [markdown] name="transpose_explained"
# Rows become columns. Unlike `all_reduce` it needs a second tensor for its output and leaves the input as it was.

# %% name="guess_again"
guess_again = predict(
    "What does each rank hold after a second all-to-all, with `received` as its input?",
    choices=["what it sent at first", "the same as after one", "every rank the same"],
    title="After a second all-to-all each rank holds",
)
guess_again

# %% name="again"
# %%ranks
again = torch.empty_like(sent)
dist.all_to_all_single(again, received)
print(again.tolist())

# %% name="reveal_again" jupyter={"source_hidden": true}
# the answer: run this cell
guess_again.reveal(
    "what it sent at first",
    why="An all-to-all is a transposition, and two of them give back the original.",
)

# %% [markdown] name="again_explained"
# That is why every *dispatch* has its *combine*: a second call of the same kind sends everything back.

# %% [markdown] name="routing"
# ## 2. Tokens to experts
#
# Now the layer of the opening question. Each rank holds one expert and six tokens; a router (here a random one) has chosen an expert for each token.
# Token 103 is number 3 of rank 1.

# %% name="tokens"
# %%ranks
torch.manual_seed(rank)
tokens = 100 * rank + torch.arange(6)
experts = torch.randint(world_size, (6,))
print(f"tokens  {tokens.tolist()}\nexperts {experts.tolist()}")

# %% [markdown] name="counts"
# Now the parts have different sizes. The receiver must allocate memory before they arrive, but only the sender knows their sizes. So there are two
# exchanges: first of the counts, then of the tokens.

# %% name="exchange_counts"
# %%ranks
order = torch.argsort(experts, stable=True)
sending = torch.bincount(experts, minlength=world_size)
arriving = torch.empty_like(sending)
dist.all_to_all_single(arriving, sending)
print(f"sends {sending.tolist()}\ngets  {arriving.tolist()}")

# %% [markdown] name="dispatch"
# The parts must be one after the other in memory, in the order of ranks; therefore the code sorts. The two lists at the end are the sizes of the parts, **output first**.

# %% name="exchange_tokens"
# %%ranks
inbox = tokens.new_empty(int(arriving.sum()))
dist.all_to_all_single(inbox, tokens[order], arriving.tolist(), sending.tolist())
print(f"{len(inbox)} tokens for expert {rank}\n{inbox.tolist()}")

# %% [markdown] name="uneven"
# All tokens are now with their expert, and some experts have more work than others. Each rank sent only six tokens; but the router decides how many a rank *receives*. Section 6 needs this.
#
# (On a GPU `.tolist()` makes the CPU wait until the GPU has counted: it must know the sizes before it can queue the exchange. Libraries avoid this
# wait with a fixed capacity for each expert, or with kernels that read the sizes on the GPU.)
#
# ### Send them back
#
# Below, the first exchange is given. **Write the way back** (three or four lines) at the mark: one exchange, then put each result into the place of
# its token. Row $j$ of what you sent was `tokens[order[j]]`.


# %% name="moe"
def moe_dispatch_combine(tokens, experts, expert_fn):
    order = torch.argsort(experts, stable=True)
    sending = torch.bincount(experts, minlength=dist.get_world_size())
    arriving = torch.empty_like(sending)
    dist.all_to_all_single(arriving, sending)

    there, here = arriving.tolist(), sending.tolist()
    outbox = tokens[order].contiguous()
    inbox = tokens.new_empty((sum(there), *tokens.shape[1:]))
    dist.all_to_all_single(inbox, outbox, there, here)
    done = expert_fn(inbox)

    result = done.new_zeros(tokens.shape)
    # the way back: your turn
    return result


check(moe_dispatch_combine)

# %% [markdown] name="moe_answer"
# <details><summary><b>A hint</b></summary>
#
# A rank sends back what it received, so swap the two lists of sizes. And `result[order] = x` is the inverse of
# `x = result[order]`.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#     back = torch.empty_like(outbox)
#     dist.all_to_all_single(back, done, here, there)
#     result[order] = back
# ```
# </details>

# %% [markdown] name="embedding"
# ### The same pattern: a table too large for one GPU
#
# Recommender systems keep millions of embedding rows, split over the ranks. A lookup is the same pattern: each id is sent to the rank that has the
# row, and the row is sent back. Ids are not uniform: a few items are in nearly every request. Suppose that the $i$-th most popular of a million rows
# is requested in proportion to $1/i$. Of 65,536 ids in a batch, how many are different?

# %% name="unique"
popularity = 1 / torch.arange(1, 1_000_001)
ids = torch.multinomial(popularity, 65_536, replacement=True, generator=torch.Generator().manual_seed(0))
different, row_nbytes = len(ids.unique()), 128 * 4
print(f"there are {different:,} different ids")
print(f"rows back: {len(ids) * row_nbytes / 1e6:.1f} MB, each once: {different * row_nbytes / 1e6:.1f} MB")

# %% [markdown] name="embedding_explained"
# `ids.unique(return_inverse=True)` before the exchange, `rows[inverse]` after it: then a row that is requested several times is sent only once.
# `embedding_lookup` in [Lab 7](../../labs/lab07_all_to_all/all_to_all.ipynb) counts them.

# %% [markdown] name="pairwise"
# ## 3. The order of messages
#
# In an all-to-all there are $p(p-1)$ different parts to send; no algorithm can make them fewer. But it can choose the order. If all ranks sent to
# rank 0 first, their messages would wait there. So in step $i$ every rank sends to the rank $i$ places up and receives from the rank $i$ places down.
# This is the **pairwise** exchange. Send and receive are one batch, because on NCCL a single `isend` may wait for its receiver.


# %% name="exchange"
def exchange(outgoing, incoming):
    rank, p = dist.get_rank(), dist.get_world_size()
    incoming[rank].copy_(outgoing[rank])
    for step in range(1, p):
        up, down = (rank + step) % p, (rank - step) % p
        pair = [dist.P2POp(dist.isend, outgoing[up], up), dist.P2POp(dist.irecv, incoming[down], down)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()


# %% [markdown] name="trace"
# We run it on the live ranks and record what it sends. `world.trace` gives the results and the trace. How many
# messages does a rank send? Watch your ranks.


# %% name="traced"
def exchange_rows():
    p = dist.get_world_size()
    outgoing = torch.full((p, 256), float(dist.get_rank()))
    incoming = torch.empty_like(outgoing)
    exchange(outgoing, incoming)
    return incoming[:, 0].tolist()


results, trace = world.trace(exchange_rows)
print("rank 0 holds parts of", results[0])
print("rank 0 sent", sum(message.src == 0 for message in trace.messages()))
Player(trace, layout="all-to-all")

# %% [markdown] name="bruck"
# Each rank sends $p-1$ messages, because it keeps its own part. With 1024 ranks that is 1023 messages one after the other, even if they are short.
#
# In **Bruck's** algorithm parts travel over other ranks: in step $k$ a rank sends all parts whose remaining distance has bit $k$ set to the rank
# $2^k$ places up. Compare the steps and the bytes. Which of the two algorithms sends a part twice?

# %% name="watch"
Player(schedules.pairwise_all_to_all(ranks=4), schedules.bruck_all_to_all(ranks=4), nbytes=4096)

# %% [markdown] name="price"
# ## 4. What it costs
#
# Let $n$ be the bytes of *one rank's whole input*, $\alpha$ seconds a message, $\beta$ seconds a byte. Each rank keeps one part of $n/p$ bytes and sends $p-1$ parts:
#
# $$T_\text{pairwise} = (p-1)\,\alpha + \frac{p-1}{p}\,n\,\beta
# \qquad\qquad T_\text{Bruck} = \lceil\lg p\rceil\,\alpha + \frac{n}{2}\lg p\;\beta$$
#
# (the second for powers of two: Bruck sends a part once for each bit that is set, so some twice or more). Take 64 ranks, 5 µs for each message and 50 GB/s.

# %% name="guess_winner"
guess_winner = predict(
    "64 MB from each of 64 ranks: which is faster?",
    choices=["pairwise", "bruck"],
    title="For 64 MB the faster one is",
)
guess_winner

# %% name="competition"
alpha, beta = 5e-6, 1 / 50e9
print(f"{'64 ranks':14}{'64 bytes':>12}{'64 KB':>12}{'64 MB':>12}")
for build in (schedules.pairwise_all_to_all, schedules.bruck_all_to_all):
    schedule = build(64)
    times = [schedule.price(nbytes, alpha, beta) for nbytes in (64, 64 * 10**3, 64 * 10**6)]
    print(f"{schedule.algorithm:14}" + "".join(f"{1e6 * t:9.0f} µs" for t in times))

# %% name="reveal_winner" jupyter={"source_hidden": true}
# the answer: run this cell
guess_winner.reveal(
    "pairwise",
    why="Bruck sends each part once for each bit of its distance, so several times, and with 64 MB the bytes decide.",
)

# %% [markdown] name="half"
# Now compare the pairwise formula with the ring all-reduce, $2(p-1)\alpha + 2\frac{p-1}{p}n\beta$. It is **half** in both terms, because the ring has
# two passes, one to add and one to send the sums to all. So the model says 0.5. Here is what each of 32 ranks sends for a tensor of 1 GB, counted
# from the
# schedules (the all-gather *makes* 1 GB, the others begin with it):

# %% name="bytes_each"
names = ["pairwise_all_to_all", "ring_all_gather", "ring_reduce_scatter", "ring_all_reduce"]
for name in names:
    sent = max(schedules.ALGORITHMS[name](32).bytes_sent(10**9))
    print(f"{name:22} {sent / 1e9:6.3f} GB a rank")

# %% [markdown] name="measure"
# ## 5. Measured here
#
# `bench.sweep` times the library's all-reduce and all-to-all on your ranks, from 1 KiB to 32 MiB (on GPUs to 1 GiB), best of twelve. It goes through the sizes three
# times, so that a moment in which the machine is busy doesn't affect one size alone.

# %% name="timings"
sizes, measured = bench.up_to_plateau(world, factor=8), {}
for name in ("all_reduce", "all_to_all"):
    call = bench.Call(name)
    measured[name] = bench.sweep(world, call, sizes, iterations=12, passes=3, warmups=2, budget_s=1.0)

# %% [markdown] name="fit"
# We fit $\alpha$ and $\beta$ to the **all-reduce** only, as if it were a ring. Then the model must predict the all-to-all, which was not used for the fit.

# %% name="fit_model"
p, fitted = world.ranks, measured["all_reduce"].fit()
alpha, beta = fitted.alpha_s.value, fitted.beta_s_per_byte.value
reduce_s, exchange_s = ([row.best_us / 1e6 for row in sweep.rows] for sweep in measured.values())
print(bench.fitted_words(world, alpha, beta))

# %% name="table"
print(f"{'KiB':>8}{'all-reduce ms':>15}{'all-to-all ms':>15}{'model ms':>10}{'times':>8}")
for nbytes, r, e in zip(sizes, reduce_s, exchange_s, strict=True):
    model = schedules.pairwise_all_to_all(p).price(nbytes, alpha, beta)
    print(f"{nbytes // 1024:8}{1e3 * r:15.3f}{1e3 * e:15.3f}{1e3 * model:10.3f}{e / r:8.2f}")
ratio = exchange_s[-1] / reduce_s[-1]
print(f"the model says 0.5, the largest size {ratio:.2f}")

# %% name="reveal_ratio" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    ratio,
    why="A rank sends each part once, (p-1)/p of its tensor, and an all-reduce makes two such passes.",
    marks={"model": 0.5},
    it=f"{ratio:.2f} times",
)

# %% [markdown] name="measure_explained"
# Inside one machine the opposite of the common belief is true. For long tensors the ratio may even be below 0.5, because the all-reduce also *adds* ($\gamma$).
# The 0.5 is that of a *ring*: where a switch adds (NVLS), an all-reduce sends less, and the ratio comes nearer to 1.
#
# For short tensors the model's time is too long. In the model the $p-1$ steps come one after the other. But no part depends on another, so Gloo
# starts all sends and receives at once and then waits for all of them (`gloo/alltoall.cc`), and torch gives them to NCCL as one group (`nccl.cpp`). In a ring that is impossible, because a rank sends in
# each step what it received in the step before.

# %% [markdown] name="truth"
# ## 6. When all-to-all is expensive
#
# ### Nodes
#
# An all-reduce can add up *inside* a node before anything leaves it. An all-to-all can't: every part is different, and most parts must go to other
# nodes. Take 4 nodes of 8 GPUs, with 1 GB each.

# %% name="guess_nodes"
guess_nodes = predict(
    "4 nodes of 8 GPUs: how many times as many bytes leave a node in an all-to-all as in a hierarchical all-reduce?",
    low=0.1,
    high=100,
    log=True,
    title="Bytes that leave a node, compared with an all-reduce",
)
guess_nodes


# %% name="nodes"
def leaving(schedule, nbytes, ranks_per_node):
    sizes = schedule.chunk_nbytes(nbytes)
    crossing = [move for move in schedule.moves if move.src < ranks_per_node <= move.dst]  # out of node 0
    return len(crossing), sum(sizes[chunk] for move in crossing for chunk in move.chunks) / 1e9


for schedule in (
    schedules.hierarchical_all_reduce(32, 8),
    schedules.pairwise_all_to_all(32),
    schedules.hierarchical_all_to_all(32, 8),
):
    messages, gigabytes = leaving(schedule, 10**9, 8)
    print(f"{schedule.algorithm + ' ' + schedule.collective:26} {messages:4} messages, {gigabytes:.2f} GB leave a node")

# %% name="reveal_nodes" jupyter={"source_hidden": true}
# the answer: run this cell
guess_nodes.reveal(
    leaving(schedules.pairwise_all_to_all(32), 10**9, 8)[1]
    / leaving(schedules.hierarchical_all_reduce(32, 8), 10**9, 8)[1],
    why="An all-reduce adds inside the node first, and only the sum leaves it; of an all-to-all every part is different.",
)

# %% [markdown] name="nodes_explained"
# With $m$ nodes of $g$ GPUs, $2n\frac{m-1}{m}$ bytes leave a node in the all-reduce and $g\,n\frac{m-1}{m}$ in the all-to-all: $g/2$ times as
# many, here four. So between nodes an all-to-all really is expensive. The hierarchical form does not change the bytes; it first gathers the parts for
# another node, so that fewer and longer messages go between nodes. NCCL does
# this for sends by default (PXN, since 2.12; `NCCL_P2P_PXN_LEVEL`).
#
# ### Skew
#
# Suppose that half of every rank's tokens go to expert 0, and the rest are distributed evenly. Every rank still *sends* the same amount.

# %% name="guess_skew"
guess_skew = predict(
    "Half of every rank's tokens go to expert 0. On 8 ranks, how many times as long does the exchange take as with even parts?",
    low=0,
    high=10.0,
    title="Half of the tokens for one expert: times as long",
)
guess_skew


# %% name="skew"
def routed(to_first):
    rank, p = dist.get_rank(), dist.get_world_size()
    share = [to_first if r == 0 else (560 - to_first) // (p - 1) for r in range(p)]  # 560 tokens a rank
    outgoing = [torch.zeros(n, 7168, dtype=torch.bfloat16) for n in share]
    exchange(outgoing, [torch.empty_like(outgoing[rank]) for _ in range(p)])


took = []
for to_first in (70, 280):
    outcome = wire.run(routed, ranks=8, args=(to_first,), alpha=5e-6, beta=1 / 50e9)
    took.append(outcome.seconds)
    first, second, *_ = (nbytes / 1e6 for nbytes in outcome.trace.bytes_received())
    print(f"rank 0 receives {first:4.1f} MB, rank 1 {second:4.1f} MB: {1e6 * outcome.seconds:.0f} µs")
print(f"{took[1] / took[0]:.1f} times")

# %% name="reveal_skew" jupyter={"source_hidden": true}
# the answer: run this cell
guess_skew.reveal(
    took[1] / took[0],
    why="Rank 0 receives four times the bytes, and an exchange ends when its last rank is done. (It is less than four times, because the latencies stay.)",
)

# %% name="skew_explored"
explore.skew(ranks=8, hottest=0.5, nbytes=560 * 7168 * 2, alpha_s=5e-6, bytes_per_s=50e9)

# %% [markdown] name="skew_explained"
# `wire.run` ran *your* `exchange` on eight forked ranks, and a virtual clock counted 5 µs for each message and 50 GB/s, so you don't need eight real
# GPUs. The picture has the same figures for any share: drag it, then choose a capacity. Rank 0 receives four times the bytes, but the seven $\alpha$ are the same. All ranks wait for rank 0, and it also has the most to compute. So
# MoE layers give each expert a **capacity** of $c$ times the mean (tokens above it are dropped or sent to another expert), or train the router to
# distribute its tokens evenly.
#
# ### Nothing to overlap with
#
# Gradients can be averaged during the backward pass. But an expert can't start before its tokens arrive, and the next layer can't start before they
# are back. Unless there is other work meanwhile, such as a second batch or an expert that every token uses, all the communication is exposed.

# %% [markdown] name="late_intro"
# ### One late rank
#
# Each rank needs a part of *every* other one. Let rank 0 come 0.2 s late to the first of two exchanges, dispatch and combine:

# %% name="late_live"
# %%ranks
import time

parts = torch.zeros(world_size)
dist.all_reduce(start := torch.zeros(1))
start.item()
time.sleep(0.2 if rank == 0 else 0)
spent = []
for _ in range(2):
    before = time.perf_counter()
    arrived = torch.empty_like(parts)
    dist.all_to_all_single(arrived, parts)
    arrived.sum().item()
    spent.append(f"{time.perf_counter() - before:.2f} s")
print("dispatch, combine:", *spent)

# %% [markdown] name="late_explained"
# All others wait in the first exchange, and the late rank nowhere. A step has two exchanges for each layer, and in each one *another* rank may be last, because the router gives it the most tokens. So the waits
# add up: each exchange takes as long as its own slowest rank, even if over the whole step all ranks have equally much to do.

# %% [markdown] name="moe_bill"
# ## 7. The cost of one layer
#
# Let each rank have $T$ tokens, each for $k$ experts, with hidden width $h$ and $e$ bytes a number, routed evenly. Then dispatch sends
# $T\,k\,h\,e\,\frac{p-1}{p}$ bytes a rank. Here it is for 4096 tokens, $h = 7168$, $k = 8$ on 64 ranks, with dispatch in
# 1-byte FP8 and combine in 2-byte bfloat16.

# %% name="bill"
T, k, h, p = 4096, 8, 7168, 64
dispatch, combine = (T * k * h * e * (p - 1) / p for e in (1, 2))
print(f"dispatch {dispatch / 1e9:.3f} GB + combine {combine / 1e9:.3f} GB = {(dispatch + combine) / 1e9:.3f} GB a rank")
for gb_per_s in (450, 50):
    print(f"at {gb_per_s} GB/s: {(dispatch + combine) / gb_per_s / 1e6:.1f} ms a layer")

# %% [markdown] name="bill_explained"
# This is one layer, and only the forward pass; backward needs the same two exchanges again. 450 GB/s is one direction of an H100's NVLink, 50 GB/s a
# network card of 400 Gb/s. Here a token with three experts on one other node is sent there three times; libraries for MoE send it once to each node
# and copy it there.
#
# **Serving** has few tokens. A rank that answers 4 requests has 4 tokens a step, not 4096. Take the network card, and 5 µs for each of the 63 messages.

# %% name="guess_serving"
guess_serving = predict(
    "One dispatch on 64 ranks, in FP8: from how many tokens a rank on do the bytes take longer than the messages?",
    low=1,
    high=10_000,
    unit="tokens",
    log=True,
    title="The bytes take longer from",
)
guess_serving

# %% name="serving"
alpha, beta = 5e-6, 1 / 50e9
for T in (1, 4, 64, 256, 4096):
    messages, nbytes = (p - 1) * alpha, T * k * h * (p - 1) / p * beta
    print(f"{T:5} tokens: messages {1e6 * messages:4.0f} µs, bytes {1e6 * nbytes:6.0f} µs")

# %% name="reveal_serving" jupyter={"source_hidden": true}
# the answer: run this cell
guess_serving.reveal(
    alpha / (k * h / p * beta),
    why="63 messages cost 315 µs, however short they are, and a token with 8 experts brings only 56 kB, which take 1.1 µs.",
)

# %% [markdown] name="serving_explained"
# Below a few hundred tokens $\alpha$ decides, if the messages go one after the other. So libraries for serving put all of them on the network at once, GPU to GPU, and count $\alpha$ about once
# instead of $p-1$ times. DeepEP's low-latency kernels took [173 µs](https://github.com/deepseek-ai/DeepEP/blob/main/docs/legacy.md) for 128 tokens of this shape on 64 ranks with such cards. By the formula
# the bytes alone take 145 µs, so all 63 messages together cost about 28 µs, and not 315.
#
# ## 8. Find it in torch
#
# **Your task.** Open `torch/distributed/nn/functional.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `_AlltoAllSingle`. Which collective is the backward pass of an all-to-all, and with which two lists of sizes?
#
# <details><summary><b>Answer</b></summary>
#
# An all-to-all with the two lists exchanged: what a rank received forward, it sends back.
# </details>
#
# You also meet it here:
#
# - **MapReduce's shuffle**: every mapper has words for every reducer, and a hash of the word says for which (Dean and Ghemawat 2004). Lookups and experts do the same, with a table and a router.
# - **MoE**: dispatch and combine, two a layer forward and two backward.
# - **Sharded embeddings**: ids are sent, rows come back, and gradients are sent in the backward pass.
# - **Sequence parallelism** (DeepSpeed-Ulysses): from "all heads of my tokens" to "all tokens of my heads" and back, around each attention.
# - **Not DDP, FSDP or pipelines**: they use reductions, gathers or point to point.

# %% [markdown] name="pitfalls"
# ## 9. Pitfalls
#
# **Nothing to send.** By chance the last rank has no token, and the program skips the call there. The others wait: they must hear that its parts are empty,
# and they may have something for it.

# %% tags=["raises-exception"] name="skip"
# %%ranks --deadline 3
tokens = 0 if rank == world_size - 1 else world_size
sending = torch.full((world_size,), tokens // world_size)
arriving = torch.empty_like(sending)
if tokens > 0:
    dist.all_to_all_single(arriving, sending)

# %% [markdown] name="skip_explained"
# Call the collective with empty parts.
#
# **Sizes that disagree.** Rank 1 expects one number from rank 0, which sends two. The library does not compare the two lists before the bytes arrive.
# NCCL leaves this undefined: a hang, a crash or wrong data (NCCL user guide, *Collective Communication Functions*). So the cell uses a group with Gloo and
# CPU tensors, as in [Point to point](../1_first_hours/03_point_to_point.ipynb).

# %% tags=["raises-exception"] name="disagree"
# %%ranks --deadline 5
gloo = dist.new_group(backend="gloo")
here = [2] * world_size
there = [1 if rank == 1 and source == 0 else 2 for source in range(world_size)]
outbox, inbox = torch.ones(sum(here), device="cpu"), torch.full((sum(there),), -1.0, device="cpu")
dist.all_to_all_single(inbox, outbox, there, here, group=gloo)

# %% [markdown] name="disagree_explained"
# Gloo ends the process that received more than it had memory for, so you lose a rank. So never compute the two lists separately on each side: **exchange the counts**.

# %% [markdown] name="quiz"
# ## 10. Check yourself
#
# <details><summary>1. Eight ranks, an input of 800 MB each. How much does a rank send, in how many messages?</summary>
#
# 700 MB, in 7 messages of 100 MB. It keeps its own part.
# </details>
#
# <details><summary>2. The experts get the tokens, but the results come back in the wrong order. What was forgotten?</summary>
#
# The inverse of the sort. The exchange keeps the order of the tokens, and these were sorted by expert.
# </details>
#
# <details><summary>3. Inside a node all-to-all was cheaper than all-reduce. Why not on 64 nodes?</summary>
#
# An all-reduce adds inside the node and sends the sum once. In an all-to-all nothing can be added, so $g/2$ times as many bytes
# leave each node.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# An all-to-all transposes: part $s$ of rank $r$'s output is part $r$ of rank $s$'s input, and a second one restores the input. Each rank sends
# $\frac{p-1}{p}n$ bytes in $p-1$ messages, half of what a ring all-reduce sends. It is expensive if many GPUs share a link out of the node, if the
# router is uneven, and if nothing can be computed meanwhile. **In an all-to-all every part has its own receiver, so no part can be added to another one on the way.**
#
# **Now you:** [Lab 7](../../labs/lab07_all_to_all/all_to_all.ipynb) asks for the pairwise exchange, the lookup and the experts.
#
# **Next question:** how do several GPUs train one model with these moves? [Data parallel, by hand](../3_one_model/20_data_parallel.ipynb)
#
# {{side_trips}}
#
# **Sources.** R. Thakur, R. Rabenseifner and W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform.
# Comput. Appl. 19(1), 2005, [doi:10.1177/1094342005051521](https://doi.org/10.1177/1094342005051521) ·
# J. Bruck et al., *Efficient algorithms for all-to-all communications in multiport message-passing systems*, IEEE Trans. Parallel Distrib.
# Syst. 8(11), 1997, [doi:10.1109/71.642949](https://doi.org/10.1109/71.642949) ·
# [PyTorch, all_to_all_single](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_to_all_single) ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md) ·
# [Gloo, alltoall.cc](https://github.com/pytorch/gloo/blob/main/gloo/alltoall.cc) ·
# [DeepEP](https://github.com/deepseek-ai/DeepEP), whose test shape the bill uses ·
# J. Dean and S. Ghemawat, *MapReduce*, OSDI 2004 ·
# D. Lepikhin et al., *GShard*, [arXiv:2006.16668](https://arxiv.org/abs/2006.16668) (dispatch, combine, capacity) ·
# S. A. Jacobs et al., *DeepSpeed Ulysses*, [arXiv:2309.14509](https://arxiv.org/abs/2309.14509)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("15")
