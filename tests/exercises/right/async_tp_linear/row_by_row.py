import torch
import torch.distributed as dist


def async_tp_linear(x, multiply):
    """Multiplies single rows; the exchange of the next piece was started before."""
    rank, p = dist.get_rank(), dist.get_world_size()
    pieces, products = [x.contiguous()], {}
    while len(products) < p:
        step, flying = len(products), []
        if step < p - 1:
            pieces.append(torch.empty_like(pieces[0]))
            flying = [dist.irecv(pieces[-1], (rank + p - 1) % p), dist.isend(pieces[-2], (rank + 1) % p)]
        products[(rank + p - step) % p] = torch.cat([multiply(row[None]) for row in pieces[step]])
        for work in flying:
            work.wait()
    return torch.cat([products[owner] for owner in sorted(products)])
