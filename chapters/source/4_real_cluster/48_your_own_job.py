# %% [markdown] name="title"
# # Your own job
#
# {{here}}
#
# **A training job is slower than it should be. You open rank 0's profile, and all-reduce fills most of it. Does the job need a faster network?**
#
# {{picture}}
#
# One rank's profile, drawn in time: computing, and all-reduce. The other ranks have profiles too.

# %% name="first_picture"
from allranks import explore

explore.late(delay=60, network=20)

# %% [markdown] name="first_question"
# **Ask the picture.** Rank 0's profile is all that you have. Make the network four times as fast: how much of the all-reduce is left? Then look at all ranks: what
# was it?

# %% [markdown] name="my_model_needs"
# **My model** runs on 64 GPUs with 38 GB each and 1.13 s a step, and on 1,024 GPUs with 0.12 s a step. These are prices. A real job takes
# longer, and its profile says why.

# %% name="start_world"
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

from allranks import RanksStuck, World, predict, predictions, profiles

world = World(backend="gloo")
world

# %% [markdown] name="record_intro"
# The ranks of this chapter use Gloo on any machine, so that you see what the text describes. Section 3 says what is different with NCCL.
#
# ## 1. Make a profile of every rank
#
# This is a small training job. One of the ranks reads its samples from a slow disk: it needs 50 ms more for each step. Which rank that is, we let
# chance decide, and nobody prints it: you will find it in the files.
#
# `profile` records what a process does: operations of torch with their times, and the collectives. `export_chrome_trace` writes it as JSON. **Each
# rank records itself and writes its own file**, so the files of a job belong in one folder.


# %% name="training"
def train(folder, late, steps=6):
    rank = dist.get_rank()
    model, x = torch.nn.Linear(256, 256), torch.randn(64, 256)
    with profile():  # the first start takes long, and not on all ranks alike
        pass
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        for _ in range(steps):
            with record_function("read samples"):
                time.sleep(0.05 if rank == late else 0.0)
            model(x).square().mean().backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
    recorded.export_chrome_trace(f"{folder}/profile_rank{rank}.json")


# %% name="record"
folder = Path(tempfile.mkdtemp())
late = int(torch.randint(world.ranks, ()))
world.run(train, folder, late)
for path in sorted(folder.iterdir()):
    print(f"{path.name}  {path.stat().st_size / 1e3:.0f} kB")

# %% [markdown] name="by_hand_intro"
# ## 2. Read one by hand
#
# A profile is a JSON object with a list of events. An event has a name, a start `ts` and a duration `dur`, both in microseconds. Gloo's collectives
# are called `gloo:all_reduce` and so on. These few lines find them, and sort them by start.


# %% name="by_hand"
def calls_of(path):
    events = json.loads(path.read_text())["traceEvents"]
    calls = [e for e in events if e.get("name") == "gloo:all_reduce" and e["ph"] == "X"]
    return sorted((e["ts"] / 1e3, e["dur"] / 1e3) for e in calls)


mine = calls_of(folder / "profile_rank0.json")
for start, took in mine[:6]:
    print(f"after {start - mine[0][0]:6.1f} ms: {took:6.1f} ms in all_reduce")

# %% [markdown] name="one_file_question"
# Here is the sum for rank 0, and the question of this chapter. Answer from what you have seen: rank 0's file.

# %% name="one_file"
whole = mine[-1][0] + mine[-1][1] - mine[0][0]
inside = sum(took for _, took in mine)
print(f"rank 0: {inside:.0f} of {whole:.0f} ms in all_reduce, {100 * inside / whole:.0f} %")

# %% name="guess_network"
guess_network = predict(
    "Suppose that you had rank 0's file only. What does it say about the network?",
    choices=["it is too slow", "it is fast enough", "nothing: it takes the other ranks' files"],
    title="What rank 0's file says about the network",
)
guess_network

# %% [markdown] name="all_files_intro"
# Now the other files. **The $k$-th call of one rank belongs to the $k$-th call of the others**, if all are calls of one group. So we compare their
# *starts*: who came last, and how long did the others wait until then? Each step has two calls, one right after the other: for the weight and for the bias.

# %% name="guess_last"
guess_last = predict(
    "One rank comes late to each step. Whose all-reduces take the least time in all?",
    choices=["the late rank's", "those of the ranks that wait", "all ranks' alike"],
    title="The least time in all-reduce has",
)
guess_last

# %% name="all_files"
calls = [calls_of(folder / f"profile_rank{rank}.json") for rank in range(world.ranks)]
came_last = [0] * world.ranks
for together in zip(*calls, strict=True):
    starts = [start for start, _ in together]
    came_last[starts.index(max(starts))] += 1
for rank, of_rank in enumerate(calls):
    inside = sum(took for _, took in of_rank)
    print(f"rank {rank}: {inside:6.0f} ms in all_reduce, came last {came_last[rank]:2} of {len(of_rank)} times")

# %% name="reveal_last" jupyter={"source_hidden": true}
# the answer: run this cell; its code is folded away because it holds the answer
guess_last.reveal(
    "the late rank's",
    why="It comes when all others are there, so it waits for nobody; the all-reduces of the others hold their waiting. (It comes last to the first call of each step. To the second all come at about the same time.)",
)

# %% name="reveal_network" jupyter={"source_hidden": true}
# the answer: run this cell; its code is folded away because it holds the answer
guess_network.reveal(
    "nothing: it takes the other ranks' files",
    why="A bar in the file holds both waiting and sending, and only the other ranks' starts tell them apart.",
)

# %% [markdown] name="by_hand_explained"
# The rank with the *shortest* all-reduces is the cause; all others wait for it.
#
# What did we assume? That all files have one clock (they do: one machine), that there is one group, and that no call is missing from a file. A real
# job has many machines and groups. This is what the tool is for.

# %% [markdown] name="apart_mine_task"
# ### Your turn
#
# Take one all-reduce apart. `calls` has the start and the end of it on each rank, in ms, on one clock. Return who came last, how long rank 0 waited for it, and how long the network took after that.


# %% name="apart_mine"
def taken_apart(calls):
    """(the last rank, ms that rank 0 waited for it, ms of moving)"""
    start, end = calls[0]
    return 0, 0.0, end - start  # your turn: this is what rank 0's file alone says


# %% name="judge_apart"
for last, waited, moving in ((2, 40.0, 3.0), (0, 0.0, 25.0), (3, 4.0, 4.0)):
    begin = [10.0, 9.0, 8.0, 7.0]  # nobody else comes after rank 0
    begin[last] = 10.0 + waited
    yours = taken_apart([(start, 10.0 + waited + moving) for start in begin])
    right = yours == (last, waited, moving)
    print(
        f"rank {last} last, {waited:g} ms waited, {moving:g} ms moved:",
        "right" if right else f"yours says {yours}",
    )

# %% [markdown] name="apart_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def taken_apart(calls):
#     starts = [start for start, _ in calls]
#     last = starts.index(max(starts))
#     return last, starts[last] - starts[0], max(end for _, end in calls) - starts[last]
# ```
# </details>

# %% [markdown] name="tool_intro"
# ## 3. The same with the tool
#
# `profiles.read` takes files or folders, finds out what each file is by looking into it, and says which rank wrote it. `profiles.explain` matches the ranks'
# calls by group and number, puts the clocks together, and names causes: with the evidence, with how sure it is, and with what it would gain.
# In a terminal it is `allranks explain FOLDER`.

# %% name="tool"
told = profiles.explain(profiles.read(folder))
told

# %% name="tool_words"
for cause in told.causes:
    print(cause.text())

# %% name="was_it"
print(f"the late rank was {late}")

# %% [markdown] name="nccl_names"
# ### On GPUs
#
# The profile above is of Gloo, on CPUs. Real NCCL profiles belong to the people who made them, so none comes with the course; but you read one with the same steps.
# Only the names change:
#
# - The calls are *kernels*: events with `"cat": "kernel"` and a name like `ncclDevKernel_AllReduce_Sum_f32_RING_LL`. They run on a stream of the GPU,
#   beside the kernels that compute. So one more question arises: **which part of them is not hidden behind computing?**
# - A kernel's `args` say what Gloo's events don't: `"Collective name"`, `"In msg nelems"` and `"dtype"` (so the bytes), `"Group size"`,
#   `"Process Group Name"` and `"Process Group Ranks"`. Old versions write only the kernel's name; then sizes and groups are unknown, and the tool says so.
# - `"nccl:all_reduce"` events are there too, on the CPU's threads. They show when a call was *queued*. Don't add them up.
#
# **A GPU that waits looks busy.** `nvidia-smi` counts the time in which *some* kernel runs, and an NCCL kernel runs while it waits for the last rank. So all GPUs of a job that hangs in an all-reduce show 100 %, and
# those of a job with one slow rank too: utilisation looks fine and scaling does not. Better signs are power, which is lower while kernels only wait, tensor-core activity (DCGM's `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE`), and MFU
# ([Memory and rooflines](../3_one_model/28_memory_and_rooflines.ipynb)). Nsight Systems draws the same kernels: `nsys profile --trace=cuda,nvtx python ...` on each rank; NCCL marks its calls with NVTX.
#
# To get your own, record a few steps in the middle of a run, on all ranks, and write one file for each:
#
# ```python
# from torch.profiler import profile, schedule
#
# with profile(schedule=schedule(wait=10, warmup=2, active=3, repeat=1), on_trace_ready=lambda p: p.export_chrome_trace(f"rank{rank}.json.gz")) as p:
#     for batch in loader:
#         train_step(batch)
#         p.step()
# ```
#
# (Without `repeat=1` the schedule begins again after 15 steps, and each round writes over the file of the last one.)

# %% [markdown] name="hang_intro"
# ## 4. When nothing moves any more
#
# A job that hangs writes no profile. But each rank's *flight recorder* has the last collectives in memory ([When it hangs](45_when_it_hangs.ipynb)), for Gloo too.
# With NCCL the watchdog writes them to a file when a call has waited too long. With Gloo nobody does, so here each rank starts a timer that does.
#
# The job: every step averages gradients and sends a flag from rank 0. Rank 1 finds no sample in step 2, and skips the step.


# %% name="dump"
def write_dump(folder):
    from torch._C._distributed_c10d import _dump_fr_trace_json

    (folder / f"dump_rank{dist.get_rank()}.json").write_bytes(_dump_fr_trace_json())


def skipping(folder):
    threading.Timer(1.0, write_dump, [folder]).start()
    for step in range(5):
        if step == 2 and dist.get_rank() == 1:
            continue
        dist.all_reduce(torch.ones(8))
        dist.broadcast(torch.ones(1), 0)
    dist.barrier()


# %% [markdown] name="hang_guess"
# The dump of a rank says which calls it made, and the number of each. As in [When it hangs](45_when_it_hangs.ipynb), a call of the
# others is matched with rank 1's *next* call: look for the place where the files show a difference.

# %% name="hang"
dumps = Path(tempfile.mkdtemp())
try:
    world.run(skipping, dumps, deadline=3)
except RanksStuck as stuck:
    print(str(stuck).splitlines()[0])
print(*sorted(path.name for path in dumps.iterdir()))

# %% [markdown] name="dump_by_hand_intro"
# By hand: the JSON has a list of `entries`. Each has the name of the call, the group (`process_group`), and `collective_seq_id`, the number of the call *in
# that group*. Match by these two, never by the place in the list: the recorder keeps only the last 2000 calls, so two files may begin at different
# calls. (The recorder counts the calls of our World, too, and the report above does not: so the numbers here are larger.)


# %% name="dump_by_hand"
def numbered(path):
    entries = json.loads(path.read_text())["entries"]
    return {(*e["process_group"], e["collective_seq_id"]): e["profiling_name"] for e in entries}


first, second = (numbered(dumps / f"dump_rank{rank}.json") for rank in (0, 1))
for call in sorted(first | second)[-6:]:
    print(call, first.get(call, "-"), second.get(call, "-"))

# %% [markdown] name="dump_tool_intro"
# The files agree until rank 1 has no calls left: its calls of step 3 have the numbers, names and sizes of the others' calls of step 2.
#
# Now the tool, with the same files. It prints what differs first, and what each side called there.

# %% name="dump_tool"
for cause in profiles.explain(profiles.read(dumps)).causes:
    print(cause.text())

# %% [markdown] name="dump_explained"
# So the first difference is the *latest* place of the mistake; the mistake is there or before it. In this job the others are in step 4 there, and the mistake is in step 2. What would have shown it
# earlier? Calls that differ from step to step, for example in their sizes; or a number of the step in the log.
#
# The JSON form does not have the source lines. The pickle (`_dump_fr_trace`, and the files of NCCL's watchdog) does, and with it the tool prints the line
# of each side. **Never open a stranger's pickle with `pickle.load`**: a pickle can run any program. The tool has its own reader, which makes plain
# data only and refuses everything else.

# %% [markdown] name="missing_intro"
# ### A file is missing
#
# Ranks that are killed write nothing. Neither does a rank that is already in `destroy_process_group`, or one whose machine is gone. Let us take
# rank 1's file away, as if one of these had happened.

# %% name="guess_missing"
guess_missing = predict(
    "Only rank 1's file is missing. Can the other files name the rank to look at?",
    choices=["no, rank 1's calls are unknown", "yes, rank 1"],
    title="Without the file of rank 1",
)
guess_missing

# %% name="missing"
(dumps / "dump_rank1.json").unlink(missing_ok=True)
job = profiles.read(dumps)
print("no file of rank", *job.missing)
for cause in profiles.explain(job).causes:
    print(cause.text())

# %% name="reveal_missing" jupyter={"source_hidden": true}
# the answer: run this cell; its code is folded away because it holds the answer
guess_missing.reveal(
    "yes, rank 1",
    why="The others know the size of their group, and that they wait: the rank that is absent from the files is the one to look at.",
)

# %% [markdown] name="missing_explained"
# **The missing file is a clue, not a gap in the data.** Look how that process ended: its exit code, the kernel's log, its machine.
#
# ## 5. The questions of a good reading
#
# 1. **Which files are there?** One of each rank, of the same steps? A missing one comes first.
# 2. **Stuck, or slow?** Stuck: go on with dumps. Slow: with profiles.
# 3. *Stuck:* in which group, and at which number, do the ranks first differ? Is a rank absent, or did it call something else? If all made the same call: look at the links and machines.
# 4. *Slow:* **who comes last**, how often, by how much? Compare starts. One rank, always: its data, its GPU, its node. A different rank each time: the work is uneven.
# 5. How long do the calls take **after the last rank has come**? This is the network's part. Compare bytes over time with what the link can do ([Topology](40_topology.ipynb)).
# 6. How many calls, and how large? Thousands of small ones pay $\alpha$ thousands of times ([Overlap and bucketing](../3_one_model/21_overlap_and_bucketing.ipynb)).
# 7. Which part is **not hidden** behind computing? Only this part makes the step longer.
# 8. What would the repair gain? If less than the variation from step to step, leave it.
#
# The order matters. Whoever asks question 5 before question 4 may buy a faster network, although one rank's disk is slow.

# %% [markdown] name="own_intro"
# ## 6. Your turn
#
# Put the names of your own files, or of a folder with them, into `mine`: profiles of torch, dumps of the flight recorder, the output of NCCL's Inspector or of
# `ncclras -f json`. They stay on this machine. If you have none yet, read the folder of section 1 again, and answer the eight questions from it.

# %% name="own"
mine = [folder]
profiles.explain(profiles.read(mine))

# %% [markdown] name="quiz"
# ## 7. Check yourself
#
# <details><summary>1. In a profile of 512 ranks, rank 77's all-reduces take 2 ms and all others' 40 ms. Which rank do you look at?</summary>
#
# At rank 77. It comes last each time, so it waits for nobody; the 38 ms of the others are waiting for it.
# </details>
#
# <details><summary>2. Two dumps have 2000 entries each. The third entry of one is an all-reduce, the third entry of the other a broadcast. Is that a mismatch?</summary>
#
# Not yet: each file has the *last* 2000 calls of its rank, of all groups. Compare entries of one group with the same number.
# </details>
#
# <details><summary>3. On a GPU, the sum of all <code>nccl:all_reduce</code> events on the CPU's threads is 3 ms a step. Is communication cheap?</summary>
#
# These events show how long the CPU needed to queue the calls. The kernels show how long they took.
# </details>
#
# <details><summary>4. Of 64 dumps, rank 9's is missing. All others wait in call 5012. The job's log shows nothing of rank 9. What do you do?</summary>
#
# Find out how process 9 ended, and on which machine. The other 63 files can't say more.
# </details>

# %% [markdown] name="recap"
# ## Recap
#
# A file of one rank mixes waiting and moving; the starts of all ranks take them apart, and the rank with the shortest calls is the slow one. Calls of
# different ranks belong together by group and number. In dumps, the first difference is the latest place of the mistake, and a missing file is a clue.
# **Ask which rank is late first, then how long the others wait for it, then what it would save.**
#
# **Now you:** [Lab 11](../../labs/lab11_your_own_job/your_own_job.ipynb) asks for your own `diagnose_job`: eight kinds of jobs, one function.
#
# **Next question:** the core ends here. What would this job cost on other machines? [Price a training run](../3_one_model/29_price_a_training_run.ipynb)
#
# {{side_trips}}
#
# **Sources.** [NVIDIA, NVML `nvmlUtilization_t`](https://docs.nvidia.com/deploy/nvml-api/structnvmlUtilization__t.html) ·
# [PyTorch, torch.profiler](https://docs.pytorch.org/docs/stable/profiler.html) ·
# [PyTorch, flight recorder](https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html) ·
# [NVIDIA, NCCL Inspector](https://github.com/NVIDIA/nccl/tree/master/plugins/profiler/inspector) and
# [RAS](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html)

# %% [markdown] name="my_model_now"
# ## My model
#
# All axes are open, and this is where my model stands: first on 64 GPUs, then on 1,024. The course's choices are pressed; press another one, and
# see what it costs. Your own model is under *Change the model or the machine*.

# %% name="my_model"
from allranks import my_model

my_model("your_own_job")

# %% name="my_model_on_1024"
my_model("your_own_job", ranks=1024, tp=4, bucket=1 << 30, zero_stage=1)

# %% name="what_you_knew"
predictions()

# %% name="stop_world"
for made in (folder, dumps):
    shutil.rmtree(made)
world.stop()

# %% name="done"
from allranks import done

done("48")
