# %% [markdown] name="title"
# # Reduce-scatter
#
# {{here}}
#
# **A model of 7 billion parameters trains on 32 GPUs. After an all-reduce every GPU holds the whole summed gradient, 14 GB. Suppose that GPU $r$
# updates only its own $\tfrac1{32}$ of the parameters. What must it receive, and what can every GPU free?**
#
# {{picture}}
#
# *Above:* each rank has a whole vector of its own, in parts. *Below:* each rank has one part of the sum; stripes say that every rank is in it.

# %% [markdown] name="my_model_needs"
# The optimizer's state of **my model** takes 84 GB, the same on all 64 GPUs. If each GPU keeps only its own part, the model needs 52 GB
# instead of 134 GB, activations included.

# %% name="start_world"
import torch
import torch.distributed as dist

from allranks import Player, World, bench, check, predict, predictions, schedules

world = World()
world

# %% [markdown] name="guess_intro"
# With Adam in mixed precision each GPU keeps parameters, gradients and the optimizer's state. Section 5 has the answer to this question:

# %% name="question"
first_guess = predict(
    "Weights, gradients and the optimizer's state are 112 GB. "
    "How many GB of them does each of the 32 GPUs need if it keeps as little as possible?",
    low=0.1,
    high=112,
    unit="GB",
    log=True,
    title="GB if each GPU keeps the least",
)
first_guess

# %% [markdown] name="promise"
# ## 1. What it promises
#
# **Every** rank contributes a full vector, cut into $p$ chunks. Afterwards rank $r$ holds chunk $r$ of the elementwise sum over all ranks, and
# nothing else. (Some texts draw each rank with only *one* chunk. This is wrong: then there would be nothing to add.)
#
# Below, chunk $c$ of rank $r$ is the single number $(r+1)\cdot10^c$. What does rank 1 hold at the end?

# %% name="promise_run"
# %%ranks
full = torch.tensor([(rank + 1) * 10.0**chunk for chunk in range(world_size)])
mine = torch.empty(1)
dist.reduce_scatter_single(mine, full)
print(full.tolist(), "->", mine.item())

# %% [markdown] name="promise_explained"
# Rank 1 has the sum of all ranks' chunks number 1; with four ranks (1 + 2 + 3 + 4) · 10. The input is unchanged, because the result is a separate tensor.
# Before torch 2.13 the call was `reduce_scatter_tensor` ([All-gather](13_all_gather.ipynb) has the table of names). `dist.reduce_scatter` takes a list of
# chunks instead of one tensor.
#
# All-gather makes the result larger, reduce-scatter makes it smaller: from $n$ bytes to $n/p$.

# %% [markdown] name="two_in_a_row"
# ## 2. All-reduce is reduce-scatter, then all-gather
#
# After a reduce-scatter the sum of every chunk is on one rank. Which step is missing for an all-reduce?

# %% name="guess_equal"
guess_equal = predict(
    "A reduce-scatter, then an all-gather, compared with one all-reduce: are the results equal?",
    choices=["not even close", "close, other bits", "the same bits"],
    title="Reduce-scatter, then all-gather, compared with an all-reduce",
)
guess_equal

# %% name="two_in_a_row_run"
# %%ranks
torch.manual_seed(rank)
values = torch.randn(1000 * world_size)
own_sum, both = torch.empty(1000), torch.empty(1000 * world_size)
dist.reduce_scatter_single(own_sum, values)
dist.all_gather_single(both, own_sum)

at_once = values.clone()
dist.all_reduce(at_once)
print("close:", torch.allclose(both, at_once, atol=1e-5), " same bits:", torch.equal(both, at_once))

# %% name="reveal_equal" jupyter={"source_hidden": true}
# the answer: run this cell
guess_equal.reveal(
    "the same bits"
    if all(torch.equal(a, b) for a, b in zip(world["both"], world["at_once"], strict=True))
    else "close, other bits",
    why="With Gloo both add in the same order, and section 6 finds out why; another backend may add in another order, and then it rounds differently.",
)

# %% [markdown] name="two_in_a_row_explained"
# Both are always the same up to rounding.
#
# The ring's two passes are exactly these two collectives. On the left you see the first pass alone, on the right the whole all-reduce.
# On the left, with four ranks, rank 0 must end with chunk 0.

# %% name="guess_first"
guess_first = predict(
    "Rank 0 must end with chunk 0. Which chunk does it send first?",
    choices=["chunk 0", "chunk 1", "chunk 2", "chunk 3"],
    title="Rank 0 sends first",
)
guess_first

# %% name="watch"
ring = schedules.ring_reduce_scatter(ranks=4)
Player(ring, schedules.ring_all_reduce(ranks=4), titles=("reduce-scatter", "all-reduce"))

# %% name="reveal_first" jupyter={"source_hidden": true}
# the answer: run this cell
first = next(move.chunks[0] for move in ring.moves if move.src == 0)
guess_first.reveal(
    f"chunk {first}",
    why="A chunk ends p - 1 ranks after its start, so chunk 0 must start on rank 1, and rank 0 begins with chunk 3.",
)

# %% [markdown] name="first_explained"
# A chunk collects one contribution on each rank. In the all-reduce on the right each chunk starts one rank earlier, and rank 0 ends with chunk 1. This does not matter there, because all
# chunks are sent to all ranks afterwards. Here it matters.

# %% [markdown] name="yours"
# ## 3. Your turn
#
# Below is the first pass of the ring all-reduce as in [All-reduce](../1_first_hours/04_all_reduce.ipynb). It works on a copy, because the input must stay as it was. **Run
# it, read the verdict, and fix it.** You must change two lines.


# %% name="ring_reduce_scatter"
def ring_reduce_scatter(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % p, (rank + 1) % p
    chunks = [chunk.clone(memory_format=torch.contiguous_format) for chunk in tensor.tensor_split(p)]

    def swap(leaving, arriving):
        """To the right, and from the left, as one batch (NCCL needs that)."""
        both = [dist.P2POp(dist.isend, leaving, right), dist.P2POp(dist.irecv, arriving, left)]
        for work in dist.batch_isend_irecv(both):
            work.wait()

    for step in range(p - 1):
        leaving = chunks[(rank - step) % p]
        adding = chunks[(rank - step - 1) % p]
        arriving = torch.empty_like(adding)
        swap(leaving, arriving)
        adding += arriving

    return chunks[rank]


check(ring_reduce_scatter)

# %% [markdown] name="ring_answer"
# <details><summary><b>A hint</b></summary>
#
# In step 0 rank $r$ must send chunk $r-1$. All other numbers of chunks change by the same one.
# </details>
# <details><summary><b>An answer</b></summary>
#
# ```python
#         leaving = chunks[(rank - step - 1) % p]
#         adding = chunks[(rank - step - 2) % p]
# ```
# </details>
#
# If $p$ does not divide the length, `tensor_split` gives the first chunks one element more. So your function accepts lengths that the library's refuses (section 7).

# %% [markdown] name="halving"
# ## 4. Fewer steps
#
# **Recursive halving**: send a partner one half of the vector, and add what it sends you to the other half. Then do the same with a quarter, and so on.
#
# Take 8 ranks and a vector of 800 bytes; in the first step a rank sends 400.

# %% name="guess_halving"
guess_halving = predict(
    "8 ranks, 800 bytes, recursive halving: how many bytes does a rank send in all?",
    low=0,
    high=2400,
    unit="B",
    title="Bytes that a rank sends in all",
)
guess_halving

# %% name="watch_halving"
halving = schedules.recursive_halving_reduce_scatter(ranks=8)
Player(halving, nbytes=800)

# %% name="reveal_halving"
step = [sum(len(m.chunks) for m in moves if m.src == 0) * 100 for moves in halving.by_step]
print(f"{step[0]} and {sum(step)}, in {halving.steps} steps")
for p in (8, 12):
    few, many = schedules.recursive_halving_reduce_scatter(p), schedules.ring_reduce_scatter(p)
    print(
        f"p = {p:2}: halving {few.steps} steps, {max(few.bytes_sent(1200)) / 1200:.2f} n sent by the busiest;", end=" "
    )
    print(f"ring {many.steps} steps, {max(many.bytes_sent(1200)) / 1200:.2f} n")

# %% name="seen_halving" jupyter={"source_hidden": true}
# the answer: run this cell
guess_halving.reveal(sum(step), why="Each step sends half of what is left: 400, 200, 100.")

# %% [markdown] name="halving_explained"
# $\tfrac12+\tfrac14+\tfrac18 = \tfrac78$: it sends the ring's bytes in 3 steps. It is the first half of Rabenseifner's algorithm; the second half is
# its reverse, an all-gather in which the pieces double. If $p$ is not a power of two, some ranks also do the work of another rank, and the ring sends fewer bytes.

# %% [markdown] name="zero"
# ## 5. What each rank keeps: ZeRO
#
# In data-parallel training all ranks hold the same parameters, the same optimizer state, and do the same update. **ZeRO** avoids this repetition.
# Rank $r$ updates only chunk $r$. It needs the summed gradient of chunk $r$ (reduce-scatter), and all ranks need the new parameters (all-gather).
#
# Here are both, with momentum, on one parameter vector.


# %% name="zero_setup"
# %%ranks
def gradient(parameters, step):
    """A gradient that is different on each rank and depends on the parameters."""
    generator = torch.Generator(device).manual_seed(1000 * step + rank)
    return parameters * torch.rand(parameters.shape, generator=generator, device=device)


theirs = torch.ones(8 * world_size)  # data parallel: every rank updates everything
momentum = torch.zeros(8 * world_size)
ours = torch.ones(8 * world_size)  # ZeRO: the state of chunk r only
my_momentum, my_gradient = torch.zeros(8), torch.empty(8)

# %% name="zero_steps"
# %%ranks
for step in range(3):
    whole = gradient(theirs, step)
    dist.all_reduce(whole)
    momentum = 0.9 * momentum + whole / world_size
    theirs -= 0.1 * momentum

    dist.reduce_scatter_single(my_gradient, gradient(ours, step))
    my_momentum = 0.9 * my_momentum + my_gradient / world_size
    my_part = ours.chunk(world_size)[rank] - 0.1 * my_momentum
    dist.all_gather_single(ours, my_part)
print("agree:", torch.allclose(theirs, ours), " momentum kept:", momentum.numel(), "and", my_momentum.numel())

# %% [markdown] name="zero_explained"
# The training is the same, with $\tfrac1p$ of the optimizer state and of the update's work. The update of one element usually needs no other element.
# If it does, as in clipping by the global norm, one more number must be all-reduced.
#
# Adam in mixed precision keeps 16 bytes per parameter: 2 for the weight, 2 for the gradient, and 12 in float32 for a master copy and two moments (Rajbhandari et al.).
# ZeRO-1 shards the optimizer's state, ZeRO-2 the gradients too, ZeRO-3 (FSDP) the parameters as well.

# %% name="guess_volume"
guess_volume = predict(
    "Does ZeRO-2 send more bytes than plain data parallelism?",
    choices=["more", "the same", "less"],
    title="ZeRO-2 sends, compared with data parallelism",
)
guess_volume

# %% name="answer"
parameters, p = 7e9, 32
stages = {
    "data parallel": (16, "an all-reduce"),
    "ZeRO-1": (4 + 12 / p, "a reduce-scatter, an all-gather"),
    "ZeRO-2": (2 + 14 / p, "a reduce-scatter, an all-gather"),
    "ZeRO-3": (16 / p, "more than that: Sharded training counts it"),
}
print(
    f"of {2 * parameters / 1e9:g} GB of summed gradients, one GPU needs {2 * parameters / p / 1e9:.2f} GB",
)
for name, (bytes_each, calls) in stages.items():
    print(f"{name:14}{bytes_each * parameters / 1e9:7.1f} GB a GPU   {calls}")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
display(
    first_guess.reveal(
        16 / p * parameters / 1e9,
        why="Weights, gradients and the optimizer's state are all cut into 32 parts, and each layer's weights are gathered only while they are used.",
        marks={"weights": 14},
    ),
    guess_volume.reveal(
        "the same",
        why="An all-reduce is a reduce-scatter and an all-gather: ZeRO-2 makes the same two passes, with the update between them.",
    ),
)

# %% [markdown] name="answer_explained"
# ZeRO-3 sends one and a half times as many bytes, because parameters that were freed must be gathered
# once more. Activations need additional memory in every case. [Sharded training](../3_one_model/22_sharded_training.ipynb) builds all three on a real model.
#
# ### The backward of an all-gather
#
# What gradient does a gathered piece get? Every rank used the piece, so its gradient is the sum of all ranks'
# gradients, and the piece's owner needs it. A dozen lines tell autograd to compute it:


# %% name="gather_autograd"
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, piece):
        everything = piece.new_empty(piece.shape[0] * dist.get_world_size(), *piece.shape[1:])
        dist.all_gather_single(everything, piece.contiguous())
        return everything

    @staticmethod
    def backward(ctx, gradient):
        own = gradient.new_empty(gradient.shape[0] // dist.get_world_size(), *gradient.shape[1:])
        dist.reduce_scatter_single(own, gradient.contiguous())
        return own


def own_gradient():
    piece = torch.ones(1, requires_grad=True)
    loss = (dist.get_rank() + 1) * Gather.apply(piece).sum()
    loss.backward()
    return piece.grad.item()


# %% [markdown] name="own_gradient_guess"
# On rank $r$ the loss is $(r+1)$ times the sum of everything gathered. What is the gradient of rank 0's piece on your ranks?

# %% name="own_gradient_run"
print(f"the ranks say {world.run(own_gradient)}")

# %% [markdown] name="own_gradient_explained"
# It is $1 + 2 + \dots + p$ on every rank, 10 with four. The forward pass all-gathers parameters, the backward pass reduce-scatters their gradients: this is the main idea of FSDP.

# %% [markdown] name="price"
# ## 6. What it costs
#
# With $\alpha$ seconds per message, $\beta$ per byte on the wire and $\gamma$ per byte added, and $n$ the bytes of the *full* vector:
#
# $$T_\text{ring} = (p-1)\,\alpha + \tfrac{p-1}{p}\,n\,(\beta+\gamma) \qquad T_\text{halving} = \lg p\;\alpha + \tfrac{p-1}{p}\,n\,(\beta+\gamma)$$
#
# (halving for powers of two). No algorithm can send less than $\tfrac{p-1}{p}n$, because rank $r$ has $p-1$ chunks that others need. So a
# reduce-scatter should take half as long as an all-reduce.
#
# Take 8 MiB on *your* ranks: how long does the library's reduce-scatter take, and your ring from section 3?
# `bench.seconds_of` times the three in turns and gives the median of nine times for each.


# %% name="timing"
def timings(nbytes):
    length = nbytes // 4 // dist.get_world_size()
    full, chunk = torch.zeros(length * dist.get_world_size()), torch.empty(length)
    calls = {
        "all_reduce": lambda: dist.all_reduce(full),
        "reduce_scatter": lambda: dist.reduce_scatter_single(chunk, full),
        "your ring": lambda: ring_reduce_scatter(full),
    }
    return dict(zip(calls, bench.seconds_of(*calls.values(), iterations=9), strict=True))


# %% name="measured"
p, names = world.ranks, ["all_reduce", "reduce_scatter", "your ring"]
small, large = (world.run(timings, nbytes)[0] for nbytes in (2**10, 2**23))
print(f"{p} ranks{'1 KiB':>24}{'8 MiB':>13}{'busbw GB/s':>12}{'of all_reduce':>15}{'formula':>9}")
for name in names:
    walks = 2 if name == "all_reduce" else 1
    busbw = walks * (p - 1) / p * 2**23 / large[name] / 1e9
    row = f"{name:20}{1e3 * small[name]:8.3f} ms{1e3 * large[name]:10.3f} ms{busbw:12.3g}"
    print(f"{row}{large[name] / large['all_reduce']:15.2f}{walks / 2:9.1f}")

# %% [markdown] name="measure_explained"
# You would expect a ring in Python, with its copy, to be slower than a library. Yet with Gloo it may be faster. The reason is in torch's source
# (`ProcessGroupGloo.cpp`, `reduce_scatter_tensor_coalesced`): it copies the input, **all-reduces the copy**, and takes the chunk from it. This also
# explains the same bits in section 2. NCCL has a real reduce-scatter.
#
# So the formula holds for an algorithm, not for a function's name. **Measure before you rely on it.**
#
# busbw is $\tfrac nt\cdot\tfrac{p-1}p$ with $n$ the full vector; for an all-reduce it is twice that (nccl-tests, `PERFORMANCE.md`).

# %% [markdown] name="pitfalls"
# ## 7. Pitfalls
#
# A vector has $4p+1$ elements. What does `reduce_scatter_single` do with the one element too many?

# %% tags=["raises-exception"] name="left_over"
# %%ranks --deadline 5
full = torch.ones(4 * world_size + 1)
dist.reduce_scatter_single(torch.empty(4), full)

# %% [markdown] name="left_over_explained"
# It raises an error on every rank; Gloo's names the expected and the given size. Therefore FSDP and ZeRO *pad*: they add zeros up to
# the next multiple of $p$, and remove them afterwards. In code:

# %% name="padded"
# %%ranks
chunk = -(-full.numel() // world_size)  # rounded up
padded = torch.nn.functional.pad(full, (0, chunk * world_size - full.numel()))
mine = torch.empty(chunk)
dist.reduce_scatter_single(mine, padded)
print(mine.tolist())

# %% [markdown] name="layout_guess"
# Next, take a matrix with one **column** for each rank. Rank $r$ needs column $r$, summed over the ranks. The matrix is stored row by row, and each
# row is 0, 1, 2 ... so all numbers in column $r$ are $r$.

# %% name="layout"
# %%ranks
matrix = torch.arange(float(world_size)).repeat(world_size, 1)
column = torch.empty(world_size)
dist.reduce_scatter_single(column, matrix.flatten())
print("as it lies:  ", column.tolist())
dist.reduce_scatter_single(column, matrix.T.flatten())
print("transposed:  ", column.tolist())

# %% [markdown] name="layout_explained"
# "Chunk $r$" means the $r$-th part of the *memory*. There is no warning, because the sizes agree. For columns, transpose and copy first.
#
# Last, two words are often confused: bucketing is *not* reduce-scatter. DDP's buckets put many small gradients into one tensor, which is then **all-reduced**.
# Only sharding needs a reduce-scatter.

# %% [markdown] name="where"
# ## 8. Find it in torch
#
# **Your task.** Open `torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py` (`python -c "import torch; print(torch.__path__[0])"` says in which folder torch is) and look for `reduce_scatter_single`. FSDP reduces the gradients of a block in one call. What has it done with them before?
#
# <details><summary><b>Answer</b></summary>
#
# It has put the gradients of all parameters into one buffer, in chunks, so that the chunk of each rank has its shard of every parameter.
# </details>
#
# You also meet it here:
#
# - **FSDP, ZeRO-2 and 3**: gradients, per layer or bucket, while the backward pass runs.
# - **Sequence parallelism**: after a row-parallel product, in place of an all-reduce; the all-gather comes later. Equal volume, smaller activations.
# - **Inside all-reduces**: the ring, Rabenseifner, and hierarchical ones, in which it reduces the bytes between machines.
# - NCCL does it with Ring, CollNetDirect, NVLS or PAT (2.30.7). For a long time torch's MPI backend could not do it ([Which library](../4_real_cluster/41_libraries.ipynb)).

# %% [markdown] name="quiz"
# ## 9. Check yourself
#
# <details><summary>1. 8 ranks, 1 GB each. What does a rank send in a reduce-scatter, and what does it hold afterwards?</summary>
#
# 7/8 GB, and 1/8 GB: its chunk of the sum.
# </details>
#
# <details><summary>2. You reduce-scatter the gradients, update, and all-gather the <em>gradients</em>. What is wrong?</summary>
#
# Gather the updated parameters instead. If you gather the summed gradients, it is an all-reduce, and every rank must update all parameters again.
# </details>
#
# <details><summary>3. ZeRO-1 could all-reduce the gradients, as before. Why reduce-scatter?</summary>
#
# All-reduce plus all-gather of parameters moves 3 instead of 2 times the parameters: each rank would receive sums that it does not use.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A reduce-scatter sums the vectors of all ranks and puts chunk $r$ of the sum on rank $r$. It sends $\frac{p-1}{p}n$ bytes per rank in $p-1$ steps of
# a ring, or $\lg p$ steps of halving; followed by an all-gather it is an all-reduce. If the update happens between the two, a rank does not need most
# of the memory. **Keep each part of the sum on the rank that uses it.**
#
# **Now you:** [Lab 5](../../labs/lab05_sharding/sharding.ipynb) asks for this ring and for a ZeRO step made of it; [Lab 3](../../labs/lab03_all_reduce/all_reduce.ipynb) combines both passes.
#
# **Next question:** so far all ranks got the same data, or parts of the same data. What if every rank has *different* data for each other rank? That is an [all-to-all](15_all_to_all.ipynb).
#
# {{side_trips}}
#
# **Sources.** S. Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) ·
# Y. Zhao et al., *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel*, PVLDB 16(12), 2023, [arXiv:2304.11277](https://arxiv.org/abs/2304.11277) ·
# R. Thakur, R. Rabenseifner, W. Gropp, *Optimization of collective communication operations in MPICH*, Int. J. High Perform. Comput. Appl. 19(1), 2005 ·
# [PyTorch, torch.distributed](https://docs.pytorch.org/docs/stable/distributed.html) ·
# [PyTorch, ProcessGroupGloo.cpp](https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupGloo.cpp) ·
# [NVIDIA, nccl-tests PERFORMANCE.md](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("14")
