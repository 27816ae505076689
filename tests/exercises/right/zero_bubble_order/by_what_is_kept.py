def zero_bubble_order(rank, stages, micro_batches):
    """Forward while there is room, and one W for each F once the room is full."""
    order, begun, turned, done = [], 0, 0, 0
    while done < micro_batches:
        if begun < micro_batches and begun - done < stages and begun - turned < stages - rank:
            order.append(f"F{begun}")
            begun += 1
        elif turned < begun and turned - done < (rank + 1 if turned < micro_batches else micro_batches):
            order.append(f"I{turned}")
            turned += 1
        else:
            order.append(f"W{done}")
            done += 1
    return order
