# %% [markdown] name="title"
# # Lab 21: bits
#
# **An all-reduce in 8 bits sends a quarter of the bytes of float32. How often may a number be rounded on its way, and how do you know how far off the sum can be?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `quantised_all_reduce` | medium to hard | 50 | 8 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Bits* has the ideas: one scale for each block, one sum on one rank, and who must round.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - The exercise is right for any number of ranks from 1 up, for float32, float64 and bfloat16, and for sizes that no block and no number of ranks divides.
# - Views with gaps come too, which the wire does not take. The input stays as it is.
# - Every byte is counted.
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
# A block has the numbers 0.5, -2.54, 1.0 and 0.013. It is sent as int8 with one scale, the largest absolute value divided by 127. Which whole numbers are sent? Write them down
# first.

# %% name="prediction"
prediction = [0, 0, 0, 0]


# %% name="one_block"
row = torch.tensor([0.5, -2.54, 1.0, 0.013])
scale = row.abs().max() / 127
print([int(n) for n in (row / scale).round()], f"a step is {scale:.3f}, the largest error at most {scale / 2:.3f}")

# %% [markdown] name="task"
# ## 1. The sum, in 8 bits
#
# `tensor` has any shape. Number its elements as `flatten()` does, and cut them into blocks of `block` numbers; the last block may be shorter. Return the sum over the ranks, in the
# shape and dtype of `tensor`.
#
# - **Error.** A number may be quantised twice: as a part, with the scale of its block on its rank, and as a sum, with the scale of its block of the sum. Each time it is off by half a step at
#   most, and a step is the largest absolute value of the block divided by 127. So element $i$ in block $j$ may be off by
#   $\frac12\sum_r s_{r,j} + \frac12 s_j$, and by no more.
# - **Bytes.** Each rank receives $2(p-1)$ chunks: a byte for each number, and 4 bytes for each scale. A chunk has $\lceil \text{blocks}/p \rceil$ blocks. The last block may be sent
#   padded to `block` numbers. Numbers and scales may be packed into one tensor of bytes. A scale may have fewer bytes, if the error keeps its bound for numbers of any size.
# - **Bits.** All ranks end with the *same* bits. Which rank is in danger of having better ones?
# - Two steps: an all-to-all, after which each rank has everybody's numbers of one chunk and adds them; then an all-gather of the sums. Only these two collectives are allowed, in any number of
#   calls: no `isend`, `irecv` or `broadcast`. Compute in float32. A block of zeros has the scale 0.


# %% nbgrader={"grade_id": "quantised_all_reduce", "solution": true}
def quantised_all_reduce(tensor: torch.Tensor, block: int) -> torch.Tensor:
    """Returns the sum over the ranks, quantised to 8 bits twice, in blocks that have a scale each."""
    ### BEGIN SOLUTION
    p, n = dist.get_world_size(), tensor.numel()
    each = -(-n // (block * p))  # blocks of a chunk

    def quantised(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scales = rows.abs().amax(1) / 127
        steps = torch.where(scales > 0, scales, torch.ones_like(scales))
        return (rows / steps[:, None]).round().to(torch.int8), scales

    rows = torch.zeros(p * each * block)
    rows[:n] = tensor.flatten()
    numbers, scales = quantised(rows.view(-1, block))
    parts, part_scales = torch.empty_like(numbers), torch.empty_like(scales)
    dist.all_to_all_single(parts, numbers)
    dist.all_to_all_single(part_scales, scales)
    numbers, scales = quantised((parts * part_scales[:, None]).view(p, each, block).sum(0))
    sums, sum_scales = torch.empty(p * each, block, dtype=torch.int8), torch.empty(p * each)
    dist.all_gather_single(sums, numbers)
    dist.all_gather_single(sum_scales, scales)
    return (sums * sum_scales[:, None]).flatten()[:n].reshape(tensor.shape).to(tensor.dtype)
    ### END SOLUTION


# %% name="check_quantised"
check(quantised_all_reduce)

# %% [markdown] name="quantised_live"
# On the live world: the largest error, against the bound of a whole vector, and the bytes that the calls bring.


# %% name="try_quantised"
def quantised_of_ranks():
    torch.manual_seed(dist.get_rank())
    x = torch.randn(4096)
    total = x.clone()
    dist.all_reduce(total)
    step = x.abs().max() / 127
    dist.all_reduce(step)
    got = quantised_all_reduce(x, 64)
    return ((got - total).abs().max() <= step / 2 + 1.01 * total.abs().max() / 254).item()


def brought(trace):
    return sum(event.nbytes for event in trace if event.rank == 0 and event.op.startswith(("all_to_all", "all_gather")))


results, trace = world.trace(quantised_of_ranks, deadline=20)
print("within the bound:", all(results))
print(
    "float32 would put",
    4 * 4096 * (world.ranks + 1) // world.ranks,
    "bytes into the two steps; this put",
    brought(trace),
)

# %% [markdown] name="question"
# ## 2. Round at every hop?
#
# A ring all-reduce could send int8 too: at each hop a rank turns the chunk that came into float32, adds its own part, and quantises the sum again. How often is a number quantised on
# 16 ranks, in the ring and in your function? All numbers are near 1. How large, at most, is the error of the sum in each case, in units of one step of a *single* rank's block? What else is against the ring?
# Three or four sentences, with numbers.

# %% [markdown] nbgrader={"grade_id": "every_hop", "grade": true, "solution": true, "points": 2}
# In the ring the sum of k ranks is quantised for k = 1 to 16, 16 times, and the sum of k numbers near 1 has steps k times as large: at most (1 + 2 + ... + 16)/2 = 68 steps. In two steps each of the 16 parts is
# off by half a step, 8 in all, and the sum by half of a step that is 16 times as large, 8 more: 16 steps. Besides, the ring quantises and adds 15 times one after the other, each time before it can send, and
# the scales travel with every chunk. (1 point for the number of roundings, 1 for both bounds or for the reason that the steps grow with the sum.)

# %% [markdown] name="marking"
# ## Marking
#
# This cell gives the exercise's points times the score that `check` gives; you can run it too.

# %% nbgrader={"grade_id": "quantised_all_reduce-graded", "grade": true, "locked": true, "points": 8} allranks={"exercise": "quantised_all_reduce"}
round(8 * check(quantised_all_reduce).score, 2)

# %% [markdown] name="recap"
# Bytes with different scales can't be added on the way. So each rank adds one chunk of everybody, in float32, and quantises the sum once more: a quarter of the bytes, two roundings for any number of
# ranks, and the same bits everywhere.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
