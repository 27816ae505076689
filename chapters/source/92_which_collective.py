# %% [markdown] name="title"
# # Which collective?
#
# **Here are twenty situations from training. Which call solves each, with the fewest bytes?**
#
# 20 minutes · CPU ok, no ranks are started · after [All-to-all](11_all_to_all.ipynb), or any time with the [cheat sheet](91_cheatsheet.ipynb) beside it
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

drill = Drill(SITUATIONS)
drill

# %% [markdown] name="score_intro"
# The next cell lists the questions that you answered wrongly at the first try. *Again* above repeats only these.

# %% name="score"
print(f"{drill.right_at_once} of {len(drill.first_tries)} right at the first try")
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

# %% [markdown] name="recap"
# **One takeaway.** Ask what *each* rank must hold afterwards; this determines the call and the bytes. The formulas are on the
# [cheat sheet](91_cheatsheet.ipynb), their derivations in the chapters.
