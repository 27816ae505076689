"""What communication costs: formulas, lower bounds, bandwidths, fits, NCCL's tuner, and whole training runs.

    from allranks import cost
    cost.price("all_reduce", "ring", ranks=8, nbytes=1 << 30, alpha=5e-6, beta=1 / 25e9)

Imports without torch. `cost.workload` and `cost.plan` are loaded when they are asked for.
"""

from allranks.cost.bandwidth import algbw_gb_per_s, bus_factor, busbw_gb_per_s
from allranks.cost.bounds import lower_bound
from allranks.cost.fits import TEXTBOOK, Estimate, Fit, fit, student_t
from allranks.cost.formulas import FORMULAS, Formula, best_segments, formula, price, terms, two_level
from allranks.cost.nccl import (
    NCCL_BASE_US,
    NCCL_HOP_US,
    NCCL_NVLINK_GB_PER_S,
    nccl_bandwidth_gb_per_s,
    nccl_choice,
    nccl_latency_us,
    nccl_time_us,
)
from allranks.cost.terms import CostError, Terms

__all__ = [
    "FORMULAS",
    "NCCL_BASE_US",
    "NCCL_HOP_US",
    "NCCL_NVLINK_GB_PER_S",
    "TEXTBOOK",
    "CostError",
    "Estimate",
    "Fit",
    "Formula",
    "Terms",
    "algbw_gb_per_s",
    "best_segments",
    "bus_factor",
    "busbw_gb_per_s",
    "fit",
    "formula",
    "lower_bound",
    "nccl_bandwidth_gb_per_s",
    "nccl_choice",
    "nccl_latency_us",
    "nccl_time_us",
    "price",
    "student_t",
    "terms",
    "two_level",
]
