# %% [markdown] name="title"
# # Lab 16: send less
#
# **An all-reduce of the whole gradient in every step is too much for a slow network. Send the largest numbers, or two thin matrices, or nothing for many steps; and keep what was not sent.**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `top_k_all_reduce` | medium | 40 | 7 |
# | `power_sgd_round` | medium to hard | 45 | 7 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Send less* has the ideas: error feedback, what a network can add and what it can't, and DiLoCo, which sends nothing for many steps.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up. Tensors may be views with gaps, which the wire does not take.
# - The bytes of each call are counted: there is a least amount, since the data must travel, and a largest, since the exercise is about that.
# - Arguments that the text does not name as changed stay as they are.
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
# 64 ranks send the largest 1 % of a gradient, as pairs of 4 + 4 bytes, instead of an all-reduce of float32 on a ring. Does each rank send more bytes or fewer, and how many times? Write it down first.

# %% name="prediction"
times_fewer = 0.0


# %% name="top_k_bytes"
def times_fewer_bytes(n, k, p):
    return (8 * n * (p - 1) / p) / (8 * k * (p - 1))


print(f"{times_fewer_bytes(1e6, 1e4, 64):.2f} times fewer")

# %% [markdown] name="top_k_task"
# ## 1. The largest k, and what is left
#
# Return the sum over the ranks of what each sends, with the shape of `tensor`. A rank sends the $k$ elements of `tensor + error` with the largest absolute values, and no others. What it does not send
# stays in `error`, in place; where it sends, `error` becomes 0.
#
# - `tensor` and `error` have the same shape and dtype; $k$ may be larger than the number of elements, then all are sent. No two absolute values that matter are equal.
# - Two ranks may choose the same place, and then both count.
# - With collectives only, such as `all_gather`: `isend` and `irecv` are not allowed.
# - A rank receives $k$ values and $k$ indices of each other rank, and no more: at most $(p-1)\,k\,(e+8)$ bytes, with $e$ bytes a value. A vector that is mostly zeros is as long as any other.
#   Values and indices may travel apart, or packed into one tensor of bytes.
# - Can every dtype of `tensor` hold an index?


# %% nbgrader={"grade_id": "top_k_all_reduce", "solution": true}
def top_k_all_reduce(tensor: torch.Tensor, k: int, error: torch.Tensor) -> torch.Tensor:
    """Returns the sum of every rank's k largest elements of tensor + error; error keeps the others."""
    ### BEGIN SOLUTION
    p = dist.get_world_size()
    wanted = (tensor + error).flatten()
    places = wanted.abs().topk(min(k, wanted.numel())).indices
    values = wanted[places]
    all_values = [torch.empty_like(values) for _ in range(p)]
    all_places = [torch.empty_like(places) for _ in range(p)]
    dist.all_gather(all_values, values)
    dist.all_gather(all_places, places)
    wanted[places] = 0
    error.copy_(wanted.view(error.shape))
    total = torch.zeros_like(wanted)
    total.index_add_(0, torch.cat(all_places), torch.cat(all_values))
    return total.view(tensor.shape)
    ### END SOLUTION


# %% name="check_top_k"
check(top_k_all_reduce)

# %% [markdown] name="top_k_live"
# On the live world: 20 numbers, of which 4 pull the ranks apart, 2 sent in each of 400 steps. Without feedback the error is set to zero after each step.


# %% name="try_top_k"
def descent(feedback):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    goal, apart = torch.randn(20), torch.tensor([(-1.0) ** r for r in range(p)])
    mine = goal.clone()
    mine[:4] += 4 * (apart[rank] - apart.mean())
    x, error = torch.zeros(20), torch.zeros(20)
    for _ in range(400):
        x -= top_k_all_reduce(0.02 * (x - mine), 2, error) / p
        if not feedback:
            error.zero_()
    return ((x - goal) ** 2).sum().item() / (goal**2).sum().item()


print("with feedback, less than 2 % of the distance is left:", max(world.run(descent, True)) < 0.02)
print("without, more than half is left:", min(world.run(descent, False)) > 0.5)

# %% [markdown] name="power_task"
# ## 2. One round of PowerSGD
#
# `matrix` and `error` have the shape (n, m), and `q` the shape (m, r), the same on all ranks, all float32 or float64. With $M$ = `matrix + error` of this rank:
#
# 1. $P = MQ$, summed over the ranks; then make its columns orthonormal.
# 2. $Q = M^\top P$, averaged over the ranks.
# 3. Return $(PQ^\top, Q)$: the approximation of the mean, and the $q$ of the next round. `error` becomes $M - PQ^\top$, in place.
#
# - Two `all_reduce`s, of $nr$ and $mr$ elements, and nothing else.
# - `torch.linalg.qr(p).Q` is one way to orthonormal columns; any basis of the same columns will do. Why must it come after the first all-reduce?


# %% nbgrader={"grade_id": "power_sgd_round", "solution": true}
def power_sgd_round(matrix: torch.Tensor, q: torch.Tensor, error: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the approximation of the mean of matrix + error, and the new q; error keeps what it lacks."""
    ### BEGIN SOLUTION
    wanted = matrix + error
    p = (wanted @ q).contiguous()
    dist.all_reduce(p)
    p = torch.linalg.qr(p).Q
    new_q = (wanted.T @ p).contiguous()
    dist.all_reduce(new_q)
    new_q /= dist.get_world_size()
    result = p @ new_q.T
    error.copy_(wanted - result)
    return result, new_q
    ### END SOLUTION


# %% name="check_power"
check(power_sgd_round)

# %% [markdown] name="power_live"
# On the live world: 60 rounds with one column on the same gradients of 8 x 6. The sum of what the rounds returned must be 60 times the mean gradient, without what the errors still hold.


# %% name="try_power"
def rounds_of_power(rounds):
    torch.manual_seed(0)
    q = torch.randn(6, 1)
    torch.manual_seed(1 + dist.get_rank())
    matrix = torch.randn(8, 6)
    error, applied = torch.zeros(8, 6), torch.zeros(8, 6)
    for _ in range(rounds):
        result, q = power_sgd_round(matrix, q, error)
        applied += result
    return applied.tolist(), (rounds * matrix - error).tolist()


results, trace = world.trace(rounds_of_power, 60)
applied = torch.tensor(results[0][0])
given = torch.tensor([each for _, each in results]).mean(0)  # what the ranks wanted, without what the errors hold
print("nothing is lost:", bool((applied - given).abs().max() < 1e-2))
print("a round reduces", sum(e.nbytes for e in trace if e.rank == 0) // 60, "bytes")

# %% [markdown] name="question"
# ## 3. Which one?
#
# Two data centres with 4 workers each train a model of 10 billion parameters; the link between any two workers carries 1 GB/s. A step computes for 4 s. Compare, in bytes that a worker sends a step and in the share of time
# that it waits: an all-reduce in bfloat16, top-1 % (pairs of 4 + 4 bytes), DiLoCo with $H = 200$ in float32. What would you choose, and what would you measure before you trust it? Three or four sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "which_one", "grade": true, "solution": true, "points": 2}
# All-reduce: 2 x 10e9 x 2 x 7/8 = 35 GB, 35 s for 4 s of computing, 90 % waiting. Top-1 %: 8 x 1e8 x 7 = 5.6 GB, 5.6 s, 58 %, and memory for the error. DiLoCo: 2 x 10e9 x 4 x 7/8 = 70 GB a round, 0.35 GB a step, 70 s after
# 800 s, 8 %. I would choose DiLoCo, perhaps streaming so that the exchange hides, and compare its loss at the same number of tokens with a run that averages in every step. (1 point for the figures, 1 for a choice that says
# what it may cost in loss.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "top_k_all_reduce-graded", "grade": true, "locked": true, "points": 7} allranks={"exercise": "top_k_all_reduce"}
round(7 * check(top_k_all_reduce).score, 2)

# %% nbgrader={"grade_id": "power_sgd_round-graded", "grade": true, "locked": true, "points": 7} allranks={"exercise": "power_sgd_round"}
round(7 * check(power_sgd_round).score, 2)

# %% [markdown] name="recap"
# Three ways to send less: fewer numbers, a product of thin matrices, fewer exchanges. In each, what was not sent is kept, as an error or as the way that a rank went alone. **Count the bytes for your number of ranks, and
# compare the loss before you trust a saving.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
