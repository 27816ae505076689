# %% [markdown] name="title"
# # Price a training run
#
# {{here}}
#
# **65 billion parameters, 64 H100s with 80 GB each, 4 million tokens a step. Which ways to split the model fit into the memory, and
# which of those spends the least time on communication?**
#
# {{picture}}
#
# *Above:* what training keeps. *Below:* where it can be kept. A square is the memory of one GPU, to scale.

# %% name="first_picture"
from allranks import explore

explore.splits(model="LLaMA 65B", p=64, stage=0)

# %% [markdown] name="first_question"
# **Ask the picture.** Four of 16 splits fit if nothing is sharded: does a GPU need less with more GPUs? Which parts must ZeRO shard so that all 16 fit
# on 64 GPUs? And which model fits on 64 GPUs with replicas alone (TP 1, PP 1)?

# %% name="imports"
import itertools

from allranks import TrainingStep, my_model, plan, predict, predictions, topology, training_step, workload

# %% [markdown] name="guess_intro"
# Training keeps 16 bytes a parameter (section 2 says which). Section 3 has the answer to the question below; say first what you expect:

# %% name="question"
print(
    f"to keep: {16 * 65.2e9 / 1e9:,.0f} GB; there: {64 * 80:,} GB, and {80 / 16:.0f} billion parameters fit on one GPU"
)
first_guess = predict(
    "How many seconds of each step does the best of those splits lose to communication and waiting?",
    low=0.001,
    high=1000,
    unit="s",
    log=True,
    title="Seconds that the best split loses",
)
first_guess

# %% [markdown] name="known"
# ## 1. A price that you know already
#
# A step of data-parallel training all-reduces all gradients. In [All-reduce](../1_first_hours/04_all_reduce.ipynb) you found 135.6 ms for 7 billion of them, 32 ranks,
# and links of 200 GB/s without latency. `plan` prices the same: a model, a machine, and how the model is split over its ranks.

# %% name="known_price"
known = plan("7B", topology.uniform(0, 200e9), dp=32, bucket_nbytes=None).prices["data"]
print(f"{1e3 * known.seconds:.1f} ms in {known.calls} call; a rank sends {known.bytes_sent / 1e9:.2f} GB")

# %% [markdown] name="buckets"
# In practice nobody sends 14 GB in one call, because the first gradients would have to wait for the last. DDP collects them in buckets of about 25 MiB (it
# never splits one gradient; `plan` does), and real links take time for each message; assume 5 µs.

# %% name="buckets_price"
data = plan("7B", topology.uniform(5e-6, 200e9), dp=32, bucket_nbytes=25 << 20).prices["data"]
print(f"{1e3 * data.seconds:.1f} ms in {data.calls} calls")

# %% [markdown] name="buckets_explained"
# A ring of 32 ranks sends $2(p-1) = 62$ messages, one after the other, in each call: this takes 310 µs in addition to the 254 µs for 25 MiB. Which
# bucket size would you choose? Small buckets begin early and hide behind the backward pass; with large buckets you pay $\alpha$ less often.

# %% [markdown] name="memory"
# ## 2. What fits
#
# Adam in mixed precision keeps 16 bytes a parameter: 2 for the weight and 2 for its gradient in bfloat16, 12 for a float32 copy and two moments (Rajbhandari et al.,
# section 3.1). For 65.2 billion that is a terabyte. **ZeRO** divides it among data parallel ranks: stage 1 the 12 bytes, stage 2 the
# gradients too, stage 3 the weights too. (Count your own library's bytes: Megatron-LM sums the gradients of a bfloat16 model in float32 unless told otherwise, so there it is 18 bytes, and 6 + 12/dp with its distributed optimizer, a stage 1.)
#
# <!-- Megatron-LM d98e8a6 (2026-08-22): docs/user-guide/features/dist_optimizer.md (18, and 6 + 12/d); training/arguments.py:1204-1217 (bf16 sets accumulate_allreduce_grads_in_fp32, unless grad_reduce_in_bf16) -->

# %% [markdown] name="guess_sending_intro"
# You saw it: with 64 replicas (TP 1, PP 1) only stage 3 fits. The picture does not say what it sends.

# %% name="guess_sending"
guess_sending = predict(
    "64 replicas, 32 sequences each, one at a time: how many times as long as in stage 0 does a GPU send in stage 3?",
    low=0.1,
    high=100,
    log=True,
    title="Sending in stage 3, compared with stage 0",
)
guess_sending

# %% name="stages"
stages = [plan("LLaMA 65B", "dgx-h100", dp=64, zero_stage=stage, batch=2048) for stage in range(4)]
for split in stages:
    held = split.state_nbytes / 1e9
    print(f"stage {split.zero_stage}: {held:7.1f} GB a rank, {split.seconds:6.2f} s of sending a step")

# %% name="reveal_stages" jupyter={"source_hidden": true}
# the answer: run this cell
guess_sending.reveal(
    stages[3].seconds / stages[0].seconds,
    why="Stage 0 all-reduces once a step. Stage 3 gathers the weights twice and scatters the gradients for each sequence.",
)

# %% [markdown] name="stages_explained"
# Look at the price of stage 3. Here a replica processes its 32 sequences one at a time, and the shards are sent again for each of them: in stage 3 two gathers and a
# reduce-scatter of each of the 80 layers, 7680 calls of 1.6 GB; in stage 2 the reduce-scatters, 2560 calls. (Stages 0 and 1 take equally long: a bucket's
# reduce-scatter and all-gather send what its all-reduce sends. DeepSpeed still all-reduces in stages 1 and 2, unless told otherwise:
# `plan(..., all_reduce_gradients=True)` has its price.)
#
# With more sequences at a time (`microbatch`) there are fewer gathers, but more activations in memory.
#
# Or you can split the model itself. **Tensor parallel** (TP) ranks share each layer's matrices; they all-reduce activations four times a layer. **Pipeline
# parallel** (PP) ranks have whole layers, and send activations to the next stage. Both divide the 16 bytes.

# %% [markdown] name="state_mine_task"
# ### Your turn
#
# Write what a rank keeps. TP and PP divide everything; each stage of ZeRO divides more among the `dp` ranks that have the same part. The next cell compares with `plan`.


# %% name="state_mine"
def state_gb(parameters, dp, tp, pp, zero_stage):
    """GB that a rank keeps: 2 bytes a weight, 2 a gradient, 12 for Adam."""
    mine = parameters / (tp * pp)
    return (2 + 2 + 12) * mine / 1e9  # your turn: which of the three are divided by dp, in which stage?


# %% name="judge_state"
for dp, tp, pp, stage in ((64, 1, 1, 0), (64, 1, 1, 1), (16, 4, 1, 2), (8, 8, 1, 3), (4, 2, 8, 1)):
    right = plan("LLaMA 65B", "dgx-h100", dp=dp, tp=tp, pp=pp, zero_stage=stage, batch=2048).state_nbytes / 1e9
    yours = state_gb(65.2e9, dp, tp, pp, stage)
    says = "right" if abs(yours / right - 1) < 1e-3 else f"a rank keeps {right:.1f} GB"
    print(f"ZeRO {stage}, DP {dp:2}, TP {tp}, PP {pp}: yours {yours:7.1f} GB, {says}")

# %% [markdown] name="state_mine_answer"
# <details><summary><b>An answer</b></summary>
#
# ```python
# def state_gb(parameters, dp, tp, pp, zero_stage):
#     mine = parameters / (tp * pp)
#     adam = 12 * mine / (dp if zero_stage >= 1 else 1)
#     gradients = 2 * mine / (dp if zero_stage >= 2 else 1)
#     weights = 2 * mine / (dp if zero_stage >= 3 else 1)
#     return (weights + gradients + adam) / 1e9
# ```
# </details>

# %% [markdown] name="play"
# ## 3. The best split of 64 GPUs
#
# Find a split of 64 ranks (DP × TP × PP × CP = 64) that fits and loses the least. **Context parallel** (CP) ranks share each sequence: keys and
# values go round. The upper bar also has the activations, the lower one also the computing, behind which the communication of data parallelism can hide.

# %% name="your_split"
mine = my_model(model="LLaMA 65B", ranks=64, tokens=2048 * 2048, bucket=25 << 20)
mine

# %% [markdown] name="sweep_intro"
# When you are done, compare: `training_step` has the same figures in Python, so the next cell tries all splits. (`allranks plan` does so from the shell.)


# %% name="sweep"
def splits(machine, batch, ranks=64):
    """A step of every split into a ZeRO stage, TP, PP and CP that adds up."""
    ways = (1, 2, 4, 8)
    for stage, tp, pp, cp in itertools.product(range(4), ways, ways, ways[:3]):
        shape = {"dp": ranks // (tp * pp * cp), "tp": tp, "pp": pp, "cp": cp, "zero_stage": stage, "batch": batch}
        try:
            yield training_step(plan("LLaMA 65B", machine, **shape))
        except workload.WorkloadError:
            continue


def row(s: TrainingStep):
    p = s.plan
    shape = f"ZeRO {p.zero_stage} DP {p.dp:2} TP {p.tp} PP {p.pp} CP {p.cp}"
    return f"{shape}: {s.nbytes / 1e9:5.1f} GB {s.seconds:7.2f} s, of which {s.lost_s:6.2f} s lost, MFU {s.mfu:.1%}"


# %% name="best"
def fitting(machine, batch):
    """The splits that fit into 80 GB, the fastest first."""
    return sorted((s for s in splits(machine, batch) if s.nbytes <= 80e9), key=lambda s: s.seconds)


found = fitting("dgx-h100", 2048)
print(f"your split:\n  {row(mine.step)}\nof {len(found)} that fit:")
for s in (*found[:4], found[-1]):
    print(f"  {row(s)}")

# %% name="reveal_best" jupyter={"source_hidden": true}
# the answer: run this cell
first_guess.reveal(
    found[0].lost_s,
    why=f"Its ZeRO stage 3 sends for {found[0].plan.seconds:.1f} s and computes for {found[0].seconds - found[0].lost_s:.1f} s. If both run at the same time without any loss, only the first gather is seen. No machine does this so well.",
)

# %% [markdown] name="best_explained"
# The winner *sends* for nearly as long as it *computes*: ZeRO-3 gathers all weights twice for each of its 32 micro-batches. The price lets computing hide all of it but the first gather,
# if a layer's gather runs while the layer before is computed. **That is a best case, not a promise.** Two times that are nearly equal leave no room: a GPU that sends computes more slowly, and a little
# less bandwidth shows at once. [Against published steps](../../docs/validation.md) the same model foretold 0.60 to 0.62 of the measured time for the two runs that only shard (FSDP on H100s, of 500 W), and 0.74 to 1.11 for
# all others but one. So expect a step 1.6 times as long as the first line says.
#
# The others: pipelines send little, but *wait*: with $m$ micro-batches and $p$ stages, $\frac{p-1}{m}$
# of the computing time. In this price nothing hides tensor parallelism's all-reduces (Megatron-LM's `tp_comm_overlap` and torchtitan's async TP hide a part: `training_step(..., tensor_overlap=True)`).
#
# The next cell has the same 64 GPUs with a batch of 64 sequences, then nodes with one Ethernet card for eight GPUs.

# %% name="guess_other"
guess_other = predict(
    "Is ZeRO-3 still the best?",
    choices=["in both cases", "with 64 sequences only", "on Ethernet only", "in neither"],
    title="ZeRO-3 is still the best",
)
guess_other

# %% name="compute"
for machine, batch in (("dgx-h100", 2048), ("dgx-h100", 64), ("cloud-ethernet", 2048)):
    print(f"{machine:15} batch {batch:4}: {row(fitting(machine, batch)[0])}")

# %% name="reveal_other" jupyter={"source_hidden": true}
# the answer: run this cell
guess_other.reveal(
    "with 64 sequences only",
    why="With 64 sequences each replica still has one sequence to compute while it gathers; only slow links make the gathers longer than that.",
)

# %% [markdown] name="compute_explained"
# On Ethernet a pipeline with few replicas loses less. (Its GPUs are A100s, which compute three times as slowly: with faster ones a larger share would
# be lost.) **Try** it in the picture above: under *Change the model or the machine* are the machine and the tokens of a step.
#
# ## 4. Where the groups are
#
# TP ranks are neighbours, then come the data parallel ranks, and the stages are farthest apart, as in Megatron-LM. `plan` uses the slowest
# link of a group, and divides the network cards among the groups that need them. The next cell prices the same split, TP 8, on the four machines.

# %% name="guess_machine"
machines = ["dgx-a100", "dgx-h100", "gb200-nvl72", "cloud-ethernet"]
guess_machine = predict(
    "Tensor parallel over 8 ranks: on which machine is it most expensive?",
    choices=machines,
    title="TP is most expensive on",
)
guess_machine

# %% name="machines"
tensor_s = {}
for machine in machines:
    split = plan("LLaMA 65B", machine, dp=4, tp=8, pp=2, zero_stage=1, batch=2048)
    tensor_s[machine] = split.prices["tensor"].seconds
    print(f"{machine:16}", *(f"{kind} {price.seconds:8.3f} s  " for kind, price in split.prices.items()))

# %% name="reveal_machine" jupyter={"source_hidden": true}
# the answer: run this cell
guess_machine.reveal(
    max(tensor_s, key=tensor_s.get),
    why="In the cloud machine the eight GPUs sit in two PCIe islands, and part of the traffic crosses between these; elsewhere they share NVLink.",
)

# %% [markdown] name="machines_explained"
# With two PCIe islands and one Ethernet card for eight GPUs this split takes three minutes, while DP 4, PP 16 takes 11 s.
# With slower links the time depends more on the split.
#
# The bandwidths are NCCL's own figures and line rates, the latencies are teaching values. Fit your own with `allranks bench`, and put them into `topology.uniform`.

# %% [markdown] name="experts"
# ## 5. Experts
#
# Most of Mixtral's 47 billion parameters are in experts: each layer has eight, and a token uses two of them. With **expert parallel** (EP) 8 a rank
# holds one expert of each layer: tokens are sent (an all-to-all there, one back, and both again in the backward pass), weights are not. An expert has
# 8 times fewer replicas, so fewer ranks share its gradients. The next cell sends them in one call, so that nearly all of the time is for bytes.

# %% name="guess_experts"
guess_experts = predict(
    "EP 8 instead of 1: does a rank send more bytes or fewer, and does it take longer?",
    choices=["more, longer", "fewer, shorter", "fewer, and yet longer"],
    title="EP 8 sends",
)
guess_experts

# %% name="experts_price"
for ep in (1, 8):
    split = plan("Mixtral 8x7B", "dgx-h100", dp=32, ep=ep, zero_stage=1, batch=512, bucket_nbytes=None)
    for kind, price in split.prices.items():
        print(f"EP {ep}, {kind:6} parallel: {price.bytes_sent / 1e9:6.1f} GB, {price.seconds:.3f} s")
    print(
        f"EP {ep}, {split.state_nbytes / 1e9:.0f} GB a rank, in all {split.bytes_sent / 1e9:.1f} GB, {split.seconds:.3f} s\n"
    )

# %% name="reveal_experts" jupyter={"source_hidden": true}
# the answer: run this cell
guess_experts.reveal(
    "fewer, and yet longer",
    why="The replicas of an expert are now on different machines, one in each, and a rank there uses only one network card.",
)

# %% [markdown] name="experts_explained"
# So an eighth of the gradients takes most of the time that all of them took: before, eight ranks of one group used eight cards of 50 GB/s together. The advantage of EP is the memory.
#
# In buckets of 25 MiB it is the other way round: without EP, rings of 32 ranks then pay 1.1 s of $\alpha$ for 7126 calls, and EP 8 is faster. **Try** `bucket_nbytes=25 << 20`.
#
# ## 6. What the price leaves out
#
# - **Overlap.** The seconds of `plan` are without any overlap. `training_step` hides what data parallelism sends as well as possible, and nothing else.
# - **Kernels.** A product takes its time by its size, attention by a flash kernel. [How true that is](../../docs/validation.md): 78 % of 23 published steps lie within 25 %; the FSDP runs on H100s do not. That CUDA and NCCL take 4 GB is assumed.
# - **Activations** with attention recomputed, 34 bytes for each token and element of `hidden` ([Memory and rooflines](28_memory_and_rooflines.ipynb)). `training_step(..., recompute="full")` keeps 2 bytes of the 34, and computes a third more.
# - **Skew.** All experts get equally many tokens, links are equally fast, and the network has no other users.
#
# In a shell use `allranks price ddp --parameters 7e9 --ranks 32`; there are also `zero`, `tensor`, `pipeline` and `expert`.

# %% [markdown] name="recap"
# ## Recap
#
# The memory decides what you must split, the links decide how: tensor parallel inside a machine, pipelines and data parallel between machines,
# experts if it is cheaper to send tokens than weights. Sharding saves memory, but needs gathers for each micro-batch, which
# only long computing hides. **Price the split before you
# rent the machine, and add the error that the price is known to have.**
#
# **Next question:** a price needs to know which links are fast. Which are they on a real cluster, and which rank stands where? [Topology](../4_real_cluster/40_topology.ipynb)
#
# **Sources.** S. Rajbhandari et al., *ZeRO*, [arXiv:1910.02054](https://arxiv.org/abs/1910.02054) · V. Korthikanti et al., *Reducing activation recomputation*,
# [arXiv:2205.05198](https://arxiv.org/abs/2205.05198) · H. Liu et al., *Ring attention*, [arXiv:2310.01889](https://arxiv.org/abs/2310.01889) · M. Shoeybi et al., *Megatron-LM*,
# [arXiv:1909.08053](https://arxiv.org/abs/1909.08053) · J. Kaplan et al., *Scaling laws for neural language models*,
# [arXiv:2001.08361](https://arxiv.org/abs/2001.08361) · H. Touvron et al., *LLaMA*, [arXiv:2302.13971](https://arxiv.org/abs/2302.13971) (table 2) · A. Jiang et al.,
# *Mixtral of experts*, [arXiv:2401.04088](https://arxiv.org/abs/2401.04088) (table 1) · the machines: `allranks simulate --list`

# %% name="what_you_knew"
predictions()

# %% name="done"
from allranks import done

done("29")
