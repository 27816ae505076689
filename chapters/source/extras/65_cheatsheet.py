# %% [markdown] name="title"
# # Cheat sheet
#
# {{here}}
#
# **What does each collective do to each rank's tensor, how much does each rank send, and which collective do I need?**
#
# Run all cells; the page is at the end. The explanations are in the chapters, from [Start here](../1_first_hours/00_start_here.ipynb) on.
#
# Print this notebook (*File, Print*, or export it as HTML and print that): only the sheet is printed, on one page, or with more than four ranks
# perhaps on two.
#
# {{moves}}
#
# *Above:* what each of four ranks has before. *Below:* what it holds afterwards. Place is the rank, colour is whose numbers, stripes are a sum.

# %% name="start_world"
from allranks import CheatSheet, World

world = World()
world

# %% [markdown] name="how"
# Each cell below makes one call on every rank and records what the rank held before and after. If you change a value and run this cell and the last one again, the sheet changes too.

# %% name="note"
# %%ranks
import time

sheet = {}


def note(collective, before, after):
    sheet[collective] = before, after
    print(before, "→", after)


def now():
    if device.type == "cuda":
        torch.cuda.synchronize()  # on a GPU calls return before they are done
    return time.perf_counter()


# %% [markdown] name="one"
# ## One rank and the others
#
# Here rank 0 is the *root*: `src` where the data begin, `dst` where they end. [Broadcast](../2_collectives/10_broadcast.ipynb),
# [scatter and gather](../2_collectives/11_scatter_and_gather.ipynb), [reduce](../2_collectives/12_reduce.ipynb).

# %% name="broadcast"
# %%ranks
x = torch.tensor([rank + 1])
before = x.tolist()
dist.broadcast(x, src=0)
note("broadcast", before, x.tolist())

# %% name="scatter"
# %%ranks
whole = torch.arange(world_size)
x = torch.zeros(1, dtype=whole.dtype)
dist.scatter(x, list(whole.chunk(world_size)) if rank == 0 else None, src=0)
note("scatter", whole.tolist() if rank == 0 else None, x.tolist())

# %% name="gather"
# %%ranks
x = torch.tensor([rank + 1])
room = [torch.zeros_like(x) for _ in range(world_size)] if rank == 0 else None
dist.gather(x, room, dst=0)
note("gather", x.tolist(), torch.cat(room).tolist() if rank == 0 else None)

# %% name="reduce"
# %%ranks
x = torch.tensor([rank + 1])
before = x.tolist()
dist.reduce(x, dst=0)
note("reduce", before, x.tolist())

# %% [markdown] name="all"
# After a `reduce` the tensors of the other ranks are undefined: you may look at them, but never use them.
#
# ## Collectives without a root
#
# [All-reduce](../1_first_hours/04_all_reduce.ipynb), [all-gather](../2_collectives/13_all_gather.ipynb), [reduce-scatter](../2_collectives/14_reduce_scatter.ipynb),
# [all-to-all](../2_collectives/15_all_to_all.ipynb), [barrier](../2_collectives/16_barrier_and_groups.ipynb).

# %% name="all_reduce"
# %%ranks
x = torch.tensor([rank + 1])
before = x.tolist()
dist.all_reduce(x)
note("all_reduce", before, x.tolist())

# %% name="all_gather"
# %%ranks
x = torch.tensor([rank + 1])
y = torch.empty(world_size, dtype=x.dtype)
dist.all_gather_single(y, x)
note("all_gather", x.tolist(), y.tolist())

# %% name="reduce_scatter"
# %%ranks
x = 10 * rank + torch.arange(world_size)
y = torch.empty(1, dtype=x.dtype)
dist.reduce_scatter_single(y, x)
note("reduce_scatter", x.tolist(), y.tolist())

# %% name="all_to_all"
# %%ranks
x = 10 * rank + torch.arange(world_size)
y = torch.empty_like(x)
dist.all_to_all_single(y, x)
note("all_to_all", x.tolist(), y.tolist())

# %% [markdown] name="barrier_note"
# A barrier moves no data, so its ranks record the time: rank $r$ is $50r$ ms late, and no rank goes on before the last one has arrived.

# %% name="barrier"
# %%ranks
dist.barrier()
start = now()
time.sleep(0.05 * rank)
came = now()
dist.barrier()
left = now()
note("barrier", f"{1e3 * (came - start):.0f} ms", f"{1e3 * (left - start):.0f} ms")

# %% [markdown] name="the_page"
# ## The page

# %% name="page"
CheatSheet(world["sheet"])

# %% [markdown] name="recap"
# **Practise it:** [Nine pictures](../1_first_hours/01_nine_pictures.ipynb) has twenty situations.
#
# **Next question:** how do several GPUs train one model with these calls? [Data parallel, by hand](../3_one_model/20_data_parallel.ipynb)
#
# Formulas: `allranks simulate --list` prints each with its source; `allranks price` computes them with your numbers. Before torch 2.13
# `all_gather_single` and `reduce_scatter_single` were `all_gather_into_tensor` and `reduce_scatter_tensor`; the ranks of `World` know both names.

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("65")
