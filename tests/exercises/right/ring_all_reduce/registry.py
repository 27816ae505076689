import torch
import torch.distributed as dist

PHASES = {}


def phase(shift):
    """Registers a phase of the ring: what it does with the chunk that came, and by how much it starts further on."""

    def keep(function):
        PHASES[function] = shift
        return function

    return keep


@phase(0)
def add(chunk, arrived):
    chunk += arrived


@phase(1)
def store(chunk, arrived):
    chunk.copy_(arrived)


def ring_all_reduce(tensor):
    rank, p = dist.get_rank(), dist.get_world_size()
    flat = tensor.flatten().clone()
    chunks = flat.tensor_split(p)
    for take, shift in PHASES.items():
        for step in range(p - 1):
            out, into = chunks[(rank + shift - step) % p], chunks[(rank + shift - step - 1) % p]
            arrived = torch.empty_like(into)
            sending = dist.isend(out, (rank + 1) % p)
            dist.recv(arrived, (rank - 1) % p)
            sending.wait()
            take(into, arrived)
    tensor.copy_(flat.view_as(tensor))
