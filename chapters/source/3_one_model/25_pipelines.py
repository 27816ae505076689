# %% [markdown] name="title"
# # Pipelines
#
# {{here}}
#
# **A model has 96 layers, and four GPUs have 24 of them each. A batch enters at the first GPU and leaves at the last; then its gradients come all the way back. For
# how much of the time does a GPU wait, and what must it keep, pay or give up to wait less?**
#
# {{picture}}
#
# A row is a GPU, and time goes to the right. A short box is a forward pass, a long one a backward pass, a number is a piece of the batch, a **micro-batch**. The empty places are what this chapter is about.

# %% name="first_picture"
from allranks import explore

explore.pipeline(ranks=4, micro_batches=8, order="gpipe", orders=["gpipe"])

# %% [markdown] name="first_question"
# **Ask the picture.** Drag $m$: which part of a row stays as long as it was? Then drag $p$: what does each further GPU add to it?

# %% [markdown] name="my_model_needs"
# On 1,024 GPUs with fast links a step of **my model** takes 0.12 s. A cheaper cloud has one Ethernet card for eight GPUs. There the same
# split takes 2.60 s, and for 2.17 s of it the GPUs wait for gradients. What if a GPU keeps whole layers?

# %% name="start_world"
import re
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

from allranks import World, check, pipelines, plots, predict, predictions, wire, workload

world = World()
world

# %% [markdown] name="guess_intro"
# First the large model of the picture again: 96 layers of width 12,288, as GPT-3 has them. (My model comes back at the end.)
# Rank $r$ keeps some layers whole, a **stage**. It receives activations from rank $r-1$ and sends its own to rank $r+1$; in backward, gradients go the
# other way. On eight GPUs [tensor parallel](24_tensor_parallel.ipynb) sent 34 GB a GPU for one sequence of 2048 tokens of this model.

# %% name="question"
pipeline_guess = predict(
    "The same model on the same eight GPUs, but with 12 whole layers on each: how many GB does a GPU send for one sequence, forward and backward?",
    low=0.01,
    high=1000,
    unit="GB",
    log=True,
    title="GB sent with whole layers",
)
pipeline_guess

# %% name="answer"
links = {"NVLink": 450e9, "network": 50e9}
cluster = workload.Cluster(8, links["NVLink"], 5e-6)
pipeline = workload.pipeline_parallel(1, 1, 2048, 12_288, cluster)
print(f"{pipeline.bytes_sent / 1e9:.2f} GB in {pipeline.calls} calls; GPUs work {pipeline.efficiency:.1%} of the time")

# %% name="reveal_answer" jupyter={"source_hidden": true}
# the answer: run this cell
pipeline_guess.reveal(
    pipeline.bytes_sent / 1e9,
    why="A stage sends its activations once, and eleven of twelve layers have their neighbour on the same GPU.",
)

# %% [markdown] name="stages"
# So bytes are not the problem: a GPU works an eighth of the time. While one stage computes, the seven others have nothing to do.
#
# ## 1. Cut the batch
#
# If the batch is cut into micro-batches, stage 1 can work on the first while stage 0 works on the second. A list gives the order of a rank's work:
# `("F", 0)` is the forward pass of micro-batch 0, `("B", 0)` its backward pass. The order of the picture is called **GPipe**: all $m$ micro-batches
# forward, then all backward.


# %% name="gpipe"
def gpipe(rank, p, m):
    return [("F", i) for i in range(m)] + [("B", i) for i in range(m)]


print("rank 0:", *(f"{what}{i}" for what, i in gpipe(rank=0, p=4, m=8)))

# %% [markdown] name="stage_intro"
# Now your ranks run it. The next two cells hold a stage: a real layer, what it *keeps* for backward, and a log of when it works. A sleep replaces a GPU's
# computing time (20 ms forward, 40 ms backward), so that your number of cores doesn't matter. Their code is folded: run them, and click on one to read it.


# %% name="stage" jupyter={"source_hidden": true}
# a stage, and when it works: run this cell
class Stage:
    def __init__(self):
        self.rank, self.p, self.kept, self.log = dist.get_rank(), dist.get_world_size(), {}, []
        torch.manual_seed(self.rank)
        self.layer = torch.nn.Linear(16, 16)

    def peer(self, what, way):
        """The rank from which the input of this work comes (way -1), or to which its output goes (1)."""
        other = self.rank + (way if what == "F" else -way)
        return other if 0 <= other < self.p and what != "W" else None

    def work(self, what, i):
        start = time.monotonic()
        time.sleep(0.04 if what == "B" else 0.02)
        self.log.append((what, i, start, time.monotonic(), len(self.kept)))


# %% name="forward_backward" jupyter={"source_hidden": true}
# its forward and its backward: run this cell
def forward(stage, i, x):
    x.requires_grad_()
    stage.kept[i] = x, torch.tanh(stage.layer(x))
    stage.work("F", i)
    return stage.kept[i][1].detach()


def backward(stage, i, gradient):
    x, y = stage.kept[i]
    stage.work("B", i)
    y.backward(gradient)
    del stage.kept[i]
    return x.grad


def warm_up(stage, x):
    peers = [r for r in (stage.rank - 1, stage.rank + 1) if 0 <= r < stage.p]
    hello = [dist.P2POp(call, torch.zeros(1), r) for r in peers for call in (dist.isend, dist.irecv)]
    for work in dist.batch_isend_irecv(hello):  # NCCL connects a pair at its first message, and both must be there
        work.wait()
    stage.layer(x).sum().backward()  # torch loads hundreds of modules here: not in the measured time
    stage.layer.weight.grad = stage.layer.bias.grad = None
    dist.barrier()


# %% [markdown] name="exchange_intro"
# Between two pieces of work a rank sends what it has made and receives what it needs next. Both are in one batch, so it doesn't matter who is first. A
# rank waits for what it needs; for its sends it waits only at the end.


# %% name="exchange"
def in_one_batch(made, to, needed, source):  # a peer is None if there is nothing to send or to receive
    calls = [dist.P2POp(dist.isend, made, to)] if to is not None else []
    if source is not None:
        calls.append(dist.P2POp(dist.irecv, needed, source))
    works = dist.batch_isend_irecv(calls) if calls else []
    if source is not None:
        works[-1].wait()  # for what is needed now; what was sent is waited for at the end
        needed[0, 0].item()  # on a GPU, waits until it is here
    return [(work, made) for work in works[: to is not None]]


# %% name="pipelined"
run = {"F": forward, "B": backward}


def pipelined(order, m, exchange=in_one_batch):
    stage, made, to, under_way = Stage(), None, None, []
    torch.manual_seed(100)
    batch = torch.randn(m, 8, 16)
    warm_up(stage, batch[0])
    for what, i in order(stage.rank, stage.p, m):
        # the loss is the sum of the last stage's outputs, so that its gradient is 1
        needed = batch[i].clone() if what == "F" else torch.ones(8, 16)
        under_way += exchange(made, to, needed, stage.peer(what, -1))
        made, to = run[what](stage, i, needed), stage.peer(what, 1)
    under_way += exchange(made, to, None, None)
    for work, _ in under_way:
        work.wait()
    return stage.log, stage.layer.weight.grad


# %% [markdown] name="guess_bubble_intro"
# The picture's clock knows only computing, and no messages. **Before you run the next cell (about 3 s):** will your ranks wait as long as the picture says, or
# longer? And how long with $m = 1$?


# %% name="bubbles"
def idle(logs):
    flat = [entry for log in logs for entry in log]
    span = max(end for *_, end, _ in flat) - min(start for _, _, start, _, _ in flat)
    return 1 - sum(end - start for _, _, start, end, _ in flat) / (len(logs) * span)


p = world.ranks
for m in (1, 2, 4, 8):
    logs = [log for log, _ in world.run(pipelined, gpipe, m)]
    print(f"m = {m}: idle {idle(logs):.0%}, formula {(p - 1) / (m + p - 1):.0%}")

# %% [markdown] name="bubble_explained"
# **The bubble** is this waiting. The last stage can't begin before its first micro-batch has passed the $p-1$ others; at the end it waits for the gradients to pass back through them. In units of one micro-batch (forward
# and backward) the whole takes $m + p - 1$, of which each rank works $m$:
#
# $$\text{idle} = \frac{p-1}{m+p-1}$$
#
# (Some papers give $\frac{p-1}{m}$: the bubble divided by the *ideal* time. Always say which one you mean.) If you measured more, the rest is messages and your machine.
#
# ## 2. Another order: 1F1B
#
# Now **1F1B**: one forward, one backward. A rank first does only as many forward passes as the later stages need, then alternates.

# %% name="guess_1f1b"
guess_1f1b = predict(
    "1F1B instead of GPipe, with the same micro-batches: what does that change?",
    choices=["the bubble shrinks", "less is kept for backward", "both"],
    title="1F1B instead of GPipe",
)
guess_1f1b


# %% name="one_f_one_b"
def one_f_one_b(rank, p, m):
    ahead = min(p - 1 - rank, m)
    order = [("F", i) for i in range(ahead)]
    for i in range(m - ahead):
        order += [("F", ahead + i), ("B", i)]
    return order + [("B", i) for i in range(m - ahead, m)]


runs = {order.__name__: world.run(pipelined, order, 8) for order in (gpipe, one_f_one_b)}
for name, ranks in runs.items():
    logs = [log for log, _ in ranks]
    print(
        f"{name:12} idle {idle(logs):.0%}, kept at most {[max(entry[4] for entry in log) for log in logs]}",
    )

# %% name="figure"
names = ("gpipe", "1f1b")
pipelines.picture(*(pipelines.timeline(pipelines.orders(name, p, 8)) for name in names))

# %% name="reveal_1f1b" jupyter={"source_hidden": true}
# the answer: run this cell
guess_1f1b.reveal(
    "less is kept for backward",
    why="The first micro-batch must still pass all stages and its gradient must come back, so the bubble stays; a rank only keeps fewer micro-batches at a time.",
)

# %% [markdown] name="figure_explained"
# The figure is computed, for backward passes that take as long as two forward passes. Compare its share of idle time with what you measured. The hatched area is
# the bubble, and both have the same. But a rank holds less: with GPipe all $m$ micro-batches, with 1F1B at most $p - r$ on rank $r$,
# for any $m$. This is the advantage: memory no longer limits $m$, and a larger $m$ makes the bubble small.
#
# Are the gradients right?


# %% name="pipeline_check"
def alone(p, m):
    layers = []
    for rank in range(p):
        torch.manual_seed(rank)
        layers.append(torch.nn.Linear(16, 16))
    torch.manual_seed(100)
    x = torch.randn(m, 8, 16)
    for layer in layers:
        x = torch.tanh(layer(x))
    x.sum().backward()
    return [layer.weight.grad for layer in layers]


right = world.run(alone, p, 8)[0]
for name, ranks in runs.items():
    error = max(((g - r).norm() / r.norm()).item() for (_, g), r in zip(ranks, right, strict=True))
    print(f"{name:12} off by {error:.0e}")

# %% [markdown] name="deadlock"
# ## 3. Which order works with blocking sends?
#
# Now without the batch: first `send`, then `recv`. Let `send` wait for its receiver. Both orders get 5 seconds: who isn't ready then is stopped.

# %% name="guess_deadlock"
guess_deadlock = predict(
    "First `send`, then `recv`, and `send` waits for its receiver. Which of the two orders ends?",
    choices=["both", "only GPipe", "only 1F1B", "neither"],
    title="With blocking sends",
)
guess_deadlock


# %% name="blocking_gpipe"
def one_by_one(made, to, needed, source):
    if to is not None:
        dist.send(made, to)
    if source is not None:
        dist.recv(needed, source)
    return []


print(f"GPipe ended on {len(world.run(pipelined, gpipe, 8, one_by_one, deadline=5))} ranks")

# %% tags=["raises-exception", "not-on-nccl"] name="blocking_1f1b"
world.run(pipelined, one_f_one_b, 8, one_by_one, deadline=5)

# %% name="reveal_deadlock" jupyter={"source_hidden": true}
# the answer: run this cell
guess_deadlock.reveal(
    "only GPipe",
    why="In 1F1B one rank sends an activation forward while the next sends a gradient back, and each waits for the other.",
)

# %% name="wire_deadlock"
wire.run(pipelined, ranks=world.ranks, args=(one_f_one_b, 8, one_by_one)).deadlock

# %% [markdown] name="deadlock_explained"
# In GPipe all messages go one way, then all go back. In 1F1B rank $r$ sends an activation to rank $r+1$ while rank $r+1$ sends a gradient to rank
# $r$, and both wait in `send`. **On GPUs the live cell may end all the same**: a message here has 512 bytes, and NCCL's buffers between two ranks have megabytes
# ([Inside NCCL](../4_real_cluster/43_inside_nccl.ipynb)), so the send is done before anybody receives. An activation that is larger than the buffers hangs. The wire, where each send waits for its receiver, shows the
# deadlock at any size. `isend` alone does not help on NCCL, where the single messages between two ranks queue one behind the other. Two ways do:
#
# - **One batch** with the send and the receive, as above (`batch_isend_irecv`).
# - **An order by parity**: even ranks send first, odd ranks receive first.
#
# Megatron-LM has both, and `batch_p2p_comm` chooses.

# %% [markdown] name="shorter"
# ## 4. A smaller bubble
#
# A larger $m$ makes the bubble small, but a global batch has only so many sequences. Two ways are left.
#
# **More stages.** Give each rank $v$ short stages instead of a long one: of eight GPUs, the first has layers 0 to 5 and 48 to 53. A micro-batch reaches the
# last rank $v$ times sooner, so the bubble is $v$ times shorter. The price: $v$ times the messages, and more activations kept.
#
# **Less waiting.** Backward has two parts: the gradient of the stage's *input*, `I`, for which the rank before waits, and the gradient of its *weights*,
# `W`, for which nobody waits before the end of the step. **ZB-H1** runs the `W` later, where a rank would be idle. The next cell adds both, 20 ms each.


# %% name="halves" jupyter={"source_hidden": true}
# backward in two parts: run this cell
def of_input(stage, i, gradient):
    x, y = stage.kept[i]
    stage.work("I", i)
    stage.kept[i] = x, y, gradient
    return torch.autograd.grad(y, x, gradient, retain_graph=True)[0]


def of_weights(stage, i, _):
    _, y, gradient = stage.kept[i]
    stage.work("W", i)
    torch.autograd.backward(y, gradient, inputs=list(stage.layer.parameters()))
    del stage.kept[i]


run |= {"I": of_input, "W": of_weights}


# %% name="zb_h1"
def zb_h1(rank, p, m):
    return [(action.kind, action.micro_batch) for action in pipelines.order("zb-h1", rank, p, m)]


runs["zb_h1"] = world.run(pipelined, zb_h1, 8)
for name, schedule in (("one_f_one_b", "1f1b"), ("zb_h1", "zb-h1")):
    computed = pipelines.timeline(pipelines.orders(schedule, p, 8)).idle_share()
    print(f"{name:12} idle {idle([log for log, _ in runs[name]]):.0%}, computed {computed:.0%}")
error = max((a - b).abs().max().item() for (_, a), (_, b) in zip(runs["zb_h1"], runs["gpipe"], strict=True))
print(f"gradients differ from GPipe's by {error:.0e}")

# %% name="shorter_figure"
shorter = [pipelines.timeline(pipelines.orders(name, p, 2 * p)) for name in ("1f1b", "interleaved", "zb-h1")]
pipelines.picture(*shorter)

# %% name="all_orders"
explore.pipeline(ranks=4, micro_batches=8, order="zb-h1")

# %% [markdown] name="shorter_explained"
# Choose the orders one after the other in this picture: which one waits least, and what does it keep for that?
#
# The bubble is $(p-1)(F+I-W)$ with ZB-H1, and $(p-1)(F+I+W)$ with 1F1B, where $F$, $I$ and $W$ are the seconds of a forward pass, of the input's gradient and of the weights' gradient. If the three take equally long, a third of the
# bubble is left. The price is memory. A rank must keep a micro-batch until its weights' gradient is made. So with ZB-H1 every rank keeps up to $p$ micro-batches; with 1F1B only the first rank does.
#
# One detail matters here: `in_one_batch` waits only for its *receive*. If it waited for its send too, a rank would wait for its neighbour just when it should run a `W`, and ZB-H1 would be as slow as 1F1B. For NCCL a
# batch is one piece of work, so there waiting for its receive *is* waiting for its send. So torch's schedules batch only sends *with* receives (`_batch_p2p`), and Megatron-LM refuses
# `overlap_p2p_comm` together with `batch_p2p_comm`.
# <!-- torch 2.13: distributed/pipelining/schedules.py:623 (_batch_p2p, its docstring). Megatron-LM d98e8a6: core/pipeline_parallel/schedules.py:1086. ProcessGroupNCCL.cpp, pointToPoint, eagerInit_: the warning that
# TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING turns off -->
#
# **ZB-H2** runs more forward passes ahead, up to $2p-1$ on rank 0. Then no rank waits between its first and its last action.

# %% name="guess_zero"
zero = predict(
    "Each step ends with a norm of all gradients, so that all ranks must be ready. How long does ZB-H2 take, compared with ZB-H1?",
    choices=["much shorter", "shorter by the bubble", "as long"],
    title="ZB-H2 compared with ZB-H1",
)
zero

# %% name="zero_figure"
zeros = [pipelines.timeline(pipelines.orders(name, p, 2 * p)) for name in ("zb-h1", "zb-h2")]
pipelines.picture(*zeros)

# %% name="reveal_zero" jupyter={"source_hidden": true}
# the answer: run this cell
zero.reveal(
    "as long" if zeros[0].makespan == zeros[1].makespan else "shorter by the bubble",
    why="Later ranks still begin later, and now they end later too, so whoever waits for the last one waits as before.",
)

# %% [markdown] name="zero_explained"
# "Zero bubble" is zero only if the next step may begin before this one has ended on all ranks. A gradient norm, or a check for NaN, forbids it. The
# authors update first and check afterwards, and undo a wrong update ([arXiv:2401.10241](https://arxiv.org/abs/2401.10241)).

# %% [markdown] name="order_mine_task"
# ### Your turn
#
# Return one rank's actions for ZB-H1, as `"F0"`, `"I0"`, `"W0"`. The order below is 1F1B with backward in two parts, `I` for the input's gradient and `W` for the weights'. It is as slow as 1F1B: a rank runs a `W` while the
# rank before it waits for an `I`. **Move the `W`.** Each action takes 1, and a rank keeps at most min(p, m) micro-batches, each from its `F` to its `W`. The last rank must put off the most. (The check takes about 5 s.)


# %% name="order_mine"
def zero_bubble_order(rank, stages, micro_batches):
    order, begun = [], 0
    for turned in range(micro_batches):
        while begun < micro_batches and begun - turned < stages - rank:
            order.append(f"F{begun}")
            begun += 1
        order.append(f"I{turned}")
        order.append(f"W{turned}")  # your turn: which ranks must put this off, and until when?
    return order


check(zero_bubble_order)

# %% [markdown] name="order_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def zero_bubble_order(rank, stages, micro_batches):
#     order, begun = [], 0
#     for turned in range(micro_batches):
#         while begun < micro_batches and begun - turned < stages - rank:
#             order.append(f"F{begun}")
#             begun += 1
#         order.append(f"I{turned}")
#         if turned >= rank:
#             order.append(f"W{turned - rank}")
#     return order + [f"W{i}" for i in range(max(micro_batches - rank, 0), micro_batches)]
# ```
# </details>

# %% [markdown] name="torch_intro"
# ## 5. What torch has
#
# `torch.distributed.pipelining` comes with schedules ready made. It lists their actions without running them, so we can put them on the same clock.
# **V** schedules give rank 0 the first stage *and* the last one: the micro-batch comes back the way that it went.


# %% name="of_torch"
def of_torch(name, stages, place="loop", m=2 * p):
    lines = [" ".join(str(action) for action in mine if action) for mine in get_schedule_ops(name, p, m)]
    texts = [re.findall(r"\b\d+[FBIW]\d+\b", line) for line in lines]
    return pipelines.read(texts, m, stages=stages * p, place=place, name=name)


of_two = {
    "Interleaved1F1B": "loop",
    "InterleavedZeroBubble": "loop",
    "ZBVZeroBubble": "v",
    "DualPipeV": "v",
}
ready = [pipelines.timeline(of_torch(name, 2, place)) for name, place in of_two.items()]
for one in ready:
    print(one)

# %% name="torch_figure"
pipelines.picture(*ready[2:])

# %% [markdown] name="torch_explained"
# A rank's two stages together take as long as one stage above, so the lengths are comparable. ZBV has no hole inside a row, and keeps no more than 1F1B's rank 0.
# DualPipeV has another aim, which this clock can't show, since messages take no time on it: some of its boxes run forward and backward of *two*
# micro-batches together, so that the all-to-all of one hides behind the other's computing ([DualPipe](https://github.com/deepseek-ai/DualPipe)).

# %% [markdown] name="run_by_torch"
# ## 6. Let torch run it
#
# torch also *runs* these schedules. A rank wraps its layers in a `PipelineStage` and gives the stage to a schedule; `schedule.step()` cuts the batch along its first dimension, sends, receives, and calls backward. The first rank gives the batch, the last one the target, those between nothing.
#
# <!-- torch 2.13: distributed/pipelining/stage.py (PipelineStage), schedules.py:690-695 (scale_grads), :960 (perform_reduce_grad(n_microbatches if scale_grads else 1)) -->


# %% name="torch_stage"
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def layers(n):
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh()) for _ in range(n)))


def mean_loss(out, wanted):
    return (out - wanted).square().mean()


def sum_loss(out, wanted):
    return (out - wanted).square().sum()


def stepped(mine, stage, loss_fn, batch, wanted, steps=1, **options):
    """Steps of torch's 1F1B with 8 micro-batches; the losses, on the last stage."""
    schedule, losses = Schedule1F1B(stage, n_microbatches=8, loss_fn=loss_fn, **options), []
    inputs = (batch,) if stage.is_first else ()
    outputs = {"target": wanted, "losses": losses} if stage.is_last else {}
    for _ in range(steps):
        mine.zero_grad()
        schedule.step(*inputs, **outputs)
    return [loss.item() for loss in losses]


# %% name="guess_scale"
scale_guess = predict(
    "8 micro-batches, a loss that is a sum over elements, everything else by default: the gradients are",
    choices=["right", "8 times too large", "8 times too small"],
    title="A sum as loss, 8 micro-batches",
)
scale_guess


# %% name="scaled"
def by_torch(loss_fn, **options):
    rank, p = dist.get_rank(), dist.get_world_size()
    mine, whole = layers(p)[rank], layers(p)
    torch.manual_seed(1)
    batch, wanted = torch.randn(2, 64, 16)
    stage = PipelineStage(mine, rank, p, torch.get_default_device())
    losses = stepped(mine, stage, loss_fn, batch, wanted, **options)
    loss_fn(whole(batch), wanted).backward()
    return losses, (mine[0].weight.grad.norm() / whole[rank][0].weight.grad.norm()).item()


for loss_fn in (mean_loss, sum_loss):
    for options in ({}, {"scale_grads": False}):
        told = world.run(by_torch, loss_fn, **options)
        ratios = ", ".join(f"{ratio:.3g}" for _, ratio in told)
        print(
            f"{loss_fn.__name__:9} {options!s:23} losses on the ranks {[len(losses) for losses, _ in told]}; gradients {ratios} times the right ones"
        )

# %% name="reveal_scale" jupyter={"source_hidden": true}
# the answer: run this cell
scale_guess.reveal(
    "8 times too small",
    why="scale_grads divides the added gradients by the number of micro-batches, which is right for a mean; a sum needs scale_grads=False.",
)

# %% [markdown] name="scaled_explained"
# Micro-batches with *different* numbers of real tokens are right in neither way: then divide the sum by the tokens of the whole batch, as torchtitan does, with `scale_grads=False`. And only the last stage knows a loss: your log must come from there.
#
# **Splitting.** Above each rank built all layers and kept one. Megatron-LM builds only its own. Or torch traces the model and cuts it where you say:
#
# <!-- torchtitan b5bcd76: distributed/pipeline_parallel.py:327, :335 (scale_grads=False), :470 (_split_module); components/loss.py:264. Megatron-LM d98e8a6: core/transformer/transformer_block.py, get_num_layers_to_build. torch 2.13: distributed/pipelining/_IR.py (pipeline, SplitPoint) -->

# %% name="split"
import warnings

from torch.distributed.pipelining import SplitPoint, pipeline as traced

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # torch warns of its own code
    cut = traced(layers(4), mb_args=(torch.zeros(8, 16),), split_spec={"3": SplitPoint.BEGINNING})
for i in range(cut.num_stages):
    print(f"stage {i}:", [name for name, _ in cut.get_stage_module(i).named_parameters()])

# %% [markdown] name="split_explained"
# The parameters keep the whole model's names, so a checkpoint fits any number of stages. (`cut.build_stage(rank, device)` makes the stage.)
#
# **With FSDP.** Each stage is copied on several ranks, and its weights are cut over them. Eight micro-batches pass through it, forward and backward. Counting takes about 6 s.

# %% name="guess_fsdp"
fsdp_guess = predict(
    "A stage is wrapped by FSDP, and 8 micro-batches pass through it: how many reduce-scatters of its gradients does torch make in a step?",
    choices=["1", "8", "16"],
    title="Reduce-scatters of a stage in a step",
)
fsdp_guess


# %% name="with_fsdp"
def with_fsdp(reshard, steps, copies):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device, stages = torch.get_default_device(), dist.get_world_size() // copies
    mesh = init_device_mesh(device.type, (stages, copies), mesh_dim_names=("pp", "dp"))
    place, copy = mesh.get_local_rank("pp"), mesh.get_local_rank("dp")
    mine, whole = layers(stages)[place], layers(stages)
    fully_shard(mine, mesh=mesh["dp"], reshard_after_forward=reshard)
    torch.manual_seed(1)
    batch, wanted = torch.randn(2, copies * 64, 16)
    stage = PipelineStage(mine, place, stages, device, group=mesh.get_group("pp"))
    stepped(mine, stage, mean_loss, batch.chunk(copies)[copy], wanted.chunk(copies)[copy], steps)
    mean_loss(whole(batch), wanted).backward()
    return (mine[0].weight.grad.full_tensor() - whole[place][0].weight.grad).abs().max().item()


# %% name="fsdp_counted"
copies = 2 if p % 2 == 0 else p
for reshard in (True, False):
    calls = []
    for steps in (1, 2):  # the first step also finds out the shapes; the second one is counted
        off, trace = world.trace(with_fsdp, reshard, steps, copies)
        names = [e.op for e in trace if e.rank == 0]
        calls.append([sum(what in name for name in names) for what in ("all_gather", "reduce_scatter")])
    gathers, scatters = (two - one for one, two in zip(*calls, strict=True))
    print(
        f"reshard_after_forward={reshard!s:5}: {gathers} all-gathers, {scatters} reduce-scatter; off by {max(off):.0e}"
    )

# %% name="reveal_fsdp" jupyter={"source_hidden": true}
# the answer: run this cell
fsdp_guess.reveal(
    "1",
    why="The stage switches the gradients' sync off and reduces once, after the last micro-batch. The price is memory: until then the gradients are whole.",
)

# %% [markdown] name="with_fsdp_explained"
# The *weights* are another matter: resharded after each forward pass, they are gathered again and again. So torchtitan's default keeps them whole in a step if there is a pipeline. During a step weights and gradients are then whole, as in ZeRO stage 1; only the optimizer's state stays cut.
#
# **On your own cluster.** Compare one step with $m$ micro-batches against a run without pipeline: loss and gradient norm must agree. And look in a profile for all-gathers inside the pipeline's steady part.
#
# <!-- torch 2.13: distributed/pipelining/stage.py:844-847 (no sync before the last backward), :1169-1191 (reduce once). torchtitan b5bcd76: distributed/fsdp.py:131-133 ("do not reshard after forward to avoid per-microbatch all-gathers") -->

# %% [markdown] name="costs"
# ## 7. What it costs
#
# For each micro-batch a stage sends sequences × tokens × width × bytes of a number forward, and as much back. First the count on your ranks, with $8 \times 16$ floats for
# each of 8 micro-batches. Then the idle share against the number of micro-batches, on 8 ranks (computed, about 5 s).

# %% name="counted"
_, trace = world.trace(pipelined, one_f_one_b, 8)
sent = [sum(e.nbytes for e in trace if e.rank == r and "send" in e.op and e.nbytes > 4) for r in range(p)]
ways = [(r > 0) + (r < p - 1) for r in range(p)]  # an inner stage sends both ways
print("counted ", sent)
print("computed", [way * 8 * 8 * 16 * 4 for way in ways])

# %% name="curve"
figure, axes = plots.chart("micro-batches m", "idle share, 8 ranks (computed)")
counts = [8, 16, 24, 32, 48, 64]
for name, more in (
    ("gpipe", {}),
    ("interleaved", {"stages_per_rank": 2}),
    ("interleaved", {"stages_per_rank": 6}),
    ("zb-h1", {}),
):
    made = [pipelines.timeline(pipelines.orders(name, 8, m, **more)) for m in counts]
    label = made[0].orders.name if name != "gpipe" else "GPipe and 1F1B"
    axes.plot(counts, [one.idle_share() for one in made], marker="o", label=label)
axes.legend()
figure

# %% [markdown] name="axes"
# For large $m$ each line falls as $1/m$. With 12 layers a rank, six stages of two layers each bring the bubble down most, for six times the messages.
#
# ## 8. All three at once
#
# Large runs use all three: 512 GPUs as 8 (tensor) × 8 (stages) × 8 (data), each pipeline with 32 sequences a step in 32 micro-batches.
# Which of them sends most for each GPU and step?

# %% name="axes_table"
print(f"{'':10}{'calls':>7}{'GB sent':>9}{'s on NVLink':>13}{'s on network':>14}")
parameters, prices = 96 * 12 * 12_288**2, {}
for bytes_per_s in links.values():
    c = workload.Cluster(8, bytes_per_s, 5e-6)
    prices.setdefault("tensor", []).append(workload.tensor_parallel(12, 1, 2048, 12_288, c).times(32))
    prices.setdefault("pipeline", []).append(workload.pipeline_parallel(32, 1, 2048, 12_288, c))
    prices.setdefault("data", []).append(workload.ddp(parameters / 64, c))
for what, (nvlink, network) in prices.items():
    print(f"{what:10}{nvlink.calls:7}{nvlink.bytes_sent / 1e9:9.1f}{nvlink.seconds:13.2f}{network.seconds:14.2f}")
print(f"bubble: {1 - prices['pipeline'][0].efficiency:.0%} of the time")

# %% [markdown] name="axes_explained"
# So **tensor** parallelism is innermost, on the fastest links, because it sends most and little of it can be hidden. **Data** parallelism can hide
# behind backward, and sends once a step, for any number of micro-batches. **Pipeline** parallelism sends little, only between neighbours, and is best
# between nodes; it costs idle time (the bubble), not bytes.
#
# ## 9. Check yourself
#
# <details><summary>1. p = 4 stages: how many micro-batches for less than 10 % idle?</summary>
#
# $3/(m+3) < 0.1$, so $m > 27$: 28.
# </details>
#
# <details><summary>2. A paper says that the bubble is 37.5 %, another one 27.3 %, both with p = 4 and m = 8. Who is wrong?</summary>
#
# Nobody: $(p-1)/m = 3/8$ is the bubble divided by the time of the work, $(p-1)/(m+p-1) = 3/11$ by the whole time.
# </details>
#
# <details><summary>3. The last stage has the loss over a vocabulary of 128,256 words and takes twice as long as the others. What does it do to the bubble?</summary>
#
# All others wait for it at every micro-batch: each step takes the slowest stage's time, and $p-1$ of $p$ ranks are idle half of it. No order mends this;
# give that stage fewer layers.
# </details>
#
# <details><summary>4. With m = 1, GPipe and 1F1B keep equally much and take equally long. Why?</summary>
#
# With one micro-batch there is only one order: forward through all stages, then backward.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A pipeline sends little, and waits: $\frac{p-1}{m+p-1}$ of the time with one stage a rank. 1F1B has the same bubble as GPipe and keeps $p$ micro-batches
# instead of $m$. Several stages a rank, or weights' gradients run late, make the bubble smaller, for messages or for memory. **Tensor parallelism costs bytes; a pipeline costs time in which GPUs wait.**
#
# **Now you:** [Lab 14](../../labs/lab14_pipelines/pipelines.ipynb) asks for an order with backward in two parts, and for the loop that runs an order.
#
# **Next question:** the layers are split now. What if the *sequence* is too long for one GPU? [Context parallel](26_context_parallel.ipynb)
#
# **Sources.** Y. Huang et al., *GPipe*, [arXiv:1811.06965](https://arxiv.org/abs/1811.06965) ·
# A. Harlap et al., *PipeDream*, [arXiv:1806.03377](https://arxiv.org/abs/1806.03377) (1F1B) ·
# D. Narayanan et al., *Memory-efficient pipeline-parallel DNN training*, [arXiv:2006.09503](https://arxiv.org/abs/2006.09503) (1F1B with a flush, as here) ·
# D. Narayanan et al., *Efficient large-scale language model training on GPU clusters using Megatron-LM*, [arXiv:2104.04473](https://arxiv.org/abs/2104.04473) (interleaving, the bubble) ·
# P. Qi et al., *Zero bubble pipeline parallelism*, [arXiv:2401.10241](https://arxiv.org/abs/2401.10241) (ZB-H1, ZB-H2) ·
# [DeepSeek, DualPipe](https://github.com/deepseek-ai/DualPipe) ·
# [PyTorch, pipeline parallelism](https://docs.pytorch.org/docs/stable/distributed.pipelining.html)

# %% [markdown] name="my_model_now"
# ## My model
#
# Each card below is an **axis**, one way to split the training run, and this chapter opened one. The course's own choices are pressed: press another
# one, and see what it costs. What you choose is kept with your notebooks.

# %% name="my_model"
from allranks import my_model

my_model("pipelines")

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
world.stop()

# %% name="done"
from allranks import done

done("25")
