# %% [markdown] name="title"
# # Start here
#
# **Four processes hold one number each. What has to happen before all four hold the sum, and what if one of them
# never turns up?**
#
# 15 minutes · CPU ok, GPUs used where there are enough · run the cells in order with Shift+Enter

# %% [markdown] name="start"
# ## Four ranks, now
#
# This line starts four separate processes. If the machine has four GPUs, each process gets its own; otherwise all
# four run on the CPU. Everything below works either way.

# %% name="start_world"
from allranks import World

world = World(ranks=4)
world

# %% [markdown] name="predict"
# Each row is one process, and each process is a **rank**. In a moment every rank makes a number of its own: rank 0
# makes 1, rank 1 makes 2, and so on. Then each of them calls `all_reduce`, which adds across ranks.
#
# **Predict first.** What does the *last* rank hold after the call?

# %% name="guess_sum"
from ipywidgets import IntText

guess = IntText(description="last rank:")
guess

# %% name="first_all_reduce"
# %%ranks
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
print(x.item())

# %% name="reveal_sum"
print(f"you said {guess.value}, the last rank holds {world['x'][-1].item():g}")

# %% [markdown] name="what_happened"
# All four hold 1 + 2 + 3 + 4 = 10, and no rank holds its old number any more: `all_reduce` works in place. The cell
# says what should be true in the end. It does not say who sends what to whom; that is the backend's business, and most
# of this course is about what it does there.
#
# Every rank ran the same three lines. They differ only because `rank` differs. This way of writing a parallel program
# is called SPMD, *single program, multiple data*.

# %% [markdown] name="words"
# | word | meaning | here |
# |---|---|---|
# | **rank** | one process of the job, and its number, from 0 | the rows of the table above |
# | **world** | all ranks together | the variable `world` |
# | **world size** $p$ | how many there are | `world_size` |
# | **backend** | the library that moves the bytes: NCCL between GPUs, Gloo between CPU processes | last column of the table |
# | **collective** | an operation that every rank of a group calls together | `dist.all_reduce` |

# %% [markdown] name="magic"
# ## Two ways to talk to the ranks
#
# **`%%ranks`** sends the cell to every rank. Five names are ready there: `rank`, `world_size`, `device`, `torch` and
# `dist` (which is `torch.distributed`). Variables stay on their rank until the world ends, so `x` is still there:

# %% name="still_there"
# %%ranks
import os

print("process", os.getpid())
print("x =", x.item())

# %% [markdown] name="world_run"
# The notebook is a fifth process and has no `x`. `world["x"]` fetches it from all ranks, as a list in the order of
# ranks; you saw that in the prediction.
#
# **`world.run(function, *arguments)`** calls a function of the notebook on every rank and returns the list of what they
# returned. Suppose that each rank has seen a different loss and you want to log the mean:

# %% name="mean_loss"
import torch
import torch.distributed as dist


def mean_loss(first):
    loss = torch.tensor([first + dist.get_rank()])
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


world.run(mean_loss, 2.0)

# %% [markdown] name="mean_explained"
# The losses were 2, 3, 4 and 5; each rank returned their mean. Nothing in `mean_loss` belongs to this course: it is
# ordinary PyTorch, and it runs unchanged on a cluster.

# %% [markdown] name="wrong"
# ## When it goes wrong
#
# Two things go wrong in parallel programs all the time: one rank fails, and one rank doesn't come. Both are safe to
# try here.
#
# **Predict.** The last rank tries to fold 8 numbers into a 3 × 3 table, which can't work. What do the others do?
# (`ask` makes buttons to choose with. Your choice is kept for the moment when you see the result, and never graded.)

# %% name="guess_raise"
from allranks import ask

choices = ["they print their result", "they raise the same error", "they wait for ever"]
guess = ask(*choices)
guess

# %% tags=["raises-exception"] name="one_raises"
# %%ranks
batch = torch.ones(8)
if rank == world_size - 1:
    batch = batch.reshape(3, 3)
print(tuple(batch.shape))

# %% [markdown] name="raise_explained"
# The others printed their result. They had no way of knowing: ranks share nothing unless they communicate. The report
# names the rank, the error and the line, once, and the world goes on as it was.
#
# **Predict again.** Now rank 0 leaves out one `all_reduce`. What do the others do?

# %% name="guess_absent"
guess = ask(*choices)
guess

# %% tags=["raises-exception"] name="one_absent"
# %%ranks --deadline 3
if rank != 0:
    dist.all_reduce(x)

# %% [markdown] name="absent_explained"
# They wait for ever. The sum needs *every* rank's number, and those who wait can't tell a late rank from an absent one.
# Only a clock ends that. (With NCCL the call itself returns at once. There it is the GPU that waits, and the report
# says so.)
#
# PyTorch's default limit is 10 minutes with NCCL and 30 with the other backends
# ([documentation](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group)). In this
# course a cell has 60 seconds unless it says `--deadline`, and then you get the list above: which rank stood at which
# line, and which was done. The rank that is *done* while others wait is the first suspect.
#
# The **■** button in the toolbar does the same at once. Ranks that are stuck can't be freed, only replaced, so the
# world has made new ones. Look at the process numbers:

# %% name="fresh_world"
world

# %% [markdown] name="fresh_explained"
# Their variables are gone (`x` too), while the notebook's own are still here. `world.reset()` does that on demand.

# %% [markdown] name="picture"
# ## What goes on underneath
#
# One way to do an all-reduce is the **ring**: each rank cuts its tensor into as many chunks as there are ranks and
# passes chunks to its right-hand neighbour only.
#
# **Predict.** How many messages does each of four ranks send? Then press play, or step with the arrow keys, and count.

# %% name="guess_messages"
guess = IntText(description="messages:")
guess

# %% name="player"
from allranks import Player
from allranks.schedules import ring_all_reduce

ring = ring_all_reduce(ranks=4)
Player(ring)

# %% name="reveal_messages"
sent = sum(move.src == 0 for move in ring.moves)
print(f"you said {guess.value}, rank 0 sends {sent}")

# %% [markdown] name="picture_explained"
# Six: three in which the arriving chunk is *added*, three in which it is *copied*. Watch one chunk in the first half:
# it collects one more contribution at each stop. Why this should be a good way to add is the subject of the chapter on
# all-reduce. What the player showed is a **schedule**: a list that says, for each step, who sends which chunk to whom.

# %% [markdown] name="recap"
# ## Where next
#
# A collective is one call that every rank makes; the backend decides who sends what to whom. Ranks share nothing else,
# so one rank's failure is invisible to the others until they wait for it. **Every rank must come, or
# somebody waits for ever.**
#
# - [Why communication decides](01_why_communication.ipynb) is the next chapter: what a message costs, and how far
#   more GPUs help.
# - In a hurry? [All-reduce](07_all_reduce.ipynb): 7 billion gradients on 32 GPUs. How many bytes must each GPU send, and how long
#   does that take? You take the ring apart, write one, and time it.
# - [Lab 3](../labs/lab03_all_reduce/all_reduce.ipynb) has its exercises, marked by the messages your code sends.
#
# Last, the ranks go home. They would also go when you close the notebook's kernel.

# %% name="stop_world"
world.stop()
