from statistics import mean


def find_bad_cable(ways, rounds):
    over = {}
    for flows in rounds:
        load = [0] * (1 + max(cable for row in ways for way in row for cable in way))
        for src, dst, _ in flows:
            for cable in ways[src][dst]:
                load[cable] += 1
        for src, dst, seconds in flows:
            expected = max(load[cable] for cable in ways[src][dst])
            for cable in ways[src][dst]:
                over.setdefault(cable, []).append(seconds / expected)
    return max(over, key=lambda cable: mean(over[cable]))
