"""What communication costs: formulas, lower bounds, bandwidths, fits, NCCL's tuner, and whole training runs.

>>> from allranks import cost
>>> cost.price("all_reduce", "ring", ranks=8, nbytes=1000, alpha=100, beta=1)
Fraction(3150, 1)

In all of these, p is the number of ranks and n the bytes of the *full* vector: in all_gather and reduce_scatter of all
ranks' parts together, in all_to_all of all that one rank sends. Imports without torch; import `cost.workload` and
`cost.plan` by themselves.
"""

from allranks.theory.cost.bandwidth import algbw_gb_per_s, bus_factor, busbw_gb_per_s
from allranks.theory.cost.bounds import lower_bound, lower_bound_seconds
from allranks.theory.cost.fits import TEXTBOOK, Estimate, Fit, fit, student_t
from allranks.theory.cost.formulas import FORMULAS, Formula, best_segments, formula, price, terms, two_level
from allranks.theory.cost.nccl import NcclOption, nccl_choice, nccl_options
from allranks.theory.cost.nccl_machines import MACHINES, NcclMachine
from allranks.theory.cost.nccl_price import NcclPrice, nccl_price
from allranks.theory.cost.nccl_tests import Measured, read_measured, read_measured_file
from allranks.theory.cost.own_cluster import FittedSweep, OwnCluster, OwnPrice, fit_measured, fit_sweep
from allranks.theory.cost.serving import SERVED, Served, Serving, direct_all_reduce_s, serve
from allranks.theory.cost.skew import dropped_share, skewed_exchange_s
from allranks.theory.cost.terms import CostError, Terms
from allranks.theory.cost.torus import SLICES, SliceKind, TorusPrice, torus_price

__all__ = [
    "FORMULAS",
    "MACHINES",
    "SERVED",
    "SLICES",
    "TEXTBOOK",
    "CostError",
    "Estimate",
    "Fit",
    "FittedSweep",
    "Formula",
    "Measured",
    "NcclMachine",
    "NcclOption",
    "NcclPrice",
    "OwnCluster",
    "OwnPrice",
    "Served",
    "Serving",
    "SliceKind",
    "Terms",
    "TorusPrice",
    "algbw_gb_per_s",
    "best_segments",
    "bus_factor",
    "busbw_gb_per_s",
    "direct_all_reduce_s",
    "dropped_share",
    "fit",
    "fit_measured",
    "fit_sweep",
    "formula",
    "lower_bound",
    "lower_bound_seconds",
    "nccl_choice",
    "nccl_options",
    "nccl_price",
    "price",
    "read_measured",
    "read_measured_file",
    "serve",
    "skewed_exchange_s",
    "student_t",
    "terms",
    "torus_price",
    "two_level",
]
