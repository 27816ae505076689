"""A ring of puts: as few bytes, but 2(p-1) signals one after the other.

Must get: one after the other
"""


def two_shot_all_reduce(tensor, memory):
    rank, p, n = memory.rank, memory.ranks, tensor.numel()
    chunks = [c.clone() for c in tensor.reshape(-1).tensor_split(p)]
    right, left, room = (rank + 1) % p, (rank - 1) % p, -(-n // p)
    for step in range(2 * (p - 1)):
        out, into = (rank - step) % p, (rank - step - 1) % p
        place = step % 2 * room
        memory.put(right, place, chunks[out])
        memory.fence()
        memory.signal(right)
        memory.wait(left)
        came = memory.get(rank, place, chunks[into].numel())
        chunks[into] = chunks[into] + came if step < p - 1 else came
        memory.signal(left)
        memory.wait(right)
    at = 0
    flat = tensor.reshape(-1).clone()
    for chunk in chunks:
        flat[at : at + len(chunk)] = chunk
        at += len(chunk)
    tensor.copy_(flat.view(tensor.shape))
