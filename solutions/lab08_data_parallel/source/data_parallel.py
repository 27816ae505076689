# %% [markdown] name="title"
# # Lab 8: data parallel
#
# **The backward pass takes 100 ms and the all-reduce of all gradients 60 ms. How can a step take much less than 160 ms?**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `bucketed_gradients` | medium | 35 | 5 |
# | `overlapped_gradients` | hard | 45 | 6 |
# | one answer in words | medium | 10 | 2 |
#
# CPU ok. The chapters *Data parallel, by hand* and *Overlap and bucketing* have the pictures; in this notebook you write the code.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - Each exercise is right for any number of ranks from 1 up and for gradients of any size and floating dtype (one for all parameters).
# - Write both with `all_reduce`.
# - Every call is counted, and in the second exercise also *when* it is launched.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check, plots

# %% [markdown] name="live"
# ## A world to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU.

# %% name="start_world"
world = World()
world

# %% [markdown] name="predict"
# Every rank has the same weight $w = 0$ and one sample: $x = r + 1$, $y = 2x$. The loss is $(wx - y)^2$, so the gradient at $w = 0$ is $-4x^2$.
# What is the mean of the ranks' gradients? Write it down first. (With four ranks $x$ is 1, 2, 3, 4.)

# %% name="prediction"
prediction = 0.0

# %% name="first_step"
# %%ranks
w = torch.zeros(1, requires_grad=True)
x = torch.tensor([rank + 1.0])
((w * x - 2 * x) ** 2).sum().backward()
dist.all_reduce(w.grad)
print((w.grad / world_size).item())

# %% [markdown] name="buckets_task"
# ## 1. Buckets
#
# A model has hundreds of parameters, most of them small. With an all-reduce for each parameter you pay $2(p-1)\alpha$ hundreds of times; a single one
# for all can't begin before the last gradient is ready. So gradients are put into **buckets**: `torch.cat` the gradients of a bucket, make one
# `all_reduce`, divide, and copy the results back.
#
# - Go from the **last** parameter to the first, because the backward pass computes gradients in this order.
# - A bucket is closed when the next gradient would make it larger than `bucket_bytes`. If a single gradient is larger than that, it gets its own bucket.
# - `parameters` is the same list on every rank. But there are different kinds of parameters:
#
# | a parameter | how you know | what to do |
# |---|---|---|
# | **frozen** | `requires_grad` is False, on every rank | it takes no part |
# | **unused** by this rank's batch | `requires_grad`, but `.grad` is None *here* | the rank contributes zeros, and gets the mean like all other ranks |
# | **tied**, used in two layers | it is in the list *twice*: the same object | one gradient, at its *first* place, because the backward pass reaches this place last |
#
# **Predict**: what happens if a rank leaves out a parameter that it did not use?


# %% nbgrader={"grade_id": "bucketed_gradients", "solution": true}
def bucketed_gradients(parameters: list[torch.Tensor], bucket_bytes: int) -> None:
    """Replaces the .grad of every trained parameter by its mean over the ranks; every rank calls it."""
    ### BEGIN SOLUTION
    trained = [p for p in dict.fromkeys(parameters) if p.requires_grad]  # a dict keeps the first of equal keys
    for p in trained:
        if p.grad is None:
            p.grad = torch.zeros_like(p)

    buckets, room = [], 0
    for p in reversed(trained):
        if not buckets or p.grad.nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(p)
        room -= p.grad.nbytes

    for bucket in buckets:
        flat = torch.cat([p.grad.flatten() for p in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
            p.grad.copy_(piece.view_as(p))
    ### END SOLUTION


# %% name="check_buckets"
check(bucketed_gradients)

# %% [markdown] name="buckets_live"
# Run it on the live world: the embedding of a tiny language model is also its output layer, as in GPT-2, and only even ranks use the bias. One
# process with all the data, here each rank for itself, should get the same gradients.


# %% name="tiny_model"
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Parameter(torch.randn(12, 4))
        self.inner = torch.nn.Linear(4, 4, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(12))

    def parameters_by_layer(self):
        return [self.words, self.inner.weight, self.bias, self.words]  # tied: first and last

    def loss(self, rank):
        hidden = self.inner(self.words[rank : rank + 4])
        scores = hidden @ self.words.T + (self.bias if rank % 2 == 0 else 0)
        return torch.nn.functional.cross_entropy(scores, torch.arange(rank + 1, rank + 5))


# %% name="try_buckets"
def step_of_ranks():
    model = Tiny()
    model.loss(dist.get_rank()).backward()
    bucketed_gradients(model.parameters_by_layer(), bucket_bytes=128)
    alone, ranks = Tiny(), dist.get_world_size()
    sum(alone.loss(rank) for rank in range(ranks)).div(ranks).backward()
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return all(torch.allclose(mine.grad, right.grad, atol=1e-6) for mine, right in pairs)


results, trace = world.trace(step_of_ranks, deadline=20)
print("the same as alone:", all(results))
print("rank 1:", [(event.op, event.nbytes) for event in trace if event.rank == 1])

# %% [markdown] name="overlap_task"
# ## 2. During the backward pass
#
# Your buckets wait until *all* gradients are ready. But the last layer's gradients are ready first and do not change any more, so their all-reduce
# can run while the gradients of earlier layers are computed. DistributedDataParallel does this.
#
# `backward(ready)` computes the gradients. Each time that `parameters[place].grad` is complete, it calls **your** `ready(place)`. So you write the function that it calls:
#
# - Plan the buckets as before, from the last parameter on (here none is frozen, unused or tied).
# - Launch a bucket's all-reduce *inside* `ready`, as soon as its last gradient is ready, with `async_op=True`, and keep the handle.
# - `wait()` and copy back after `backward(ready)`. Until then the all-reduce uses the buffer: don't read or change it. You may call
#   `is_completed()`, but you don't need it: launch what is ready, whatever is over.
#
# A common mistake is the order. Gradients may be ready in another order on another rank, but collectives are matched in the order of the calls. So a
# complete bucket must **wait until the buckets before it are launched**.


# %% nbgrader={"grade_id": "overlapped_gradients", "solution": true}
def overlapped_gradients(parameters: list[torch.Tensor], bucket_bytes: int, backward) -> None:
    """Runs backward(ready) and replaces every .grad by its mean over the ranks, with as much overlap as there can be."""
    ### BEGIN SOLUTION
    buckets, room = [], 0
    for place in reversed(range(len(parameters))):
        if not buckets or parameters[place].nbytes > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(place)
        room -= parameters[place].nbytes

    there, flying = set(), []

    def ready(place):
        there.add(place)
        while len(flying) < len(buckets) and there.issuperset(buckets[len(flying)]):
            flat = torch.cat([parameters[i].grad.flatten() for i in buckets[len(flying)]])
            flying.append((flat, dist.all_reduce(flat, async_op=True)))

    backward(ready)
    for bucket, (flat, work) in zip(buckets, flying, strict=True):
        work.wait()
        flat /= dist.get_world_size()
        for i, piece in zip(bucket, flat.split([parameters[i].numel() for i in bucket]), strict=True):
            parameters[i].grad.copy_(piece.view_as(parameters[i]))
    ### END SOLUTION


# %% [markdown] name="overlap_check"
# The check also judges *when* you launch: on the wire each gradient takes 8 seconds of virtual time, and an all-reduce among $p$ ranks takes
# $2(p-1)$. It compares the time of each launch with the time at which the bucket was complete, and it checks that no rank waits before the end of
# `backward`.

# %% name="check_overlap"
verdict = check(overlapped_gradients)
verdict

# %% [markdown] name="overlap_picture"
# Here is your own run: in each row the rank's computing is above, and the `all_reduce`s that run at the same time are below it. How long would the step take if they ran one after the other?

# %% name="show_overlap"
if verdict.passed:
    display(plots.timeline(verdict.trace))

# %% [markdown] name="overlap_live"
# And now with the real autograd: a *hook* on each parameter calls your `ready`. With this you can train a model.


# %% name="try_overlap"
def hooked_step():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(6)])
    parameters, order = list(model.parameters()), []
    loss = model(torch.full((8, 64), dist.get_rank() + 1.0)).square().mean()

    def backward(ready):
        def hook(place):
            order.append(place)
            ready(place)

        for place, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, place=place: hook(place))
        loss.backward()

    overlapped_gradients(parameters, 40_000, backward)
    return order, torch.stack([p.grad.double().sum() for p in parameters])


results, trace = world.trace(hooked_step, deadline=20)
print("ready in this order:", results[0][0])
print("rank 0 launched:", [event.nbytes for event in trace if event.rank == 0 and event.op == "all_reduce"], "bytes")
print("all ranks agree:", all(torch.equal(results[0][1], sums) for _, sums in results))

# %% [markdown] name="question"
# ## 3. How large a bucket?
#
# A model has 50 layers with equal gradients, 4 MB each. The backward pass takes 2 ms a layer, an all-reduce of $n$ bytes 0.1 ms + $n$ / (4 GB/s), and
# only one runs at a time. How long is a step (the backward pass and all-reduces) with one bucket for each layer, and with one single bucket? And what
# would go wrong with
# buckets of 1 KB? Two or three sentences, with the numbers.

# %% [markdown] nbgrader={"grade_id": "bucket_size", "grade": true, "solution": true, "points": 2}
# A bucket of 4 MB takes 0.1 + 1 = 1.1 ms, less than the 2 ms for the next layer's backward, so all except the last are hidden: 50 x 2 + 1.1 = 101.1 ms.
# One bucket of 200 MB can start only after 100 ms and takes 0.1 + 50 = 50.1 ms: 150.1 ms. With 1 KB a layer needs 4000 all-reduces of 0.1 ms each,
# 400 ms a layer: nearly all of it is alpha, 20 s in all. (1 point for the two numbers, 1 for the reason against small buckets: alpha is paid for
# every bucket.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "bucketed_gradients-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "bucketed_gradients"}
round(5 * check(bucketed_gradients).score, 2)

# %% nbgrader={"grade_id": "overlapped_gradients-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "overlapped_gradients"}
round(6 * check(overlapped_gradients).score, 2)

# %% [markdown] name="recap"
# Data parallelism needs one mean in each step, and its *time* matters: start with the last layer, use buckets that are large enough to make $\alpha$
# unimportant and small enough to start early, and use one order on every rank. **Start each bucket as soon as its gradients are there, and wait for all of them at the end.** The next lab
# splits the layers themselves.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
