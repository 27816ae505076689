"""What NCCL and a GPU refuse, queue or leave undefined, as rules that hold on the CPU too.

`World(rules="nccl")` and `check(..., rules="nccl")` apply them: would this program run on the cluster?
"""

from allranks.nccl_rules.flight import Flight, Operation
from allranks.nccl_rules.placement import DEVICE, HOST, Placement
from allranks.nccl_rules.refusals import NcclRuleError, Rule

__all__ = ["DEVICE", "HOST", "Flight", "NcclRuleError", "Operation", "Placement", "Rule"]
