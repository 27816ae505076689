def pipeline_order(rank, stages, micro_batches):
    """Forward while there is room for it, else backward."""
    order, begun, done = [], 0, 0
    while done < micro_batches:
        if begun < micro_batches and begun - done < stages - rank:
            order.append(f"F{begun}")
            begun += 1
        else:
            order.append(f"B{done}")
            done += 1
    return order
