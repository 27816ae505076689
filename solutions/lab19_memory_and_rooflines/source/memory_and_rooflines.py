# %% [markdown] name="title"
# # Lab 19: memory and rooflines
#
# **A rank needs all tokens for one product, and has a part of them. Keep all of them until the backward pass, or gather them twice? And must it wait for the last one before it multiplies the first?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `sequence_parallel_linear` | hard | 40 | 7 |
# | `async_tp_linear` | medium to hard | 35 | 7 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Memory and rooflines* has the ideas: what a layer keeps, and when computing hides a gather.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up. Tensors may be views with gaps, which the wire does not take. Inputs stay as they are.
# - `sequence_parallel_linear` uses collectives, `async_tp_linear` sends and receives.
# - Every byte is counted, and for the last one the time on the wire's clock.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# A layer has 8192 tokens of width 8192, and each number takes 2 bytes. Eight tensor parallel ranks split the tokens between the products. How many MB does a rank keep of *one* gathered
# input, and how many of its own rows? Write both down first.

# %% name="prediction"
prediction = [0, 0]

# %% name="gathered_megabytes"
whole = 8192 * 8192 * 2 / 1e6
print(f"gathered {whole:.0f} MB, its own rows {whole / 8:.0f} MB")

# %% [markdown] name="linear_task"
# ## 1. Gather it again
#
# `x` has this rank's rows of the tokens (as many on each rank), `w` this rank's columns of a matrix. Return *all* ranks' rows, in the order of ranks, times `w`. The result must be
# differentiable: `check` calls `.backward(gradient)` on what you return, each rank with its own gradient, and compares `x.grad` and `w.grad`.
#
# - Forward: one all-gather of `x`.
# - Until the backward pass, keep your own rows only. The gradient of `w` needs all rows: gather `x` **again**, in the backward pass. What counts is each
#   tensor and array that is still in memory when the gradient comes, beside `x`, `w` and the result: at most two copies of your rows and of your columns.
# - All ranks used your rows, each for its own columns. So the gradient of `x` is a sum over ranks, of which you need your rows: one reduce-scatter.
# - `torch.autograd.Function` has a `forward(ctx, x, w)` that calls `ctx.save_for_backward(...)`, and a `backward(ctx, gradient)` that returns a gradient for each argument.


# %% nbgrader={"grade_id": "sequence_parallel_linear", "solution": true}
def sequence_parallel_linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Returns all ranks' rows times w; keeps this rank's rows only, and gathers them again backward."""

    ### BEGIN SOLUTION
    def gathered(rows: torch.Tensor) -> torch.Tensor:
        whole = rows.new_empty(dist.get_world_size() * len(rows), rows.shape[1])
        dist.all_gather_single(whole, rows.contiguous())
        return whole

    class GatheredLinear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, rows, columns):
            ctx.save_for_backward(rows, columns)
            return gathered(rows) @ columns

        @staticmethod
        def backward(ctx, gradient):
            rows, columns = ctx.saved_tensors
            own = rows.new_empty(rows.shape)
            dist.reduce_scatter_single(own, (gradient @ columns.T).contiguous())
            return own, gathered(rows).T @ gradient

    return GatheredLinear.apply(x, w)
    ### END SOLUTION


# %% name="check_linear"
check(sequence_parallel_linear)

# %% [markdown] name="linear_live"
# On the live world: what autograd keeps between forward and backward, in rows of `x`. (`w` is kept too, and not counted.)


# %% name="try_linear"
def kept_rows():
    x, w = torch.randn(6, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = sequence_parallel_linear(x, w)
    y.sum().backward()
    return sum(t.numel() // 4 for t in kept if t.data_ptr() != w.data_ptr()), len(y)


results = world.run(kept_rows, deadline=20)
print(f"keeps {results[0][0]} rows; the product has {results[0][1] // world.ranks} for each rank")

# %% [markdown] name="async_task"
# ## 2. Multiply while it comes
#
# Now the gather shall hide. `x` has this rank's rows again; `multiply(rows)` returns `rows` times this rank's part of the matrix. It is the only way to multiply, and takes time on the wire's clock for each row.
# Return `multiply` of all ranks' rows, in the order of ranks.
#
# - Rows travel in $p-1$ messages from each rank, with sends and receives: round a ring, or straight.
# - Multiply the rows that are there while the next ones come. Which rows are there at the beginning?
# - Each row goes through `multiply` once. Time: at most $(p-1)\max(\text{sending}, \text{computing}) + \text{computing}$ and 10 %, where both are those of *one* rank's rows.


# %% nbgrader={"grade_id": "async_tp_linear", "solution": true}
def async_tp_linear(x: torch.Tensor, multiply) -> torch.Tensor:
    """Returns multiply(the rows of all ranks), multiplied piece by piece while others are under way."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    piece, products = x.contiguous(), [None] * p
    for step in range(p):
        coming, works = torch.empty_like(piece), []
        if step < p - 1:
            ops = [dist.P2POp(dist.isend, piece, (rank + 1) % p), dist.P2POp(dist.irecv, coming, (rank - 1) % p)]
            works = dist.batch_isend_irecv(ops)
        products[(rank - step) % p] = multiply(piece)
        for work in works:
            work.wait()
        piece = coming
    return torch.cat(products)
    ### END SOLUTION


# %% name="check_async"
check(async_tp_linear)

# %% [markdown] name="async_live"
# On the live world it gives the product of the gathered rows:


# %% name="try_async"
def product_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    rows, w = torch.randn(4 * p, 8), torch.randn(8, 3)
    found = async_tp_linear(rows[4 * rank : 4 * (rank + 1)], lambda piece: piece @ w)
    return (found - rows @ w).abs().max().item()


print("largest difference below 1e-5:", max(world.run(product_of_ranks, deadline=20)) < 1e-5)

# %% [markdown] name="question"
# ## 3. More GPUs?
#
# A dense model trains with FSDP on 64 nodes of 8 H100 (989 TFLOP/s, 400 GB/s a node). A step has 2 million tokens ($2^{21}$) in one micro-batch, and its gathers hide. Your team is given four times as many nodes, and wants to keep the
# batch. What happens to the gathers, and what can be done? Two or three sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "more_gpus", "grade": true, "solution": true, "points": 2}
# 512 GPUs have 4096 tokens each, above the bound of 989e12 / 400e9 = 2472. On 2048 GPUs each has 1024: the gathers take 2.4 times as long as computing, and no longer hide. Four pipeline stages
# help: a node gathers a quarter of the layers, for the tokens of four nodes, as with 4096 tokens a GPU. A larger batch helps too, but changes the training. Tensor parallelism inside a node does not: its cards still bring
# all layers. (1 point for both figures and the bound, 1 for a way that divides the bytes or raises the tokens, with the reason.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "sequence_parallel_linear-graded", "grade": true, "locked": true, "points": 7} allranks={"exercise": "sequence_parallel_linear"}
round(7 * check(sequence_parallel_linear).score, 2)

# %% nbgrader={"grade_id": "async_tp_linear-graded", "grade": true, "locked": true, "points": 7} allranks={"exercise": "async_tp_linear"}
round(7 * check(async_tp_linear).score, 2)

# %% [markdown] name="recap"
# A second gather saves the memory of the first, and a gather can hide behind the product that needs it, piece by piece. **Before you save memory, bytes or seconds, ask which of the three
# you are short of.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
