import struct

import torch
import torch.distributed as dist


def key(v):
    return (1, 0) if v != v else (0, v)


def distributed_argmax(tensor):
    p = dist.get_world_size()
    values = tensor.reshape(-1).tolist()
    i = 0
    for j, v in enumerate(values):
        if key(v) > key(values[i]):
            i = j
    code = "<dq" if tensor.is_floating_point() else "<qq"
    note = torch.frombuffer(bytearray(struct.pack(code, values[i], i)), dtype=torch.uint8).clone()
    box = torch.empty(16 * p, dtype=torch.uint8)
    dist.all_gather_into_tensor(box, note)
    found = [struct.unpack(code, bytes(b.tolist())) for b in box.split(16)]
    r = max(range(p), key=lambda q: (key(found[q][0]), -q))
    return found[r][0], r, found[r][1]
