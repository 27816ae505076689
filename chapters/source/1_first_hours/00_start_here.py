# %% [markdown] name="title"
# # Start here
#
# {{here}}
#
# **Some processes hold one number each. What must happen before each of them holds the sum? And what if one of them never makes the call?**
#
# Run the cells in order with Shift+Enter. Little time? The end of this chapter names a short way.
#
# {{picture}}
#
# *Above:* what each of four ranks has. *Below:* what each should hold. Nothing in the picture says how it gets there.

# %% [markdown] name="my_model_needs"
# This course follows one model, called **my model**: 7 billion parameters in bfloat16, trained with Adam. On one GPU it needs 134 GB for
# weights, gradients, Adam's state and activations, and a GPU has 80 GB. At the end of the course it runs on 64 GPUs, and on 1,024. All of that begins
# with processes that agree on one number.

# %% [markdown] name="start"
# ## Ranks, now
#
# The next cell starts several separate processes. If the machine has two or more GPUs, there is one process for each GPU; otherwise
# four processes run on the CPU. Everything below works in both cases.

# %% name="start_world"
from allranks import World, predict, predictions

world = World()
world

# %% [markdown] name="predict"
# Each row is one process, and each process is a **rank**. In the next cell every rank makes its own number: rank 0 makes 1, rank 1 makes 2, and so
# on. Then each rank calls `all_reduce`, which adds the numbers of all ranks.
#
# First say what you expect: choose a number and press *Lock in*. It is kept with the notebook and never graded.

# %% name="guess_sum"
guess_sum = predict("What does the last rank hold after the call?", low=0, high=40, title="The last rank holds")
guess_sum

# %% name="first_all_reduce"
# %%ranks
x = torch.tensor([rank + 1.0])
dist.all_reduce(x)
print(x.item())

# %% name="reveal_sum" jupyter={"source_hidden": true}
# the answer: run this cell
guess_sum.reveal(
    world["x"][-1].item(),
    why="`all_reduce` adds the numbers of all ranks and gives the sum to every rank: with four ranks 1 + 2 + 3 + 4 = 10.",
)

# %% [markdown] name="what_happened"
# `all_reduce` says what the result must be. It does not say which rank sends what to which rank: the backend decides that, and most of this course is about how it does so.
#
# Every rank ran the same three lines. Their numbers differed before the call only because `rank` differs. This way of writing a parallel program
# is called SPMD, *single program, multiple data*.

# %% [markdown] name="words"
# | word | meaning | here |
# |---|---|---|
# | **rank** | one process of the job, and its number, from 0 | the rows of the table above |
# | **world** | all ranks together | the variable `world` |
# | **world size** $p$ | the number of ranks | `world_size` |
# | **backend** | the library that moves the bytes: NCCL for tensors on GPUs, Gloo for tensors in the CPU's memory | last column of the table |
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
# The notebook is one more process and has no `x`. `world["x"]` fetches it from all ranks, as a list in the order of ranks:

# %% name="fetched"
world["x"]

# %% [markdown] name="run_explained"
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
# Rank $r$'s loss was $2 + r$; each rank returned the mean of all. Nothing in `mean_loss` belongs to this course: it is
# ordinary PyTorch. But on which device is the tensor `loss`? NCCL takes only tensors on the rank's own GPU, and the function names none.

# %% name="default_device"
# %%ranks
print("my device:", device)
print("torch.ones(4):", torch.ones(4).device)

# %% [markdown] name="on_a_cluster"
# `device` is the rank's own GPU, or the CPU. The course has called `torch.set_default_device(device)` on every rank, so a new tensor is made there, and
# cells need no `device=`. On a cluster your script must do this itself. With the lines below before it, `mean_loss` runs unchanged under
# `torchrun --nproc-per-node 4 script.py`:
#
# ```python
# import os
#
# import torch
# import torch.distributed as dist
#
# if torch.cuda.is_available():
#     device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
#     torch.cuda.set_device(device)
#     dist.init_process_group("nccl", device_id=device)
# else:
#     device = torch.device("cpu")
#     dist.init_process_group("gloo")
# torch.set_default_device(device)  # without it torch.ones(4) is on the CPU, and NCCL refuses it
# ```
#
# (Many scripts write `device=device` in every line that makes a tensor instead of the last line.) Two whole scripts to start with `torchrun` stand in
# the folder `chapters/scripts`: `distributed_mean.py`, and `every_collective.py`, which shows what each call does to each rank's tensor.

# %% [markdown] name="wrong"
# ## When it goes wrong
#
# Two things often go wrong in parallel programs: a rank fails, or a rank does not make a call that the others make. You can safely try both here.

# %% name="guess_raise"
choices = ["they print their result", "they raise the same error", "they wait for ever"]
guess_raise = predict(
    "The last rank tries to fold 8 numbers into a 3 × 3 table, which can't work. What do the others do?",
    choices=choices,
    title="One rank raises an error: the others",
)
guess_raise

# %% tags=["raises-exception"] name="one_raises"
# %%ranks
batch = torch.ones(8)
if rank == world_size - 1:
    batch = batch.reshape(3, 3)
print(tuple(batch.shape))

# %% name="reveal_raise" jupyter={"source_hidden": true}
# the answer: run this cell
guess_raise.reveal(
    choices[0],
    why="Ranks share nothing unless they communicate, and no rank communicates here, so the error stays on one rank.",
)

# %% [markdown] name="raise_explained"
# The report names the rank,
# the error and the line once, and the world continues with the same ranks.
#
# The next cell is the other case: one `all_reduce` in which rank 0 does not take part.

# %% name="guess_absent"
guess_absent = predict(
    "Rank 0 leaves out one all_reduce, and the others call it. What do the others do?",
    choices=choices,
    title="One rank leaves out the call: the others",
)
guess_absent

# %% tags=["raises-exception"] name="one_absent"
# %%ranks --deadline 3
if rank != 0:
    dist.all_reduce(x)

# %% name="reveal_absent" jupyter={"source_hidden": true}
# the answer: run this cell
guess_absent.reveal(
    choices[2],
    why="The sum needs every rank's number, and a rank that waits can't know whether rank 0 is late or will never come.",
)

# %% [markdown] name="absent_explained"
# Only a time limit ends such a call. (With NCCL the call itself returns at once. There the GPU waits, and the report says so.)
#
# PyTorch's default limit is 10 minutes with NCCL and 30 with the other backends
# ([documentation](https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group)). In this
# course a cell has 60 seconds unless it says `--deadline`, and then you get the list above: it shows which rank waited at which line, and which rank
# was done. If a rank is *done* while others wait, look at that rank first.
#
# The **■** button in the toolbar does the same at once. The world can't free ranks that wait for ever; it can only replace them, so it has started new ones. Look at the process numbers:

# %% name="fresh_world"
world

# %% [markdown] name="fresh_explained"
# The variables of the old ranks are lost (`x` too); the notebook's own variables are still here. `world.reset()` replaces the ranks when you want it.

# %% [markdown] name="picture"
# ## What happens inside
#
# One way to do an all-reduce is the **ring**: each rank cuts its tensor into as many chunks as there are ranks and
# passes chunks to its right-hand neighbour only.
#
# The picture below shows it with four ranks, however many you have. First lock in a
# number; then press play, or step with the arrow keys, and count.

# %% name="guess_messages"
guess_messages = predict(
    "Four ranks do an all-reduce on a ring. How many messages does each of them send?",
    low=0,
    high=16,
    title="Messages that each of four ranks sends",
)
guess_messages

# %% name="player"
from allranks import Player
from allranks.schedules import ring_all_reduce

ring = ring_all_reduce(ranks=4)
Player(ring, bound=False)

# %% name="reveal_messages" jupyter={"source_hidden": true}
# the answer: run this cell
sent = sum(move.src == 0 for move in ring.moves)
guess_messages.reveal(
    sent,
    why="Three messages bring each chunk once round the ring, until one rank has its sum; three more bring the sums to all ranks.",
)

# %% [markdown] name="picture_explained"
# Watch one chunk in the first half: it collects one more contribution at each stop. The chapter on all-reduce explains why this is a good way to add. The player showed a **schedule**:
# a list that says, for each step, which rank sends which chunk to which rank.

# %% [markdown] name="recap"
# ## Where next
#
# A collective is one call that every rank makes; the backend decides which rank sends what to which rank. Ranks share nothing else, so the others
# notice one rank's failure only when they wait for it. **Every rank must make the call, or the other ranks wait for ever.**
#
# **Next question:** what does one message do, and how can two ranks wait for each other for ever? [Point to point](03_point_to_point.ipynb)
#
# {{side_trips}}
#
# **The short way**, if you have little time: sections 1 to 5 of [03](03_point_to_point.ipynb), then
# sections 1 to 3 of [04 All-reduce](04_all_reduce.ipynb), where you write the ring that you saw. After about 65 minutes more `check` says that it is right.
# [Lab 3](../../labs/lab03_all_reduce/all_reduce.ipynb) has the exercises for that chapter; they are judged by the messages that your code sends.
#
# Last, stop the ranks. They also stop when you close the notebook's kernel.

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("00")
