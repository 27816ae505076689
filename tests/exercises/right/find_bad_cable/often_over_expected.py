"""Counts the flows that take longer than sharing explains, on each cable of their way."""

from collections import defaultdict


def find_bad_cable(ways, rounds):
    votes = defaultdict(int)
    best = min(s for flows in rounds for _, _, s in flows)
    for flows in rounds:
        load = defaultdict(int)
        for a, b, _ in flows:
            for c in ways[a][b]:
                load[c] += 1
        for a, b, s in flows:
            if s > 1.4 * best * max((load[c] for c in ways[a][b]), default=1):
                for c in ways[a][b]:
                    votes[c] += 1
    return max(votes, key=votes.get)
