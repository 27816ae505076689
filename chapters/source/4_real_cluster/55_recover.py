# %% [markdown] name="title"
# # Recover
#
# {{here}}
#
# **A rank hangs at three in the morning. When does anybody notice, how long until the job trains again, and is it still the same training?**
#
# {{picture}}
#
# One interruption, from left to right. Only the first and the last box train the model.

# %% name="first_picture"
from allranks import explore

explore.recover(notice=10, find=2, start=3, load=2, repeat=5)

# %% [markdown] name="first_question"
# **Ask the picture.** Which share of the time is lost, and which part would you shorten first? Make noticing ten times as fast: what share is lost now, and which part is the longest then?

# %% name="start_world"
import shutil
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import torch
import torch.distributed as dist

from allranks import World, bench, check, plots, predict, predictions

folder = Path(tempfile.mkdtemp())
world = World()
world

# %% [markdown] name="parts"
# [Survive](46_survive.ipynb) had a formula for how often to save, with one number $R$ for the restart. The first four parts of the picture are its $R$; the fifth, the steps that are done again, is its $T/2$. Each part has its own remedy.
#
# ## 1. Notice
#
# A process that *ends* is noticed at once: torchrun's agent looks every 0.1 s. A rank that *hangs* is noticed by nobody until some limit passes. PyTorch's limit for NCCL is 10 minutes by default, for Gloo 30. Llama 3's job was interrupted 419 times in 54 days, every 3.09 hours: 10 minutes each time would be 5.4 % of all time.
#
# <!-- torch 2.13: distributed/run.py:499 (monitor_interval 0.1), include/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp:157 (10 min), distributed/constants.py. Failures: arXiv:2407.21783, section 3.3.4: 419 unexpected interruptions in 54 days -->
#
# So jobs are watched from outside: every rank reports each step, and silence for longer than some factor times the usual step is an alarm. In the next cell every tenth step saves, and rank 1 hangs for two seconds in step 25.

# %% name="guess_alarm"
alarm = predict(
    "The limit is five times a usual step. Steps 9, 19 and 29 also save; in step 25 a rank hangs. Where is there an alarm?",
    choices=["in step 25 alone", "in step 25 and at each save", "nowhere"],
    title="With a limit of five usual steps there is an alarm",
)
alarm


# %% name="beats"
def beats(steps=30):
    """When each step of this rank ended."""
    ends = []
    for step in range(steps):
        time.sleep(0.02)  # forward and backward
        if step % 10 == 9:
            time.sleep(0.3)  # saves
        if step == 25 and dist.get_rank() == 1:
            time.sleep(2)  # hangs
        total = torch.ones(1)
        dist.all_reduce(total)
        total.item()
        ends.append(time.monotonic())
    return ends


ends = world.run(beats, deadline=60)[0]
gaps = [after - before for before, after in pairwise(ends)]

# %% name="limits"
usual = sorted(gaps)[len(gaps) // 2]
steps = range(1, len(ends))
figure, axes = plots.chart("step", "seconds")
axes.semilogy(steps, gaps, marker=".", label="a step took")
for factor in (5, 25):
    axes.semilogy(steps, [factor * usual] * len(gaps), label=f"limit: {factor} usual steps")
    alarms = [step for step, gap in enumerate(gaps, 1) if gap > factor * usual]
    print(f"limit {factor:2} usual steps: alarm in steps {alarms}")
axes.set_ylim(top=30)
axes.legend(loc="upper left")
figure

# %% name="reveal_alarm" jupyter={"source_hidden": true}
# the answer: run this cell
alarm.reveal(
    "in step 25 and at each save",
    why="A watcher knows only how long a step takes. With a limit of 25 usual steps a save is no alarm, but a hang is noticed five times as late.",
)

# %% [markdown] name="limit_explained"
# So save, evaluation and the first step (which connects and compiles) get limits of their own, and the other steps get a short one: torchtitan's limit for a call is 300 s until the first step is over, and 100 s after it; NVIDIA's resiliency extension learns its limits from what it saw, times 5.
#
# What to log in the moment of the alarm: all ranks' stacks and flight records ([When it hangs](45_when_it_hangs.ipynb)), *before* anything is killed.
#
# <!-- torchtitan b5bcd76 (2026-08-21): config/configs.py:318-321. nvidia-resiliency-ext d8686d9 (2026-08-07): fault_tolerance/config.py:33-42, :121 (safety_factor 5.0) -->
#
# ## 2. The same training, not another one
#
# The weights and the optimizer are loaded. What else decided the next step? The **place in the data** and the **random numbers**: dropout, augmentation, shuffling. Let us train a small model with dropout, end it at step 6 of 12, and load more or less of what was saved.


# %% name="step_code"
def step(model, optimizer, samples):
    optimizer.zero_grad()
    model(samples).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()


# %% name="random_code" jupyter={"source_hidden": true}
# run this cell: the state of the device's random numbers
def random_state(device):
    return torch.cuda.get_rng_state() if device.type == "cuda" else torch.get_rng_state()


def set_random_state(device, state):
    (torch.cuda.set_rng_state if device.type == "cuda" else torch.set_rng_state)(state)


# %% name="job_code"
def train(path, first, last, loaded=()):
    """Steps first to last; at the end each rank saves. The weights, and the samples that this rank saw."""
    rank, p, device = dist.get_rank(), dist.get_world_size(), torch.get_default_device()
    torch.manual_seed(0)
    order, data = torch.randperm(24 * p), torch.randn(24 * p, 8)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    optimizer, place, seen = torch.optim.Adam(model.parameters(), lr=0.01), 0, []
    torch.manual_seed(1 + rank)  # each rank drops other numbers
    if loaded:
        state = torch.load(f"{path}/rank{rank}", map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        place = state["place"] if "place" in loaded else 0
        if "random" in loaded:
            set_random_state(device, state["random"])
    for _ in range(first, last):
        mine = order[place + 2 * rank : place + 2 * rank + 2]  # two samples a rank
        step(model, optimizer, data[mine])
        place, seen = place + 2 * p, seen + mine.tolist()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "place": place}
    torch.save({**state, "random": random_state(device)}, f"{path}/rank{rank}")
    return model[0].weight.detach().cpu(), seen


# %% name="two_halves"
whole = world.run(train, folder, 0, 12)
first_half = world.run(train, folder, 0, 6)

# %% name="guess_data"
data_guess = predict(
    "The weights and the optimizer are loaded, and the data loader begins at its first sample again. What does the second half of the epoch do?",
    choices=[
        "an error, since the places differ",
        "some samples twice, others never",
        "nothing else, the order is the same",
    ],
    title="The loader begins again",
)
data_guess

# %% name="loaded"
saved = Path(tempfile.mkdtemp())
for name in folder.iterdir():
    shutil.copy(name, saved)
for loaded in (("model, optimizer",), ("model, optimizer", "place"), ("model, optimizer", "place", "random")):
    for name in saved.iterdir():
        shutil.copy(name, folder)
    second_half = world.run(train, folder, 6, 12, loaded)
    samples = [s for half in (first_half, second_half) for _, seen in half for s in seen]
    off = (second_half[0][0] - whole[0][0]).abs().max().item()
    print(f"{', '.join(loaded):31} {len(samples) - len(set(samples)):2} samples twice; weights off by {off:.0e}")
shutil.rmtree(saved)

# %% name="reveal_data" jupyter={"source_hidden": true}
# the answer: run this cell
data_guess.reveal(
    "some samples twice, others never",
    why="Nothing complains: the first half comes again and the second half never comes, which only a count of samples shows.",
)

# %% [markdown] name="loaded_explained"
# Only with all four is the training the same *to the last bit*. The random state is each rank's own, so each rank saves its own: Megatron-LM keeps Python's, NumPy's, torch's and CUDA's, and those of its tensor parallel ranks.
#
# **On another number of ranks** a loader's state of "rank 3 of 8" means nothing: torchtitan refuses to load it for another number. The way out is above: *one* order for all ranks, from a seed, and one place in it. Each rank cuts its part out of the next global batch, and half as many ranks take twice as much.
#
# <!-- Megatron-LM d98e8a6 (2026-08-22): training/checkpointing.py:451-480. torchtitan b5bcd76: components/data/loader.py:99 (dp_rank_), :163 (dp_world_size must be equal) -->
#
# ## 3. A copy on the neighbour
#
# Where is the last state? In a file system that all ranks share it survives everything, but thousands of ranks read it at once. In the *neighbour's memory* it is near: each rank also keeps a copy of the state of the rank on its left.


# %% name="neighbour"
def neighbour(lost=1, numbers=2**20):
    rank, p = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    mine, kept = torch.randn(numbers), torch.empty(numbers)
    before = mine.clone()

    def copies():
        ops = [dist.P2POp(dist.isend, mine, (rank + 1) % p), dist.P2POp(dist.irecv, kept, (rank - 1) % p)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    [took] = bench.seconds_of(copies, iterations=5)
    if rank == lost:
        mine = torch.empty(numbers)  # a new process: its memory is empty
        dist.recv(mine, (lost + 1) % p)
    elif rank == (lost + 1) % p:
        dist.send(kept, lost)
    return took, torch.equal(mine, before)


# %% name="neighbours"
took = world.run(neighbour, deadline=60)
print("every rank has its state again, to the last bit:", all(equal for _, equal in took))
print(f"a copy of 4 MiB on the neighbour took {1e3 * took[0][0]:.1f} ms")
state = 7e9 * 12 / 64  # fp32 weights and both moments of Adam, cut over 64 GPUs
print(
    f"7B parameters on 64 GPUs: {state / 1e9:.1f} GB a GPU, {1e3 * state / 50e9:.0f} ms over a card of 50 GB/s (computed)"
)

# %% name="guess_two"
two_guess = predict(
    "64 nodes, each with a copy of its left neighbour's state. Two of them, at random, fail at the same time. In how many of 100 cases is something lost?",
    low=0.1,
    high=100,
    unit="of 100",
    log=True,
    title="Two of 64 nodes fail: something is lost in",
)
two_guess


# %% name="two_fail_code"
def lost_share(nodes):
    pairs = [(a, b) for a in range(nodes) for b in range(a)]
    return sum((a - b) % nodes in (1, nodes - 1) for a, b in pairs) / len(pairs)


# %% name="two_fail"
for nodes in (8, 64, 512):
    print(f"{nodes:4} nodes: something is lost in {100 * lost_share(nodes):.1f} of 100 cases")

# %% name="reveal_two" jupyter={"source_hidden": true}
# the answer: run this cell
two_guess.reveal(
    100 * lost_share(64),
    why="Only if the two are neighbours: 2 of the 63 other nodes are. The neighbour must be another node, or the copy dies with it.",
)

# %% [markdown] name="neighbour_explained"
# But a power cut takes a whole row of racks at once, neighbours included. So jobs save to the neighbour often, and to files more seldom. GEMINI does this for training; NVIDIA's resiliency extension has it as local checkpoints with replication.
#
# <!-- Z. Wang et al., GEMINI, SOSP 2023, doi:10.1145/3600006.3613145. nvidia-resiliency-ext d8686d9: checkpointing/local/replication/strategies.py -->
#
# ## 4. Spares
#
# A broken node is gone for hours. Without a spare one the job waits, or goes on smaller. The number of nodes in repair is random (Poisson, if they fail independently), with mean *repair time / time between failures*. Take a failure every 3.09 hours, and assume 24 hours for a repair: on average 7.8 nodes are away.

# %% name="guess_spares"
spares_guess = predict(
    "7.8 nodes are in repair on average. How many spare nodes are needed, so that there are too few in only 1 % of the time?",
    low=1,
    high=100,
    unit="nodes",
    log=True,
    title="Spare nodes for 99 % of the time",
)
spares_guess


# %% name="spares"
import math

mtbf = 54 * 86_400 / 419  # Llama 3's, in seconds


def short_of(spares, mean):
    """The share of time in which more than `spares` nodes are in repair."""
    return 1 - sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(spares + 1))


def needed(mean, share=0.01):
    return next(n for n in range(1000) if short_of(n, mean) <= share)


figure, axes = plots.chart("hours for a repair", "spare nodes for 99 % of the time")
hours = [1, 2, 4, 8, 16, 24, 48, 72]
axes.plot(hours, [needed(h * 3600 / mtbf) for h in hours], marker="o", label="needed")
axes.plot(hours, [h * 3600 / mtbf for h in hours], linestyle="--", label="in repair on average")
axes.legend()
print("24 hours:", needed(24 * 3600 / mtbf), "spares, for", f"{24 * 3600 / mtbf:.1f} in repair on average")
figure

# %% name="reveal_spares" jupyter={"source_hidden": true}
# the answer: run this cell
spares_guess.reveal(
    needed(24 * 3600 / mtbf),
    within=1,
    why="Nearly twice the mean, because by chance many nodes are in repair at the same time. Llama 3's job had 16,384 GPUs in 2,048 nodes: 15 spares are less than 1 % of them.",
)

# %% [markdown] name="torchft_intro"
# ## 5. torchft, really run
#
# [Survive](46_survive.ipynb) explained torchft. `chapters/scripts/torchft_job.py` is a job of two replicas: replica B dies in step 20 and is started again. `pip install torchft` and this cell runs it here (20 to 40 s); else it shows what a run printed, with its date and versions. Before you run it: what will A do in step 20, and what does B know when it comes back?
#
# <!-- torchft 0.2.0 from PyPI, 2026-11-27. Source 7eb7087 (2026-04-03): src/lighthouse.rs:106-130 (join 60 s, heartbeat 5 s by default; 1 s here), :150-250 (who is healthy but absent is waited for); src/manager.rs:194 (heartbeats from a task of their own);
# torchft/manager.py:169 (timeout 60 s), should_commit -->

# %% name="torchft" jupyter={"source_hidden": true}
# run this cell: it starts the job, or shows the record
import subprocess
import sys
from importlib.util import find_spec

script = Path("../scripts/torchft_job.py")
if find_spec("torchft"):
    program = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=170)
    print(program.stdout or program.stderr[-500:])
else:
    print(script.with_suffix(".txt").read_text())

# %% [markdown] name="torchft_explained"
# - **Step 20 is done twice.** B's death closed a connection, A's all-reduce failed, the error was noted, and the vote said no. Nobody's weights changed.
# - **The second try took about a second:** the lighthouse waits until B's heartbeat is too old, here 1 s, by default 5 s. Then A goes on alone.
# - **A rank that hangs is another matter.** Its connection stays open, so A notices only after the time-out of the all-reduce: here 5 s, by default 60 s. And a thread of its own goes on sending B's heartbeat, so the lighthouse also waits for
#   B to join again: by default 60 s.
# - **B read no file.** It was healed: A sent it the weight of that moment, and both end with the same weight.

# %% [markdown] name="heal_mine_task"
# ### Your turn
#
# Heal by hand. Each rank knows its `step`; those with the largest are up to date. **Choose the pairs**: one giver for each rank that is behind. With $b$ ranks behind and $f$ up to date, nobody gives to more than $\lceil b/f \rceil$. Every rank must come to the same pairs, without
# another message.


# %% name="heal_mine"
def heal(weights, step):
    rank, p = dist.get_rank(), dist.get_world_size()
    steps = torch.zeros(p, dtype=torch.int64)
    dist.all_gather_single(steps, torch.tensor([step]))
    latest = int(steps.max())
    pairs = []  # your turn: (giver, taker) for each rank that is behind; share the work out among those that are not
    ops, arrived = [], torch.empty(weights.shape, dtype=weights.dtype)
    for giver, taker in pairs:
        if rank == giver:
            ops.append(dist.P2POp(dist.isend, weights.contiguous(), taker))
        if rank == taker:
            ops.append(dist.P2POp(dist.irecv, arrived, giver))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()
    if rank in [taker for _, taker in pairs]:
        weights.copy_(arrived)
    return latest


check(heal)

# %% [markdown] name="heal_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def heal(weights, step):
#     rank, p = dist.get_rank(), dist.get_world_size()
#     steps = torch.zeros(p, dtype=torch.int64)
#     dist.all_gather_single(steps, torch.tensor([step]))
#     latest = int(steps.max())
#     fresh = [r for r in range(p) if steps[r] == latest]
#     behind = [r for r in range(p) if steps[r] < latest]
#     pairs = [(fresh[i % len(fresh)], taker) for i, taker in enumerate(behind)]
#     ops, arrived = [], torch.empty(weights.shape, dtype=weights.dtype)
#     for giver, taker in pairs:
#         if rank == giver:
#             ops.append(dist.P2POp(dist.isend, weights.contiguous(), taker))
#         if rank == taker:
#             ops.append(dist.P2POp(dist.irecv, arrived, giver))
#     for work in dist.batch_isend_irecv(ops) if ops else []:
#         work.wait()
#     if rank in [taker for _, taker in pairs]:
#         weights.copy_(arrived)
#     return latest
# ```
# </details>

# %% [markdown] name="quiz"
# ## 6. Check yourself
#
# <details><summary>1. A job's first step takes four minutes. Which limit would end it, and how often?</summary>
#
# A limit for steps, each time it starts: the job would never train. So the first step has a limit of its own.
# </details>
#
# <details><summary>2. The loss after a restart is as before. Is the restart right?</summary>
#
# Not proved: with samples seen twice the loss may even be lower. Count samples, or compare one step bit for bit.
# </details>
#
# <details><summary>3. Why is a copy in the memory of the GPU beside it not enough?</summary>
#
# A node is taken out as a whole, with all its GPUs and its memory.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A hang costs the time until somebody notices, so limits are short, and each kind of step has its own. A restart is the same training only with weights, optimizer, place in the data and random state. A copy in a neighbour's memory loads fast; files stay for the case that both nodes are lost. There must be spares enough when many nodes are in repair at once. **Write down the five parts of your own interruptions, and shorten the longest.**
#
# **On your own cluster.** Kill one process by hand on a quiet day, and stop another with SIGSTOP. Measure each of the five parts. Start again on fewer ranks, and compare a step.
#
# **Next question:** the job goes on. What does it wait for? [Your own job](48_your_own_job.ipynb)
#
# **Sources.** Llama Team, *The Llama 3 herd of models*, [arXiv:2407.21783](https://arxiv.org/abs/2407.21783) ·
# Z. Wang et al., *GEMINI: fast failure recovery in distributed training with in-memory checkpoints*, [doi:10.1145/3600006.3613145](https://doi.org/10.1145/3600006.3613145) ·
# [torchft](https://github.com/meta-pytorch/torchft) ·
# [NVIDIA resiliency extension](https://github.com/NVIDIA/nvidia-resiliency-ext) ·
# [torchtitan](https://github.com/pytorch/torchtitan) ·
# [Megatron-LM](https://github.com/NVIDIA/Megatron-LM)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
shutil.rmtree(folder)
world.stop()

# %% name="done"
from allranks import done

done("55")
