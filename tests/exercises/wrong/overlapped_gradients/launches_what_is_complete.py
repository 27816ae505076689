"""Launches each complete bucket at once.

Must get: before a bucket that stands in front of it
"""

import torch
import torch.distributed as dist


class Reducer:
    def __init__(self, parameters, cap):
        self.parameters, self.buckets, self.left, self.launched = parameters, [], [], []
        self.done = set()
        size = 0
        for i in range(len(parameters) - 1, -1, -1):
            n = parameters[i].numel() * parameters[i].element_size()
            if not self.buckets or size + n > cap:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(i)
            size += n
        self.missing = [set(b) for b in self.buckets]

    def ready(self, place):
        for m in self.missing:
            m.discard(place)
        for j, b in enumerate(self.buckets):
            if self.missing[j] or j in self.done:
                continue
            self.done.add(j)
            flat = torch.cat([self.parameters[i].grad.reshape(-1) for i in b])
            self.launched.append((b, flat, dist.all_reduce(flat, async_op=True)))

    def finish(self):
        p = dist.get_world_size()
        for b, flat, work in self.launched:
            work.wait()
            at = 0
            for i in b:
                g = self.parameters[i].grad
                g.copy_((flat[at : at + g.numel()] / p).view(g.shape))
                at += g.numel()


def overlapped_gradients(parameters, bucket_bytes, backward):
    reducer = Reducer(parameters, bucket_bytes)
    backward(reducer.ready)
    reducer.finish()
