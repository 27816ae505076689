import torch
import torch.distributed as dist


def diloco_round(parameters, anchor, momentum, lr, beta):
    """The outer step is torch.optim.SGD with nesterov=True, whose momentum is set by hand."""
    flat = torch.nn.utils.parameters_to_vector([(a - x).contiguous() for a, x in zip(anchor, parameters, strict=True)])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    outer = [torch.nn.Parameter(a.clone()) for a in anchor]
    for parameter, part in zip(outer, flat.split([a.numel() for a in anchor]), strict=True):
        parameter.grad = part.view(parameter.shape).clone()
    sgd = torch.optim.SGD(outer, lr=lr, momentum=beta, nesterov=beta > 0)
    for parameter, m in zip(outer, momentum, strict=True):
        sgd.state[parameter]["momentum_buffer"] = m.clone()
    with torch.no_grad():
        for parameter, m in zip(outer, momentum, strict=True):
            m.mul_(beta).add_(parameter.grad)
    sgd.step()
    for parameter, a, x in zip(outer, anchor, parameters, strict=True):
        a.copy_(parameter.detach())
        x.copy_(parameter.detach())
