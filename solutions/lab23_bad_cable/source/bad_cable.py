# %% [markdown] name="title"
# # Lab 23: the bad cable
#
# **All ports are up, all messages arrive, and a job takes twice as long. One cable of the network is slow, in one direction. Which one? You have nothing but how long messages took.**
#
# | you write | difficulty | minutes | points |
# |---|---|---|---|
# | `find_bad_cable` | medium | 40 | 6 |
# | one answer in words | medium | 15 | 2 |
#
# CPU ok; no GPU is used. The chapter *The network* has the ideas: leaf and spine switches, flows that a hash sends over the same uplink, and permutations.

# %% [markdown] name="rules"
# **Three rules that matter here**
#
# - `check` gives your function the same networks each time. The grading draws others, for each answer anew.
# - Each rank of a case is given a network of its own, and your function sends no messages.
# - The bad cable is 1.6 to 2.6 times as slow. A time may be up to 3 % too long, and one message in 25 is late (1.5 to 4 times) because a computer was busy.
#
# {{contract.md}}

# %% nbgrader={"grade_id": "imports", "locked": true}
import random

from allranks import World, check, topology

# %% [markdown] name="live"
# ## A network to try things in
#
# `World` starts one process, a *rank*, on each GPU if there are at least two GPUs; otherwise four ranks on the CPU. The networks are simulated: a cable divides its bandwidth equally among the flows on it, and a
# flow has the speed that its worst cable gives.

# %% name="start_world"
world = World()
world


# %% name="a_network"
card, nvlink = topology.Link("400 Gb/s", 5e-6, 50e9), topology.Link("NVLink", 2e-6, 371e9)
pods = topology.Topology("pods", 2, nvlink, card, nics_per_node=2, nodes_per_leaf=2)
healthy = topology.hashed_fabric(pods, 16, seed=1)
cables = list(topology.cable_names(healthy))
ways = [[[cables.index(c) for c in healthy.route(a, b) if c in cables] for b in range(16)] for a in range(16)]
sick = healthy.with_slow_link(2, cables[37])
rng, rounds = random.Random(1), []
for _ in range(40):
    flows = [(a, b) for a, b in enumerate(rng.sample(range(16), 16)) if ways[a][b]]
    rounds.append([(a, b, s) for (a, b), s in zip(flows, topology.flow_seconds(sick, flows, 10**9), strict=True)])
print(f"bad is cable 37, {topology.cable_names(healthy)[cables[37]]}; rank 0 to rank 9 uses cables {ways[0][9]}")

# %% [markdown] name="predict"
# Four flows share a healthy cable. How many times as long does each of them take as one alone? And how many times, if the cable is twice as slow?

# %% name="prediction"
prediction = (0, 0)


# %% name="four_flows"
four = [(a, b) for a, b in ((0, 4), (0, 5), (0, 6), (0, 7))]  # one card sends all four
alone = topology.flow_seconds(healthy, four[:1], 10**9)[0]
slow = healthy.with_slow_link(2, cables[ways[0][4][0]])
for fabric in (healthy, slow):
    print(f"the slowest takes {max(topology.flow_seconds(fabric, four, 10**9)) / alone:.1f} times as long")

# %% [markdown] name="task"
# ## Name the cable
#
# `find_bad_cable(ways, rounds)` returns the number of the cable that is bad.
#
# - Cables have numbers from 0. The two directions of a cable are two numbers, and only one of them is bad.
# - `ways[src][dst]` is the list of the cables on the way from one rank to another; it is empty within a node.
# - `rounds` is a list. A round is a list of messages that were sent at once, all of the same length: `(src, dst, seconds)`. In a round each rank sends at most one message and receives at most one.
# - A healthy cable may be shared by many flows in every round.


# %% nbgrader={"grade_id": "find_bad_cable", "solution": true}
def find_bad_cable(ways: list, rounds: list) -> int:
    """The number of the cable that is slow in one direction."""

    ### BEGIN SOLUTION
    most = {}
    for flows in rounds:
        sharing = {}
        for src, dst, _ in flows:
            for cable in ways[src][dst]:
                sharing[cable] = sharing.get(cable, 0) + 1
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                at_most = seconds / sharing[cable]  # a flow takes at least its cable's share
                most[cable] = min(most.get(cable, at_most), at_most)
    return max(most, key=most.get)
    ### END SOLUTION


# %% name="try_find_bad_cable"
# your function, on the network above: it should say 37
# print(find_bad_cable(ways, rounds))

# %% name="check_find_bad_cable"
check(find_bad_cable)

# %% [markdown] name="question"
# ## In words
#
# A job's all-reduce takes 10 ms after one start and 19 ms after the next, on the same nodes; within a run the time is steady. A colleague wants to replace cables. What else explains this, and which measurement would
# tell the two apart? Two to four sentences.

# %% [markdown] nbgrader={"grade_id": "cable_or_hash", "grade": true, "solution": true, "points": 2}
# Collisions: at each start the flows have other headers, so the hash may send two of them over one uplink, which halves both; it stays so for the whole run. A bad cable is slow in every run and for every pair whose way
# uses it. So send between pairs alone, one after the other, with nobody else on the network (or in many permutations, and count the flows on each cable): collisions disappear, a bad cable stays. (1 point for the
# hash, 1 for a measurement that tells the two apart.)

# %% [markdown] name="marking"
# ## Marking
#
# This cell gives the points: the exercise's points times the score that `check` gives. You can run it too.

# %% nbgrader={"grade_id": "find_bad_cable-graded", "grade": true, "locked": true, "points": 6} allranks={"exercise": "find_bad_cable"}
round(6 * check(find_bad_cable).score, 2)

# %% [markdown] name="recap"
# **A flow's time over the number of flows on a cable is the most that the cable can be slow; the bad one is the cable that no flow acquits.** On a cluster the ways are in the switches' tables, and the times come from a run of
# pairs that change partners.

# %% [markdown] name="hand_in"
# **Before you hand in:** save the notebook and run the last cell. It says whether the notebook would be taken as it is saved, and which answers are empty.

# %% name="stop_world"
from allranks import ready

world.stop()
ready()
