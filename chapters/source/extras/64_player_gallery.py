# %% [markdown] name="title"
# # The player, all of it
#
# {{here}}
#
# **What can the player show, and which picture answers which question?**
#
# A gallery to look through, not a chapter to study: run the cells in order.
#
# Space plays and stops, the arrow keys step, Home and End jump. Every picture comes from a *schedule*, which says what should be sent, or from a *trace*, which says what was sent.

# %% name="imports"
import torch
import torch.distributed as dist

from allranks import Player, World
from allranks.schedules import ALGORITHMS, ring_all_reduce, tree_all_reduce

MiB = 2**20

# %% [markdown] name="ring"
# ## Ring
#
# A box is a rank, and a column in it is a chunk. Each stripe in a column is a rank whose contribution the chunk already contains. `+` on a packet
# means that the receiver adds it, `=` that it copies it.

# %% name="player_ring"
Player(ring_all_reduce(ranks=4), nbytes=64 * MiB)

# %% [markdown] name="tree"
# ## Tree
#
# The same collective with a tree: it has fewer steps, but sends whole vectors, and some links are idle.

# %% name="player_tree"
Player(tree_all_reduce(ranks=8), nbytes=64 * MiB)

# %% [markdown] name="line"
# ## Line
#
# A broadcast along a chain, with the vector cut into segments, so that all links work at once.

# %% name="player_line"
Player(ALGORITHMS["pipelined_chain_broadcast"](ranks=5, segments=6))

# %% [markdown] name="grid"
# ## Grid
#
# An all-reduce over a 2-D torus: reduce-scatter along the rows, all-reduce along the columns, all-gather along the rows.

# %% name="player_grid"
Player(ALGORITHMS["torus_all_reduce"](ranks=12, columns=4))

# %% [markdown] name="all"
# ## All to all
#
# Every rank has data for every other rank.

# %% name="player_all"
Player(ALGORITHMS["pairwise_all_to_all"](ranks=6))

# %% [markdown] name="beside"
# ## Two side by side
#
# Ring and tree, step by step: which one needs fewer steps, and in which one does some rank send more bytes than in the other?
#
# <details><summary>The answer</summary>
#
# The tree needs 6 steps and the ring 14. In all both send the same bytes, 14 vectors. But in the ring each rank sends 1.75 of them, and in the tree rank 0 sends 3.
# </details>

# %% name="player_beside"
Player(ring_all_reduce(ranks=8), tree_all_reduce(ranks=8), nbytes=64 * MiB)

# %% [markdown] name="quiz"
# ## What happens next?
#
# The player stops before each step and asks. It tells you whether you were right, and continues.

# %% name="player_quiz"
Player(ring_all_reduce(ranks=4), quiz=True)

# %% [markdown] name="live"
# ## What really happened
#
# `world.trace` records a function on live ranks. Its times are real: in the timeline the bars are not equally long. The trace does not know which
# rank's numbers a message holds, so the cells show bytes and no stripes.

# %% name="live_ring"
world = World()


def all_gather_by_hand():
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = list(torch.zeros(4 * MiB).tensor_split(p))
    for step in range(p - 1):
        leaving, arriving = parts[(rank - step) % p], parts[(rank - step - 1) % p]
        pair = [dist.P2POp(dist.isend, leaving, (rank + 1) % p), dist.P2POp(dist.irecv, arriving, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()


_, trace = world.trace(all_gather_by_hand)
world.stop()
Player(trace)

# %% [markdown] name="deadlock"
# ## A program that hangs
#
# On the wire, where a send waits for its receiver, this program stops at once, here with four ranks. The arrows without an end are the sends that no rank received.

# %% name="player_deadlock"
from allranks.wire import run


def everybody_sends_first():
    rank, p = dist.get_rank(), dist.get_world_size()
    dist.send(torch.ones(1000), (rank + 1) % p)
    dist.recv(torch.empty(1000), (rank - 1) % p)


results, trace, deadlock = run(everybody_sends_first, ranks=4)
print(deadlock.message)
Player(trace)

# %% [markdown] name="many"
# ## Many ranks
#
# With 17 ranks or more the player shows a matrix of ranks and chunks instead of boxes; a cell becomes stronger with each contribution that arrives.

# %% name="player_many"
Player(ring_all_reduce(ranks=64))

# %% [markdown] name="elsewhere"
# ## Outside of Jupyter
#
# Where no script runs (GitHub, PDF) you see a still picture instead of the player. `trace.to_chrome("run.json")` writes a file that
# [Perfetto](https://ui.perfetto.dev) opens. Export with
# `jupyter nbconvert --to html --execute --ExecutePreprocessor.store_widget_state=False`, and the players work in the page.
#
# **Next question:** what does one message do, and how can two ranks wait for each other for ever? [Point to point](../1_first_hours/03_point_to_point.ipynb)

# %% name="done"
from allranks import done

done("64")
