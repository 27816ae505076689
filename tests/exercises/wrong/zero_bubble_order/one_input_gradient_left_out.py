"""An I is left out, its W is not.

Must get: lacks I
Must not get: before I
"""


def zero_bubble_order(rank, stages, micro_batches):
    p, m = stages, micro_batches
    warm = min(p - rank, m)
    order = [f"F{i}" for i in range(warm)]
    f, w = warm, 0
    for i in range(m):
        if i < m - 1:
            order.append(f"I{i}")
        if i >= rank:
            order.append(f"W{w}")
            w += 1
        if f < m:
            order.append(f"F{f}")
            f += 1
    order += [f"W{j}" for j in range(w, m)]
    return order
