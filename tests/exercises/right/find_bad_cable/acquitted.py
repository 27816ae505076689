def find_bad_cable(ways, rounds):
    # a flow acquits each cable whose share would have taken longer, were it bad
    alone = min(seconds for flows in rounds for _, _, seconds in flows)
    suspects = {cable for row in ways for way in row for cable in way}
    for flows in rounds:
        for src, dst, seconds in flows:
            for cable in ways[src][dst]:
                sharing = sum(cable in ways[a][b] for a, b, _ in flows)
                if seconds < 1.3 * alone * sharing:
                    suspects.discard(cable)
    (bad,) = suspects
    return bad
