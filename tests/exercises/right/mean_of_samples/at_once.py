import torch
import torch.distributed as dist


def mean_of_samples(samples):
    numbers = [samples.sum(), torch.tensor(float(samples.numel()), dtype=samples.dtype)]
    for work in [dist.all_reduce(number, async_op=True) for number in numbers]:
        work.wait()
    return numbers[0] / numbers[1]
