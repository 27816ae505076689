"""NCCL's rules on the CPU: a group over gloo that takes what NCCL takes, refuses what it refuses, and queues as it does.

What it plays, with the source of each rule:

- One queue for each rank (`nccl_queue`): a call returns at once, and the program meets the operation where it reads the
  result. All groups of a rank share it, as kernels of several communicators must come in one order on all ranks.
- A pair's first message makes the connection: both ranks wait on the host until the other one is there (NCCL's transports
  connect inside ncclGroupEnd). A later message of up to `BUFFERED` bytes is sent without its receiver.
- In a batch (`dist.batch_isend_irecv`) all messages run at the same time, so their order does not matter.
- Tags are ignored: messages of a pair arrive in the order in which they were sent.
- Calls that differ between ranks (operation, type, size, root) are undefined on NCCL; here they raise NcclRuleError.
"""

from __future__ import annotations

# torch's stubs list overloads of which a group in Python is only ever handed one
# mypy: disable-error-code="override,assignment"
import contextlib
import copy
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from allranks.base.errors import counted, name_ranks
from allranks.ranks.engines import rank as on_rank
from allranks.ranks.engines import watch
from allranks.ranks.engines.group import PythonGroup
from allranks.ranks.engines.usercode import user_line
from allranks.ranks.nccl_rules import BACKEND, DEVICE, NcclRuleError, Operation, Placement, Rule
from allranks.ranks.nccl_rules.placement import for_users
from allranks.ranks.nccl_rules.refusals import (
    check_complex,
    check_dense,
    check_dtype,
    check_reduction,
    check_tag,
    dtype_name,
    is_channels_last,
    reduction_name,
    refuse_any_source,
)
from allranks.ranks.world.nccl_queue import Event, Queue, Ticket

WORDS = "gloo under NCCL's rules"  # what a world shows as the backend
BUFFERED = 16 << 10  # bytes of a message that NCCL's LL protocol buffers on one channel (NCCL_P2P_LL_THRESHOLD)
_HELLO, _HEADER, _DATA = 1, 2, 3  # gloo's tags, which no program sees

_reductions = {"SUM": "SUM", "AVG": "SUM", "PRODUCT": "PRODUCT", "MIN": "MIN", "MAX": "MAX"}


class _Rank:
    """What all groups of this rank share."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.queue = Queue()
        self.placement = Placement(synchronize=self.settle, index=rank, count=world_size)
        torch.cuda.Event = type("Event", (Event,), {"queue": self.queue})  # type: ignore[misc]
        watch.waits.append(self.queue.waiting_for)
        on_rank.at_the_end.append(self.settle)
        on_rank.hints.append(_hint)
        on_rank.originals.append(self._behind)

    def _behind(self, error: BaseException) -> BaseException | None:
        """The queue's error, where C++ code (DDP's) met it in a future and gives it as text."""
        failed = self.queue.failed
        told = type(error) is RuntimeError and "error when running the callback" in str(error)
        return copy.copy(failed) if told and failed is not None and str(failed) in str(error) else None

    def settle(self) -> None:
        """Waits for all that is queued, as torch.cuda.synchronize does."""
        self.queue.drain()
        self.placement.flight.operations.clear()


_this: list[_Rank] = []


class QueuedWork(dist._Work):
    """The handle of a queued operation. `wait` orders the program's later work after it, and does not wait on the host."""

    def __init__(self, rank: _Rank, ticket: Ticket, operation: Operation, outputs: list[torch.Tensor]) -> None:
        super().__init__()
        self.rank, self.ticket, self.operation, self.outputs = rank, ticket, operation, outputs
        self.blocks = False  # a barrier's does wait on the host

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Orders what follows after the operation. With a timeout, it waits on the host, as on NCCL."""
        self.operation.ordered = True
        if self.blocks or (timeout is not None and timeout > timedelta(0)):
            self.ticket.wait()
            self.rank.placement.flight.land_done()
        return True

    def is_completed(self) -> bool:
        """Whether the operation is done; then its results may be read."""
        if self.ticket.done:
            self.operation.ordered = True
        return self.ticket.done

    def is_success(self) -> bool:
        """Whether it is done without an error."""
        return self.ticket.done and self.ticket.error is None

    def exception(self) -> BaseException | None:
        """The operation's error, or None."""
        return self.ticket.error

    def result(self) -> list[torch.Tensor]:
        """The tensors that the operation fills."""
        return self.outputs

    def get_future(self) -> torch.futures.Future:
        """A future that is done when the operation is. Like `wait`, it orders what follows after the operation."""
        self.operation.ordered = True
        done: torch.futures.Future = torch.futures.Future()

        def deliver(_: Any) -> list[torch.Tensor]:
            if self.ticket.error is not None:
                raise self.ticket.error
            return self.outputs

        # an error is one of C++ only where a callback raises it; set_exception gives it as a value, which DDP takes for tensors
        future = done.then(deliver)
        self.ticket.then(lambda: done.set_result(None))
        return future

    def end_mark(self) -> Event:
        """The moment at which the operation is complete, as a mark in the queue. It orders nothing."""
        mark: Event = torch.cuda.Event()
        mark._ticket = self.ticket
        return mark

    def _source_rank(self) -> int:
        return int(self.ticket.about.get("peer", -1))


def _memory(value: Any) -> Any:
    """The tensors of an argument without their history: an operation writes memory, of which autograd knows nothing."""
    if isinstance(value, torch.Tensor):
        value = value.data
        return (
            value.as_strided((value.numel(),), (1,)) if is_channels_last(value) and not value.is_contiguous() else value
        )
    return [_memory(part) for part in value] if isinstance(value, list) else value


def _listed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that also takes one tensor instead of a list, and a root or a ReduceOp instead of options."""
    options = {"broadcast": dist.BroadcastOptions, "reduce": dist.ReduceOptions, "allreduce": dist.AllreduceOptions}

    @functools.wraps(method)
    def call(self: NcclRulesGroup, tensors: Any, opts: Any = None, *rest: Any, **named: Any) -> Any:
        if not isinstance(tensors, torch.Tensor):
            return method(self, tensors, opts if opts is not None else named.get("opts"))
        made: Any = options[method.__name__]()
        root = opts if isinstance(opts, int) else named.get("root")
        if root is not None:
            made.rootRank = root
        op = next((value for value in (opts, *rest, named.get("op")) if isinstance(value, _REDUCE_OPS)), None)
        if op is not None:
            made.reduceOp = op
        return method(self, [tensors], made)

    return call


_REDUCE_OPS = (dist.ReduceOp, dist.ReduceOp.RedOpType)


def _on_memory(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: NcclRulesGroup, *arguments: Any, **named: Any) -> Any:
        return method(self, *map(_memory, arguments), **{name: _memory(value) for name, value in named.items()})

    return call


class NcclRulesGroup(PythonGroup):
    """A process group under NCCL's rules. `inner` carries the data, `control` what the ranks tell each other about it."""

    backend_name = BACKEND
    supports_coalescing = True
    supports_splitting = True

    def __init__(self, inner: Any, control: Any, members: tuple[int, ...], this: _Rank) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # the stub knows only one of its forms
        self.inner, self.control, self.members, self.this = inner, control, members, this
        self._seq = 0
        self._met: set[tuple[int, int]] = set()  # the directed pairs, as group ranks, that are connected
        self._batch: list[tuple[str, torch.Tensor, int, int]] | None = None
        self._coalesced: QueuedWork | None = None
        self._unfinished: list[Any] = []  # buffered messages under way

    # point to point

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int = 0) -> QueuedWork:
        """Queues a send to the member `dst`."""
        return self._message("send", tensors[0], dst, tag)

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int = 0) -> QueuedWork:
        """Queues a receive from the member `src`."""
        return self._message("recv", tensors[0], src, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> QueuedWork:
        """Raises NcclRuleError."""
        raise refuse_any_source("recv")

    @_on_memory
    def _message(self, kind: str, tensor: torch.Tensor, peer: int, tag: int) -> Any:
        self._check(kind, [tensor])
        if self._batch is not None:
            self._batch.append((kind, tensor, peer, tag))
            return None
        if peer == self.rank():
            raise NcclRuleError(
                Rule.SELF_MESSAGE, f"{kind}: NCCL sends to the rank itself only in a batch (dist.batch_isend_irecv)."
            )
        operation = self._operation(kind, [tensor] if kind == "send" else [], [tensor] if kind == "recv" else [])
        about = self._about(kind, tensor, peer)
        self._connect([(kind, peer)], about)
        if kind == "send" and tensor.numel() * tensor.element_size() <= BUFFERED:
            job = functools.partial(self._send_buffered, tensor, peer, tag)
        else:
            job = functools.partial(self._exchange, [(kind, tensor, peer, tag)])
        return self._begin(job, operation, about, [tensor])

    def _start_coalescing(self, device: torch.device | None = None) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device | None = None) -> QueuedWork | None:
        batch, self._batch = self._batch or [], None
        if not batch:  # collectives, queued one by one
            work, self._coalesced = self._coalesced, None
            return work
        reads = [tensor for kind, tensor, _, _ in batch if kind == "send"]
        writes = [tensor for kind, tensor, _, _ in batch if kind == "recv"]
        operation = self._operation("batch_isend_irecv", reads, writes)
        about = self._about("batch_isend_irecv", batch[0][1], None)
        self._connect([(kind, peer) for kind, _, peer, _ in batch if peer != self.rank()], about)
        exchange = functools.partial(self._exchange, batch, tells=True)
        return self._begin(exchange, operation, about, [t for _, t, _, _ in batch])

    def _connect(self, messages: Sequence[tuple[str, int]], about: dict[str, Any]) -> None:
        """Waits on the host until each peer of a first message has come to that message too."""
        mine, works = self.rank(), []
        for kind, peer in dict.fromkeys(messages):
            pair = (mine, peer) if kind == "send" else (peer, mine)
            if pair in self._met:
                continue
            self._met.add(pair)
            tag = _HELLO + (4 if pair[0] < pair[1] else 8)
            here, there = torch.zeros(1), torch.zeros(1)
            works += [self.control.send([here], peer, tag), self.control.recv([there], peer, tag)]
        if works:
            why = "a pair's first message makes their connection, for which both ranks wait"
            _wait_on_host(works, {**about, "why": why})

    def _send_buffered(self, tensor: torch.Tensor, peer: int, tag: int) -> None:
        self._unfinished = [work for work in self._unfinished if not work.is_completed()]
        self._unfinished += self._post(tensor.detach().clone(), peer, tag)

    def _post(self, tensor: torch.Tensor, peer: int, tag: int) -> list[Any]:
        header = _header(tensor, tag)
        flat = _bytes(tensor)
        works = [self.inner.send([header], peer, _HEADER)]
        if flat.numel():
            works.append(self.inner.send([flat], peer, _DATA))
        return works

    def _exchange(self, batch: Sequence[tuple[str, torch.Tensor, int, int]], tells: bool = False) -> None:
        """Runs messages at the same time, and waits for all of them; if it tells, a report says for which one."""
        ticket = self.this.queue.current if tells else None  # this runs in the queue's thread
        about = ticket.about if ticket is not None else None
        mine = self.rank()
        own = [(t, tag) for kind, t, peer, tag in batch if kind == "send" and peer == mine]
        sends = [w for kind, t, peer, tag in batch if kind == "send" and peer != mine for w in self._post(t, peer, tag)]
        waiting = []
        for kind, tensor, peer, tag in batch:
            if kind == "send":
                continue
            if peer == mine:
                source, sent = own.pop(0)
                check_tag(sent, tag, self.members[peer])
                if source.numel() != tensor.numel():
                    raise NcclRuleError(
                        Rule.MISMATCH,
                        f"A rank sends {source.numel()} elements to itself and receives {tensor.numel()}.",
                    )
                tensor.view(-1).copy_(source.view(-1))
                continue
            header = torch.zeros(3, dtype=torch.int64)
            waiting.append((self.inner.recv([header], peer, _HEADER), header, tensor, peer, tag))
        receives = []
        for work, header, tensor, peer, tag in waiting:
            if about is not None:
                about["why"] = f"its recv from rank {self.members[peer]} has no send"
            work.wait()
            sent_tag, nbytes, dtype = header.tolist()
            check_tag(sent_tag, tag, self.members[peer])
            mine_says = _header(tensor, tag).tolist()
            if [nbytes, dtype] != mine_says[1:]:
                raise NcclRuleError(
                    Rule.MISMATCH,
                    f"recv of {mine_says[1]} bytes of {dtype_name(tensor.dtype)} from rank {self.members[peer]}, which sent {nbytes} "
                    f"bytes of {'the same' if dtype == mine_says[2] else 'another'} type. On NCCL this is undefined: it may "
                    "hang, crash or give wrong data. Both sides must name the same size and type.",
                )
            if tensor.numel():
                receives.append(self.inner.recv([_bytes(tensor)], peer, _DATA))
        if about is not None:
            peers = [self.members[peer] for kind, _, peer, _ in batch if kind == "send" and peer != mine]
            about["why"] = f"its send to {name_ranks(peers)} has no recv" if peers else ""
        for work in [*receives, *sends]:
            work.wait()

    # collectives

    @_listed
    @_on_memory
    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> QueuedWork:
        """Queues an all_reduce."""
        [tensor] = tensors
        reduce = self._reduction("all_reduce", opts, tensor)
        job = functools.partial(
            self._reduced, reduce, tensor, lambda t, o: self.inner.allreduce([t], o), dist.AllreduceOptions()
        )
        return self._collective("all_reduce", job, [tensor], [tensor], reduce=reduce, same=tensor)

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> QueuedWork:
        """Queues several all_reduces."""
        works = [self.allreduce([tensor], opts) for tensor in tensors]
        return self._together(works, tensors)

    @_listed
    @_on_memory
    def reduce(self, tensors: list[torch.Tensor], opts: Any) -> QueuedWork:
        """Queues a reduce."""
        [tensor] = tensors
        reduce = self._reduction("reduce", opts, tensor)
        theirs = dist.ReduceOptions()
        theirs.rootRank = opts.rootRank

        def job() -> None:
            # other ranks keep their input, as after NCCL's out-of-place reduce; torch calls their tensor undefined
            scratch = tensor if self.rank() == opts.rootRank else tensor.clone()
            self._reduced(reduce, scratch, lambda t, o: self.inner.reduce([t], o), theirs)

        return self._collective("reduce", job, [tensor], [tensor], reduce=reduce, root=opts.rootRank, same=tensor)

    @_listed
    @_on_memory
    def broadcast(self, tensors: list[torch.Tensor], opts: Any) -> QueuedWork:
        """Queues a broadcast."""
        [tensor] = tensors
        root = opts.rootRank
        writes = [] if root == self.rank() else [tensor]
        return self._collective(
            "broadcast", lambda: self._spread(tensor, root), [tensor], writes, root=root, same=tensor
        )

    def _spread(self, tensor: torch.Tensor, root: int) -> None:
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        if tensor.numel():
            self.inner.broadcast([_bytes(tensor)], options).wait()

    @_on_memory
    def allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any = None) -> QueuedWork:
        """Queues an all_gather into a list; the parts may differ in size, which NCCL does as broadcasts."""
        [parts], [mine] = outputs, inputs
        self._expect_list("all_gather", parts)

        def job() -> None:
            parts[self.rank()].copy_(mine)
            for root, part in enumerate(parts):
                self._spread(part, root)

        sizes = [part.numel() for part in parts]
        return self._collective("all_gather", job, [mine], parts, same=mine.dtype, agreed=sizes)

    @_on_memory
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> QueuedWork:
        """Queues an all_gather into one tensor."""
        self._expect_size("all_gather_into_tensor", output, self.size() * input.numel(), "output")

        def job() -> None:
            parts = list(output.view(-1).view(self.size(), -1)) if output.numel() else []
            if parts:
                parts[self.rank()].copy_(input.view(-1))
            for root, part in enumerate(parts):
                self._spread(part, root)

        return self._collective("all_gather_into_tensor", job, [input], [output], same=input)

    @_on_memory
    def reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> QueuedWork:
        """Queues a reduce_scatter from a list; the parts may differ in size."""
        [output], [parts] = outputs, inputs
        self._expect_list("reduce_scatter", parts)
        check_complex("reduce_scatter", output.dtype)
        reduce = self._reduction("reduce_scatter", opts, output)
        sizes = [part.numel() for part in parts]
        job = functools.partial(self._reduce_scattered, reduce, output, parts)
        return self._collective("reduce_scatter", job, parts, [output], reduce=reduce, same=output.dtype, agreed=sizes)

    @_on_memory
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> QueuedWork:
        """Queues a reduce_scatter from one tensor."""
        self._expect_size("reduce_scatter_tensor", input, self.size() * output.numel(), "input")
        check_complex("reduce_scatter_tensor", output.dtype)
        reduce = self._reduction("reduce_scatter_tensor", opts, output)

        def job() -> None:
            parts = list(input.view(-1).view(self.size(), -1)) if input.numel() else []
            self._reduce_scattered(reduce, output.view(-1), parts)

        return self._collective("reduce_scatter_tensor", job, [input], [output], reduce=reduce, same=input)

    def _reduce_scattered(self, reduce: str, output: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        # gloo's own reduce_scatter is an all_reduce too
        whole = torch.cat([part.reshape(-1) for part in parts]) if len(parts) else output.new_empty(0)
        self._reduced(reduce, whole, lambda t, o: self.inner.allreduce([t], o), dist.AllreduceOptions())
        before = sum(part.numel() for part in parts[: self.rank()])
        output.view(-1).copy_(whole[before : before + output.numel()])

    @_on_memory
    def gather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], opts: Any) -> QueuedWork:
        """Queues a gather."""
        [mine], root = inputs, opts.rootRank
        check_complex("gather", mine.dtype)
        parts = outputs[0] if outputs and self.rank() == root else []
        if self.rank() == root:
            self._expect_list("gather", parts)

        def job() -> None:
            messages = [("recv", part, src, 0) for src, part in enumerate(parts)]
            self._exchange([("send", mine, root, 0), *messages])

        self._met |= {(member, root) for member in range(self.size())}  # its messages connect these pairs
        return self._collective("gather", job, [mine], parts, root=root, same=mine)

    @_on_memory
    def scatter(self, outputs: list[torch.Tensor], inputs: list[list[torch.Tensor]], opts: Any) -> QueuedWork:
        """Queues a scatter."""
        [mine], root = outputs, opts.rootRank
        parts = inputs[0] if inputs and self.rank() == root else []
        if self.rank() == root:
            self._expect_list("scatter", parts)

        def job() -> None:
            messages = [("send", part, dst, 0) for dst, part in enumerate(parts)]
            self._exchange([*messages, ("recv", mine, root, 0)])

        self._met |= {(root, member) for member in range(self.size())}
        return self._collective("scatter", job, parts, [mine], root=root, same=mine)

    @_on_memory
    def alltoall(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any = None) -> QueuedWork:
        """Queues an all_to_all of lists; the parts may differ in size."""
        self._expect_list("all_to_all", outputs)
        self._expect_list("all_to_all", inputs)
        return self._swap("all_to_all", outputs, inputs)

    @_on_memory
    def alltoall_base(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Any,
        input_split_sizes: Any,
        opts: Any = None,
    ) -> QueuedWork:
        """Queues an all_to_all of one tensor each way, cut along the first dimension."""
        op = "all_to_all_single"
        whole = [output, input]
        parts: list[list[torch.Tensor]] = []
        for tensor, sizes in zip(whole, (output_split_sizes, input_split_sizes), strict=True):
            if not sizes and tensor.size(0) % self.size():
                raise NcclRuleError(
                    Rule.MISMATCH,
                    f"{op}: {tensor.size(0)} rows can't be cut into {self.size()} equal parts; name split sizes.",
                )
            parts.append(
                list(tensor.split(list(sizes) or tensor.size(0) // self.size() or 1)) or [tensor] * self.size()
            )
        return self._swap(op, parts[0], parts[1], whole=whole)

    def _swap(
        self,
        op: str,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        whole: Sequence[torch.Tensor] = (),
    ) -> QueuedWork:
        def job() -> None:
            messages = [("send", part, dst, 0) for dst, part in enumerate(inputs)]
            self._exchange([*messages, *(("recv", part, src, 0) for src, part in enumerate(outputs))])

        self._met |= {(a, b) for a in range(self.size()) for b in range(self.size())}
        reads, writes = ([whole[1]], [whole[0]]) if whole else (list(inputs), list(outputs))
        return self._collective(op, job, reads, writes, same=reads[0].dtype)

    def barrier(self, opts: Any = None) -> QueuedWork:
        """Waits on the host until every rank is there, after all that is queued."""
        work = self._collective("barrier", lambda: None, [], [])
        work.blocks = True
        return work

    # torch's other names for the same operations

    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> QueuedWork:
        """Queues several all_gathers."""
        return self._together([self.all_gather_single(o, i) for o, i in zip(outputs, inputs, strict=True)], outputs)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> QueuedWork:
        """Queues several reduce_scatters."""
        works = [self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return self._together(works, outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def _get_sequence_number_for_group(self) -> int:
        return self._seq

    # groups that are split from this one

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Takes part in the split for a group that this rank is not in: ncclCommSplit waits on the host for every rank."""
        with _told({"op": "new_group", "why": "every rank takes part in the split"}):
            self.control.barrier().wait()

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Does nothing: the group has its connections already."""

    # what all of them share

    def _together(self, works: list[QueuedWork], outputs: Sequence[torch.Tensor]) -> QueuedWork:
        """One handle for several operations: the last one's, since they run in order."""
        for work in works[:-1]:
            work.operation.ordered = True
        last = works[-1]
        last.outputs = list(outputs)
        self._coalesced = last if self._batch is not None else None
        return last

    def _check(self, op: str, tensors: Sequence[torch.Tensor]) -> None:
        for tensor in tensors:
            check_dtype(op, tensor.dtype)
            check_dense(op, tensor)
        self.this.placement.check_collective(op, list(tensors))

    def _expect_list(self, op: str, parts: Sequence[torch.Tensor]) -> None:
        if len(parts) != self.size():
            raise NcclRuleError(
                Rule.MISMATCH, f"{op}: the list has {len(parts)} tensors; it needs one for each of {self.size()} ranks."
            )

    def _expect_size(self, op: str, tensor: torch.Tensor, numel: int, which: str) -> None:
        if tensor.numel() != numel:
            raise NcclRuleError(Rule.MISMATCH, f"{op}: the {which} has {tensor.numel()} elements; it needs {numel}.")

    def _reduction(self, op: str, opts: Any, tensor: torch.Tensor) -> str:
        name = reduction_name(opts.reduceOp) if opts is not None else "SUM"
        check_reduction(op, name, tensor.dtype)
        if name == "PREMUL_SUM":
            raise NcclRuleError(
                Rule.REDUCE_OP,
                f"{op}: NCCL has PREMUL_SUM, but this world can't play it. Multiply the tensor by the factor, then use SUM.",
            )
        return name

    def _reduced(
        self, reduce: str, tensor: torch.Tensor, run: Callable[[torch.Tensor, Any], Any], options: Any
    ) -> None:
        """Reduces in place with gloo, in the way and with the types of NCCL."""
        if not tensor.numel():
            return
        name, scratch = _reductions.get(reduce, reduce), tensor
        if tensor.dtype == torch.bool:  # NCCL reduces bool as bytes, and its sum as a maximum
            scratch, name = tensor.view(torch.uint8), {"SUM": "MAX", "PRODUCT": "MIN"}.get(name, name)
        elif tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:  # gloo can't add float8
            scratch = tensor.float()
        elif tensor.is_complex():
            scratch = torch.view_as_real(tensor)
        options.reduceOp = getattr(dist.ReduceOp, name)
        scales = reduce == "AVG" and scratch.is_floating_point()
        if scales:  # NCCL scales each input first, so that the sum can't overflow
            scratch /= self.size()
        run(scratch, options).wait()
        if reduce == "AVG" and not scales:
            scratch.copy_(torch.div(scratch, self.size(), rounding_mode="trunc"))
        if scratch.dtype != tensor.dtype and tensor.dtype != torch.bool and not tensor.is_complex():
            tensor.copy_(scratch)

    def _collective(
        self,
        op: str,
        job: Callable[[], None],
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
        *,
        root: int | None = None,
        reduce: str | None = None,
        same: torch.Tensor | torch.dtype | None = None,
        agreed: Sequence[int] = (),
    ) -> QueuedWork:
        """Queues a collective. `same` and `agreed` are what must be equal on all ranks."""
        self._check(op, [*reads, *writes])
        self._seq += 1
        said = [op, root, reduce, *agreed]
        if isinstance(same, torch.Tensor):
            said += [same.numel(), str(same.dtype)]
        elif same is not None:
            said.append(str(same))
        words = _call_in_words(op, root, reduce, same, self.members, agreed)
        tensor = next(iter([*reads, *writes]), None)

        def checked() -> None:
            self._compare(said, words)
            job()

        about = self._about(op, tensor, None)
        return self._begin(checked, self._operation(op, reads, writes), about, list(writes))

    def _compare(self, said: list[Any], words: str) -> None:
        """Raises NcclRuleError if the ranks don't make the same call."""
        digest = int.from_bytes(hashlib.blake2b(repr(said).encode(), digest_size=7).digest(), "big")
        text = words.encode()[:240]
        mine = torch.zeros(248, dtype=torch.uint8)
        mine[:8] = torch.tensor([digest], dtype=torch.int64).view(torch.uint8)
        mine[8 : 8 + len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        everyone = [torch.empty_like(mine) for _ in range(self.size())]
        self.control.allgather([everyone], [mine]).wait()
        digests = [int(row[:8].view(torch.int64)) for row in everyone]
        if len(set(digests)) == 1:
            return
        calls: dict[str, list[int]] = {}
        for member, row in zip(self.members, everyone, strict=True):
            calls.setdefault(bytes(row[8:].tolist()).rstrip(b"\0").decode(errors="replace"), []).append(member)
        told = "; ".join(f"{name_ranks(ranks)}: {call}" for call, ranks in calls.items())
        raise NcclRuleError(
            Rule.MISMATCH,
            f"The ranks don't make the same call ({told}). On NCCL this is undefined: it may hang, crash or give wrong data.",
        )

    def _operation(self, op: str, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> Operation:
        return Operation(op, user_line(), tuple(reads), tuple(writes))

    def _about(self, op: str, tensor: torch.Tensor | None, peer: int | None) -> dict[str, Any]:
        about: dict[str, Any] = {
            "waits_for": "queue",
            "op": op,
            "group": list(self.members),
            "seq": self._seq,
            "begun": user_line(),
        }
        if peer is not None:
            about["peer"] = self.members[peer]
        if len(self.members) < dist.get_world_size():
            about["why"] = f"in the group of {name_ranks(self.members)}"
        elif op == "send" and tensor is not None and tensor.numel() * tensor.element_size() > BUFFERED:
            about["why"] = "too large for NCCL's buffers, so it and all that is queued behind it wait for the receiver"
        if tensor is not None:
            about |= {"shape": list(tensor.shape), "dtype": dtype_name(tensor.dtype)}
        return about

    def _begin(
        self, job: Callable[[], None], operation: Operation, about: dict[str, Any], outputs: list[torch.Tensor]
    ) -> QueuedWork:
        def told() -> None:
            try:
                job()
            except NcclRuleError as error:
                begun = "" if operation.line is None else f" It was begun in line {operation.line}."
                raise NcclRuleError(error.rule, f"{error}{begun}", breaks_group=True) from None
            except Exception as error:
                error.breaks_group = True  # type: ignore[attr-defined]  # the other ranks may be left in the operation
                raise

        ticket = self.this.queue.put(told, **about)
        operation.finish, operation.done = ticket.wait, lambda: ticket.done
        self.this.placement.flight.begin(operation)
        return QueuedWork(self.this, ticket, operation, outputs)


@contextlib.contextmanager
def _told(about: dict[str, Any]) -> Iterator[None]:
    """Tells a report that the program waits for a peer here."""
    tell = lambda: {**about, "waits_for": "peer"}  # noqa: E731
    watch.waits.insert(0, tell)
    try:
        yield
    finally:
        watch.waits.remove(tell)


def _wait_on_host(works: list[Any], about: dict[str, Any]) -> None:
    """Waits for works in the program's own thread, and tells a report so."""
    with _told(about):
        for work in works:
            work.wait()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor's memory as bytes."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _header(tensor: torch.Tensor, tag: int) -> torch.Tensor:
    """What goes before a message: tag, bytes, and a number for the type."""
    kind = int.from_bytes(hashlib.blake2b(str(tensor.dtype).encode(), digest_size=6).digest(), "big")
    return torch.tensor([tag, tensor.numel() * tensor.element_size(), kind], dtype=torch.int64)


def _call_in_words(
    op: str, root: int | None, reduce: str | None, same: Any, members: tuple[int, ...], parts: Sequence[int] = ()
) -> str:
    """A call as its reader would say it: "all_reduce of 4 elements of float32 (SUM)", "all_gather of parts of 4, 3 elements"."""
    words = op
    if parts:
        sizes = [str(n) for n in parts[:8]] if len(set(parts)) > 1 else [str(parts[0])]
        words += f" of parts of {', '.join(sizes)}{', ...' if 8 < len(parts) and len(set(parts)) > 1 else ''} element{'' if set(parts) == {1} else 's'}"
    if isinstance(same, torch.Tensor):
        words += f" of {counted(same.numel(), 'element')} of {dtype_name(same.dtype)}"
    elif isinstance(same, torch.dtype):
        words += f" of {dtype_name(same)}"
    if root is not None:
        words += f", root {members[root]}"
    return words + (f" ({reduce})" if reduce else "")


# what torch for CPUs says where a program uses a part of torch.cuda that is not played here; the last, a torch for CUDA
_WITHOUT_CUDA = (
    "CUDA enabled",
    "_cuda_",
    "_CUDA",
    "accelerator device",
    "GPU modules",
    "have NCCL built in",
    "CUDA 11+",
    "No CUDA GPUs are available",
)


def _hint(error: BaseException) -> str | None:
    if isinstance(error, NcclRuleError) or not any(words in str(error) for words in _WITHOUT_CUDA):
        return None
    return "under rules='nccl', which has no GPU: this part of torch.cuda is not played; see docs/nccl_rules.md"


def _named_nccl(get_backend: Callable[..., str]) -> Callable[..., str]:
    """dist.get_backend, which says "nccl" of a group under the rules."""

    def call(*args: Any, **kwargs: Any) -> str:
        name = get_backend(*args, **kwargs)
        return "nccl" if name == BACKEND else name

    return call


_groups_made = itertools.count()


def _agree_on(ranks: Any) -> None:
    """Raises NcclRuleError if the ranks name different members of a new group; else all would wait in new_group."""
    store, number = dist.distributed_c10d._get_default_store(), next(_groups_made)
    mine = "all ranks" if ranks is None else name_ranks(sorted(ranks))
    store.set(f"allranks/new_group/{number}/{dist.get_rank()}", mine)
    said: dict[str, list[int]] = {}
    with _told({"op": "new_group", "why": "every rank takes part in making a group"}):
        for rank in range(dist.get_world_size()):
            said.setdefault(store.get(f"allranks/new_group/{number}/{rank}").decode(), []).append(rank)
    if len(said) > 1:
        told = "; ".join(f"{name_ranks(who)}: {members}" for members, who in said.items())
        raise NcclRuleError(
            Rule.MISMATCH,
            f"The ranks name different members of a new group ({told}). Every rank must call new_group with the same list, also for a "
            "group that it is not in; on NCCL all would wait in new_group.",
        )


def _new_group(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("use_local_synchronization"):
            _agree_on(ranks)
        return function(ranks, timeout, BACKEND if backend == "nccl" else backend, *args, **kwargs)

    return call


def _create(options: Any, _: Any) -> NcclRulesGroup:
    members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    data, control = (
        dist.ProcessGroupGloo(
            dist.PrefixStore(part, options.store), options.group_rank, options.group_size, timeout=options.timeout
        )
        for part in ("data", "control")
    )
    if options.global_ranks_in_group and c10d.is_initialized():
        world = c10d._get_default_group()
        if world.bound_device_id is not None and isinstance(world, NcclRulesGroup):
            world.perform_nocolor_split(world.bound_device_id)
    return NcclRulesGroup(data, control, members, _this[0])


def join(rank: int, world_size: int, backend: str, *rest: Any) -> dict[str, Any]:
    """Makes this engine a rank, as `engines.rank.join` does, in a group under NCCL's rules. Runs on the rank."""
    if not _this:
        _this.append(_Rank(rank, world_size))
        dist.get_backend = for_users(_named_nccl(dist.get_backend), dist.get_backend)
        dist.is_nccl_available = for_users(lambda: True, dist.is_nccl_available)
        dist.new_group = _new_group(dist.new_group)
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])
    described = on_rank.join(rank, world_size, BACKEND, *rest)
    # as a rank on a GPU: torch then splits the world's communicator for each new group, and every rank must come to that
    dist.group.WORLD.bound_device_id = torch.device("cuda", rank)
    on_rank.namespace().update(device=DEVICE)
    _this[0].placement.__enter__()  # for as long as the rank lives
    return {**described, "backend": WORDS}
