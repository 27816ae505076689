"""The torch.distributed backend of a rank: a Python ProcessGroup whose every operation goes to the router."""

from __future__ import annotations

# torch's stubs list overloads of which a group in Python is only ever handed one
# mypy: disable-error-code="override,assignment"
import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from allranks.ranks.engines.group import PythonGroup, Works
from allranks.ranks.wire.body import Body
from allranks.ranks.wire.buffers import Held, Posted
from allranks.ranks.wire.endpoint import Endpoint
from allranks.ranks.wire.failures import FailureKind, Misuse, MisuseError
from allranks.ranks.wire.frames import FaultDetails, FrameKind, Operation
from allranks.ranks.wire.messages import OpKind, canonical
from allranks.ranks.wire.values import content, dtype_name, fill, from_raw, raw

NAME = "wire"


class WireWork(dist._Work):
    """The handle of one operation; the data of a receive arrives by `wait()`, not before.

    Until then the operation owns the memory that it fills, and what it sends must not change. With `blocking` the caller waits
    at once and can't touch either.
    """

    def __init__(self, group: WireGroup, number: int, *, outputs=(), sent=(), blocking: bool = False) -> None:
        super().__init__()
        self.group, self.number = group, number
        self.outputs, self.waited, self.source = list(outputs), False, None
        self.quick = not self.outputs
        self.held = Held(sent, self.outputs)
        endpoint = group.endpoint
        owner = endpoint.owner_of(self.held)
        if owner is not None:
            self._halt(owner, filled=not owner.held.reads.overlaps(self.held.writes), used_by=number)
        if not blocking:
            self.held.take()
            endpoint.pending[number] = self

    def wait(self, timeout=None) -> bool:
        """Blocks until the operation is complete; then its outputs are filled."""
        self.group.endpoint.check_thread()
        if self.waited:
            return True
        endpoint = self.group.endpoint
        _, *where = endpoint.call_sites.here()
        if endpoint.pending.pop(self.number, None) is not None:
            written = self.held.written()
            if written or self.held.changed():
                self._halt(self, filled=written)
        answer = endpoint.wait(self.number, where, quick=self.quick)
        self.waited = True
        if answer is not None:
            message, body = answer
            self.source = message.get("source")
            if self.outputs:
                self._fill(body)
            body.close()
        return True

    def _halt(self, owner: Posted, *, filled: bool, used_by: int | None = None) -> None:
        """Ends the run: memory that `owner` fills, or only sends, was used before its wait()."""
        endpoint = self.group.endpoint
        more: FaultDetails = {"number": owner.number, "filled": filled}
        if used_by is not None:
            more["used_by"] = used_by
        _, *where = endpoint.call_sites.here()
        endpoint.halt(FailureKind.CHANGED_BEFORE_WAIT, "", where, **more)

    def _fill(self, body: Body) -> None:
        if len(self.outputs) == 1 and self.outputs[0].is_contiguous() and not self.outputs[0].is_conj():
            if body.fd < 0 and fill(self.outputs[0], body.data):
                return
            target = raw(self.outputs[0])
            if isinstance(target, memoryview):
                body.read_into(target)
            return
        data, at = memoryview(body.read()), 0
        with torch.no_grad():
            for tensor in self.outputs:
                nbytes = tensor.numel() * tensor.element_size()
                tensor.detach().copy_(from_raw(data[at : at + nbytes], tensor.dtype, tensor.shape))
                at += nbytes

    def is_completed(self) -> bool:
        """Whether `wait()` would return at once. Asks when every other rank has gone as far as it can."""
        if self.waited:
            return True
        _, *where = self.group.endpoint.call_sites.here()
        return self.group.endpoint.poll(self.number, where)

    def is_success(self) -> bool:
        """Whether the operation is complete."""
        return self.is_completed()

    def exception(self):
        """None: an operation that fails ends the run."""
        return None

    def result(self) -> list:
        """The tensors that the operation fills."""
        return self.outputs

    def _source_rank(self) -> int:
        return -1 if self.source is None else self.source

    def get_future(self) -> WireFuture:
        """A future that holds the outputs once it is asked for them; at once where torch's C++ may be who asks."""

        def outputs() -> list:
            self.wait()
            return self.outputs

        future = WireFuture(outputs, self.is_completed)
        if not self._only_students_ask():
            future.settle()
        return future

    def _only_students_ask(self) -> bool:
        """Whether the student's own code has asked, and not in a backward pass, where DDP's hooks hand futures to C++."""
        frame: FrameType | None = sys._getframe(2)
        if frame is None or not self.group.endpoint.call_sites.is_students(frame.f_code.co_filename):
            return False
        while frame is not None and frame.f_code.co_name != "_engine_run_backward":
            frame = frame.f_back
        return frame is None


class WireFuture(torch.futures.Future):
    """Waits when it is asked for its value and not before: the wire has no thread of its own that would complete it.

    So a callback runs when what `then` returned is waited for, at the latest when its rank waits for all futures.
    """

    def __init__(self, make: Callable[[], Any], ready: Callable[[], bool]) -> None:
        super().__init__()
        self._make: Callable[[], Any] | None = make
        self._ready = ready

    def settle(self) -> None:
        """Waits, and keeps the value or what was raised."""
        make, self._make = self._make, None
        if make is not None:
            try:
                value = make()
            except Exception as error:
                self.set_exception(error)
            else:
                self.set_result(value)

    def wait(self) -> Any:
        """The value, when it is there."""
        self.settle()
        return super().wait()

    def value(self) -> Any:
        """The same; torch's own would raise before."""
        self.settle()
        return super().value()

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._make is None or self._ready()

    def then(self, callback: Callable[[torch.futures.Future], Any]) -> WireFuture:
        """A future of what the callback makes of this one."""

        def called() -> Any:
            self.settle()
            return callback(self)

        future = WireFuture(called, self.done)
        if self._make is None:  # torch calls it at once then
            future.settle()
        return future

    def add_done_callback(self, callback: Callable[[torch.futures.Future], Any]) -> None:
        """Waits, and calls it."""
        self.settle()
        super().add_done_callback(callback)


def _settling(function: Callable) -> Callable:
    """torch.futures' function on several futures, which would wait for ever for ours: they are asked first."""
    if function.__module__ == __name__:  # a rehearsal has registered the backend before
        return function

    @functools.wraps(function, assigned=("__name__", "__doc__"))
    def settled(futures):
        futures = list(futures)
        for future in futures:
            if isinstance(future, WireFuture):
                future.settle()
        return function(futures)

    return settled


class WireGroup(PythonGroup):
    """A process group of the wire. `members` are the global ranks in the order of the group."""

    backend_name = NAME
    work_type: type[WireWork] = WireWork
    as_gloo = True  # whether what gloo refuses is refused, where only contiguous tensors are taken

    def __init__(self, endpoint: Endpoint, rank: int, members: list[int], key: str, default: bool) -> None:
        super().__init__(rank, len(members))  # type: ignore[call-arg]  # the stub knows only one of its forms
        self.endpoint, self.members, self.key = endpoint, members, key
        if not default:
            endpoint.check_thread()
            _, *where = endpoint.call_sites.here()
            endpoint.posted.append({"do": FrameKind.GROUP, "group": key, "members": members, "where": where})

    def name(self) -> str:
        """The backend's name."""
        return NAME

    def shutdown(self) -> None:
        """Nothing to end."""

    def abort(self) -> None:
        """Nothing to end."""

    # ------------------------------------------------------------------------------------------- point to point

    def send(self, tensors, dst: int, tag: int = 0) -> WireWork:
        """Offers one tensor to a rank of the group."""
        (tensor,) = tensors
        self.endpoint.at_send()
        op = self._describe(OpKind.SEND, "isend", tensor)
        self._check(op["name"], tensor)
        op["peer"], op["tag"] = self._member(dst, f"{op['name']} to", peer=True), tag
        number = self.endpoint.post(op, content(tensor))
        return self.work_type(self, number, sent=(tensor,), blocking=op["name"] == "send")

    def recv(self, tensors, src: int | None, tag: int = 0) -> WireWork:
        """Asks for one tensor from a rank of the group."""
        (tensor,) = tensors
        op = self._describe(OpKind.RECV, "irecv", tensor)
        self._check(op["name"], tensor, into=True)
        if src is None and not tensor.numel() and self._strict:
            raise ValueError("gloo can't receive a tensor without elements from any rank: name the rank that sends it.")
        op["peer"] = None if src is None else self._member(src, f"{op['name']} from", peer=True)
        op["tag"] = tag
        return self.work_type(self, self.endpoint.post(op), outputs=(tensor,), blocking=op["name"] == "recv")

    def recv_anysource(self, tensors, tag: int = 0) -> WireWork:
        """Asks for one tensor from whichever rank."""
        return self.recv(tensors, None, tag)

    @property
    def _strict(self) -> bool:
        return self.as_gloo and self.endpoint.contiguous

    def _member(self, rank: int, what: str, *, peer: bool) -> int:
        """The global number of a rank of the group, which is a `peer` or a root. Raises ValueError if there is none."""
        if not 0 <= rank < len(self.members):
            message = f"{what} rank {rank}, but there are only ranks 0 to {len(self.members) - 1}"
            raise MisuseError(Misuse.NO_SUCH_PEER, message) if peer else ValueError(message)
        if self.endpoint.contiguous and rank == self.rank() and peer:
            message = f"{what} rank {rank}, which is this rank itself: gloo has no such link"
            raise MisuseError(Misuse.OWN_RANK, message)
        return self.members[rank]

    def _describe(self, kind: OpKind, fallback: str, tensor: torch.Tensor | None) -> Operation:
        name, *where = self.endpoint.call_sites.here(3)
        known = canonical(name or fallback)
        op: Operation = {"do": kind, "name": known, "group": self.key, "where": where}
        if name and name != known:
            op["called"] = name
        if tensor is not None:
            op["dtype"], op["numel"], op["pairs"] = dtype_name(tensor.dtype), tensor.numel(), _was_complex(tensor)
        return op

    def _check(self, name: str, *tensors: torch.Tensor, into: bool = False) -> None:
        for tensor in tensors:
            if tensor.device.type != "cpu" or tensor.layout != torch.strided:
                raise ValueError(f"{name} takes dense CPU tensors; this one is {tensor.layout} on {tensor.device}.")
            if self.endpoint.contiguous and not tensor.is_contiguous():
                which = "fills" if into else "sends"
                mend = "give it a contiguous copy, then copy the result back" if into else "call .contiguous() first"
                message = f"{name} takes contiguous tensors only, and the one that it {which} is not: {mend}."
                raise MisuseError(Misuse.GAPS, message)

    # ------------------------------------------------------------------------------------------------ collectives

    def _collective(self, name: str, inputs, outputs, opts=None, *, root=None, reduce_op=None) -> WireWork:
        """Enters a collective: `inputs` are sent, `outputs` are filled by `wait()`."""
        op = self._describe(OpKind.COLLECTIVE, name, None)
        self._check(name, *outputs, into=True)
        self._check(name, *inputs)
        kinds = [dtype_name(tensors[0].dtype) for tensors in (outputs, inputs) if tensors]
        if len(set(kinds)) > 1:
            raise ValueError(
                f"{name} takes tensors of one dtype, but its output is {kinds[0]} and its input is {kinds[1]}"
            )
        there = [t.data_ptr() for t in outputs if t.numel()]
        if len(set(there)) < len(there):
            raise ValueError(
                f"{name} would fill {len(there)} tensors that lie in the same memory: `[t] * p` makes p names of one "
                "tensor. Make each of them anew."
            )
        tensors = list(inputs) or list(outputs)
        op["collective"] = name
        op["inputs"], op["outputs"] = [t.numel() for t in inputs], [t.numel() for t in outputs]
        op["dtype"] = dtype_name(tensors[0].dtype) if tensors else None
        op["pairs"] = bool(tensors) and _was_complex(tensors[0])
        if root is not None:
            op["root"] = self._member(root, f"{name} with root", peer=False)
        if reduce_op is not None:
            op["reduce_op"] = reduce_name(reduce_op)
        sent = content(inputs[0]) if len(inputs) == 1 else b"".join([bytes(content(t)) for t in inputs])
        number = self.endpoint.post(op, sent)
        return self.work_type(
            self, number, outputs=outputs, sent=inputs, blocking=opts is not None and not opts.asyncOp
        )

    def allreduce(self, tensors, opts=None) -> WireWork:
        """Reduces over all members, in place."""
        return self._collective("all_reduce", tensors, tensors, opts, reduce_op=_op(opts))

    def allreduce_coalesced(self, tensors, opts=None) -> WireWork:
        """Reduces several tensors over all members, in place."""
        return self._collective("all_reduce_coalesced", tensors, tensors, opts, reduce_op=_op(opts))

    def broadcast(self, tensors, opts) -> WireWork:
        """Every member gets the root's tensor."""
        mine = self.rank() == opts.rootRank
        return self._collective("broadcast", tensors if mine else (), () if mine else tensors, opts, root=opts.rootRank)

    def reduce(self, tensors, opts) -> WireWork:
        """The root gets the reduced tensor."""
        outputs = tensors if self.rank() == opts.rootRank else ()
        return self._collective("reduce", tensors, outputs, opts, root=opts.rootRank, reduce_op=opts.reduceOp)

    def gather(self, output_tensors, input_tensors, opts) -> WireWork:
        """The root gets every member's tensor."""
        outputs = output_tensors[0] if self.rank() == opts.rootRank else ()
        return self._collective("gather", input_tensors, outputs, opts, root=opts.rootRank)

    def scatter(self, output_tensors, input_tensors, opts) -> WireWork:
        """Each member gets its tensor from the root."""
        inputs = input_tensors[0] if self.rank() == opts.rootRank else ()
        return self._collective("scatter", inputs, output_tensors, opts, root=opts.rootRank)

    def allgather(self, output_tensors, input_tensors, opts=None) -> WireWork:
        """Every member gets every member's tensor."""
        return self._collective("all_gather", input_tensors, output_tensors[0], opts)

    def allgather_coalesced(self, output_lists, input_tensors, opts=None) -> WireWork:
        """Every member gets every member's list of tensors."""
        return self._collective("all_gather_coalesced", input_tensors, [t for row in output_lists for t in row], opts)

    def all_gather_single(self, output, input, opts=None) -> WireWork:
        """Every member gets the concatenation."""
        return self._collective("all_gather_into_tensor", [input], [output], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None) -> Works:
        """Several `all_gather_single` at once."""
        return Works(
            [self._collective("all_gather_into_tensor", [i], [o], opts) for o, i in zip(outputs, inputs, strict=True)]
        )

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, output_tensors, input_tensors, opts) -> WireWork:
        """Member i gets the reduced i-th tensor."""
        return self._collective("reduce_scatter", input_tensors[0], output_tensors, opts, reduce_op=opts.reduceOp)

    def reduce_scatter_single(self, output, input, opts) -> WireWork:
        """Member i gets the reduced i-th part."""
        return self._collective("reduce_scatter_tensor", [input], [output], opts, reduce_op=opts.reduceOp)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts) -> Works:
        """Several `reduce_scatter_single` at once."""
        return Works([self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def alltoall(self, output_tensors, input_tensors, opts=None) -> WireWork:
        """Member i's j-th tensor goes to member j."""
        sizes = sorted({t.numel() for t in (*input_tensors, *output_tensors)})
        if len(sizes) > 1 and self._strict:
            raise ValueError(
                f"all_to_all takes lists of tensors of one size on gloo; these have {sizes[0]} to {sizes[-1]} elements. Use "
                "all_to_all_single, which takes the sizes of its parts, or pad."
            )
        return self._collective("all_to_all", input_tensors, output_tensors, opts)

    def alltoall_base(self, output, input, output_split_sizes, input_split_sizes, opts=None) -> WireWork:
        """Part j of member i's tensor goes to member j; parts are rows, counted by the split sizes."""
        inputs = self._parts(input, input_split_sizes, "input")
        outputs = self._parts(output, output_split_sizes, "output")
        return self._collective("all_to_all_single", inputs, outputs, opts)

    all_to_all_single = alltoall_base

    def _parts(self, tensor: torch.Tensor, sizes, which: str) -> list[torch.Tensor]:
        if not tensor.dim():
            return [tensor]
        rows, p, sizes = tensor.shape[0], self.size(), list(sizes)
        if not sizes and rows % p:
            raise ValueError(
                f"all_to_all_single without sizes cuts its {which} into {p} equal parts; "
                f"this one has {rows} row{'' if rows == 1 else 's'}"
            )
        if sizes and sum(sizes) != rows:
            raise ValueError(
                f"all_to_all_single's {which} sizes {sizes} add up to {sum(sizes)}, but its {which} has {rows} rows"
            )
        return list(tensor.split(sizes or [rows // p] * p))

    def barrier(self, opts=None) -> WireWork:
        """Nobody leaves before all have come."""
        return self._collective("barrier", (), (), opts)


def _was_complex(tensor: torch.Tensor) -> bool:
    """Whether torch.distributed turned the caller's complex tensor into pairs of reals before it came here."""
    base = tensor._base
    return (
        base is not None
        and base.is_complex()
        and not tensor.is_complex()
        and tensor.shape[-1:] == (2,)
        and tensor.stride(-1) == 1
    )


def _op(opts):
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp


def reduce_name(op) -> str:
    """The name of a reduction, such as "SUM"."""
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        if op == getattr(dist.ReduceOp, name):
            return name
    return "PREMUL_SUM"


def register(endpoint: Endpoint, group_type: Callable[[], Callable[..., WireGroup]] = lambda: WireGroup) -> None:
    """Makes the backend "wire" known to this process's torch.distributed. `group_type` says what makes a group."""

    def create(options, _) -> WireGroup:
        default = not options.global_ranks_in_group
        members = list(options.global_ranks_in_group) or list(range(options.group_size))
        return group_type()(endpoint, options.group_rank, members, str(options.group_id), default)

    torch.futures.collect_all = _settling(torch.futures.collect_all)
    torch.futures.wait_all = _settling(torch.futures.wait_all)
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])
