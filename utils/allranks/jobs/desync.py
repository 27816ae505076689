"""Who stopped a job: the ranks' recorded calls matched by group and number, and the first one where the ranks differ.

Calls are never matched by their place in a file: each rank counts the calls of each group, and the recorder keeps only
the last ones, so two files may begin at different calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from allranks.base.errors import capital, name_ranks
from allranks.jobs.coll_lines import calls_that_differ
from allranks.jobs.complaints import complaints, settings_words, slow_settings
from allranks.jobs.error_lines import SIGNALS
from allranks.jobs.formats import STANDS
from allranks.jobs.job import Call, Cause, Job, RankRecord
from allranks.jobs.logs import LOG, NO_GROUP
from allranks.jobs.names import operation
from allranks.jobs.reading import sources
from allranks.jobs.signs import sign

COALESCED = "COALESCED"  # a watchdog's word for several calls at once
# collectives whose inputs (outputs) must have one size on all ranks
SAME_IN = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
SAME_OUT = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
ALL_GIVE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")  # end nowhere before all have come
MOST_NAMED = 16  # ranks in a sentence
NO_FILE = "it was killed, or it was already in destroy_process_group, or its machine is gone"
# a watchdog speaks only of calls that its own rank enqueued
NO_TEXT = (
    "it was killed, or its text is not in this log, or it is alive and never enqueued the call: look how it ended, or "
    "where it stands"
)


@dataclass
class _Group:
    """One group: the collectives of each rank by number, and which ranks should make them."""

    name: str
    members: tuple[int, ...]
    calls: dict[int, dict[int, Call]] = field(default_factory=lambda: defaultdict(dict))
    enqueued: dict[int, int] = field(default_factory=dict)  # the last call that a watchdog says was made
    completed: dict[int, int] = field(default_factory=dict)  # the last one that it says has ended
    unsaid: frozenset[int] = frozenset()  # ranks whose texts name the call that waits, and not the last one made
    known: bool = True  # whether a file says who its members are

    def pending(self, rank: int) -> int | None:
        """The lowest call of a rank that has not ended."""
        found = [seq for seq, call in self.calls.get(rank, {}).items() if call.state != "completed"]
        done = self.completed.get(rank)
        if done is not None and self.enqueued.get(rank, 0) > done:
            found.append(done + 1)
        return min(found, default=None)

    def like(self, seq: int, rank: int) -> Call | None:
        """What a rank's file says of a call, or another rank's file where its own names only the number."""
        mine = self.calls.get(rank, {}).get(seq)
        return mine or next((calls[seq] for calls in self.calls.values() if seq in calls), None)

    def last(self, rank: int) -> int:
        return max(*self.calls.get(rank, {0: None}), self.enqueued.get(rank, 0), 0)

    def words(self) -> str:
        """The group as a reader knows it."""
        number, _, described = self.name.partition(" ")
        if described == "default_pg":
            return "the group of all ranks"
        if self.name == NO_GROUP:
            return "a group that the logs do not name"
        members = f" of {name_ranks(self.members)}" if self.known else ""
        return f"group {described or number}{members}"


def desync(job: Job) -> tuple[Cause, ...]:
    """The causes that the recorders' files show, the root first: calls that differ, ranks that never came, missing
    files.

    >>> def dump(rank, *ops):
    ...     made = enumerate(ops, 1)
    ...     calls = (profiles.Call(rank, op, group="0 default_pg", seq=i, state="scheduled") for i, op in made)
    ...     return profiles.RankRecord(rank, f"dump_{rank}", "flight recorder", world_size=3, calls=tuple(calls))
    >>> made = [("barrier", "all_reduce"), ("barrier", "broadcast"), ("barrier", "all_reduce")]
    >>> job = profiles.Job(tuple(dump(rank, *ops) for rank, ops in enumerate(made)))
    >>> desync(job)[0].cause
    'Rank 1 made another call than ranks 0 and 2: broadcast, where they made all_reduce.'
    """
    records = {r.rank: r for r in job.records if r.source in sources(STANDS) and r.rank_from != "unknown"}
    if not records:
        return _from_ras(job)
    stands = {r.rank: str(r.facts["stands"]) for r in job.records if r.facts.get("stands")}
    groups = _groups(job, records)
    found: list[tuple[int, Cause]] = []
    for group in groups.values():
        cause = (
            _differs(group)
            or _absent(group, groups, records, stands)
            or _apart(group, records)
            or _stuck(group, records)
        )
        if cause:
            found.append(cause)
    found += _messages(records)
    found += _stuck_watchdogs(records)
    found += _not_come(records)
    found += _failed(records)
    if not found:
        found += _alone(records, groups) or _only_ended(records)
    if not any(
        r.facts.get("not_come") or r.facts.get("first") or r.facts.get("by_launcher") for r in records.values()
    ):  # then the log names who it was
        found += _no_file(job, groups)
    return tuple(cause for _, cause in sorted(found, key=lambda item: item[0]))


def _tasks(numbers: Sequence[str]) -> str:
    several = len(numbers) > 1 or not numbers[0].isdigit()
    numbers = sorted(numbers, key=lambda n: int(re.split(r"\D", n)[0]))
    return f"task{'s' if several else ''} {', '.join(numbers[:8])}"


def _by_launcher(job: Job) -> tuple[Cause, ...]:
    """What a launcher says of processes whose ranks it does not name, and of its own end."""
    found = []
    for record in job.records:
        for local, code in record.facts.get("local_exits", {}).items():
            how = f"signal {-code} ({SIGNALS.get(-code, 'see man 7 signal')})" if code < 0 else f"exit code {code}"
            words = (
                f"The process with local rank {local} failed, with {how}: the first that its machine's torchrun saw."
            )
            why = "which rank that is, this log does not say; on another machine one may have failed earlier"
            if code == -9:
                why += ": look at dmesg and the scheduler's log for the out-of-memory killer"
            # a watchdog ends its own process
            gave_up = code == -6 and any(r.facts.get("timed_out") for r in job.records)
            if not gave_up:
                found.append(Cause(words, why, None, 0.6, "failed_rank"))
        lacked = [n for n, how in record.facts.get("tasks", {}).items() if how == "Out Of Memory"]
        if lacked or record.facts.get("out_of_memory"):
            who = f"Slurm's {_tasks(lacked)}" if lacked else "A process of the job"
            why = "Slurm's log says so; the others wait for it: look at the host's memory (sacct -o MaxRSS), at data "
            why += "loaders and at copies of the model on the host; ask for more with --mem"
            found.append(Cause(f"{who} was ended for lack of the host's memory.", why, None, 0.9, "failed_rank"))
        others = {
            n: how
            for n, how in record.facts.get("tasks", {}).items()
            if how not in ("Out Of Memory", "Killed", "Terminated")
        }
        if others and not lacked:
            how = next(iter(others.values()))
            alike = [numbers for numbers, end in others.items() if end == how]
            why = (
                "Slurm's log names this end first; with one task a rank, a task's number is the rank. Look at its lines"
            )
            found.append(Cause(f"Slurm's {_tasks(alike)} failed: {how}.", why, None, 0.7, "failed_rank"))
        if signal := record.facts.get("stopped"):
            name = f" (signal {signal})" if signal.isdigit() else f" ({signal})"
            why = (
                "the job's limit of time has passed: it needs more, or it hung until then"
                if "time limit" in signal
                else (
                    "a scheduler sends it at the job's limit of time or when it takes the machine back, or a person did"
                )
            )
            if signal in ("1", "SIGHUP"):
                why = "SIGHUP: its terminal or connection was closed; in tmux or by setsid it goes on without one"
            words, kind = f"The launcher was ended from outside{name}.", "stopped"
            if "failure" in signal:
                words = f"A {'machine' if 'node' in signal else 'task'} of the job failed, and Slurm ended the others."
                why, kind = (
                    "Slurm's log says so; look which it was (sacct, srun's lines), and at its end",
                    "failed_rank",
                )
            found.append(Cause(words, why, None, 0.8, kind))
    return tuple(dict.fromkeys(found))


def by_logs(job: Job) -> tuple[Cause, ...]:
    """What NCCL's own log shows to be slow; and, of a log that shows nothing wrong, that it does not.

    >>> by_logs(Job(()))
    ()
    """
    told = [r for r in job.records if r.facts.get("said")]
    causes = [cause for r in job.records for cause in r.facts.get("causes", ())]
    later = [cause for r in job.records for cause in r.facts.get("later", ())]
    causes += calls_that_differ(calls for r in job.records for calls in r.facts.get("enqueued_calls", ()))
    if not told:
        return (*causes, *_by_launcher(job), *later)
    settings = {name: value for r in told for name, value in r.facts.get("settings", {}).items()}
    warnings = dict.fromkeys(w for r in told for w in r.facts.get("warnings", ()))
    warned = {w: ranks for r in told for w, ranks in r.facts.get("warned", {}).items()}
    found = [*causes, *complaints(warnings, warned)]
    found += [*_by_launcher(job), *later]
    slow = next((r for r in told if r.facts.get("sockets")), None)
    if slow is not None:
        found.append(_over_sockets(slow, settings))
        settings.pop("NCCL_IB_DISABLE", None)  # told with the sockets
    found += slow_settings(settings, [line for r in told for line in r.facts.get("without_gdr", ())])
    for r in told:
        for words in r.facts.get("bad_links", ()):
            where = (
                "nvidia-smi topo -m shows it; ranks may be placed better, and what is slow here is slow in each ring"
            )
            found.append(Cause(f"{capital(words)}.", where, None, 0.5, "slow_links"))
    if found or any(r.calls or r.source not in (LOG, "nvidia-smi topo") for r in job.records):
        return tuple(found)
    words = "The logs say what was chosen, and nothing of it is wrong by itself."
    return (Cause(words, "; ".join(told[0].facts["said"][:2]), None, 0.5, "no_times"),)


def _over_sockets(slow: RankRecord, settings: dict[str, str]) -> Cause:
    """Messages between machines that go by TCP, and which of the environment's variables asks for it."""
    why = "no InfiniBand device was found" if slow.facts.get("missing_ib") else "NCCL chose no other network"
    asked = settings_words(settings, "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA")
    evidence = f"{asked or why}, and connections go by {', '.join(slow.facts['sockets'])}"
    if "lo" in slow.facts["sockets"]:
        evidence += "; lo is the loopback, which reaches no other machine"
    advice = "unset them where the cluster has InfiniBand, RoCE or EFA, and name the interface that joins the machines"
    if not asked:
        advice = "on a cluster with InfiniBand, RoCE or EFA, look at NCCL_IB_HCA, the drivers and NCCL_NET"
    words = "Messages between machines go through sockets: a wrong interface?"
    return Cause(words, f"{evidence}: {advice}", None, 0.8 if asked else 0.6, "wrong_interface")


def _failed(records: dict[int, RankRecord]) -> list[tuple[int, Cause]]:
    """Ranks whose log has an error of their own, which others then wait for."""
    failed = {rank: str(r.facts["error"]) for rank, r in records.items() if r.facts.get("error")}
    if not failed:
        return []
    waits = [rank for rank, r in records.items() if r.facts.get("timed_out") and rank not in failed]
    first = [rank for rank in failed if records[rank].facts.get("first")] or sorted(failed)
    later = [rank for rank in failed if rank not in first]
    words = f"{capital(name_ranks(first))} failed" + (f" first, then {name_ranks(later)}" if later else "")
    words += f", and {name_ranks(waits)} waited until the watchdog gave up." if waits else "."
    evidence = "; ".join(f"rank {rank}: {failed[rank]}" for rank in [*first, *later][:3])
    if not records[first[0]].facts.get("by_launcher") and (known := sign(failed[first[0]])):
        evidence = f"{evidence.removesuffix('.')}. {known[0].cause[:-1]}: {known[0].evidence}"
    if all(records[rank].facts.get("at_once") for rank in failed):
        words = f"{words[:-1]} in the same second."
        evidence += "; the launcher does not say which was first: look for the first error above its report"
        if all("signal 6 " in how for how in failed.values()):
            evidence += ", and for a watchdog's text, as a watchdog ends its own process so"
    ended = [rank for rank, r in records.items() if r.facts.get("ended") and rank not in failed]
    if ended:
        alike = [rank for rank in ended if records[rank].facts["ended"] == records[ended[0]].facts["ended"]]
        others = f", {name_ranks(rest)} otherwise" if (rest := [rank for rank in ended if rank not in alike]) else ""
        evidence += f"; {name_ranks(alike)} ended by {records[ended[0]].facts['ended']}{others}, which follows from it"
    lone = first[0] if len(first) == 1 else None
    sure = 0.9 if waits else 0.7 if records[first[0]].facts.get("first") or len(first) == 1 else 0.6
    return [(-1, Cause(words, evidence, None, sure, "failed_rank", lone))]


def _only_ended(records: dict[int, RankRecord]) -> list[tuple[int, Cause]]:
    """Ranks that were ended, where nothing says what came before."""
    ended = {rank: str(r.facts["ended"]) for rank, r in records.items() if r.facts.get("ended")}
    if not ended:
        return []
    words = (
        f"{capital(name_ranks(sorted(ended)))} ended as ranks do after another failure, and nothing here says which."
    )
    why = "; ".join(f"rank {rank}: {how}" for rank, how in sorted(ended.items())[:3])
    evidence = (
        f"{why}. A launcher or a scheduler sends SIGTERM, a watchdog aborts: look for the first error or a time limit"
    )
    return [(5, Cause(words, evidence, None, 0.4, "no_times", None))]


def _alone(records: dict[int, RankRecord], groups: dict[str, _Group]) -> list[tuple[int, Cause]]:
    """Where nothing differs between the logs that are here: the call on which each rank's watchdog gave up."""
    stuck = {
        rank: min(r.calls, key=lambda call: call.seq or 0)
        for rank, r in records.items()
        if r.source == "watchdog" and r.calls
    }
    if not stuck:
        return _behind(records, groups)
    for group in groups.values():  # of some ranks only the numbers are here, and other ranks' texts say what these are
        for rank in group.members:
            if rank in records and rank not in stuck and (call := group.like(group.pending(rank) or 0, rank)):
                stuck[rank] = call
    waits = "; ".join(
        f"{name_ranks(ranks)} waited in {'' if call.seq is None else f'call {call.seq}'}{_in_group(call, groups)}"
        f"{'' if call.seq is None else ', '}{_said(call)}"
        for ranks, call in _by_call(stuck)
    )
    words = f"{capital(waits)}, until the watchdog gave up."
    waited = max(records[rank].facts.get("waited_s") or 0 for rank in stuck)
    evidence = (f"after {waited:,.0f} s; " if waited else "") + (
        "the logs of the other ranks would say who did not come: the rank whose last call has a lower number, or is "
        "another one"
    )
    return [(4, Cause(words, evidence, None, 0.6, "hang", None))]


def _behind(records: dict[int, RankRecord], groups: dict[str, _Group]) -> list[tuple[int, Cause]]:
    """Of ranks whose log has only how many calls were enqueued and completed: in which they stood."""
    found: list[tuple[int, Cause]] = []
    waits = [rank for rank, record in records.items() if record.facts.get("gave_up")]
    for rank, record in records.items():
        for name, last in record.facts.get("enqueued", {}).items():
            done = groups[name].completed.get(rank, last)
            if record.source == "watchdog" and 0 <= done < last:
                where = groups[name].words()
                words = f"Rank {rank} had not completed call {done + 1} of {where} when a watchdog gave up."
                why = (
                    f"it enqueued {last} calls there, of which the last completed is {done}; "
                    "the lines that name the call are not here"
                )
                found.append((4, Cause(words, why, None, 0.6, "hang", None)))
            elif record.source == "watchdog" and done == last > 0 and waits and rank not in waits:
                gave_up = f"when the watchdog of {name_ranks(waits)} gave up"
                words = f"Rank {rank} waited in no call of {groups[name].words()} {gave_up}."
                why = f"it had ended all {last} calls that it enqueued there: it did not come to a later one, or waits "
                why += "elsewhere; look where it stands (py-spy dump)"
                found.append((3, Cause(words, why, None, 0.5, "missing_rank", None)))
    return found


def _by_call(calls: dict[int, Call]) -> list[tuple[list[int], Call]]:
    """Each different call with the ranks that are in it."""
    found: dict[object, tuple[list[int], Call]] = {}
    for rank, call in sorted(calls.items()):
        found.setdefault((call.group, call.seq, _shape(call)), ([], call))[0].append(rank)
    return list(found.values())


def _in_group(call: Call, groups: dict[str, _Group]) -> str:
    named = call.group in groups and call.group != NO_GROUP
    return f" of {groups[str(call.group)].words()}" if named else ""


def _not_come(records: dict[int, RankRecord]) -> list[tuple[int, Cause]]:
    """Ranks that a monitored_barrier names."""
    late = {rank: str(r.facts["not_come"]) for rank, r in records.items() if r.facts.get("not_come")}
    if not late:
        return []
    words = f"{capital(name_ranks(sorted(late)))} did not come to monitored_barrier."
    who, stand = ("it", "it stands") if len(late) == 1 else ("they", "they stand")
    evidence = f"{late[min(late)]}: look how {who} ended, or where {stand}"
    return [(0, Cause(words, evidence, None, 0.9, "missing_rank", min(late) if len(late) == 1 else None))]


def _stuck_watchdogs(records: dict[int, RankRecord]) -> list[tuple[int, Cause]]:
    """Ranks whose watchdog itself hung: their host is in a call of CUDA or NCCL that does not return."""
    stuck = {rank: r.facts["stuck_s"] for rank, r in records.items() if r.facts.get("stuck_s")}
    if not stuck:
        return []
    several = len(stuck) > 1
    plural, hangs, waits = ("s", "these ranks hang", "wait") if several else ("", "this rank hangs", "waits")
    words = (
        f"The watchdog{plural} of {name_ranks(sorted(stuck))} got stuck: "
        f"{hangs} in a call of CUDA or NCCL, or {waits} for Python's lock."
    )
    told = f"no progress for {max(stuck.values()):,.0f} s; " if max(stuck.values()) >= 1 else ""
    evidence = (
        f"{told}a rank in this state finishes no call, and others wait for it: "
        "look at its stack (py-spy dump, gdb) and at its GPU (dmesg, nvidia-smi)"
    )
    return [(0, Cause(words, evidence, None, 0.7, "hang", min(stuck) if not several else None))]


def _messages(records: dict[int, RankRecord]) -> list[tuple[int, Cause]]:
    """The messages that wait because the other side never sends or receives them, counted pair by pair from the first
    call on."""
    sent: dict[tuple[str | None, int, int], list[Call]] = defaultdict(list)
    got: dict[tuple[str | None, int, int], list[Call]] = defaultdict(list)
    for rank, record in records.items():
        for call in record.calls:
            if call.op == "send" and call.peer is not None:
                sent[call.group, rank, call.peer].append(call)
            elif call.op == "recv" and call.peer is not None:
                got[call.group, call.peer, rank].append(call)
    found = []
    for key in sorted({*sent, *got}, key=str):
        _, source, target = key
        if not {source, target} <= set(records) or any(records[r].facts.get("first_record") for r in (source, target)):
            continue  # the recorder dropped its first calls: the counts do not begin together
        sends, receives = sent[key], got[key]
        longer = sends if len(sends) > len(receives) else receives
        lonely = [c for c in longer[min(len(sends), len(receives)) :] if c.state != "completed"]
        if lonely:
            found.append((0, _lonely(lonely[0], longer.index(lonely[0]) + 1, source, target)))
    return found


def _lonely(call: Call, number: int, source: int, target: int) -> Cause:
    """The words for a message of which only one side exists."""
    batch = call.label.partition(" of batch ")[2]
    part = f", in its batch {batch}" if batch else ""
    if call.op == "recv":
        words = f"Rank {target} waits for a message from rank {source} that rank {source} never sends."
        evidence = (
            f"receive {number} of rank {target} from rank {source}{part}{_at(call)} has no send: rank {source} made "
            f"{number - 1} to it"
        )
    else:
        words = f"Rank {source} sends a message to rank {target} that rank {target} never receives."
        evidence = (
            f"send {number} of rank {source} to rank {target}{part}{_at(call)} has no receive: rank {target} made "
            f"{number - 1} from it"
        )
    return Cause(words, evidence, None, 0.95, "missing_message", None)


def _groups(job: Job, records: dict[int, RankRecord]) -> dict[str, _Group]:
    known = {name: ranks for record in records.values() for name, ranks in record.groups.items()}
    groups: dict[str, _Group] = {}
    for rank, record in sorted(records.items()):
        for call in record.calls:
            if call.group is None or call.seq is None or call.op in ("send", "recv"):
                continue
            group = groups.setdefault(call.group, _Group(call.group, ()))
            group.calls[rank].setdefault(call.seq, call)
        for name, number in record.facts.get("enqueued", {}).items():
            groups.setdefault(name, _Group(name, ())).enqueued[rank] = number
        for name, number in record.facts.get("completed", {}).items():
            groups[name].completed[rank] = number
    for name, group in groups.items():
        speak = {*group.calls, *group.enqueued}
        group.unsaid = frozenset(r for r in speak if records[r].source == "watchdog" and r not in group.enqueued)
        logged = all(records[r].source == "watchdog" for r in speak)
        whole = logged and len(speak) > 1 and speak == set(records)  # all of them speak of it: it may well be all ranks
        everyone = range(job.world_size or 0) if name.endswith("default_pg") or name == NO_GROUP or whole else ()
        group.known = name in known or not logged
        group.members = tuple(sorted({*known.get(name, ()), *everyone, *group.calls, *group.enqueued}))
    return groups


def _shape(call: Call) -> tuple[object, ...]:
    """What all ranks of a call must have alike."""
    return (
        call.op,
        call.dtype if call.op not in ("gather", "scatter") else None,
        call.in_elements if call.op in SAME_IN or call.label == COALESCED else None,
        call.out_elements if call.op in SAME_OUT else None,
    )


def _said(call: Call) -> str:
    """A call in words: all_reduce of 8 float32."""
    name = "coalesced calls" if call.label == COALESCED else call.op
    if call.in_elements is None:
        return name
    return f"{name} of {call.in_elements:,} {call.dtype or ('element' if call.in_elements == 1 else 'elements')}"


def _at(call: Call) -> str:
    if call.where and (cell := re.search(r"/ipykernel_\d+/\d+\.py:(\d+)$", call.where)):
        return f" in line {cell[1]} of a notebook's cell"
    return f" at {call.where}" if call.where else ""


def _common(group: _Group) -> Iterable[int]:
    """The numbers of calls that more than one rank's file still has."""
    counted = Counter(seq for calls in group.calls.values() for seq in calls)
    return sorted(seq for seq, ranks in counted.items() if ranks > 1)


def _differs(group: _Group) -> tuple[int, Cause] | None:
    """The first call for which two ranks' files say different things."""
    for seq in _common(group):
        here = {rank: calls[seq] for rank, calls in group.calls.items() if seq in calls}
        kinds = Counter(_shape(call) for call in here.values())
        if len(kinds) == 1:
            continue
        usual = kinds.most_common(1)[0][0]
        odd = [rank for rank, call in here.items() if _shape(call) != usual]
        rest = [rank for rank in here if rank not in odd]
        return 0, _difference(group, seq, here, odd, rest)
    return None


def _difference(group: _Group, seq: int, here: dict[int, Call], odd: list[int], rest: list[int]) -> Cause:
    mine, theirs = here[odd[0]], here[rest[0]]
    a, b, what = mine.op, theirs.op, "another call"
    if mine.op == theirs.op:
        a, b, what = _said(mine), _said(theirs), "the call with another size"
        if mine.dtype != theirs.dtype:
            what = "the call with another type"
    alone = len(odd) == 1 and len(rest) > 1
    who = capital(name_ranks(odd))
    words = f"{who} made {what} than {name_ranks(rest)}: {a}, where {'they' if len(rest) > 1 else 'it'} made {b}."
    sides = "; ".join(f"rank {rank}: {_said(here[rank])}{_at(here[rank])}" for rank in (odd[0], rest[0]))
    evidence = f"call {seq} of {group.words()} is the first that differs: {sides}" + _shifted(
        group, seq, odd[0], rest[0]
    )
    later = [rank for rank in group.calls if rank not in here and group.last(rank) < seq]
    if later:
        evidence += f"; {name_ranks(later)} did not make it"
    return Cause(words, evidence, None, 0.95 if alone else 0.9, "desync", odd[0] if alone else None)


def _shifted(group: _Group, seq: int, odd: int, other: int) -> str:
    """Whether one rank made the others' calls in another order, or one call fewer or more."""
    mine, theirs = group.calls[odd], group.calls[other]
    mine_next, theirs_next = mine.get(seq + 1), theirs.get(seq + 1)
    ahead = theirs_next is not None and _shape(mine[seq]) == _shape(theirs_next)
    behind = mine_next is not None and _shape(mine_next) == _shape(theirs[seq])
    if ahead and behind:
        return f"; rank {odd} made the same two calls in the other order"
    if ahead:
        return f"; rank {odd}'s call {seq} is like the others' call {seq + 1}: it left out one call"
    return f"; rank {odd}'s call {seq + 1} is like the others' call {seq}: it made one call more" if behind else ""


def _absent(
    group: _Group, groups: dict[str, _Group], records: dict[int, RankRecord], stands: dict[int, str]
) -> tuple[int, Cause] | None:
    """The first call that some ranks made and others never did."""
    counts = {rank: group.last(rank) for rank in group.members if rank in records}
    if not counts or min(counts.values()) == max(counts.values()):
        return None
    least = min(counts.values())
    absent = [rank for rank, last in counts.items() if last == least]
    came = [rank for rank, last in counts.items() if last > least]
    if any((group.pending(rank) or least + 1) <= least for rank in came):
        return None  # an earlier call, which all of them made, is the one that waits
    call = next((group.calls[rank][least + 1] for rank in came if least + 1 in group.calls[rank]), None)
    if call is None:
        return None
    others = [_elsewhere(rank, group, groups, records) for rank in absent]
    did = "; ".join(_did(rank, group, least, stands) for rank in absent[:3])
    words = f"{capital(name_ranks(absent))} never made call {least + 1} of {group.words()}, {_said(call)}."
    unsaid = [rank for rank in absent if rank in group.unsaid]
    if unsaid:
        words = f"{words[:-1]}, or {'still waits' if len(absent) == 1 else 'still wait'} in call {least}."
    waiting = f"{name_ranks(came)} made it{_at(call)}"
    if any(others):
        waiting += "; " + "; ".join(other for other in others if other)
    sure = 0.95 if any(records[rank].facts.get("timed_out") for rank in came) else 0.85
    if unsaid:
        sure -= 0.3  # its text does not say what it enqueued
    if all(others):
        sure -= 0.3  # it waits for somebody itself: the cause is there
    cause = Cause(
        words, f"{waiting}; {did}", None, round(sure, 2), "missing_rank", absent[0] if len(absent) == 1 else None
    )
    return (5 if all(others) else 3 if any(others) else 2), cause


def _did(rank: int, group: _Group, last: int, stands: dict[int, str]) -> str:
    call = group.calls.get(rank, {}).get(last)
    said = f"rank {rank} made no call of this group" if call is None else f"rank {rank}'s last call there is {last}"
    if call is not None:
        said += f", {_said(call)}{_at(call)}" + (", which has not ended there" if call.state != "completed" else "")
    return said + (f"; it stands at {stands[rank]}" if rank in stands else "")


def _elsewhere(rank: int, group: _Group, groups: dict[str, _Group], records: dict[int, RankRecord]) -> str:
    """That a rank waits in a call of another group or in a send or receive, or nothing."""
    open_calls = [c for c in records[rank].calls if c.state != "completed" and c.group != group.name]
    if not open_calls:
        return ""
    call = open_calls[0]
    place = groups[call.group].words() if call.group in groups else "another group"
    if call.op in ("send", "recv"):
        return f"rank {rank} itself waits in {call.op} with rank {call.peer}{_at(call)}"
    return f"rank {rank} itself waits in call {call.seq} of {place}{_at(call)}"


def _apart(group: _Group, records: dict[int, RankRecord]) -> tuple[int, Cause] | None:
    """Ranks that wait in calls of one group that lie so far apart that they can't be of one order of calls."""
    if not (group.known or group.name.endswith("default_pg")):
        return None  # groups of other members may have this name
    timed_out = [rank for rank in group.members if rank in records and records[rank].facts.get("timed_out")]
    waits = {rank: seq for rank in timed_out if (seq := group.pending(rank)) is not None}
    low = min(waits.values(), default=0)
    behind, ahead = ([r for r, seq in waits.items() if keep(seq)] for keep in (low.__eq__, (low + 1).__lt__))
    call = group.like(low, behind[0]) if ahead else None
    if call is None or call.op not in ALL_GIVE:
        return None
    other = group.like(waits[ahead[0]], ahead[0])
    verb = "waits" if len(behind) == 1 else "wait"
    words = (
        f"{capital(name_ranks(ahead))} went on past call {low} of {group.words()}, {_said(call)}, in which "
        f"{name_ranks(behind)} {verb}: these ranks do not make the same calls."
    )
    evidence = (
        f"rank {ahead[0]} waits in call {waits[ahead[0]]}{f', {_said(other)}{_at(other)}' if other else ''}, and call "
        f"{low + 1} has ended there, to which {name_ranks(behind)} never came: one call more or fewer, or another "
        f"order, at call {low} or before (TORCH_DISTRIBUTED_DEBUG=DETAIL names the first that differs)"
    )
    return 1, Cause(words, evidence, None, 0.75, "desync", None)


def _stuck(group: _Group, records: dict[int, RankRecord]) -> tuple[int, Cause] | None:
    """All ranks made the lowest call that has not ended, which some of them never finished."""
    here = [rank for rank in group.members if group.last(rank)]
    waits = {rank: seq for rank in here if (seq := group.pending(rank)) is not None}
    if not waits or len(here) < 2 or len(here) < len(group.members):
        return None
    if not group.known and set(records) - set(here):
        return None  # one of the others may be a member, and the one that did not come
    low = min(waits.values())
    stuck = [rank for rank, seq in waits.items() if seq == low]
    call = group.like(low, stuck[0])
    if any(group.last(rank) < low for rank in here):
        return None
    timed_out = any(records[rank].facts.get("timed_out") for rank in stuck)
    what = f", {_said(call)}" if call else ""
    open_end = timed_out and all(r.world_size is None for r in records.values())  # of a log, which may be a part of one
    if open_end and max(r.facts.get("processes", 0) for r in records.values()) > len(here):
        return None  # NCCL's lines are of more processes than have a text of a watchdog
    who = f"The {len(here)} ranks that have a text here" if open_end else "Every rank"
    words = f"{who} made call {low} of {group.words()}{what}, and {name_ranks(stuck)} did not finish it."
    place = _at(call) if call else ""
    named = [rank for rank in here if low in group.calls.get(rank, {})]
    unsaid = [rank for rank in stuck if rank not in named]  # their text has the call's number only
    alike = f"operation, size and type are alike on {name_ranks(named) if unsaid else 'all'}{place}"
    evidence = f"{alike}: the program is right here; look at the links and machines"
    if unsaid:
        evidence = f"{alike}; of {name_ranks(unsaid)} only the call's number is told; look at the links and machines"
    states = {rank: group.calls[rank][low].state for rank in stuck if low in group.calls.get(rank, {})}
    for state in sorted(set(states.values())):
        if any(records[rank].source == "flight recorder" for rank in states):
            evidence += f"; it is {state} on {name_ranks([r for r, s in states.items() if s == state])}"
    for rank in [rank for rank in here if rank not in stuck][:3]:
        later = f" and waits in call {waits[rank]}" if rank in waits else ""
        evidence += f"; rank {rank} finished it{later}"
    most = max(group.last(rank) for rank in here)
    if most > low:
        evidence += f"; later calls, up to {most}, wait behind it"
    if open_end:
        evidence += f"; if the job has more than {len(here)} ranks, one without a text here may not have come"
    if not timed_out:
        evidence += ". If the files were written while the job ran well, this is only the call of that moment"
    return 4, Cause(words, evidence, None, 0.7 if timed_out else 0.4, "hang", None)


def _no_file(job: Job, groups: dict[str, _Group]) -> list[tuple[int, Cause]]:
    """Ranks of the world without a file: a clue, and the stronger one if all others wait for them."""
    if not job.missing or any(r.facts.get("repeated") for r in job.records):
        return []  # Ray prints one text for several ranks: who has none says nothing
    gone = list(job.missing)
    absent = frozenset(gone)
    waits = [g for g in groups.values() if absent & set(g.members) and _waiting(g)]
    # where all other members wait in one call, the member without a file is the one that did not come
    awaited = {r for g in waits if _all_wait(g, absent) for r in absent & set(g.members)}
    logged = any(r.source == "watchdog" for r in job.records)
    if logged and not any(r.facts.get("timed_out") or r.facts.get("stuck_s") for r in job.records):
        if any(r.facts.get("error") for r in job.records):
            return []  # a rank failed, and no watchdog was asked
    compared = [r for r in job.records if r.source == "watchdog" and r.calls and not r.facts.get("timed_out")]
    if compared and not any(r.facts.get("timed_out") for r in job.records):
        return []  # torch compared the calls of two ranks before they ran: no watchdog had a part in it
    start = "No watchdog's text is" if logged else "There is no dump"
    words = f"{start} of {name_ranks(gone)}."
    if len(gone) > MOST_NAMED:
        words = f"{start} of {len(gone):,} other ranks."
    if len(gone) > 1 and len(awaited) == 1:
        words = f"{words[:-1]}, and the other ranks wait for rank {min(awaited)}."
        gone = sorted(awaited)
    tail = "no other rank waits for it in a call of its files"
    if told := waits or [g for g in groups.values() if not g.known and _waiting(g)]:
        tail = _waiting(told[0]) + ("" if waits else ", whose members no file names")
    why = NO_TEXT if logged else f"{NO_FILE}: look how {'it' if len(gone) == 1 else 'they'} ended"
    lone = gone[0] if len(gone) == 1 else None
    few = logged and len(job.missing) > 1  # a log that lacks several ranks is a part of one, as pasted into a report
    sure = 0.4 if not waits or few else 0.7 if logged else 0.85
    return [(1 if waits and not few else 6, Cause(words, f"{why}; {tail}", None, sure, "missing_rank", lone))]


def _all_wait(group: _Group, gone: frozenset[int]) -> bool:
    """Whether only one member of the group has no file, and all others wait in the group's last call."""
    rest = [rank for rank in group.members if rank not in gone]
    last = {rank: max(group.calls[rank]) for rank in rest if group.calls.get(rank)}
    if len(rest) != len(group.members) - 1 or len(last) != len(rest) or len(set(last.values())) != 1:
        return False
    return all(group.calls[rank][seq].state != "completed" for rank, seq in last.items())


def _from_ras(job: Job) -> tuple[Cause, ...]:
    """Of RAS's counts of calls: who does not answer, and whose count is lower than the others'."""
    asked = [r for r in job.records if r.source == "ras"]
    causes = []
    for rank, why in sorted(asked[0].facts["absent"].items()) if asked else ():
        causes.append(Cause(f"Rank {rank} does not answer.", why, None, 0.9, "missing_rank", rank))
    for op in sorted({op for record in asked for op in record.facts["counts"]}):
        counts = {r.rank: r.facts["counts"].get(op, 0) for r in asked}
        most = max(counts.values())
        behind = [rank for rank, count in counts.items() if count < most]
        ahead = [rank for rank, count in counts.items() if count == most]
        if behind:
            words = f"{capital(name_ranks(behind))} made fewer calls of {operation(op)} than the others."
            evidence = f"rank {behind[0]}: {counts[behind[0]]:,}, the others up to {most:,}, when RAS asked"
            if len(behind) > len(ahead):
                words = f"{capital(name_ranks(ahead))} made more calls of {operation(op)} than the other {len(behind)}."
                least = min(counts.values())
                rest = f"{least:,}" if len(set(counts.values())) == 2 else f"{least:,} or more"
                evidence = f"{name_ranks(ahead)}: {most:,}, the others {rest}, when RAS asked"
            lone = behind[0] if len(behind) == 1 else None
            causes.append(
                Cause(
                    words,
                    evidence + "; ask again: of a job that runs, counts differ for a moment",
                    None,
                    0.5,
                    "desync",
                    lone,
                )
            )
    return tuple(causes)


def _waiting(group: _Group) -> str:
    """Which ranks wait in which call of a group."""
    speak = {*group.calls, *group.enqueued}
    stuck = {rank: call for rank in speak if (call := group.like(group.pending(rank) or -1, rank)) is not None}
    return "; ".join(
        f"{name_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in call {call.seq} of {group.words()}, "
        f"{_said(call)}{_at(call)}"
        for ranks, call in _by_call(stuck)
    )
