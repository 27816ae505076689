"""Who uses which GPU of this machine and who waits, in one reading: what `allranks gpus` prints and the hub's page shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from allranks.ranks.engines.devices import Gpu, Inventory, default_shares
from allranks.ranks.engines.gpu_use import UNKNOWN, use_of
from allranks.ranks.engines.leases import SLICE_S, Holder, LeaseError, Waiter, from_json, uses, waits
from allranks.ranks.engines.served_leases import ServedLedger, ledger_of

FORESEEN = 100  # places of the queue whose waiting time is estimated


def gpu_state() -> dict[str, Any]:
    """Everything that anybody may know about the GPUs of this machine, as JSON can say it. Times are seconds since the epoch.

    "gpus": each GPU that the course can use, with its "holder" (or None), its "sharers" and what is in use of it; "refused":
    sentences on the other GPUs. "waiting": the queue in its order, "wait_s" being the expected wait (None: unknown);
    "newcomer_s": the wait of one who would ask for one GPU now.
    "shares": the parts of a GPU that is shared. "slice_s": the time of a lease while others wait. "enforced": whether only
    holders can open GPUs; only then "unleased" names who has one open without a lease. "warnings": sentences.

    Raises CourseError if the GPUs, the folder of leases or the GPU service can't be asked.
    """
    inventory = Inventory.of_this_machine()
    gpus = inventory.gpus
    ledger = ledger_of(gpus)
    served = isinstance(ledger, ServedLedger)
    if isinstance(ledger, ServedLedger):
        state = _checked(ledger.state()) if gpus else {}
    else:
        state = {"holders": ledger.holders(), "sharers": ledger.sharers(), "waiting": ledger.waiting()}
        state["use"] = use_of(gpus)
    shares, slice_s = default_shares(), state.get("slice_s", SLICE_S)
    holders = {gpu.uuid: state["holders"].get(gpu.uuid) for gpu in gpus}
    sharers = {gpu.uuid: state["sharers"].get(gpu.uuid, []) for gpu in gpus}
    queue: list[Waiter] = state.get("waiting", [])
    wanted: list[tuple[int, int | None]] = [(w.gpus, w.shares) for w in queue[:FORESEEN]]
    *foreseen, newcomer_s = waits([*wanted, (1, None)], uses(holders, sharers, shares), slice_s)
    return {
        "gpus": [_row(gpu, holders[gpu.uuid], sharers[gpu.uuid], state) for gpu in gpus],
        "refused": list(inventory.refused),
        "waiting": [
            {**asdict(waiter), "wait_s": _tens(foreseen[place]) if place < FORESEEN and gpus else None}
            for place, waiter in enumerate(queue)
        ],
        "newcomer_s": _tens(newcomer_s) if gpus and len(queue) <= FORESEEN else None,
        "enforced": served,
        "shares": shares,
        "slice_s": slice_s,
        "unleased": state.get("unleased", []),
        "warnings": state.get("warnings", []),
    }


def _tens(seconds: float) -> int:
    """Seconds as an estimate may say them."""
    return 10 * round(seconds / 10)


def _row(gpu: Gpu, holder: Holder | None, sharers: list[Holder], state: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **asdict(gpu),
        "holder": asdict(holder) if holder else None,
        "sharers": [asdict(each) for each in sharers],
        "clearing": gpu.uuid in state.get("clearing", ()),
        **UNKNOWN,
        **state.get("use", {}).get(gpu.uuid, {}),
    }


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    """A service's state with its holders and waiters. Raises LeaseError for one that this version can't read."""
    try:
        return {
            **said,
            "holders": {uuid: from_json(each, Holder) if each else None for uuid, each in said["holders"].items()},
            "sharers": {uuid: [from_json(each, Holder) for each in those] for uuid, those in said["sharers"].items()},
            "waiting": [from_json(each, Waiter) for each in said["waiting"]],
            "slice_s": float(said.get("slice_s", SLICE_S)),
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LeaseError(
            "The GPU service answers in a way that this version can't read. Its administrator can restart it: "
            "systemctl restart allranks-gpus"
        ) from None
