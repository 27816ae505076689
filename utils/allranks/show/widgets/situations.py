"""The twenty situations of the drill in chapter 01: which call does it with the fewest bytes?"""

from __future__ import annotations

from allranks.show.widgets.drill import Question

# twenty situations from training; each asks for the call that does it with the fewest bytes. `Drill(SITUATIONS)` asks
# them all
SITUATIONS: tuple[Question, ...] = (
    Question(
        "64 ranks built the same model from different seeds. Before the first step all must hold rank 0's weights.",
        {
            "all_reduce": (
                "It would add 64 initialisations; even their mean is not what rank 0 had. And it moves about "
                "twice the bytes."
            ),
            "broadcast": "One rank has it, all need all of it. DDP does this when it is built (chapter 10).",
            "scatter": "It would give each rank a 64th of rank 0's weights.",
            "all_gather": "Every rank would receive all 64 versions, to throw 63 of them away.",
        },
        "broadcast",
    ),
    Question(
        "Each rank has the gradients of its share of the batch. Every rank updates all parameters, so each "
        "needs the mean of all gradients.",
        {
            "reduce": (
                "Only the root would have it; a broadcast would have to follow. That pair is an all-reduce, done badly."
            ),
            "all_gather": (
                "Every rank would hold p gradients and add them itself: (p-1)n bytes in instead of 2n(p-1)/p, and "
                "p times the memory."
            ),
            "reduce_scatter": (
                "Each rank would have the sum of its own part only. That is enough if each updates only its part, "
                "and here each updates all."
            ),
            "all_reduce": (
                "Each has a whole vector, they are added, all need the whole sum. This is DDP (chapters 04 and 20)."
            ),
        },
        "all_reduce",
    ),
    Question(
        "Tokens are on the rank that read them; experts live on different ranks. Each rank has some tokens "
        "for every expert.",
        {
            "all_to_all": (
                "Each rank has something else for each other rank, and nothing is added: the dispatch of a "
                "mixture of experts (chapter 15)."
            ),
            "scatter": (
                "A scatter has one root. Here every rank is one, so it would take p scatters, one after the other."
            ),
            "all_gather": "It works, but every rank receives all tokens, and uses only those that are for its expert.",
            "reduce_scatter": (
                "It sends the right parts to the right ranks, and then adds tokens that have nothing to do with "
                "each other."
            ),
        },
        "all_to_all",
    ),
    Question(
        "Rank 0 writes the mean loss into a log after each step. No other rank needs it.",
        {
            "all_reduce": (
                "It works, and for 4 bytes it takes no longer; with NCCL on many GPUs it is even faster (chapter 12). "
                "But all ranks get what one needs, with twice the bytes in all."
            ),
            "gather": (
                "Rank 0 would receive p losses and add them itself: more arrives at it, and the tree can't add on "
                "the way."
            ),
            "reduce": (
                "Each has a number, they are added, one rank needs the sum. What the others hold afterwards is "
                "undefined (chapter 12)."
            ),
            "broadcast": "That goes the other way: from rank 0 to all.",
        },
        "reduce",
    ),
    Question(
        "Each rank keeps the optimizer's state of 1/p of the parameters and updates only these. Each rank has "
        "gradients for all of them.",
        {
            "all_reduce": "It works at twice the bytes, and leaves every rank with sums that it never looks at.",
            "reduce_scatter": (
                "Each has a whole gradient, they are added, each needs its own part: ZeRO's first half (chapter 14)."
            ),
            "scatter": "Nothing would be added, and one rank would need all gradients first.",
            "reduce": (
                "One rank would get the whole sum. It would take p of them, a root for each part, which is what a "
                "reduce-scatter is in one call."
            ),
        },
        "reduce_scatter",
    ),
    Question(
        "Stage 2 of a pipeline has finished a micro-batch. Stage 3, one other rank, needs the activations.",
        {
            "broadcast": "All ranks of the group would have to call it, and all would receive what one needs.",
            "barrier": "It says that everybody has come, and carries nothing.",
            "send and recv": "One has it, one needs it. Nobody else takes part, or has to wait (chapter 03).",
            "all_gather": "Every stage would wait for every other, in each micro-batch: the end of the pipeline.",
        },
        "send and recv",
    ),
    Question(
        "Each rank has updated its 1/p of the parameters. The next forward pass needs all of them on every rank.",
        {
            "all_gather": (
                "Each has a piece, all need all pieces in rank order. ZeRO's second half, and FSDP before each "
                "layer (chapter 13)."
            ),
            "gather": "Only one rank would have all the parameters.",
            "all_reduce": "With zeros for the missing parts the sum would be right, at twice the bytes.",
            "broadcast": (
                "Each rank would have to broadcast its piece, p calls one after the other: an all-gather without "
                "its overlap."
            ),
        },
        "all_gather",
    ),
    Question(
        "If any rank saw a NaN in its loss, all ranks skip this step. No one knows beforehand which rank it will be.",
        {
            "broadcast": "From whom? The ranks would have to know first which of them saw it.",
            "gather": "Rank 0 would know and the others would not. They would step while it skips.",
            "all_reduce with MAX": "Each brings 0 or 1, and all learn the same answer. One number (chapter 04).",
            "barrier": "It carries no data. The ranks would have waited for each other and know as little as before.",
        },
        "all_reduce with MAX",
    ),
    Question(
        "Each epoch every rank needs its own share of a data set that lies on a file system which all of them "
        "can read.",
        {
            "scatter": (
                "Rank 0 would read everything and its one link would carry everything. The file system serves all "
                "ranks at once."
            ),
            "broadcast": "Everybody would receive everything, and throw most of it away.",
            "all_to_all": "It is for data that the ranks already hold, and hold in the wrong places.",
            "no collective": (
                "Each rank computes from rank, world size and seed which samples are its own, and reads them: "
                "DistributedSampler (chapters 11 and 20)."
            ),
        },
        "no collective",
    ),
    Question(
        "In tensor parallelism a column-split and then a row-split matrix leave each rank with a partial sum "
        "of the layer's output. Each rank needs the whole sum.",
        {
            "all_gather": "It puts partial sums side by side. They have to be added.",
            "reduce": "One rank could go on, the others could not.",
            "all_reduce": "Whole vectors, added, needed by all: one for each pair of matrices (chapter 24).",
            "all_to_all": "It moves parts and adds nothing.",
        },
        "all_reduce",
    ),
    Question(
        "63 actors have played a round, 10 MB each. One learner needs all of it, sample by sample.",
        {
            "reduce": "It would add the experiences of different games.",
            "all_gather": "Every actor would receive the 630 MB that only the learner needs.",
            "gather": "Each has a piece, one rank needs all of them side by side (chapter 11).",
            "all_reduce": "Nothing is to be added, and only one rank asked.",
        },
        "gather",
    ),
    Question(
        "Gradients are sharded: each rank holds 1/p of them. To clip, every rank needs the norm of the whole gradient.",
        {
            "all_gather of the gradients": "It works, and moves n(p-1)/p bytes to learn one number.",
            "reduce of the squared norms": (
                "Only one rank could clip, and then the ranks' parameters are scaled by different factors."
            ),
            "all_reduce of the norms": "Norms don't add up; their squares do.",
            "all_reduce of the squared norms": (
                "Send the summary, not the data: each adds up its own squares, one number is summed, each takes "
                "the root (chapter 18)."
            ),
        },
        "all_reduce of the squared norms",
    ),
    Question(
        "Rank 0 unpacks a data set onto a shared disk. The others must not open it before that is done.",
        {
            "sleep for a minute": "Right until the day when unpacking takes 61 seconds.",
            "gather": "A gather holds up its root at most; ranks that have sent may leave.",
            "reduce": "Those that have handed in their part may leave before rank 0 has even come.",
            "barrier": (
                "Rank 0 enters it after unpacking, the others before opening: nobody leaves before all have come "
                "(chapter 16). Mind the timeout."
            ),
        },
        "barrier",
    ),
    Question(
        "Experts have worked on the tokens that other ranks sent them. Each token must go back to the rank it "
        "came from, to its old place.",
        {
            "gather": "All would come home to one rank, which is nobody's home but its own.",
            "all_to_all": "The same exchange with the two lists of sizes swapped: the combine (chapter 15).",
            "all_gather": "Every rank would receive the results of all tokens, and pick its own.",
            "reduce_scatter": (
                "It adds over ranks. Right only if every rank held a vector for every token, zeros mostly; far "
                "more bytes."
            ),
        },
        "all_to_all",
    ),
    Question(
        "Rank 0 alone has evaluated the model. All ranks must stop training together if the score is good enough.",
        {
            "reduce": "It goes the other way: to one rank, not from it.",
            "each decides for itself": (
                "The others have no score. Ranks that leave a loop at different times leave the rest in a "
                "collective for ever (chapter 45)."
            ),
            "broadcast": "One rank has the decision, all need it. One number (chapter 10).",
            "barrier": "All arrive together and still nobody knows.",
        },
        "broadcast",
    ),
    Question(
        "A vocabulary is split over ranks: each sees a part of every row of logits. A stable softmax needs "
        "the largest logit of each row, on every rank.",
        {
            "all_reduce with MAX": "Each takes the largest of its part; one number a row is compared (chapter 18).",
            "all_gather of the logits": (
                "It works, and brings whole rows to every rank, which the splitting was to avoid."
            ),
            "all_reduce with SUM": "The sum of the parts' maxima is nobody's maximum.",
            "reduce with MAX": "Each rank exponentiates its own logits, so each needs the maximum.",
        },
        "all_reduce with MAX",
    ),
    Question(
        "Rank 0 has read an embedding table from a checkpoint that only it can see. Rank r keeps the r-th "
        "part of the rows.",
        {
            "broadcast": "Each would receive the whole table, p times what it keeps.",
            "all_gather": "It puts together what is spread; this is to be spread.",
            "all_to_all": "Only one rank has anything to give.",
            "scatter": "One rank has it, each needs its own part (chapter 11).",
        },
        "scatter",
    ),
    Question(
        "With sequence parallelism the partial sums of a layer's output are still to be added, but each rank "
        "goes on with its own part of the tokens.",
        {
            "all_reduce": (
                "It works at twice the bytes: each rank would hold sums for tokens that it does not go on with."
            ),
            "all_to_all": "The parts go to the right ranks; nobody adds them unless you do, from p buffers.",
            "scatter": "One root, and nothing is added.",
            "reduce_scatter": (
                "Whole vectors, added, each needs its part. An all-gather before the next matrix completes the "
                "pair (chapters 14 and 24)."
            ),
        },
        "reduce_scatter",
    ),
    Question(
        "A layer's weight is split by columns: each rank has computed some columns of the output. The next "
        "operation needs the whole output on every rank.",
        {
            "all_reduce": "These are different columns, not parts of one sum; adding them mixes them up.",
            "all_gather": (
                "Pieces side by side, for all. Mind the order: it joins along the first dimension (chapter 13)."
            ),
            "gather": "One rank would have the output, and all need it.",
            "reduce_scatter": "It adds, and then leaves each rank with even less than it had.",
        },
        "all_gather",
    ),
    Question(
        "Greedy decoding over a split vocabulary: every rank needs the index of the largest logit, whichever "
        "rank has it.",
        {
            "all_reduce of the values with MAX": (
                "All know how large it is and not where. A second collective would have to find out."
            ),
            "all_gather of (value, index) pairs": (
                "Two numbers a rank; then each picks the same winner, ties by the lower rank (chapter 18)."
            ),
            "all_gather of the logits": "It works, with the whole vocabulary on every rank for one index.",
            "reduce of the values with MAX": "One rank knows how large, nobody knows where.",
        },
        "all_gather of (value, index) pairs",
    ),
)
