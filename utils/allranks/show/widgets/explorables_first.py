"""The pictures with which chapters begin: each asks the chapter's question, and has handles to drag in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allranks.base.errors import CourseError, counted, size_in_words
from allranks.show.widgets.explorable import Explorable
from allranks.show.widgets.first_figures import (
    OWNERS,
    critical_path,
    flag_bytes,
    fsdp_step,
    kept_in_time,
    losses,
    lost_shares,
    padded_gather_s,
    ring_work,
    room,
    step_bytes,
    summed,
    wished,
    written,
)
from allranks.show.widgets.my_model_story import digits, duration, percent
from allranks.theory import cost, pipelines, topology
from allranks.theory.cost import rooflines

_LAYERS = 12
_AFTER = {"nothing": "8 words", "flag": "8 words, a flag", "fence": "8 words, a fence, a flag"}
_SIZES = [1 << power for power in range(8, 31)]
_WAYS = {"one ring": "One ring", "8 segments": "One ring in 8 segments", "two levels": "Two levels"}
_GATHERS = [3 << power for power in range(11, 26)]  # bytes that 48 chunks divide
_NODES = {"8 H100": 1, "2 x 8 H100": 2}
_GPUS = (2, 3, 4, 6, 8)
_LIBRARIES = ("NCCL", "Gloo", "MPI")
_ORDER_NAMES = {
    "gpipe": "all forward first",
    "1f1b": "1F1B",
    "interleaved": "interleaved, 2 each",
    "zb-h1": "zero bubble",
}


class ExploreError(CourseError):
    """A picture that can't be: figures outside of what it can show."""


def attention(owner: str = "in order", step: int = 2) -> Explorable:
    """Causal attention on a ring of four ranks, step by step: who has nothing to do, by who owns which tokens.

    `owner` is "in order" or "zigzag", `step` 1 to 4. Raises ExploreError for others.

    Example:
        >>> explore.attention().text()
        'Tokens in order: a GPU waits 43 % of the time. In step 2 rank 0 has nothing to do.'
    """
    if owner not in OWNERS or step not in range(1, 5):
        raise ExploreError(f"owner must be one of {', '.join(OWNERS)} and step 1 to 4, not {owner!r} and {step!r}.")
    return Explorable("attention", {}, {"owner": owner, "step": step}, _attention_text)


def _attention_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    steps = ring_work(values["owner"])
    waits = 1 - sum(map(sum, steps)) / (4 * sum(map(max, steps)))
    idle = [str(rank) for rank, work in enumerate(steps[values["step"] - 1]) if not work]
    who = "every rank has work"
    if idle:
        ranks = f"ranks {', '.join(idle[:-1])} and {idle[-1]} have" if len(idle) > 1 else f"rank {idle[0]} has"
        who = f"{ranks} nothing to do"
    return f"Tokens {values['owner']}: a GPU waits {percent(waits)} of the time. In step {values['step']} {who}."


def pipeline(
    ranks: int = 4, micro_batches: int = 8, order: str = "1f1b", orders: Sequence[str] = tuple(_ORDER_NAMES)
) -> Explorable:
    """A pipeline's run, a row a GPU: how long the GPUs wait, by their number, the micro-batches and the order.

    Backward takes twice as long as forward. The figures are those of `pipelines.timeline`. `order` is gpipe, 1f1b,
    interleaved or zb-h1, `orders` are those among which the reader can choose. Raises PipelineError for what an order
    does not allow, ExploreError for what is not shown.

    Example:
        >>> explore.pipeline(ranks=4, micro_batches=8).text()[:62]
        '4 GPUs, 8 micro-batches, 1F1B: a GPU waits 27 % of the time. T'
    """
    for name in (*orders, order):
        if name not in _ORDER_NAMES:
            raise ExploreError(f"order must be one of {', '.join(_ORDER_NAMES)}, not {name!r}.")
    if order not in orders:
        raise ExploreError(f"the orders to choose among must have {order!r}, with which the picture begins.")
    if ranks not in _GPUS or micro_batches not in range(1, 13):
        raise ExploreError(
            f"ranks must be 2, 3, 4, 6 or 8 and micro_batches 1 to 12, not {ranks!r}, {micro_batches!r}."
        )
    pipelines.orders(order, ranks, micro_batches)
    return Explorable(
        "pipeline", {"orders": list(orders)}, {"p": ranks, "m": micro_batches, "order": order}, _pipeline_text
    )


def _pipeline_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, m, order = values["p"], values["m"], values["order"]
    run = pipelines.timeline(pipelines.orders(order, p, m))
    return (
        f"{p} GPUs, {m} micro-batches, {_ORDER_NAMES[order]}: a GPU waits {percent(run.idle_share())} of the time. "
        f"The step takes {run.makespan:g} forward passes; GPU 0 keeps at most {run.kept(0):g} micro-batches."
    )


def router(uneven: float = 1.0, capacity: float = 1.25) -> Explorable:
    """A router's choices against the room of 16 experts: what is dropped, what room stays empty.

    `uneven` from 0 (all experts are as popular) to 4, `capacity` times the mean, from 0.25 to 4. Raises ExploreError.

    Example:
        >>> explore.router(uneven=0.0, capacity=1.25).text()[:79]
        'Room for 160 choices an expert, 1.25 times the mean: 0 % of the choices are dro'
    """
    if not (0 <= uneven <= 4 and 0.25 <= capacity <= 4):
        raise ExploreError(f"uneven must be 0 to 4 and capacity 0.25 to 4, not {uneven!r} and {capacity!r}.")
    return Explorable("router", {}, {"uneven": uneven, "capacity": capacity}, _router_text)


def _router_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    most, dropped, empty = room(values["uneven"], values["capacity"])
    return (
        f"Room for {most} choices an expert, {values['capacity']:g} times the mean: {percent(dropped)} of the choices "
        f"are dropped, {percent(empty)} of the room is empty."
    )


def fsdp(gather: float = 1.0, room: int = 1) -> Explorable:
    """A step of FSDP over six blocks: how long the GPU waits, by the room for whole blocks and the length of a gather.

    A forward pass takes 1, a backward pass 2, a gather and a scatter of gradients `gather`: 0.25 to 2. `room` is how
    many blocks may be whole at once, 1 to 6. Raises ExploreError.

    Example:
        >>> explore.fsdp(gather=1, room=1).text()
        'Room for 1 whole block, a gather takes 1 times a forward pass: the GPU waits 49 % of the step.'
    """
    if not 0.25 <= gather <= 2 or room not in range(1, 7):
        raise ExploreError(f"gather must be 0.25 to 2 and room 1 to 6, not {gather!r} and {room!r}.")
    return Explorable("fsdp", {}, {"gather": gather, "room": room}, _fsdp_text)


def _fsdp_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    waits = fsdp_step(values["gather"], values["room"])["waits"]
    return (
        f"Room for {values['room']} whole block{'s' if values['room'] > 1 else ''}, a gather takes "
        f"{values['gather']:g} times a forward pass: the GPU waits {percent(waits)} of the step."
    )


def recompute(count: int = 0, what: str = "full") -> Explorable:
    """What 12 layers of GPT-3 keep on one of 8 tensor parallel GPUs in a step, if `count` of them are computed again.

    `what` of them is "full" or "selective" (attention only). The bytes and operations are those of `rooflines`. Raises
    ExploreError.

    Example:
        >>> explore.recompute(count=12, what="selective").text()[:60]
        'With the attention of 12 of 12 layers computed again the GPU'
    """
    if what not in ("full", "selective") or count not in range(_LAYERS + 1):
        raise ExploreError(f"what must be full or selective and count 0 to {_LAYERS}, not {what!r} and {count!r}.")
    return Explorable("recompute", recompute_data(), {"count": count, "what": what}, _recompute_text)


def recompute_data() -> dict[str, Any]:
    """Bytes that a layer keeps whole, and if it is computed again; what that takes, in forward passes."""
    hidden, sequence = 12_288, 2048
    shape: dict[str, Any] = {
        "tokens": sequence,
        "hidden": hidden,
        "heads": 96,
        "sequence": sequence,
        "tp": 8,
        "sequence_parallel": True,
    }
    work = (rooflines.gpt_parameters(1, hidden), sequence, 1, hidden, sequence)
    once = rooflines.recomputed_flop("full", *work)
    return {
        "layers": _LAYERS,
        "whole": rooflines.layer_activation_nbytes(**shape),
        "kept": {way: rooflines.layer_activation_nbytes(**shape, recompute=way) for way in ("full", "selective")},
        "again": {way: rooflines.recomputed_flop(way, *work) / once for way in ("full", "selective")},
    }


def _recompute_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    count, what = values["count"], values["what"]
    most, work = kept_in_time(data, what, count)
    more = 100 * (work / kept_in_time(data, what, 0)[1] - 1)
    return (
        f"With {'' if what == 'full' else 'the attention of '}{count} of {data['layers']} layers computed again the "
        f"GPU keeps at most {most / 1e9:.2f} GB, and a step is {more:.1f} % more work."
    )


def interval(minutes: float = 5, cost: float = 60, mtbf_s: float = 54 * 86_400 / 419) -> Explorable:
    """The share of a job's time that is lost with a checkpoint of `cost` seconds every so many minutes.

    A failure comes every `mtbf_s` seconds on average. `minutes` 2 to 120, `cost` 10, 60 or 300. Raises ExploreError.

    Example:
        >>> explore.interval(minutes=19, cost=60).text()
        'A checkpoint of 60 s every 19 minutes: 10 % of the time is lost, 4.7 % saving and 5.3 % done again.'
    """
    if not 2 <= minutes <= 120 or cost not in (10, 60, 300) or mtbf_s <= 0:
        raise ExploreError(f"minutes must be 2 to 120 and cost 10, 60 or 300 s, not {minutes!r} and {cost!r}.")
    return Explorable("interval", {"mtbf": mtbf_s}, {"minutes": minutes, "cost": cost}, _interval_text)


def _interval_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    minutes, cost = values["minutes"], values["cost"]
    saving, again = lost_shares(60 * minutes, cost, data["mtbf"])
    return (
        f"A checkpoint of {cost:g} s every {minutes:g} minutes: {percent(saving + again)} of the time is lost, "
        f"{percent(saving)} saving and {percent(again)} done again."
    )


_RECOVERY = {
    "notice": "notice the hang",
    "find": "find a node",
    "start": "start again",
    "load": "load the state",
    "repeat": "repeat lost steps",
}


def recover(
    notice: float = 10, find: float = 2, start: float = 3, load: float = 2, repeat: float = 5, hours: float = 3.09
) -> Explorable:
    """The five parts of an interruption, in minutes: how long until the job trains again, and what share that is.

    `notice` is 0.1 to 30 and the others 0.1 to 10. A hang comes every 3.09, 24 or 168 hours. Raises ExploreError.

    Example:
        >>> explore.recover().text()
        '22 minutes until it trains again, 12 % of all time. The longest part: notice the hang.'
    """
    parts = {"notice": notice, "find": find, "start": start, "load": load, "repeat": repeat}
    possible = all(0.1 <= minutes <= (30 if part == "notice" else 10) for part, minutes in parts.items())
    if not possible or hours not in (3.09, 24, 168):
        raise ExploreError(
            f"notice must be 0.1 to 30 minutes, the other parts 0.1 to 10, hours 3.09, 24 or 168, "
            f"not {parts!r} and {hours!r}."
        )
    return Explorable("recover", {}, {**parts, "hours": hours}, _recover_text)


def _recover_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    minutes = {part: values[part] for part in _RECOVERY}
    total = sum(minutes.values())
    longest = _RECOVERY[max(minutes, key=minutes.__getitem__)]
    return (
        f"{digits(total)} minutes until it trains again, {percent(total / (60 * values['hours']))} of all time. "
        f"The longest part: {longest}."
    )


def bits(p: int = 128, order: str = "ring", type: str = "bfloat16") -> Explorable:
    """The sum of the numbers of `p` ranks after each addition, if it is rounded each time.

    `p` from 2 to 1024, `order` is ring or tree, `type` bfloat16 or float32. Raises ExploreError.

    Example:
        >>> explore.bits(p=1024).text()[:58]
        '1024 numbers added in bfloat16 in a ring: 256.0 instead of'
    """
    if p not in range(2, 1025) or order not in ("ring", "tree") or type not in ("bfloat16", "float32"):
        raise ExploreError(
            f"p must be 2 to 1024, order ring or tree, type bfloat16 or float32, not {p!r}, {order!r}, {type!r}."
        )
    return Explorable("bits", {}, {"p": p, "order": order, "type": type}, _bits_text)


def _bits_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, kind, order = values["p"], values["type"], values["order"]
    exact, result = summed(p, kind, order)
    shown, right = (f"{value:.{2 if value < 100 else 1}f}" for value in (result, exact))
    off = percent(abs(result / exact - 1))
    return f"{p} numbers added in {kind} in a {order}: {shown} instead of {right}, {off} off."


def compress(k: int = 32, rest: str = "forgotten") -> Explorable:
    """Loss against bytes, if each of four ranks sends only the `k` largest of its 64 numbers in each step.

    `rest`, what a rank did not send, is "forgotten" or "kept" for its next step. Raises ExploreError.

    Example:
        >>> explore.compress(k=4, rest="kept").text()[:58]
        'Each rank sends 4 of 64 numbers, the rest is kept: the los'
    """
    if k not in range(1, 65) or rest not in ("forgotten", "kept"):
        raise ExploreError(f"k must be 1 to 64 and rest forgotten or kept, not {k!r} and {rest!r}.")
    return Explorable("compress", {}, {"k": k, "rest": rest}, _compress_text)


def _compress_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    k, rest = values["k"], values["rest"]
    loss = losses(k, rest == "kept")[-1]
    said = f"{loss:.{0 if loss >= 9.95 else 1 if loss >= 0.0995 else 3}f}"
    return (
        f"Each rank sends {k} of 64 numbers, the rest is {rest}: the loss is {said} after 200 steps, "
        f"with {percent(step_bytes(k) / step_bytes(64))} of the bytes."
    )


def protocols(nbytes: int = 1 << 14, machine: str = "8 H100") -> Explorable:
    """A ring all-reduce with each of NCCL's protocols: what is latency, data and flags, by the size of the vector.

    The times are those of `cost.nccl_options`. `nbytes` is a power of two from 2^8 to 2^30, `machine` "8 H100" or
    "2 x 8 H100". Raises ExploreError.

    Example:
        >>> explore.protocols(nbytes=1 << 10).text()
        '1 KiB on 8 H100: LL is the fastest with 15.0 µs; Simple takes 56.0 µs.'
    """
    if nbytes not in _SIZES or machine not in _NODES:
        raise ExploreError(f"nbytes must be a power of two from 256 to 2^30, machine one of {', '.join(_NODES)}.")
    machines = {name: [_protocol_prices(size, nodes) for size in _SIZES] for name, nodes in _NODES.items()}
    data = {"sizes": _SIZES, "machines": machines}
    return Explorable("protocols", data, {"nbytes": nbytes, "machine": machine}, _protocols_text)


def _protocol_prices(nbytes: int, nodes: int) -> dict[str, dict[str, float]]:
    options = cost.nccl_options("all_reduce", nbytes, "dgx-h100", nodes=nodes)
    return {o.protocol: {"us": o.us, "latency": o.latency_us} for o in options if o.algorithm == "ring"}


def _protocols_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    nbytes, machine = values["nbytes"], values["machine"]
    prices = data["machines"][machine][data["sizes"].index(nbytes)]
    ranked = sorted(("LL", "LL128", "Simple"), key=lambda name: prices[name]["us"])
    first, last = (
        f"{prices[name]['us']:,.{1 if prices[name]['us'] < 100 else 0}f}" for name in (ranked[0], ranked[-1])
    )
    size = size_in_words(nbytes)
    return f"{size} on {machine}: {ranked[0]} is the fastest with {first} µs; {ranked[-1]} takes {last} µs."


def late(delay: int = 60, network: int = 20, shown: str = "rank 0") -> Explorable:
    """What rank 0's profile shows if another rank comes `delay` ms late to each all-reduce of `network` ms.

    `shown` is "rank 0" or "all ranks". Computing takes 40 ms a step. `delay` is 0 to 80, `network` 5 to 60. Raises
    ExploreError.

    Example:
        >>> explore.late(delay=60, network=20).text()[:66]
        'A step takes 120 ms; rank 0 is in all-reduce for 67 % of the time.'
    """
    if shown not in ("rank 0", "all ranks") or not (0 <= delay <= 80 and 5 <= network <= 60):
        raise ExploreError(
            f"delay must be 0 to 80 ms, network 5 to 60 ms, shown rank 0 or all ranks, "
            f"not {delay!r}, {network!r} and {shown!r}."
        )
    values = {"delay": delay, "network": network, "shown": shown}
    return Explorable("late", {"compute": 40}, values, _late_text)


def _late_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    delay, network = values["delay"], values["network"]
    step = data["compute"] + delay + network
    told = ""
    if values["shown"] == "all ranks":
        told = f", {percent(delay / (delay + network))} of that waiting for a late rank"
    return (
        f"A step takes {step} ms; rank 0 is in all-reduce for {percent((delay + network) / step)} of the time{told}. "
        f"With a network twice as fast a step takes {step - network / 2:g} ms."
    )


def uneven(p: int = 16, share: float = 0.25) -> Explorable:
    """An all-gather in which the last rank's part is `share` of all: what padding costs, and one broadcast a rank.

    64 MB in all, 10 µs a message, 50 GB/s. `p` is 4, 8, 16, 32 or 64, `share` from 1 / p to 0.9. Raises ExploreError.

    Example:
        >>> explore.uneven(p=64, share=0.5).text()[:83]
        '64 ranks, the longest part is 50 % of all: padding moves 32 times the needed bytes '
    """
    if p not in (4, 8, 16, 32, 64) or not 1 / p <= share <= 0.9:
        raise ExploreError(f"p must be 4, 8, 16, 32 or 64, and share from 1 / p to 0.9, not {p!r} and {share!r}.")
    data = {"total": 64e6, "alpha": 10e-6, "beta": 1 / 50e9}
    return Explorable("uneven", data, {"p": p, "share": share}, _uneven_text)


def _uneven_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p = int(values["p"])
    share = max(values["share"], 1 / p)
    padded, broadcasts = padded_gather_s(p, share, **data)
    return (
        f"{p} ranks, the longest part is {percent(share)} of all: padding moves {digits(p * share)} "
        f"times the needed bytes and takes {duration(padded)}, broadcasts take {duration(broadcasts)}."
    )


def writes(looks: float = 6, after: str = "nothing") -> Explorable:
    """Eight words that rank 0 writes into rank 1's memory, and how many are new when rank 1 reads.

    Rank 1 looks at `looks` µs, 0 to 26. `after` the words rank 0 does "nothing", writes a "flag" for which rank 1
    waits, or waits at a "fence" and then writes the flag. The times are an example. Raises ExploreError.

    Example:
        >>> explore.writes(looks=6, after="fence").text()[-21:]
        '8 of 8 words are new.'
    """
    if not 0 <= looks <= 26 or after not in _AFTER:
        raise ExploreError(f"looks must be 0 to 26 and after one of {', '.join(_AFTER)}, not {looks!r} and {after!r}.")
    return Explorable("writes", {}, {"looks": looks, "after": after}, _writes_text)


def _writes_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    looks, after = values["looks"], values["after"]
    found = written(looks, after)
    return (
        f"Rank 0 writes: {_AFTER[after]}. Rank 1 looks at {looks:g} µs and reads at {found['reads']:.1f} µs: "
        f"{found['fresh']} of 8 words are new."
    )


def path(nvlink: float = 150, card: float = 50, way: str = "one ring") -> Explorable:
    """The critical path of an all-reduce of 1 GiB on two nodes of two GPUs: which link each of its messages waits for.

    `nvlink` is 25 to 900 GB/s, `card` 25 to 400, `way` "one ring", "8 segments" or "two levels". The times are those
    of the clock of `run_schedule`. Raises ExploreError.

    Example:
        >>> explore.path(nvlink=900, card=50).text()[:89]
        'One ring, NVLink 900 GB/s, cards 50 GB/s: 32.2 ms, 3.0 times the lower bound; 100 % of th'
    """
    if way not in _WAYS or not 25 <= nvlink <= 900 or not 25 <= card <= 400:
        raise ExploreError(
            f"nvlink must be 25 to 900 and card 25 to 400 GB/s, way one of {', '.join(_WAYS)}, "
            f"not {nvlink!r}, {card!r} and {way!r}."
        )
    machine = topology.preset("dgx-h100")
    data = {"nbytes": 1 << 30, "alpha": {"nvlink": machine.inside.alpha_s, "card": machine.nic.alpha_s}}
    return Explorable("path", data, {"nvlink": nvlink, "card": card, "way": way}, _path_text)


def _path_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    found = critical_path(values["way"], values["nvlink"], values["card"], **data)
    return (
        f"{_WAYS[values['way']]}, NVLink {values['nvlink']:g} GB/s, cards {values['card']:g} GB/s: "
        f"{duration(found['total'])}, {digits(found['total'] / found['bound'])} times the lower bound; "
        f"{percent(found['onCard'])} of the path is the network card."
    )


def search(steps: int = 5, rounds: int = 11, nbytes: int = 3 << 20) -> Explorable:
    """What an all-gather on a DGX-1 would cost that nobody has found yet, against six rings.

    `steps` 1 to 8; `rounds`, how many sixths of a part a link carries, 6 to 15; `nbytes` of all parts is 3 times a
    power of two, from 6 KiB to 96 MiB. Raises ExploreError.

    Example:
        >>> explore.search(steps=1, rounds=9).text()
        '3 MiB, 1 step with 9 sixths of a part on a link: 26 µs, no algorithm can: some GPUs have no link.'
    """
    if steps not in range(1, 9) or rounds not in range(6, 16) or nbytes not in _GATHERS:
        raise ExploreError(
            f"steps must be 1 to 8, rounds 6 to 15, nbytes 3 times a power of two from 6 KiB to 96 MiB, "
            f"not {steps!r}, {rounds!r} and {nbytes!r}."
        )
    data = {
        "alpha": 2e-6,
        "beta": 1 / 25e9,
        "ranks": 8,
        "rings": {"steps": 7, "rounds": 7},
        "least": {"steps": 2, "rounds": 7},
    }
    return Explorable("search", data, {"steps": steps, "rounds": rounds, "nbytes": nbytes}, _search_text)


def _search_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    steps, rounds, nbytes = values["steps"], values["rounds"], int(values["nbytes"])
    wish, rings, why = wished(steps, rounds, nbytes, data)
    says = f"no algorithm can: {why}" if why else f"{rings / wish:.2f} times as fast as six rings"
    return (
        f"{size_in_words(nbytes)}, {steps} step{'s' if steps > 1 else ''} with {rounds} sixths of a part on a link: "
        f"{digits(1e6 * wish)} µs, {says}."
    )


def flag(ranks: int = 4, steps: int = 8, library: str = "NCCL") -> Explorable:
    """A flag that is True on all ranks and is summed in each step: its byte after so many steps, by the library.

    `ranks` is 2 to 8, `steps` 0 to 12, `library` "NCCL" (RCCL does the same), "Gloo" or "MPI". Raises ExploreError.

    Example:
        >>> explore.flag(ranks=3, library="Gloo").text()
        'A flag summed in 8 steps on 3 ranks by Gloo is True on every rank; its byte holds 161.'
    """
    if ranks not in range(2, 9) or steps not in range(13) or library not in _LIBRARIES:
        raise ExploreError(
            f"ranks must be 2 to 8, steps 0 to 12 and library one of {', '.join(_LIBRARIES)}, "
            f"not {ranks!r}, {steps!r} and {library!r}."
        )
    return Explorable("flag", {}, {"p": ranks, "steps": steps, "library": library}, _flag_text)


def _flag_text(data: dict[str, Any], values: dict[str, Any]) -> str:
    p, steps, library = values["p"], values["steps"], values["library"]
    held = flag_bytes(p, steps, library)
    if len(held) <= steps:
        return f"{library} refuses to sum a flag, in the first step."
    return (
        f"A flag summed in {counted(steps, 'step')} on {p} ranks by {library} is {held[-1] > 0} on every rank; "
        f"its byte holds {held[-1]}."
    )
