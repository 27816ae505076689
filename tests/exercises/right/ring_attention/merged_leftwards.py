import torch
import torch.distributed as dist


class Online:
    def __init__(self, q, d):
        t = torch.float64 if q.dtype == torch.float64 else torch.float32
        self.q = q.to(t) / d**0.5
        self.top = torch.full((q.shape[0], 1), float("-inf"), dtype=t)
        self.den = torch.zeros(q.shape[0], 1, dtype=t)
        self.num = None

    def add(self, k, v, hidden):
        s = (self.q @ k.to(self.q.dtype).T).masked_fill(hidden, float("-inf"))
        top = torch.maximum(self.top, s.amax(1, keepdim=True))
        safe = torch.where(top.isinf(), torch.zeros_like(top), top)
        e, old = (s - safe).exp(), (self.top - safe).exp()
        self.den = self.den * old + e.sum(1, keepdim=True)
        fresh = e @ v.to(self.q.dtype)
        self.num = fresh if self.num is None else self.num * old + fresh
        self.top = top


def ring_attention(q, k, v, positions):
    r, p = dist.get_rank(), dist.get_world_size()
    kv = torch.stack([k, v]).contiguous() if k.shape == v.shape else None
    state = Online(q, q.shape[-1])
    block = [kv, positions.contiguous()]
    for step in range(p):
        works, box = [], None
        if step + 1 < p:
            box = [torch.empty_like(t) for t in block]
            works = dist.batch_isend_irecv(
                [dist.P2POp(dist.irecv, t, (r + 1) % p) for t in box]
                + [dist.P2POp(dist.isend, t, (r - 1) % p) for t in block]
            )
        state.add(block[0][0], block[0][1], block[1][None] > positions[:, None])
        for w in works:
            w.wait()
        block = box
    return (state.num / state.den).to(q.dtype)
