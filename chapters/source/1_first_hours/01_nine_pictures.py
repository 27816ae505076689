# %% [markdown] name="title"
# # Nine pictures
#
# {{here}}
#
# **Which moves between ranks are there? And in twenty situations from training, which one solves each with the fewest bytes?**
#
# Look at the pictures now. Answer what you can of the questions, and come back to them when you have read more.
#
# Three questions decide nearly every case. Which ranks have the data? Which ranks need them afterwards: one rank, all ranks, or each rank a part?
# Must the data be *added*, or only put together? The nine answers, each with its chapter (place is the rank, colour is whose numbers, stripes are a sum):
#
# {{moves}}

# %% [markdown] name="how"
# Choose an option, and you see the reason at once, also for a wrong choice: read it, then choose again. Only the first try counts. Often several
# options *work*; the right one moves the fewest bytes and lets no rank wait. Arrow keys move between the options, Tab leads to the buttons.

# %% name="drill"
from allranks import SITUATIONS, Drill

drill = Drill(SITUATIONS, name="situations")
drill

# %% [markdown] name="score_intro"
# The next cell lists the questions that you answered wrongly at the first try. *Again* above repeats only these.

# %% name="score"
print(f"{drill.right_at_once} of {len(drill.first_tries)} right at the first try, of {len(drill.questions)} questions")
for number in drill.wrong:
    question = drill.questions[number]
    print(f"- {question.text}\n  you said {drill.first_tries[number]}; it is {question.right[0]}")

# %% [markdown] name="own"
# ## Your own question
#
# A question is a sentence, a reason for every option, and the right one. Write one about your own code: if you can explain why the wrong options are
# wrong, you have understood the right one.

# %% name="own_question"
from allranks import Quiz

Quiz(
    "Every rank has a list of strings. Every rank needs the longest string of all.",
    {
        "all_gather_object of the lists": "It works, and pickles and sends every string to every rank.",
        "all_reduce of the lengths with MAX": "All know how long it is, and not how it reads.",
        "all_gather of the lengths, then a broadcast": "All see whose is longest, and one string is sent.",
    },
    right="all_gather of the lengths, then a broadcast",
)

# %% [markdown] name="strategies"
# ## Which calls does a strategy make?
#
# This table is for later, when you have met the strategies. Each row names the chapters that build one.
#
# <details><summary><b>The calls and the bytes of twelve strategies</b></summary>
#
# $n$ is the bytes of all gradients (or weights) of the model, $a$ those of one activation of a layer on a rank, $p$ the ranks of the group. Bytes are what a rank sends in a step of one micro-batch.
#
# | strategy | calls | bytes | chapter |
# |---|---|---|---|
# | data parallel (DDP) | `all_reduce` of gradients, a bucket at a time | $2\frac{p-1}{p}n$ | [20](../3_one_model/20_data_parallel.ipynb), [21](../3_one_model/21_overlap_and_bucketing.ipynb) |
# | parameter server | workers `send` gradients, the server `send`s weights | $n$ a worker, $(p-1)n$ the server | [20](../3_one_model/20_data_parallel.ipynb) |
# | ZeRO-1, ZeRO-2 | `reduce_scatter` of gradients, `all_gather` of weights | $2\frac{p-1}{p}n$ | [14](../2_collectives/14_reduce_scatter.ipynb), [22](../3_one_model/22_sharded_training.ipynb) |
# | ZeRO-3, FSDP | `all_gather` before a layer's forward and backward, `reduce_scatter` after it | $3\frac{p-1}{p}n$ | [22](../3_one_model/22_sharded_training.ipynb), [23](../3_one_model/23_fsdp_by_hand.ipynb) |
# | HSDP, $g$ ranks a node | FSDP inside the node, `all_reduce` of each shard between nodes | $3\frac{g-1}{g}n$ inside, about $\frac{2n}{g}$ between | [23](../3_one_model/23_fsdp_by_hand.ipynb) |
# | tensor parallel | `all_reduce`, two a layer forward, two backward | $4 \cdot 2\frac{p-1}{p}a$ a layer | [24](../3_one_model/24_tensor_parallel.ipynb) |
# | with sequence parallel | `all_gather` and `reduce_scatter` in place of each | the same | [24](../3_one_model/24_tensor_parallel.ipynb) |
# | pipeline | `send`, `recv` between neighbouring stages | $a$ each way a micro-batch | [25](../3_one_model/25_pipelines.ipynb) |
# | context parallel, ring | `send`, `recv` of keys and values, backward also of their gradients | $3p-2$ blocks a layer | [26](../3_one_model/26_context_parallel.ipynb) |
# | context parallel, Ulysses | `all_to_all`, four a layer forward, four backward | $2\frac{p-1}{p}$ of queries, keys, values, results | [26](../3_one_model/26_context_parallel.ipynb) |
# | experts | `all_to_all`, dispatch and combine, forward and backward | $\frac{p-1}{p}$ of $k$ copies of each token, each time | [15](../2_collectives/15_all_to_all.ipynb), [27](../3_one_model/27_mixture_of_experts.ipynb) |
# | local SGD, DiLoCo | `all_reduce` of weights, once in $H$ steps | $2\frac{p-1}{p}\frac{n}{H}$ | [60](../extras/60_send_less.ipynb) |
#
# </details>
#
# Take a paper's method apart in this way: **which tensor, from whom, to whom, how often**, and is it added?
#
# <details><summary><b>Try it.</b> A paper: each node keeps the weights in pieces, one on each of its 8 GPUs, and every node has all of them. Before a layer runs, its pieces are put together inside the
# node. After the backward pass, GPU i of every node needs the mean over all GPUs of piece i of the gradient. Which calls is that?</summary>
#
# An `all_gather` inside the node; a `reduce_scatter` inside the node, which leaves each GPU the node's sum of its piece; then an `all_reduce` of that piece between the nodes. It is HSDP. An `all_reduce` of
# the whole gradient over all GPUs works too, but it leaves every GPU eight times what it keeps, and more bytes cross the nodes.
# </details>

# %% [markdown] name="recap"
# **One takeaway.** Ask what *each* rank must hold afterwards; this determines the call and the bytes. The formulas are on the
# [cheat sheet](../extras/65_cheatsheet.ipynb), their derivations in the chapters.
#
# **Next question:** what does one message do, and how can two ranks wait for each other for ever? [Point to point](03_point_to_point.ipynb)

# %% name="done"
from allranks import done

done("01")
