"""Numbers and scales as one row of bytes for each rank; the own chunk is not quantised in the first step."""

import torch
import torch.distributed as dist


def packed(rows):
    """Bytes: the scales of the rows, then their numbers, for each of the chunks; rows is (chunks, blocks, block)."""
    scales = (rows.abs().amax(2, keepdim=True) / 127).clamp(min=1e-30)
    numbers = (rows / scales).round().clamp(-127, 127).to(torch.int8)
    parts = [scales.contiguous().view(len(rows), -1).view(torch.uint8), numbers.view(len(rows), -1).view(torch.uint8)]
    return torch.cat(parts, dim=1)


def unpacked(data, blocks, block):
    scales = data[:, : 4 * blocks].contiguous().view(torch.float32).view(-1, blocks, 1)
    numbers = data[:, 4 * blocks :].contiguous().view(torch.int8).view(-1, blocks, block)
    return numbers.float() * scales


def quantised_all_reduce(tensor, block):
    rank, p, n = dist.get_rank(), dist.get_world_size(), tensor.numel()
    if n == 0:
        return tensor.clone()
    blocks = -(-n // (block * p))
    rows = torch.nn.functional.pad(tensor.reshape(-1).float(), (0, p * blocks * block - n)).view(p, blocks, block)
    sent = packed(rows)
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent)
    chunks = unpacked(came, blocks, block)
    chunks[rank] = rows[rank]
    mine = packed(chunks.sum(0, keepdim=True))
    gathered = [torch.empty_like(mine) for _ in range(p)]
    dist.all_gather(gathered, mine)
    return unpacked(torch.cat(gathered), blocks, block).reshape(-1)[:n].reshape(tensor.shape).to(tensor.dtype)
