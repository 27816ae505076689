# %% [markdown] name="title"
# # Lab 9: tensor parallel
#
# **Two matrices are too large for one GPU. Split them so that each of $p$ GPUs does a $p$-th of the work, and the GPUs communicate only once. How
# do you split the first matrix, and how the second?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `column_row_linear` | medium | 30 | 6 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Tensor parallel* has the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **How it is marked.** `column_row_linear` is a plain function on the default group. It must be right for any number of ranks from 1 up, for hidden
# layers that the number of ranks does not divide, any floating dtype, an input without rows and any layout. Write it with `all_reduce`. Every message
# is counted. Your function must change only what the task asks it to change.
# `check(function)` uses the same rules as the marking, with other numbers.
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


results, trace = world.trace(mlp_of_ranks)
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

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "column_row_linear-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "column_row_linear"}
round(6 * check(column_row_linear).score, 2)

# %% [markdown] name="recap"
# A split by columns gives complete columns, a split by rows gives summands, and columns followed by rows need a single all-reduce for two matrices
# ([Megatron-LM](https://arxiv.org/abs/1909.08053)). **Split so that the first product gives each rank what its second product needs.** In the next lab programs are broken on purpose.

# %% name="stop_world"
world.stop()
