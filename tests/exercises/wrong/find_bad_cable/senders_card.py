"""The card of the rank that sends most slowly.

Must get: the sender's card is only the first cable
"""

from statistics import mean


def find_bad_cable(ways, rounds):
    sent = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            sent.setdefault(ways[src][dst][0], []).append(seconds)
    return max(sent, key=lambda cable: mean(sent[cable]))
