# %% [markdown] name="title"
# # Lab 18: mixture of experts
#
# **Each token wants $k$ of many experts, and these are on different ranks. Send it nowhere twice, drop what has no room, and get the gradients of the experts right.**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `moe_capacity` | medium | 35 | 6 |
# | `moe_top_k` | hard | 50 | 8 |
# | `expert_gradients` | medium | 30 | 6 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok. The chapter *Mixture of experts* has the ideas. The plain dispatch and combine, one expert a token, is `moe_dispatch_combine` in [Lab 7](../lab07_all_to_all/all_to_all.ipynb); do it first.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up and any floating dtype. The numbers of tokens may differ between
#   ranks and may be zero; tensors may be views with gaps.
# - In the first two, `expert_fns` is the list of this rank's experts, as long on every rank: with $L$ = `len(expert_fns)`, expert $e$ is
#   `expert_fns[e % L]` on rank `e // L`. An expert takes rows and returns as many rows of the same dtype; no rows is fine too.
# - Only `all_to_all` and `all_to_all_single` are allowed there (the lists of `all_to_all` must have parts of equal size), and `all_reduce` in the third.
#   Every byte and every call is counted.
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
# Eight experts, two tokens' room for each. The tokens of one rank want experts 3, 3, 5, 3, 5, 0, 3. Which of them have room? Write their places down first.

# %% name="prediction"
prediction = [0]


# %% name="with_room"
def with_room(experts, capacity):
    return [i for i, e in enumerate(experts) if experts[:i].count(e) < capacity]


print("places with room:", with_room([3, 3, 5, 3, 5, 0, 3], 2))

# %% [markdown] name="capacity_task"
# ## 1. Fixed room
#
# `tokens` has the shape (tokens of this rank, width), `experts` one expert for each token (int64). Each *rank* has room for `capacity` of its tokens with each *expert*: the first ones, in
# the order of `tokens`. Return each of these as its expert makes it, and every other token as it came, in the order of `tokens`.
#
# - Exactly two calls, there and back. Each sends to every other rank the room for all its experts: $L \cdot$ `capacity` rows, however many of them are used. So no counts have to be sent.
# - Which row of its expert's room does a token get? A cumulative count tells all rows at once.
# - What is in the unused rows does not matter, but they must be there.


# %% nbgrader={"grade_id": "moe_capacity", "solution": true}
def moe_capacity(tokens: torch.Tensor, experts: torch.Tensor, capacity: int, expert_fns: list) -> torch.Tensor:
    """Returns each token as its expert makes it, and as it was where its expert has no room for it."""
    ### BEGIN SOLUTION
    p, local, width = dist.get_world_size(), len(expert_fns), tokens.shape[1]
    wants = torch.nn.functional.one_hot(experts, p * local)
    place = (wants.cumsum(0) * wants).sum(1) - 1
    kept = (place < capacity).nonzero().flatten()
    slot = experts[kept] * capacity + place[kept]

    room = tokens.new_zeros(p * local * capacity, width)
    room[slot] = tokens[kept]
    arrived = torch.empty_like(room)
    dist.all_to_all_single(arrived, room)
    by_expert = arrived.view(p, local, capacity, width)
    done = torch.stack([fn(by_expert[:, i]) for i, fn in enumerate(expert_fns)], dim=1)
    back = torch.empty_like(room)
    dist.all_to_all_single(back, done.reshape(room.shape))
    result = tokens.clone()
    result[kept] = back[slot]
    return result
    ### END SOLUTION


# %% name="check_capacity"
check(moe_capacity)

# %% [markdown] name="capacity_live"
# On the live world, with one expert a rank that adds 1000 times its number plus 1: all tokens want the last expert, and there is room for two from each rank.


# %% name="try_capacity"
def capacity_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    tokens = 10.0 * rank + torch.arange(4.0)[:, None]
    wanted = torch.full((4,), p - 1)
    return moe_capacity(tokens, wanted, 2, [lambda x: x + 1000 * (rank + 1)]).flatten().tolist()


results, trace = world.trace(capacity_of_ranks, deadline=20)
print("rank 1:", results[1])
print("rank 1 puts into each call:", [e.nbytes for e in trace if e.rank == 1 and e.op == "all_to_all_single"])

# %% [markdown] name="top_k_task"
# ## 2. k experts, one copy a rank
#
# Now nothing is dropped, and `experts` and `weights` have the shape (tokens, $k$). A token's $k$ experts are different. `weights` are float32, whatever the dtype of `tokens`; use them as they are, and send them so. Return
#
# $$y_i = \sum_j w_{ij}\, E_{e_{ij}}(x_i)$$
#
# for each token, in the order and in the dtype of `tokens`.
#
# - A token goes **once** to each rank that has one or more of its experts, and nowhere else. Beside it may go its experts' numbers and weights.
# - That rank gives **one** row back for it: the weighted sum of what its experts made. Weigh what an expert *returns*.
# - First the counts: the receiver can't know how many rows come. At most 8 calls in all.
# - A token may have sums coming from several ranks: add them. In which order do rows come back?


# %% nbgrader={"grade_id": "moe_top_k", "solution": true}
def moe_top_k(tokens: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor, expert_fns: list) -> torch.Tensor:
    """Returns for each token the weighted sum of what its k experts make of it, in the order of tokens."""
    ### BEGIN SOLUTION
    rank, p, local = dist.get_rank(), dist.get_world_size(), len(expert_fns)
    needs = torch.stack([(experts // local == r).any(1) for r in range(p)])  # (p, tokens)
    rows = needs.nonzero()[:, 1]  # by rank, then by token
    sending = needs.sum(1)
    arriving = torch.empty_like(sending)
    dist.all_to_all_single(arriving, sending)
    gives, gets = sending.tolist(), arriving.tolist()

    def exchanged(t, there, here):
        out = t.new_empty((sum(here), *t.shape[1:]))
        dist.all_to_all_single(out, t.contiguous(), here, there)
        return out

    inbox, numbers, scales = (exchanged(t[rows], gives, gets) for t in (tokens, experts, weights))
    wide = torch.promote_types(tokens.dtype, torch.float32)
    total = torch.zeros(inbox.shape, dtype=wide)
    for i, fn in enumerate(expert_fns):
        at, choice = (numbers == rank * local + i).nonzero(as_tuple=True)
        total.index_add_(0, at, scales[at, choice, None].to(wide) * fn(inbox[at]).to(wide))
    back = exchanged(total.to(tokens.dtype), gets, gives)
    result = torch.zeros(tokens.shape, dtype=wide)
    return result.index_add_(0, rows, back.to(wide)).to(tokens.dtype)
    ### END SOLUTION


# %% name="check_top_k"
check(moe_top_k)

# %% [markdown] name="top_k_live"
# On the live world, with two experts a rank: each token has both experts of the next rank. Four tokens of four numbers are 64 bytes.


# %% name="try_top_k"
def top_k_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    tokens = torch.full((4, 4), float(rank))
    first = 2 * ((rank + 1) % p)
    experts, weights = torch.tensor([[first, first + 1]] * 4), torch.tensor([[0.5, 0.25]] * 4)
    fns = [lambda x, e=2 * rank + i: x + 100 * e for i in range(2)]
    return moe_top_k(tokens, experts, weights, fns)[:, 0].tolist()


results, trace = world.trace(top_k_of_ranks, deadline=20)
print("rank 1:", results[1])
print("the largest call of rank 1:", max((e.nbytes for e in trace if e.rank == 1), default=0), "bytes")

# %% [markdown] name="gradients_task"
# ## 3. The gradients
#
# The ranks are in expert groups of `ep`: rank $r$ has the share $r \bmod ep$ of the experts, and `ep` divides the number of ranks. `experts` are this rank's expert parameters, `dense` all its others, which
# every rank has. Each rank has run `backward()` of the mean loss of *its* tokens; the exchanges of the layer brought the gradients to the experts. Replace every `.grad` by the gradient of
# the **mean of all ranks' losses**.
#
# - Dense gradients go through `all_reduce` once, over all ranks. Expert gradients go once too, among the ranks with the same experts only: make groups with `dist.new_group`. All ranks must make all groups, in one order.
# - One `all_reduce` for each parameter at most; one flat buffer is fine too.
# - What does an expert's gradient hold before you begin: one loss, or several? Divide by what?
# - An expert without tokens has `.grad` None on some ranks. So may any other parameter, also a dense one that a rank did not use. It must get the result too. No gradient has gaps.


# %% nbgrader={"grade_id": "expert_gradients", "solution": true}
def expert_gradients(dense: list[torch.Tensor], experts: list[torch.Tensor], ep: int) -> None:
    """Replaces every gradient by that of the mean loss of all ranks."""
    ### BEGIN SOLUTION
    rank, p = dist.get_rank(), dist.get_world_size()
    copies = [dist.new_group(list(range(place, p, ep))) for place in range(ep)]
    for parameters, group in ((dense, None), (experts, copies[rank % ep])):
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad, group=group)
            parameter.grad /= p
    ### END SOLUTION


# %% name="check_gradients"
check(expert_gradients)

# %% [markdown] name="gradients_live"
# On the live world. Each rank's tokens are the numbers below, each expert is one weight, and all ranks' tokens together give the right answer. Groups of 2 (or of all ranks, if their number is odd):


# %% name="try_gradients"
def gradients_of_ranks():
    rank, p = dist.get_rank(), dist.get_world_size()
    ep = 2 if p % 2 == 0 else p
    first = rank // ep * ep
    # the gradient of expert e's weight in the mean of x * weight over a rank's 4 tokens, if these are all r + 1 and e + 1 of its choices are e
    of_one = [[(e + 1) * (r + 1) / 4 for e in range(ep)] for r in range(p)]
    weight = torch.zeros(1, requires_grad=True)
    weight.grad = torch.tensor([sum(of_one[r][rank % ep] for r in range(first, first + ep))])
    bias = torch.zeros(1, requires_grad=True)
    bias.grad = torch.tensor([float(rank)])
    expert_gradients([bias], [weight], ep)
    return weight.grad.item() * p == sum(of_one[r][rank % ep] for r in range(p)) and bias.grad.item() == (p - 1) / 2


print("the gradients of the mean loss:", world.run(gradients_of_ranks, deadline=20))

# %% [markdown] name="question"
# ## 4. How much does one copy save?
#
# A rank has 4096 tokens of width 7168 in bfloat16; 64 ranks on 8 nodes have 256 experts, and each token goes to 8 of them, at random. How many MB leave a *node's* network cards for one rank's tokens in one dispatch, with
# a copy for each expert, and with a copy for each node? And why is the exchange's time the *largest* number of copies, rather than their mean? Two or three sentences, with numbers. (A token needs $8\,(1 - \binom{224}{8}/\binom{256}{8}) = 5.29$ nodes, its own among them.)

# %% [markdown] nbgrader={"grade_id": "one_copy", "grade": true, "solution": true, "points": 2}
# A copy for each expert: 8 of them, 7/8 for other nodes: 4096 x 7 x 7168 x 2 bytes = 411 MB. A copy for each node: 5.29 nodes, again 7/8 of them others: 4096 x 4.63 x 14336 bytes = 272 MB, a third less. An exchange ends
# when the last rank has its rows, so the rank (or the link) with the most rows decides: with random routing hardly more than the mean, with a one-sided router much more. (1 point for both figures, also without the 7/8 if said so: 470 and 311 MB; 1 for: the
# slowest rank decides.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give each exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "moe_capacity-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "moe_capacity"}
round(6 * check(moe_capacity).score, 2)

# %% nbgrader={"grade_id": "moe_top_k-graded", "grade": true, "locked": true, "points": 8} allranks={"exercise": "moe_top_k"}
round(8 * check(moe_top_k).score, 2)

# %% nbgrader={"grade_id": "expert_gradients-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "expert_gradients"}
round(6 * check(expert_gradients).score, 2)

# %% [markdown] name="recap"
# With a fixed room for each expert no counts are needed, but tokens are dropped. With counts nothing is dropped. Either way send one copy of a token to each rank, and one sum back. An expert's gradient is already the sum over all
# tokens that came to it, from every rank of its group. So **divide it by the number of all ranks, and not by the number of the expert's copies.**

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
