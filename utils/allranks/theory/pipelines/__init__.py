"""Pipelines: in which order each rank runs its micro-batches, whether that order is right, and what it costs in virtual time.

`orders` has the known schedules, `read` takes your own, `check` says what is wrong with them, `timeline` runs them, and
`picture` draws what it found. Imports without torch.
"""

from allranks.theory.pipelines.actions import Action, Orders, PipelineError, read
from allranks.theory.pipelines.checks import check
from allranks.theory.pipelines.clock import Timeline, timeline
from allranks.theory.pipelines.drawing import Picture, picture
from allranks.theory.pipelines.orders import SCHEDULES, order, orders

__all__ = [
    "SCHEDULES",
    "Action",
    "Orders",
    "Picture",
    "PipelineError",
    "Timeline",
    "check",
    "order",
    "orders",
    "picture",
    "read",
    "timeline",
]
