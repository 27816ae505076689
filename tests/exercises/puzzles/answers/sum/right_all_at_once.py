# right
def all_sum(x):
    p = world_size
    boxes = {other: zeros_like(x) for other in range(p) if other != rank}
    todo = [isend(x, other) for other in boxes] + [irecv(box, other) for other, box in boxes.items()]
    wait(todo)
    return x + sum(boxes.values())
