import torch


def pipeline_order(rank, stages, micro_batches):
    """The numbers of the micro-batches run down on every rank, which is as good."""
    numbers = torch.arange(micro_batches).flip(0).tolist()
    forward, backward = iter(numbers), iter(numbers)
    order = [f"F{next(forward)}" for _ in range(min(stages - rank, micro_batches))]
    for i in backward:
        order.append(f"B{i}")
        order.extend(f"F{j}" for j in [next(forward, None)] if j is not None)
    return order
