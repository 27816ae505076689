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
# CPU ok. The chapters *Data parallel, by hand* and *Overlap and bucketing* have the pictures; this notebook has the holes.

# %% [markdown] name="rules"
# **How it is marked.** Each exercise is a plain function on the default group. It must be right for any number of ranks from 1 up and for
# gradients of any size and floating dtype (one for all parameters). Write both with `all_reduce`. Every call is counted, and in the second exercise also *when* it is launched.
# `check(function)` tells you now what the marking will tell you later, with other numbers.

# %% nbgrader={"grade_id": "imports", "locked": true}
import torch
import torch.distributed as dist

from allranks import World, check, plots

# %% [markdown] name="live"
# ## A world to play in
#
# `World` starts four processes, the *ranks*. With four GPUs each gets one; without, they run on the CPU.

# %% name="start_world"
world = World(ranks=4)
world

# %% [markdown] name="predict"
# Every rank has the same weight $w = 0$ and one sample: $x = r + 1$, $y = 2x$. The loss is $(wx - y)^2$, so the gradient at $w = 0$ is $-4x^2$.
# What is the mean of the four gradients? Write it down first.

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
# A model has hundreds of parameters, most of them small. An all-reduce for each pays $2(p-1)\alpha$ hundreds of times; a single one for all
# can't begin before the last gradient is there. So gradients are put into **buckets**: `torch.cat` what belongs together, one
# `all_reduce`, divide, and copy it back.
#
# - From the **last** parameter to the first: that is the order in which the backward pass makes gradients.
# - A bucket is closed when the next gradient would make it larger than `bucket_bytes`. A gradient that is larger by itself gets a bucket of its own.
# - On every rank `parameters` lists the same ones. But not all of them are alike:
#
# | a parameter | how you know | what becomes of it |
# |---|---|---|
# | **frozen** | `requires_grad` is False, on every rank | it takes no part |
# | **unused** by this rank's batch | `requires_grad`, but `.grad` is None *here* | it brings zeros, and gets the mean like everybody |
# | **tied**, used in two layers | it is in the list *twice*: the same object | one gradient, at its *first* place: the backward pass reaches that last |
#
# **Predict**: what happens if a rank leaves out what it did not use?


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
# On the live world: the embedding of a tiny language model is also its output layer, as in GPT-2, and only even ranks use the bias. One process
# with all the data should get the same gradients.


# %% name="tiny_model"
class Tiny(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Parameter(torch.randn(11, 4))
        self.inner = torch.nn.Linear(4, 4, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(11))

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
    return [p.grad for p in model.parameters()]


results, trace = world.trace(step_of_ranks)
alone = Tiny()
sum(alone.loss(rank) for rank in range(4)).div(4).backward()
print("the same as alone:", all(torch.allclose(a, p.grad) for a, p in zip(results[1], alone.parameters(), strict=True)))
print("rank 1:", [(event.op, event.nbytes) for event in trace if event.rank == 1])

# %% [markdown] name="overlap_task"
# ## 2. While the others are still computed
#
# Your buckets wait until *all* gradients are there. But the last layer's gradients are ready first, and nobody touches them any more: their
# all-reduce can travel while the layers before are still being differentiated. That is what DistributedDataParallel does.
#
# `backward(ready)` makes the gradients. Each time that `parameters[place].grad` is complete, it calls **your** `ready(place)`. So you write
# the function that it calls:
#
# - Plan the buckets as before, from the last parameter on (here none is frozen, unused or tied).
# - Launch a bucket's all-reduce *inside* `ready`, as soon as its last gradient is there, with `async_op=True`, and keep the handle.
# - `wait()` and copy back behind `backward(ready)`. Until then the buffer belongs to the all-reduce: don't touch it, and don't ask `is_completed()`, which knows nothing of the clock that you are judged by.
#
# The trap is the order. Gradients may be ready in another order on another rank, but collectives meet in the order of the calls. So a bucket
# that is complete **waits for those before it**.


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
# The check knows *when*: on the wire each gradient takes 8 seconds of virtual time, and an all-reduce among $p$ ranks takes $2(p-1)$. It compares
# the moment of each launch with the moment at which the bucket was complete, and it looks for anybody who waits before the end of `backward`.

# %% name="check_overlap"
verdict = check(overlapped_gradients)
verdict

# %% [markdown] name="overlap_picture"
# Your own run, printed: green is what the rank computes, blue the `all_reduce`s under way meanwhile. How long would it take one after the other?

# %% name="show_overlap"
if verdict.passed:
    display(plots.timeline(verdict.trace))

# %% [markdown] name="overlap_live"
# And with the real autograd: a *hook* on each parameter calls your `ready`. This is all that is missing to train a model with it.


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


results, trace = world.trace(hooked_step)
print("ready in this order:", results[0][0])
print("rank 0 launched:", [event.nbytes for event in trace if event.rank == 0 and event.op == "all_reduce"], "bytes")
print("all ranks agree:", all(torch.equal(results[0][1], sums) for _, sums in results))

# %% [markdown] name="question"
# ## 3. How large a bucket?
#
# A model has 50 layers with equal gradients, 4 MB each. The backward pass takes 2 ms a layer, an all-reduce of $n$ bytes 0.1 ms + $n$ / (4 GB/s), and only one
# travels at a time. How long is a step (the backward pass and all-reduces) with one bucket for each layer, and with one single bucket? And what would go wrong with
# buckets of 1 KB? Two or three sentences, with the numbers.

# %% [markdown] nbgrader={"grade_id": "bucket_size", "grade": true, "solution": true, "points": 2}
# A bucket of 4 MB takes 0.1 + 1 = 1.1 ms, less than the 2 ms in which the next layer is computed, so all but the last are hidden: 50 x 2 + 1.1 = 101.1 ms.
# One bucket of 200 MB can start only after 100 ms and takes 0.1 + 50 = 50.1 ms: 150.1 ms. With 1 KB a layer needs 4000 all-reduces of 0.1 ms each, 400 ms a layer:
# what is paid is only alpha, 20 s in all. (1 point for the two numbers, 1 for alpha, paid for every bucket, as the reason against small ones.)

# %% [markdown] name="marking"
# ## Marking
#
# These cells give the points. Each is the exercise's points times the score that `check` gives; you can run them too.

# %% nbgrader={"grade_id": "bucketed_gradients-graded", "grade": true, "locked": true, "points": 5} allranks={"exercise": "bucketed_gradients"}
round(5 * check(bucketed_gradients).score, 2)

# %% nbgrader={"grade_id": "overlapped_gradients-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "overlapped_gradients"}
round(6 * check(overlapped_gradients).score, 2)

# %% [markdown] name="recap"
# Data parallelism needs one mean a step, and the art is in *when*: from the last layer on, in buckets that are large enough for $\alpha$ and small enough to
# start early, in one order on every rank. **What is hidden under the computation costs nothing.** The next lab splits the layers themselves.

# %% name="stop_world"
world.stop()
