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
#
# ## Ring
#
# **Which chunk is where, and whose numbers are in it?** A box is a rank, and a column in it is a chunk. Each stripe in a column is a rank whose contribution the chunk already contains. `+` on a packet
# means that the receiver adds it, `=` that it copies it.

# %% name="player_ring"
from allranks import Player, World, predict, predictions
from allranks.schedules import ALGORITHMS, ring_all_reduce, tree_all_reduce

MiB = 2**20
Player(ring_all_reduce(ranks=4), nbytes=64 * MiB)

# %% [markdown] name="tree"
# ## Tree
#
# **Which links are idle?** The same collective with a tree has fewer steps, but sends whole vectors, and in each step some links are idle.

# %% name="player_tree"
Player(tree_all_reduce(ranks=8), nbytes=64 * MiB)

# %% [markdown] name="line"
# ## Line
#
# **When do all links work at once?** In a broadcast along a chain, with the vector cut into six segments, from step 4 to step 6.

# %% name="player_line"
Player(ALGORITHMS["pipelined_chain_broadcast"](ranks=5, segments=6))

# %% [markdown] name="grid"
# ## Grid
#
# **What goes along the rows, and what along the columns?** An all-reduce over a 2-D torus: reduce-scatter along the rows, all-reduce along the columns, all-gather along the rows.

# %% name="player_grid"
Player(ALGORITHMS["torus_all_reduce"](ranks=12, columns=4))

# %% [markdown] name="all"
# ## All to all
#
# **Which parts are still missing?** Every rank has data for every other rank; a cell with a frame is complete.

# %% name="player_all"
Player(ALGORITHMS["pairwise_all_to_all"](ranks=6))

# %% [markdown] name="beside"
# ## Two side by side
#
# **Which of two is faster?** Both run by one clock, on which a step takes 5 µs and its bytes at 50 GB/s.

# %% name="guess_faster"
faster = predict(
    "An all-reduce of 64 MiB on 8 ranks takes 14 steps in a ring and 6 steps in a tree. Which one is done first?",
    choices=["the tree: it has fewer steps", "the ring: its steps are short", "both at the same time"],
    title="Ring or tree, 64 MiB on 8 ranks",
)
faster

# %% name="player_beside"
Player(ring_all_reduce(ranks=8), tree_all_reduce(ranks=8), nbytes=64 * MiB)

# %% name="reveal_faster" jupyter={"source_hidden": true}
# the answer: run this cell
faster.reveal(
    "the ring: its steps are short",
    why="A step of the tree sends a whole vector, one of the ring an eighth. In all both send the same bytes, 14 vectors. But in the ring each rank sends 1.75 of them, and in the tree rank 0 sends 3.",
)

# %% [markdown] name="quiz"
# ## What happens next?
#
# The player stops before each step and asks. It tells you whether you were right, and continues.

# %% name="player_quiz"
Player(ring_all_reduce(ranks=4), quiz=True)

# %% [markdown] name="live"
# ## What really happened
#
# **How long did each message take?** `world.trace` records a function on live ranks. Its times are real: in the timeline the bars are not equally long. The trace does not know which
# rank's numbers a message holds, so the boxes count bytes and have no stripes.

# %% name="live_ring"
import torch
import torch.distributed as dist

world = World()


def all_gather_by_hand():
    rank, p = dist.get_rank(), dist.get_world_size()
    parts = list(torch.zeros(4 * MiB).tensor_split(p))
    for step in range(p - 1):
        leaving, arriving = parts[(rank - step) % p], parts[(rank - step - 1) % p]
        pair = [
            dist.P2POp(dist.isend, leaving, (rank + 1) % p),
            dist.P2POp(dist.irecv, arriving, (rank - 1) % p),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()


_, trace = world.trace(all_gather_by_hand)
world.stop()
Player(trace)

# %% [markdown] name="deadlock"
# ## A program that hangs
#
# **Who waits for whom?** On the wire, where a send waits for its receiver, this program stops at once, here with four ranks. A dashed arrow is a send that no rank receives.

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
# **How far is each rank?** With more than 8 ranks, as in the grid above, the player shows a matrix of ranks and chunks instead of boxes; the shade of a cell grows with each contribution that arrives.

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

# %% name="what_you_knew"
predictions()

# %% name="done"
from allranks import done

done("64")
