def zero_bubble_order(rank, stages, micro_batches):
    """Warm-up as in 1F1B, then F and I in turn; the W of a micro-batch comes `rank` micro-batches later."""
    ahead = min(stages - 1 - rank, micro_batches)
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches):
        if ahead + i < micro_batches:
            order.append(f"F{ahead + i}")
        order.append(f"I{i}")
        if i >= rank:
            order.append(f"W{i - rank}")
    return order + [f"W{i}" for i in range(max(micro_batches - rank, 0), micro_batches)]
