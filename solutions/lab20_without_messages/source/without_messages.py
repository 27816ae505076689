# %% [markdown] name="title"
# # Lab 20: without messages
#
# **The ranks of one machine share a memory. There is no send and no receive: a rank writes into another rank's part, and nobody tells that rank. Who may read, when, and when may the place be written again?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `shift_through_slots` | medium | 40 | 8 |
# | `two_shot_all_reduce` | hard | 50 | 9 |
# | one answer in words | medium | 15 | 3 |
#
# CPU ok. The chapter *Without messages* has the ideas: put, get, fence, signal, wait, races, and two shots.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is a plain function with an argument `memory`, right for any number of ranks from 1 up, and callable again and again. Sends, receives and collectives are forbidden; bytes are counted.
# - The memory behaves as badly as it may. Others see a put only when its rank has passed a fence. Signals arrive at once. One rank runs far ahead, another one far behind. What was in the memory before your first put is garbage, and the second call finds what the first one left.
# - **A race is found whether or not the result is right**: two ranks use the same number, one of them puts it, and no chain of fence, signal and wait says which comes first.
#
# {{contract.md}}

# %% [markdown] name="memory_calls"
# ## What `memory` can do
#
# | call | does |
# |---|---|
# | `memory.rank`, `memory.ranks`, `memory.numel` | this rank, how many there are, and how many numbers each rank's part has |
# | `memory.put(peer, offset, values)` | writes `values` into the part of `peer` (your own too), from `offset` on |
# | `memory.get(peer, offset, numel)` | a copy of `numel` numbers of that part, as they are now |
# | `memory.fence()` | what you have put is in place before anything that you do next |
# | `memory.signal(peer, channel)` | one signal to `peer`, another rank; `channel` is 0 to 3, and 0 if you leave it out |
# | `memory.wait(peer, channel)` | waits for one signal of `peer` on that channel, and uses it up |

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import SharedMemory, World, check, wire

# %% [markdown] name="live"
# ## A world to try things in
#
# `SharedMemory` on live ranks is real memory of the machine (of the CPU, also where ranks have GPUs), with the same calls.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Rank 0 puts, signals and goes on, without a fence; rank 1 waits for the signal and gets. Which two of the four calls below form a race? Write them down first.

# %% name="prediction"
prediction = "the put and the ..."


# %% name="see_race"
def no_fence():
    memory = wire.memory()
    if memory.rank == 0:
        memory.put(1, 0, torch.ones(2))
        memory.signal(1)
    else:
        memory.wait(0)
        memory.get(1, 0, 2)


for race in wire.run(no_fence, ranks=2, memory=wire.Memory(2)).races:
    print(
        f"rank {race.before.rank}'s {race.before.kind} and rank {race.after.rank}'s {race.after.kind}; a signal between them: {race.signalled}"
    )

# %% [markdown] name="slots_task"
# ## 1. Through a few slots
#
# Return the tensor of the rank to your left (rank $r-1$; all have the same shape). But your part of the memory has room for `slots` pieces only, of `memory.numel // slots` numbers each, and the
# tensor may be much longer. Cut it into pieces. Piece $i$ goes through slot $i \bmod$ `slots`, as in the FIFO of a library.
#
# - Data goes from rank $r$ to rank $r+1$ only, each byte once. Signals may go both ways.
# - Whose slots they are is up to you: rank $r$ puts pieces into those of rank $r+1$, or into its own, and rank $r+1$ gets them from there.
# - Before you fill a slot again, its reader must be done with it. Before you read, the piece must be there.
# - Use the slots: with two or more, several pieces are under way. At most (pieces + 2) signals one after the other.
# - As many waits as signals, also for the last pieces: the next call must find all slots free.
# - With two ranks your left neighbour *is* your right neighbour. What are channels for?


# %% nbgrader={"grade_id": "shift_through_slots", "solution": true}
def shift_through_slots(tensor: torch.Tensor, memory, slots: int) -> torch.Tensor:
    """Returns the left neighbour's tensor, which comes piece by piece through `slots` slots of memory."""
    ### BEGIN SOLUTION
    rank, p = memory.rank, memory.ranks
    if p == 1 or tensor.numel() == 0:
        return tensor.clone()
    there, free = 0, 1  # channels: a piece is there, a slot is free
    right, left, size = (rank + 1) % p, (rank - 1) % p, memory.numel // slots
    pieces, received = tensor.reshape(-1).split(size), []
    for i, piece in enumerate(pieces):
        offset = i % slots * size
        if i >= slots:
            memory.wait(right, free)
        memory.put(right, offset, piece)
        memory.fence()
        memory.signal(right, there)
        memory.wait(left, there)
        received.append(memory.get(rank, offset, piece.numel()))
        memory.signal(left, free)
    for _ in range(min(slots, len(pieces))):
        memory.wait(right, free)
    return torch.cat(received).view(tensor.shape)
    ### END SOLUTION


# %% name="check_slots"
check(shift_through_slots)


# %% [markdown] name="slots_live"
# On the live world, 10 numbers through 2 slots of 3:


# %% name="try_slots"
def slots_of_ranks():
    memory = SharedMemory(6)
    return shift_through_slots(torch.full((10,), float(dist.get_rank())), memory, 2)[-1].item()


print("from rank:", world.run(slots_of_ranks, deadline=20))

# %% [markdown] name="two_shot_task"
# ## 2. An all-reduce in two shots
#
# Replace `tensor` by its sum over all ranks, in place. Each rank's part of the memory has `2 * (n + p)` numbers, for $n$ numbers of the tensor and $p$ ranks: room for two regions.
#
# - First shot: each rank adds *its chunk* of all vectors. Second shot: each rank gets the finished chunks. Chunks as you like, also empty ones.
# - At most $2\,\frac{p-1}{p}$ of the bytes come into a rank, or leave it (up to the rounding of chunks).
# - There is no barrier: make one, from fence, signal and wait. At most $3\lceil \lg p\rceil$ signals one after the other in all; 6 are always allowed.
# - The function is called again with the same memory, and a fast rank begins the next call while a slow one is in this one.


# %% nbgrader={"grade_id": "two_shot_all_reduce", "solution": true}
def two_shot_all_reduce(tensor: torch.Tensor, memory) -> None:
    """Replaces tensor by its sum over all ranks, in place, by puts and gets."""
    ### BEGIN SOLUTION
    rank, p, n = memory.rank, memory.ranks, tensor.numel()

    def barrier() -> None:
        memory.fence()
        distance = 1
        while distance < p:
            memory.signal((rank + distance) % p)
            memory.wait((rank - distance) % p)
            distance *= 2

    sizes = [chunk.numel() for chunk in tensor.reshape(-1).tensor_split(p)]
    starts = [sum(sizes[:r]) for r in range(p)]
    memory.put(rank, 0, tensor.reshape(-1))
    barrier()
    total = memory.get(0, starts[rank], sizes[rank])
    for peer in range(1, p):
        total = total + memory.get(peer, starts[rank], sizes[rank])
    memory.put(rank, n + starts[rank], total)  # another region: the vectors may still be read
    barrier()
    chunks = [memory.get(peer, n + starts[peer], sizes[peer]) for peer in range(p)]
    tensor.copy_(torch.cat(chunks).view(tensor.shape))
    ### END SOLUTION


# %% name="check_two_shot"
check(two_shot_all_reduce)

# %% [markdown] name="two_shot_live"
# On the live world: the sum of the ranks' numbers, and the bytes that each rank moved.


# %% name="try_two_shot"
def two_shots_of_ranks():
    n, p = 12 * dist.get_world_size(), dist.get_world_size()
    memory = SharedMemory(2 * (n + p))
    x = torch.full((n,), float(dist.get_rank()))
    two_shot_all_reduce(x, memory)
    right = bool((x == p * (p - 1) / 2).all())
    return right, memory.moved_nbytes <= 2 * (p - 1) * 12 * 4


print("right, and no byte too many:", all(all(pair) for pair in world.run(two_shots_of_ranks, deadline=20)))

# %% [markdown] name="question"
# ## 3. How many barriers?
#
# In one region (the finished chunk is put where the vector was) two shots need three barriers; with two regions, two are enough, although the function is called again and again. Which two uses of the
# same place does the third barrier order, and why does the second region make it unnecessary? And on GPUs, what would you pay for the second region?

# %% [markdown] nbgrader={"grade_id": "how_many_barriers", "grade": true, "solution": true, "points": 3}
# With one region, the next call's put of the whole vector overwrites chunks that slow ranks still get in the second shot: the third barrier stands between that get and that put. With two regions the
# next call first puts into the first region, which nobody reads after the second barrier. Its put into the second region comes behind the next call's first barrier, which a slow rank enters only
# when its second shot is over. The price is memory: twice the vector on every rank, and registered (symmetric) memory is scarce. (1 point for the pair get and put, 1 for: the next call's first barrier orders it, 1 for the memory.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "shift_through_slots-graded", "grade": true, "locked": true, "points": 8} allranks={"exercise": "shift_through_slots"}
round(8 * check(shift_through_slots).score, 2)

# %% nbgrader={"grade_id": "two_shot_all_reduce-graded", "grade": true, "locked": true, "points": 9} allranks={"exercise": "two_shot_all_reduce"}
round(9 * check(two_shot_all_reduce).score, 2)

# %% [markdown] name="recap"
# Without messages every read needs a fence and a signal before it, and every second write needs to know that the first one was read. **Count signals as you count messages, and ask of each place:
# who says that it is full, and who says that it is free?**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
