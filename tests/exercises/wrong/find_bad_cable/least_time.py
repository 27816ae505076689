"""The cable on which no flow is ever quick: a crowded one is so too.

Must get: divide a flow's time by the number of flows
"""


def find_bad_cable(ways, rounds):
    least = {}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                least[cable] = min(least.get(cable, seconds), seconds)
    return max(least, key=least.get)
