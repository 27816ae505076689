# %% [markdown] name="title"
# # Lab 9: tensor parallel
#
# **Two matrices are too large for one GPU. Split them so that each of $p$ GPUs does a $p$-th of the work, and the GPUs communicate only once. How
# do you split the first matrix, and how the second?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `column_row_linear` | medium | 30 | 6 |
# | `tensor_parallel_mlp` | medium | 30 | 6 |
# | `sequence_parallel_norm` | medium to hard | 40 | 6 |
# | `clip_gradients` | medium | 25 | 4 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Tensor parallel* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - `column_row_linear` is right for any number of ranks from 1 up, for hidden layers that the number of ranks does not divide, any floating dtype, an input without rows and any layout.
# - Write it with `all_reduce`. Every message is counted.
# - The other tasks say what is different for them.
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
# $x = [1, 1]$. Of a matrix $A$ with two rows and $2p$ columns rank $r$ holds two columns, $[0, 4r]^T$ and $[0, 4r+1]^T$. What does rank 1 print, and
# what did it need from the others? Write it down first.

# %% name="prediction"
prediction = [0, 0]

# %% name="first_product"
# %%ranks
columns = torch.stack([torch.zeros(2), torch.tensor([4.0 * rank, 4.0 * rank + 1])])
print((torch.ones(2) @ columns).tolist())

# %% [markdown] name="two_cuts"
# ## Two ways to split a product
#
# **By columns.** $xA = x\,[A_0 \; A_1 \; \dots] = [xA_0 \;\; xA_1 \; \dots]$. Each rank needs all of $x$ and gets *some columns of the result*, which are complete. Nothing is sent.
#
# **By rows.** $hB = [h_0 \; h_1 \; \dots] \begin{bmatrix}B_0\\B_1\\ \vdots\end{bmatrix} = h_0B_0 + h_1B_1 + \dots$ Each rank needs *its columns of*
# $h$ only and gets a matrix of the full shape, which is one summand of the result. An all-reduce adds the summands.
#
# The first split gives each rank exactly the columns that the second one needs. But what about relu between the two? Try it here, in the notebook, with
# four pieces.


# %% name="columns_alone"
def whole_numbers(*shape):
    return torch.randint(-3, 4, shape).float()


torch.manual_seed(0)
x, A = whole_numbers(3, 6), whole_numbers(6, 8)
pieces = [torch.relu(x @ columns) for columns in A.tensor_split(4, dim=1)]
print("columns and relu, largest difference:", (torch.cat(pieces, dim=1) - torch.relu(x @ A)).abs().max().item())

h, B = whole_numbers(3, 8), whole_numbers(8, 2)
parts = [columns @ rows for columns, rows in zip(h.tensor_split(4, dim=1), B.tensor_split(4, dim=0), strict=True)]
print("rows, largest difference:", (sum(parts) - h @ B).abs().max().item())
print("relu of each summand:", (sum(torch.relu(part) for part in parts) - torch.relu(h @ B)).abs().max().item())

# %% [markdown] name="task"
# ## 1. Column, then row
#
# A transformer's MLP is $\text{relu}(xA)B$ (or another function in relu's place). Every rank has all of `x`, some columns of $A$ (`a_shard`), and those rows of $B$ (`b_shard`)
# that belong to them. Return the whole result, on every rank.
#
# - Use **exactly one** `all_reduce`, of the result: don't send the hidden layer, which is four times as wide in most models.
# - relu acts on each element alone, so you can apply it before or after a split into columns. But relu of a sum is not the sum of relus: where must it be?
# - The number of ranks need not divide the number of hidden columns: ranks may hold different numbers of them, or none. `x` may be a view: `@` accepts it, but the wire does not.


# %% nbgrader={"grade_id": "column_row_linear", "solution": true}
def column_row_linear(x: torch.Tensor, a_shard: torch.Tensor, b_shard: torch.Tensor) -> torch.Tensor:
    """Returns relu(x A) B on every rank, where A is split by columns and B by rows; every rank calls it."""
    ### BEGIN SOLUTION
    result = torch.relu(x @ a_shard) @ b_shard
    dist.all_reduce(result)
    return result
    ### END SOLUTION


# %% name="check_linear"
check(column_row_linear)

# %% [markdown] name="linear_live"
# Run it on the live world with six tokens: the cell compares the result of all ranks with that of one, and prints the messages.


# %% name="try_linear"
def mlp_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same matrices on every rank, so that we can compare
    tokens, wide, narrow = torch.randn(6, 2), torch.randn(2, 8), torch.randn(8, 2)
    result = column_row_linear(tokens, wide.tensor_split(p, dim=1)[rank], narrow.tensor_split(p, dim=0)[rank])
    return torch.allclose(result, torch.relu(tokens @ wide) @ narrow, atol=1e-5)


results, trace = world.trace(mlp_of_ranks, deadline=20)
print("the same as alone:", all(results))
print("rank 0:", [(event.op, event.nbytes) for event in trace if event.rank == 0])

# %% [markdown] name="bytes_task"
# ## What it saves
#
# A layer has 4096 numbers for each token and a hidden layer of 16384; there are 8 ranks and 2048 tokens of bfloat16. The cell shows three ways to
# split, and the bytes that each rank sends if all-reduces and all-gathers use rings. **Predict** which is the most expensive.

# %% name="bytes"
tokens_count, model, hidden, ranks = 2048, 4096, 16384, 8
share = (ranks - 1) / ranks
ways = {
    "column, then row: all_reduce of the result": 2 * share * tokens_count * model,
    "column, then column: all_gather of the hidden layer, and of the result": share * tokens_count * (hidden + model),
    "row, then row: all_reduce of the hidden layer, and of the result": 2 * share * tokens_count * (hidden + model),
}
for way, numbers in ways.items():
    print(f"{2 * numbers / 1e6:7.1f} MB  {way}")

# %% [markdown] name="question"
# ## 2. Training
#
# Your function is the forward pass. In the backward pass each rank gets the gradient $G$ of the loss with respect to the result (the same on all
# ranks), and it has its own $h_r = \text{relu}(xA_r)$.
# Which of the gradients of $B_r$, $A_r$ and $x$ can a rank compute alone, and which needs a collective, which one and why? Two or three sentences.

# %% [markdown] nbgrader={"grade_id": "backward", "grade": true, "solution": true, "points": 2}
# The gradient of B_r is h_r^T G and that of A_r is x^T (G B_r^T where x A_r > 0): the rank has all of this, so it needs no message. But every rank's columns use x, so its gradient is
# the sum over the ranks of (G B_r^T where x A_r > 0) A_r^T: one all_reduce, the reverse of the forward pass, which copies x and sums the result. (1 point for A_r and B_r
# alone, 1 for the all_reduce of the gradient of x, with the reason that x was used by all.)

# %% [markdown] name="mlp_task"
# ## 3. The same pair, to be trained
#
# `column_row_linear` is right forward. But autograd does not see an `all_reduce`: the gradient of `x` lacks the other ranks' parts, and nothing says so.
# Write Megatron-LM's two functions as `torch.autograd.Function`, and the pair with them.
#
# | | forward | backward |
# |---|---|---|
# | $f$, before the pair | nothing | all-reduce |
# | $g$, behind the pair | all-reduce | nothing |
#
# `x`, `a_shard` and `b_shard` require a gradient. The marking calls your function, then `.backward(gradient)` on what it returned, with the same
# `gradient` on every rank. It compares the result *and* the three gradients.
#
# - Exactly one `all_reduce` forward, of the result, and one backward, of the gradient of `x`.
# - A gradient can have gaps as any tensor, and the wire takes none. Nor must you write into a gradient that autograd gave you: copy it first.
# - How you write it is up to you. These two classes are what large libraries have.


# %% nbgrader={"grade_id": "tensor_parallel_mlp", "solution": true}
class Before(torch.autograd.Function):
    """f: nothing forward, the sum over the ranks backward."""

    @staticmethod
    def forward(ctx, x):
        ### BEGIN SOLUTION
        return x.view_as(x)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        ### BEGIN SOLUTION
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
        ### END SOLUTION


class Behind(torch.autograd.Function):
    """g: the sum over the ranks forward, nothing backward."""

    @staticmethod
    def forward(ctx, part):
        ### BEGIN SOLUTION
        total = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total
        ### END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        ### BEGIN SOLUTION
        return gradient
        ### END SOLUTION


def tensor_parallel_mlp(x: torch.Tensor, a_shard: torch.Tensor, b_shard: torch.Tensor) -> torch.Tensor:
    """Returns relu(x A) B on every rank, and the right gradients in backward; every rank calls it."""
    ### BEGIN SOLUTION
    return Behind.apply(torch.relu(Before.apply(x) @ a_shard) @ b_shard)
    ### END SOLUTION


# %% name="check_mlp"
check(tensor_parallel_mlp)

# %% [markdown] name="mlp_live"
# On the live world: the gradient of `x` against that of one process, and the messages.


# %% name="try_mlp"
def gradient_of_x():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x, wide, narrow = torch.randn(6, 2), torch.randn(2, 8), torch.randn(8, 2)
    alone, shared = x.clone().requires_grad_(), x.clone().requires_grad_()
    (torch.relu(alone @ wide) @ narrow).square().sum().backward()
    a_shard, b_shard = wide.tensor_split(p, dim=1)[rank], narrow.tensor_split(p, dim=0)[rank]
    tensor_parallel_mlp(shared, a_shard, b_shard).square().sum().backward()
    return torch.allclose(shared.grad, alone.grad, rtol=1e-4, atol=1e-4)


results, trace = world.trace(gradient_of_x, deadline=20)
print("the same gradient as alone:", all(results))
print("rank 0:", [(event.op, event.nbytes) for event in trace if event.rank == 0])

# %% [markdown] name="norm_task"
# ## 4. Layer norm between two pairs
#
# With *sequence parallelism* each rank has its own tokens between the pairs: it normalises these only, and gathers all tokens for the next pair. `x` has
# this rank's tokens, the same number on each rank and at least one, shape (tokens, width). `weight` and `bias` are the same on every rank. Return the layer norm of *all*
# ranks' tokens, in rank order: over the last dimension, $\epsilon = 10^{-5}$, as `torch.nn.functional.layer_norm` does by default.
#
# The marking calls `.backward(gradient)` on the result, with *another* gradient on each rank: what follows is split by columns, so each rank has
# a part of every token's gradient. float32 and float64.
#
# - One `all_gather` (or `all_gather_single`) forward, one `reduce_scatter` (or `reduce_scatter_single`) backward.
# - Each rank normalises its own tokens, *then* gathers.
# - Every rank used `weight` and `bias`, for other tokens of the same loss. Their gradients must be the same on every rank at the end: **one** `all_reduce` for both.
#
# An autograd function can take two tensors: then its `backward` gets two gradients, and returns two.


# %% nbgrader={"grade_id": "sequence_parallel_norm", "solution": true}
def sequence_parallel_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Returns the layer norm of all ranks' tokens, and the right gradients in backward; every rank calls it."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mine):
            whole = mine.new_empty(p * len(mine), *mine.shape[1:])
            dist.all_gather_single(whole, mine.contiguous())
            return whole

        @staticmethod
        def backward(ctx, gradient):
            mine = gradient.new_empty(len(gradient) // p, *gradient.shape[1:])
            dist.reduce_scatter_single(mine, gradient.contiguous())
            return mine

    class OnEveryRank(torch.autograd.Function):
        @staticmethod
        def forward(ctx, weight, bias):
            return weight.view_as(weight), bias.view_as(bias)

        @staticmethod
        def backward(ctx, of_weight, of_bias):
            both = torch.stack([of_weight, of_bias])
            dist.all_reduce(both)
            return both[0], both[1]

    weight, bias = OnEveryRank.apply(weight, bias)
    return Gather.apply(torch.nn.functional.layer_norm(x, weight.shape, weight, bias))
    ### END SOLUTION


# %% name="check_norm"
check(sequence_parallel_norm)

# %% [markdown] name="norm_live"
# On the live world, 3 tokens a rank and a loss that is the sum of all: the bias' gradient is the number of tokens.


# %% name="try_norm"
def gradient_of_bias():
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    weight, bias = torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)
    whole = sequence_parallel_norm(torch.randn(3, 4, requires_grad=True), weight, bias)
    whole.backward(torch.full_like(whole, 1 / p))  # a p-th of the gradient on each rank
    return [round(x) for x in bias.grad.tolist()]


results, trace = world.trace(gradient_of_bias, deadline=20)
print("gradient of bias:", results)
print("rank 0:", [event.op for event in trace if event.rank == 0])

# %% [markdown] name="clip_task"
# ## 5. Clip the gradients, and count each once
#
# Gradients are clipped by the norm of *all* of them, $\sqrt{\sum g^2}$, over the whole model. In `sharded` are parameters of which each rank has its own part, such as `a_shard`; in
# `replicated` are those which every rank has whole, with the same gradient, such as layer norms. If the norm is above
# `max_norm`, multiply every `.grad` by `max_norm / norm`; else leave them. Return the norm *before* clipping, a number or a tensor with one element.
#
# - One `all_reduce` of **one** number in every call, also if `sharded` is empty.
# - Some ranks may have a shard without elements. A parameter may have no gradient (`.grad` is None). `replicated` may have the same parameter twice, as tied
#   embeddings are: it has one gradient.
# - Gradients may have two bytes, whose squares can overflow. `math.sqrt` and `float` are allowed.


# %% nbgrader={"grade_id": "clip_gradients", "solution": true}
def clip_gradients(sharded: list[torch.Tensor], replicated: list[torch.Tensor], max_norm: float):
    """Clips all gradients by their global norm, and returns the norm before; every rank calls it."""
    ### BEGIN SOLUTION
    mine = [p.grad for p in sharded if p.grad is not None]
    everybodys = [p.grad for p in dict.fromkeys(replicated) if p.grad is not None]  # each parameter once
    counted = mine + everybodys if dist.get_rank() == 0 else mine
    total = torch.zeros(1, dtype=torch.float64)
    for gradient in counted:
        total += gradient.double().square().sum()
    dist.all_reduce(total)
    norm = total.sqrt().item()
    if norm > max_norm:
        for gradient in mine + everybodys:
            gradient.mul_(max_norm / norm)
    return norm
    ### END SOLUTION


# %% name="check_clip"
check(clip_gradients)

# %% [markdown] name="clip_live"
# On the live world: every rank has a shard with one gradient of 3, and all have the gradient 4. The norm is $\sqrt{9p + 16}$; on four ranks that is
# $\sqrt{52} = 7.21$. Counted on every rank, 4 would give $\sqrt{100}$.


# %% name="try_clip"
def norm_of_ranks():
    sharded, replicated = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    sharded.grad, replicated.grad = torch.full((1,), 3.0), torch.full((1,), 4.0)
    norm = float(clip_gradients([sharded], [replicated], 1.0))
    return round(norm, 2), round(sharded.grad.item() * norm, 2), round(replicated.grad.item() * norm, 2)


print("norm, and gradients times the norm:", world.run(norm_of_ranks, deadline=20))

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "column_row_linear-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "column_row_linear"}
round(6 * check(column_row_linear).score, 2)

# %% nbgrader={"grade_id": "tensor_parallel_mlp-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "tensor_parallel_mlp"}
round(6 * check(tensor_parallel_mlp).score, 2)

# %% nbgrader={"grade_id": "sequence_parallel_norm-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "sequence_parallel_norm"}
round(6 * check(sequence_parallel_norm).score, 2)

# %% nbgrader={"grade_id": "clip_gradients-graded", "grade": true, "locked": true, "points": 4} allranks={"exercise": "clip_gradients"}
round(4 * check(clip_gradients).score, 2)

# %% [markdown] name="recap"
# A split by columns gives complete columns, a split by rows gives summands, and columns followed by rows need a single all-reduce for two matrices
# ([Megatron-LM](https://arxiv.org/abs/1909.08053)). **Split the first matrix so that each rank gets just what its part of the second one needs.** Backward is the mirror: what was
# copied forward is summed backward. And count once what every rank has. In the next lab programs are broken on purpose.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
