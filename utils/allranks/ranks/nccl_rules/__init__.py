"""What NCCL and a GPU refuse, queue or leave undefined, as rules that hold on the CPU too.

`World(rules="nccl")` and `check(..., rules="nccl")` apply them: would this program run on the cluster?
"""

from allranks.ranks.nccl_rules.flight import Flight, Operation
from allranks.ranks.nccl_rules.placement import DEVICE, HOST, Placement
from allranks.ranks.nccl_rules.refusals import NcclRuleError, Rule

BACKEND = "nccl_rules"  # the name by which torch.distributed knows the group under these rules

__all__ = ["BACKEND", "DEVICE", "HOST", "Flight", "NcclRuleError", "Operation", "Placement", "Rule"]
