def zero_bubble_order(rank, stages, micro_batches):
    """1F1B's order of F and I first; then every W goes behind the I that comes `rank` micro-batches later."""
    ahead = min(stages - rank, micro_batches)
    turns = ["F"] * ahead + ["I", "F"] * (micro_batches - ahead) + ["I"] * ahead
    seen = {"F": 0, "I": 0}
    order = []
    for kind in turns:
        order.append(f"{kind}{seen[kind]}")
        seen[kind] += 1
        if kind == "I" and seen["I"] > rank:
            order.append(f"W{seen['I'] - 1 - rank}")
    made = sum(action[0] == "W" for action in order)
    return order + [f"W{i}" for i in range(made, micro_batches)]
