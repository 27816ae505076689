def pipeline_order(rank, stages, micro_batches):
    ahead = stages - 1 - rank
    order = [f"F{i}" for i in range(ahead)]
    for i in range(micro_batches - ahead):
        order += [f"F{ahead + i}", f"B{i}"]
    return order + [f"B{i}" for i in range(micro_batches - ahead, micro_batches)]
