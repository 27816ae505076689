"""The forward of one micro-batch is left out.

Must get: lacks F
Must not get: before F
"""


def zero_bubble_order(rank, stages, micro_batches):
    p, m = stages, micro_batches
    warm = min(p - rank, m)
    order = [f"F{i}" for i in range(warm)]
    f, w = warm, 0
    for i in range(m):
        order.append(f"I{i}")
        if i >= rank:
            order.append(f"W{w}")
            w += 1
        if f < m:
            order.append(f"F{f}")
            f += 1
    order += [f"W{j}" for j in range(w, m)]
    return [x for x in order if x != f"F{m - 1}"]
