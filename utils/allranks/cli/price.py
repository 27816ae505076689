"""`allranks price`: what a training step sends, for one kind of parallelism."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from allranks.cli._shared import CommandError, Size

if TYPE_CHECKING:
    from allranks.theory.cost import workload


def _common_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that all workloads have."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--alpha", "alpha_s", type=float, help="Seconds a message. Default: 0."),
        click.option("--bandwidth", type=float, help="Bytes/s and direction (busbw). Default: 200e9."),
        click.option(
            "--topology", metavar="PRESET|FILE", help="Take both from a preset, or a file that `allranks fit` wrote."
        ),
        click.option("--ranks", type=int, default=32, show_default=True),
    ):
        function = option(function)
    return function


_DTYPE = click.option("--dtype", default="bfloat16", show_default=True)
_SHAPE = (click.option("--hidden", type=int, required=True), click.option("--sequence", type=int, required=True))


@click.group(name="price")
def command() -> None:
    """Prices a training step: the bytes, calls and seconds of its communication, for one rank; or inference."""


@command.command()
@click.option("--parameters", type=float, default=7e9, show_default=True)
@_DTYPE
@click.option(
    "--bucket", type=Size(), default="25MiB", show_default=True, help="Bytes of a bucket; 0 is one call for all."
)
@click.option("--backward-seconds", "backward_s", type=float, help="Of the backward pass, for what it can hide.")
@_common_options
def ddp(parameters, dtype, bucket, backward_s, **place) -> None:
    """Data parallel: one all_reduce for each bucket."""
    options = {"dtype": dtype, "bucket_nbytes": bucket or None, "backward_s": backward_s}
    _show("ddp", (parameters,), options, **place)


@command.command()
@click.option("--stage", type=int, default=3, show_default=True)
@click.option("--parameters", type=float, default=7e9, show_default=True)
@_DTYPE
@click.option("--gradient-dtype", help="Default: that of the parameters.")
@click.option("--keep-after-forward", is_flag=True, help="Stage 3 without resharding after forward.")
@click.option("--bucket", type=Size(), default="25MiB", show_default=True, help="As for ddp.")
@click.option("--all-reduce", is_flag=True, help="Stages 1 and 2 all_reduce gradients: DeepSpeed's default.")
@_common_options
def zero(stage, parameters, dtype, gradient_dtype, keep_after_forward, bucket, all_reduce, **place) -> None:
    """ZeRO and FSDP."""
    options = {
        "dtype": dtype, "gradient_dtype": gradient_dtype, "reshard_after_forward": not keep_after_forward,
        "bucket_nbytes": bucket or None, "all_reduce_gradients": all_reduce,
    }  # fmt: skip
    _show("zero", (stage, parameters), options, **place)


@command.command()
@click.option("--layers", type=int, required=True)
@click.option("--batch", type=int, default=1, show_default=True)
@_SHAPE[1]
@_SHAPE[0]
@_DTYPE
@click.option("--recompute", is_flag=True, help="Full activation recomputation.")
@click.option("--sequence-parallel", is_flag=True)
@_common_options
def tensor(layers, batch, sequence, hidden, dtype, recompute, sequence_parallel, **place) -> None:
    """Tensor parallel."""
    options = {"dtype": dtype, "recompute": recompute, "sequence_parallel": sequence_parallel}
    _show("tensor_parallel", (layers, batch, sequence, hidden), options, **place)


@command.command()
@click.option("--microbatches", type=int, required=True)
@click.option("--microbatch", type=int, default=1, show_default=True, help="Sequences in a microbatch.")
@_SHAPE[1]
@_SHAPE[0]
@_DTYPE
@_common_options
def pipeline(microbatches, microbatch, sequence, hidden, dtype, **place) -> None:
    """Pipeline parallel, one stage a rank."""
    _show("pipeline_parallel", (microbatches, microbatch, sequence, hidden), {"dtype": dtype}, **place)


@command.command()
@click.option("--tokens", type=int, required=True, help="Of one rank.")
@click.option("--top-k", type=int, required=True)
@_SHAPE[0]
@click.option("--layers", type=int, default=1, show_default=True)
@click.option("--dispatch-dtype", default="bfloat16", show_default=True, help="float8 as in DeepSeek-V3.")
@click.option("--forward-only", is_flag=True)
@_common_options
def expert(tokens, top_k, hidden, layers, dispatch_dtype, forward_only, **place) -> None:
    """Expert parallel: a mixture of experts."""
    options = {"layers": layers, "dispatch_dtype": dispatch_dtype, "training": not forward_only}
    _show("expert_parallel", (tokens, top_k, hidden), options, **place)


@command.command()
@click.option("--model", default="Llama 3 70B", show_default=True, help="One that is served; --model ? lists them.")
@click.option("--topology", "machine", default="dgx-h100", show_default=True, metavar="PRESET")
@click.option("--tp", type=int, default=1, show_default=True, help="Tensor parallel ranks.")
@click.option("--ep", type=int, default=1, show_default=True, help="Ranks that share the experts of each layer.")
@click.option("--batch", help="Requests at a time, or `max`: as many as have room. Default: a table from 1 to max.")
@click.option("--prompt", type=int, default=1000, show_default=True, help="Tokens of a prompt.")
@click.option("--output", type=int, default=1000, show_default=True, help="Tokens that a request generates.")
@click.option("--weight-bits", type=click.Choice(["16", "8", "4"]), default="16", show_default=True)
@click.option("--kv-bits", type=click.Choice(["16", "8", "4"]), help="Default: those of the weights, but at least 8.")
@click.option("--all-reduce", default="best", show_default=True, help="`one shot`, `two shots` or `nccl`.")
@click.option(
    "--hand-over", type=float, metavar="BYTES/S", help="Disaggregated prefill: the link that the cache takes."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def serve(model, machine, tp, ep, batch, prompt, output, weight_bits, kv_bits, all_reduce, hand_over, as_json) -> None:
    """Inference: the first token, each further one, and the tokens a second of all requests."""
    from allranks.theory.cost import serving

    if batch not in (None, "max") and not str(batch).isdecimal():
        raise CommandError(f"--batch is {batch!r}; it is a whole number, or max.")
    if hand_over is not None and not 0 < hand_over < float("inf"):
        raise CommandError(f"--hand-over is {hand_over:g} bytes/s; it must be above 0, and finite.")
    shape = {
        "tp": tp, "ep": ep, "prompt": prompt, "output": output, "weight_bits": int(weight_bits),
        "kv_bits": int(kv_bits) if kv_bits else None, "all_reduce": all_reduce,
    }  # fmt: skip
    found = serving.serve(model, machine, batch=int(batch) if str(batch).isdecimal() else None, **shape)
    more = {} if hand_over is None else {"handed_over_s": found.handed_over_nbytes / hand_over}
    if as_json:
        click.echo(json.dumps(found.to_dict() | more))
        return
    split = f"{ep} ranks share the experts" if ep > 1 else f"tp {tp}"
    click.echo(
        f"{found.model.name} on {machine}, {split}, {weight_bits} bits: {found.weights_nbytes / 1e9:.3g} GB of weights "
        f"a rank, room for {found.fits} requests of {prompt} + {output} tokens "
        f"({found.request_nbytes / 1e9:.3g} GB each)"
    )
    sizes = [found.batch] if batch else sorted({4**k for k in range(12) if 4**k < found.fits} | {found.fits})
    click.echo(f"{'requests':>8}{'first token':>27}{'each further token':>27}{'tokens a second':>28}   sent, and how")
    for size in sizes:
        one = serving.serve(model, machine, batch=size, **shape)
        low, high = (one.tokens_per_s / factor for factor in reversed(one.band("throughput")))
        click.echo(
            f"{size:>8}{_times(one.first_token_s, one.band('first_token')):>27}"
            f"{_times(one.token_s, one.band('token')):>27}{f'{one.tokens_per_s:,.0f} ({low:,.0f} to {high:,.0f})':>28}"
            f"   {one.decode['sent'] / one.token_s:.0%}, {one.all_reduce}"
        )
    click.echo("In brackets: where 8 of 10 published measurements lie (docs/validation.md). Nobody waits for a turn.")
    if hand_over is not None:
        click.echo(
            f"Disaggregated prefill hands over {found.handed_over_nbytes / 1e9:.3g} GB a request: "
            f"{more['handed_over_s'] * 1e3:.3g} ms at {hand_over / 1e9:g} GB/s"
        )


def _times(seconds: float, band: tuple[float, float]) -> str:
    """Such as "12 ms (10 to 15)"."""
    middle, low, high = (f"{float(f'{1e3 * part:.3g}'):g}" for part in (seconds, seconds * band[0], seconds * band[1]))
    return f"{middle} ms ({low} to {high})"


def _show(
    name: str,
    arguments: tuple[float, ...],
    options: dict[str, Any],
    ranks: int,
    topology: str | None,
    bandwidth: float | None,
    alpha_s: float | None,
    as_json: bool,
) -> None:
    from allranks.theory.cost import workload

    cluster = _cluster(ranks, topology, bandwidth, alpha_s, to_all=name == "expert_parallel")
    bandwidth, alpha_s = cluster.bytes_per_s, cluster.alpha_s
    found = getattr(workload, name)(*arguments, cluster=cluster, **options)
    band = _band(found, topology, ranks)
    if as_json:
        click.echo(json.dumps(found.to_dict() | band | {"ranks": ranks, "bytes_per_s": bandwidth, "alpha_s": alpha_s}))
        return
    click.echo(
        f"{found.name}, {ranks} ranks, {bandwidth / 1e9:g} GB/s a link and direction, alpha {alpha_s * 1e6:g} us"
    )
    for part in (*found.parts, None):
        what, calls, sent, time_s = (
            (f"{part.what}: {part.collective}", part.calls, part.bytes_sent, part.seconds)
            if part
            else ("in all, for one rank", found.calls, found.bytes_sent, found.seconds)
        )
        click.echo(f"  {what:<42}{calls:>7} calls {sent / 1e9:>11.4g} GB {time_s * 1e3:>11.4g} ms")
    if band:

        def short(key: str) -> str:
            return f"{float(f'{band[key] * 1e3:.2g}'):g}"

        click.echo(
            f"  measured: {short('low')} to {short('high')} ms (8 of 10 sites), most likely {short('median')}: "
            f"{band['sites']} sites ({band['kind']})"
        )
    if found.exposed_s is not None:
        click.echo(
            f"  exposed: {found.exposed_s * 1e3:.4g} ms (if buckets become ready at equal intervals; "
            "communication also slows computing a little)"
        )


def _band(found: workload.Price, topology: str | None, ranks: int) -> dict[str, Any]:
    """Where 8 of 10 sites that published such sizes lie, on whole nodes of a preset; nothing elsewhere, nor for sends.

    `simulate` over every card of a preset says the same seconds, and the bands are its.
    """
    from allranks.theory.cost.nccl_bounds import machine_bound_s
    from allranks.theory.cost.nccl_price import kind_of, link_interval
    from allranks.theory.topology import PRESETS

    machine = PRESETS.get(topology or "")
    if (
        machine is None
        or ranks % machine.ranks_per_node
        or ranks < 2
        or any(p.collective == "send" for p in found.parts)
    ):
        return {}
    return link_interval(
        [
            (
                kind_of(machine.nodes(ranks), part.nbytes),
                part.seconds,
                part.calls * machine_bound_s(part.collective, ranks, part.nbytes, machine),
            )
            for part in found.parts
        ]
    )


def _cluster(
    ranks: int, topology: str | None, bandwidth: float | None, alpha_s: float | None, to_all: bool
) -> workload.Cluster:
    """The links that the ranks share: as said, or those of a machine. Raises CommandError."""
    from allranks.theory.cost import plan, workload
    from allranks.theory.topology import preset

    if topology is None:
        return workload.Cluster(ranks, 200e9 if bandwidth is None else bandwidth, alpha_s or 0.0)
    if bandwidth is not None or alpha_s is not None:
        raise CommandError("Give --topology, or --bandwidth and --alpha; not both.")
    return plan.links_of_group(preset(topology), ranks, 1, ranks, to_all)
