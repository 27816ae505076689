"""Errors in any program's words: which line is one, who says it, what it means, and which came first.

A log has more programs in it than anybody lists. So a line is read by its form: labels of launchers and loggers, then a
level, the type of an exception, or how a process ended. `signs` says what the words mean, where they are known.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from allranks.base.errors import capital, counted, listed, name_ranks
from allranks.jobs.complaints import shortened
from allranks.jobs.job import MAX_RANKS, Cause
from allranks.jobs.signs import sign

__all__ = ["SENT", "SIGNALS", "Errors", "rank_in_label", "signal_of", "thrown"]

MOST = 300  # kinds of errors of a file
MOST_SHAPES = 20_000
DIGITS = {ord(digit): None for digit in "0123456789"}  # for str.translate: what remains is a line's shape
_MAY_DIFFER = re.compile(r"(?i)exit|code|signal|status|local_rank")  # there the number says whether it is an error
SIGNALS = {
    4: "SIGILL",
    9: "SIGKILL, as the out-of-memory killer sends it",
    11: "SIGSEGV",
    7: "SIGBUS, as of a full /dev/shm",
    6: "SIGABRT",
}
SENT = (1, 2, 3, 15)  # signals that a launcher, a scheduler or a person sends to ranks that run
_NUMBERS = {"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "SEGV": 11, "TERM": 15}
# of loggers: a time, a level, a place in a source, a process; of launchers: a rank, a host
_LABEL = re.compile(
    r"(?:(?=[\w.-]{0,80}\d)[\w.-]{1,80}(?:: | +\|)(?=\s?\S)|[\w.-]+ (?=\[std(?:out|err)\]))?"
    r"(?:[\s|>]*(?:\[(?![\d, ]+\](?!<std))[^\[\]'\"]{0,100}\]:?|<std(?:out|"
    r"err)>:?|"
    r"\((?:[\w.]+[ ,]+)?(?:\w+=[^)\s]*[ ,]*)+\)|\(raylet\)"
    r"|\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d\S*|\d\d[-/]\d\d \d\d:\d\d:\d\d\S*|\d\d:\d\d:\d\d\S*"
    r"|[EWFI]\d{4} \d\d:\d\d:\d\d\S* +\d+ \S+\]|(?:- [\w.]+ )?(?:- )?(?:ERROR|CRITICAL|FATAL|WARNING|WARN|INFO|"
    r"DEBUG)\b(?: -|[:|])?"
    r"|[\w./-]+\.(?:py|cc?|cpp|cu|h):\d+[\]:]*))*[\s|>]*"
)
_RANK = re.compile(
    r"\[(?:[^\[\]]*\s)?(?:[Rr]ank|RANK):? ?(\d{1,7})\]|\(\w+ rank=(\d{1,7})\b|\[\d{1,6},(\d{1,7})\]<std|"
    r"^\W{0,3}[Rr]ank ?(\d{1,7})\b ?[:\]|]"
)
_NAMED = re.compile(
    r"\[\S+ \S+ ((?:DP\d+ )?(?:PP\d+ )?TP\d+(?: EP\d+)?)\]|\((\w+(?: \w+=\w+)?) pid=(\d+)|"
    r"^\[([\w.-]*[A-Za-z][\w.-]*:\d{2,8})(?::\d+)*\]|"
    r"^\[\d[\d.]*\] \[([\w.-]+:\d+)"
)
_TYPE = re.compile(
    r"(?<!except )(?<!raise )(?<!class )\b((?:\w+(?:\.|::))*(?:[A-Z]\w*)?(?<=\w)(?:Error|Exception|Interrupt|Failure|"
    r"Exit)|^Exception)"
    r"(?:\(\w+\))?'?:(?: |$)(.*)"
)
_BARE_TYPE = re.compile(r"((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt))\s*$")
_WHAT = re.compile(
    r"\bwhat\(\): +(.+)|((?:Memory access fault|HW Exception) by .+)|(Fatal error in .+)|(Fatal Python error: .+)|"
    r"((?:Assertion|Check) failed: .+)|"
    r"^(?:\*\*\* Error in `.+': )?((?:free|munmap_chunk|(?:m|re|c)alloc\w*)\(\): [^:]+|double free .+|"
    r"corrupted (?:size|double)\b.+|pure virtual method called|terminate called without .+)"
)
_LEVEL = re.compile(
    r"(?:^|[\s\[(|:*])(?:(?:\w+_)?(?:ERROR|FATAL|CRITICAL|ABORT)\b(?!=)|(?:[Ee]rror|"
    r"[Ff]atal(?: error)?)(?=:\s*[^\s\d]|\]))|"
    r"(?:^|[\s\[])[EF]\d{3,4} |\[E |\[[EF]\]|hit an exception|\bnon-zero status: -?\d"
)
_OF_XLA = re.compile(r"\d: [EF] \S+\.cc:\d+\] ")  # it marks so what it only tells, too
# a text that begins so is an error where its words are known: "Failed: ...", "Cuda error a.cu:7 ..."
_FAILED = re.compile(
    r"F(?:ailed|AILED|ailure)[:,] *[^\s\d]|(?:Test )?[A-Z]\w* (?:runtime |driver )?(?:[Ee]rror|[Ff]ailure)\b"
)
_MILD = re.compile(r"(?:^|[\s\[(|])(?:\w+_)?(?:WARN(?:ING)?|Warning|warning|UserWarning)\b|(?:^|[\s\[])W\d{3,4} |\[W ")
# what a program says that goes on
_IGNORED = re.compile(
    r"(?i)^note: |\bignored\.?$|\bignoring\b|register factory|\bskipp(?:ed|ing)\b|severity=corrected|exception ignored"
)
_TRIES = re.compile(r"(?i)\bretry(?:ing)?\b|\bfall(?:ing|s)? ?back|\berror ignored")
_TOLD = re.compile(r"(?:^|[\s\[(|-])(?:INFO|DEBUG|TRACE)\b|(?:^|\[)I\d{3,4} |\[I ")
_WEAK = re.compile(
    r"(?i)\b(?:failed|failure|fatal|timed? ?out|refused|cannot|can't|could not|unable to|abort(?:ed|ing)?|killed|died|"
    r"denied|unreachable|terminated|assertion|crashed|an exception|"
    r"exception (?:in|raised from)|an error|error occurred)\b"
)
# how a process ended, by a launcher or a shell: rank or process, then the code or signal
_CODE = re.compile(
    r"(?i)(?:exit(?:s|ed)?|died|terminated|killed|aborted|received|caught|got|returned|failed|invoked)\b.{0,90}?"
    r"(?:signal|exit ?code|return code|exit status|error ?code|status|with code|code(?= -))\b[ :=(]*"
    r"(-?\d{1,3}\b|SIG[A-Z]{2,5})|"
    r"\bexit ?code[:=] *(-?\d{1,3})\b"
)
_SIGNAL = re.compile(
    r"\bSIG("
    + "|".join(_NUMBERS)
    + r")\b|[Ss]ignal:? ?\(?(\d{1,2})\b|^\W*(Killed|Aborted)\b.{0,20}$|(Segmentation fault|[Bb]us error)|"
    r"[%\]s] *(Killed)\s*$"
)
_WHOSE = re.compile(
    r"(?i)\bon rank (\d{1,7})\b|error: rank (\d{1,7})[:,] |based barrier .{0,40}rank:? (\d{1,7})\b|"
    r"\brank=\[?(\d{1,7}(?:, ?\d{1,7})*)|grad for rank (\d{1,7})|"
    r"MPI_Abort\(.{0,60}- process (\d{1,7})|"
    r"\brank = (\d{1,7})\b|\brank (\d{1,7}) (?:exited|died|failed|aborted|terminated)"
)
_RANK_IN_END = re.compile(r"(?i)(?<!local.)\brank\W{0,3}(\d{1,7})\b")
# of a line in which one process tells that another one ended: the other's name
_SUBJECT = re.compile(
    r"(?<![\w.-])([A-Za-z][\w.-]{0,80}\d)(?: \(?pid[ =]\d+\)?)? (?:unexpectedly )?(?:died|exited|terminated|crashed)\b"
)
# not a command's --local_rank: DeepSpeed and torch.distributed.launch show the last command that they began
_LOCAL = re.compile(r"(?<!--)local_rank[=:] ?(\d{1,4})|\bprocess (\d{1,4}) terminated|\bProcess (\d{1,4}) terminated")
_TASKS = re.compile(r"^\W*/job:\w+/replica:\d+/task:(\d{1,7})\s*$")
_BEGAN = re.compile(r"GLOBAL_RANK: (\d{1,7}), MEMBER: \d+/(\d{1,7})")
_TRACEBACK = "Traceback (most recent call last):"
_WAITS = re.compile(r"based barrier .{0,140}world_size=(\d{1,7}), worker_count=(\d{1,7})\b")
_SOURCE = re.compile(r'^\W*(?:File "|raise |return |except |#?\d+ +0x|@ +0x|at .+\.py:\d)|\bframe #\d+: ')


def signal_of(code: int) -> int:
    """The signal that ended a process, by its exit code; 0 for none.

    >>> signal_of(-9), signal_of(137), signal_of(1)
    (9, 9, 0)
    """
    return -code if code < 0 else code - 128 if 128 < code < 160 else 0


def rank_in_label(line: str) -> int | None:
    """The rank whose label stands before a line.

    >>> rank_in_label("(VllmWorker rank=1 pid=44) ValueError: x"), rank_in_label("[1,3]<stderr>: no"), rank_in_label("")
    (1, 3, None)
    """
    found = _RANK.search(line[:300])
    return next((int(n) for n in found.groups() if n is not None and int(n) < MAX_RANKS), None) if found else None


def thrown_in(text: str) -> str:
    """An exception, or another program's last words, anywhere in a text; "" without one."""
    found = _TYPE.search(text)
    if found and (found[2] or found.start() == 0):
        return shortened(f"{found[1]}: {found[2]}").rstrip(": ")
    if found := _BARE_TYPE.match(text):
        return found[1]
    last = _WHAT.search(text)
    return shortened(next(part for part in last.groups() if part)).rstrip(": ") if last else ""


def thrown(line: str) -> tuple[str, str] | None:
    """The type and the message of an exception that a line begins with, behind its labels.

    >>> thrown("[rank2]: torch.OutOfMemoryError: CUDA out of memory.")
    ('torch.OutOfMemoryError', 'CUDA out of memory.')
    """
    label = _LABEL.match(line)
    text = line[label.end() if label else 0 :].strip()
    found = _TYPE.match(text) or _BARE_TYPE.match(text)
    return (found[1], found[2] if found.re is _TYPE else "") if found else None


def _ended(text: str) -> tuple[Cause, bool] | None:
    """How a process ended, where the line says a signal or a code."""
    code = _CODE.search(text)
    signal = _SIGNAL.search(text)
    number, exit_code = 0, 0
    said = (code[1] or code[2]) if code else ""
    if code and not said.startswith("SIG"):
        is_signal = re.search(r"(?i)signal[ :=(]*$", code[0][: -len(said)]) is not None
        exit_code = int(said)
        number = abs(exit_code) if is_signal else signal_of(exit_code)
    elif code:
        number = _NUMBERS.get(said[3:], 0)
    elif signal:
        word = signal[3] or signal[4] or signal[5]
        by_word = {"Killed": 9, "Aborted": 6, "Segmentation fault": 11, "Bus error": 7}
        number = by_word[word.capitalize()] if word else _NUMBERS[signal[1]] if signal[1] else int(signal[2])
    if not number and not exit_code:
        return None
    if number in SENT:
        return Cause("A process was ended from outside, as after another failure.",
                     "a launcher, a scheduler or a person sends this signal: look for the first error, or a limit of "
                     "time", None, 0.4, "no_times"), True  # fmt: skip
    if number:
        how = SIGNALS.get(number, "see man 7 signal")
        why = {9: "look at dmesg and the scheduler's log for the out-of-memory killer, at the container's limit of "
        "memory",
               11: "a library in native code crashed: its stack, or PYTHONFAULTHANDLER=1, shows where",
               7: "look at df -h /dev/shm; give a container --shm-size or --ipc=host",
               6: "an assertion, an exception of C++ or a watchdog ends a process so: look for its text "
               "above"}  # fmt: skip
        return Cause(f"A process was ended by signal {number} ({how}).", why.get(number, "look at its last lines"),
                     None, 0.7, "failed_rank"), number == 6  # fmt: skip
    return Cause(f"A process ended with exit code {exit_code}.", "this line does not say why: look for its error "
                 "above, or in its own log", None, 0.5, "failed_rank"), True  # fmt: skip


_MARKED = Cause(
    "A line is marked as an error, in words that this report does not know.", "look at what stands around "
    "it", None, 0.4,
    "failed_rank",
)  # fmt: skip


def _who(line: str) -> str:
    """What a label calls a process whose rank it does not say."""
    if named := _NAMED.search(line):
        one, worker, pid, host, host2 = named.groups()
        return one or host or host2 or f"{worker} process {pid}"
    return ""


def _place(known: tuple[Cause, bool, bool] | None, follows: bool, unknown: bool) -> int:
    """The place of a kind among the others: 0 for a failure or a wait of its own."""
    if follows:
        return 3 if known is None or known[0].kind == "no_times" else 1
    return 2 if unknown else 0


@dataclass
class _Kind:
    """One kind of error: the cause, the first line of it, and all who say it."""

    cause: Cause
    weak: bool
    place: int  # the lower, the more it says of what came first
    text: str
    line: int
    count: int = 0
    ranks: set[int] = field(default_factory=set)
    others: dict[str, None] = field(default_factory=dict)

    def who(self) -> str:
        if self.ranks:
            return name_ranks(sorted(self.ranks))
        names = list(self.others)
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")

    def order(self) -> float:
        """A warning stands behind what is marked as an error, and before a launcher's words on another one's end."""
        return self.place if not self.weak else 2.5 if self.place < 2 else 4

    def words(self) -> str:
        """The cause, with who says it."""
        words, who = self.cause.cause, self.who()
        if self.ranks:
            one = len(self.ranks) == 1
            if one and words.startswith("A process ") and not words.startswith("A process of "):
                return f"{capital(who)} {words.removeprefix('A process ')}"
            quoted = words[:-1] in shortened(self.text)  # a type of an exception keeps its letters
            return f"{capital(who)}: {words if quoted else words[0].lower() + words[1:]}"
        if who and words.startswith("A process ") and not words.startswith("A process of "):
            return f"A process ({who}) {words.removeprefix('A process ')}"
        return f"{words[:-1]} ({who})." if who else words


class Errors:
    """Collects the errors of one file that no other reader knows."""

    def __init__(self) -> None:
        self.kinds: dict[str, _Kind] = {}
        self.dull: set[str] = set()  # shapes of lines that are none
        self.tasks: dict[int, None] = {}
        self.began: Counter[int] = Counter()  # ranks that Lightning says begin
        self.members = 0
        self.came = (0, 0)  # of a barrier of the store: all ranks, and how many had come
        self.line = 0
        self.looks_so = ""  # the first line that has an error's words, and not its form
        self.whose = ""  # of spawned processes: the one whose error the next exception is

    def take(self, line: str, number: int) -> bool:
        """Files a line, if it is an error by its form or its words; whether it is of use."""
        self.line = number
        shape = line.translate(DIGITS)
        if shape in self.dull:
            return False
        taken = self._take(line)
        differs = _MAY_DIFFER.search(line) is not None
        if not taken and not differs and len(self.dull) < MOST_SHAPES:
            self.dull.add(shape)
        return taken or differs

    def _take(self, line: str) -> bool:
        if "/task:" in line and (task := _TASKS.match(line)):
            self.tasks[int(task[1])] = None
            return True
        if "MEMBER: " in line and (began := _BEGAN.search(line)) and int(began[2]) <= MAX_RANKS:
            self.began[int(began[1])] += 1
            self.members = max(self.members, int(began[2]))
            return True
        label = _LABEL.match(line)
        text = line[label.end() if label else 0 :].strip()
        if not text or _SOURCE.search(text) or _IGNORED.search(text):
            return False
        if text.endswith(_TRACEBACK):
            self.whose = _who(line) or self.whose
            self.looks_so = self.looks_so or f"line {self.line} looks like an error: {text}"
        if text.startswith("-- Process ") and (local := _LOCAL.search(text)):
            self.whose = f"process {local[2] or local[3]}"
            return True
        return self._error(line, text)

    def _error(self, line: str, text: str) -> bool:
        found = thrown_in(text)
        ended = None if found and not _CODE.search(text) else _ended(text)
        known = sign(text)
        head = line[:160]
        told = _TOLD.search(head) is not None  # a program that only tells
        level = not told and _LEVEL.search(head) is not None
        level |= _OF_XLA.search(head) is not None and (known is not None or _WEAK.search(text) is not None)
        if told and not found and not ended and not (known and known[2]):
            return False
        mild = _TRIES.search(text) is not None or (_MILD.search(head) is not None and not (found or ended))
        by_form = bool(found or ended or level or (known and (known[2] or _FAILED.match(text))))
        if not (by_form or (mild and known)) or (mild and not (known or ended or found)):
            if (not self.looks_so or self.looks_so.endswith("last):")) and _WEAK.search(text):
                self.looks_so = f"line {self.line} looks like an error: {shortened(text)}"
            return False
        sure = not (mild or (told and not found and not ended))
        if known:
            cause, follows, unknown = known[0], known[1], False
        elif ended:
            cause, follows, unknown = ended[0], ended[1], False
        elif found:
            why = "these are the program's own words: where it has a traceback, that names the line"
            cause, follows, unknown = Cause(f"{found}.", why, None, 0.6, "failed_rank"), False, False
        elif text.endswith(_TRACEBACK):  # the exception itself is to follow
            return True
        else:
            cause, follows, unknown = _MARKED, False, True
        if len(self.kinds) >= MOST and cause.cause not in self.kinds:
            return False
        kind = self.kinds.setdefault(
            cause.cause, _Kind(cause, not sure, _place(known, follows, unknown), text, self.line)
        )
        better = unknown and not _WEAK.search(kind.text) and _WEAK.search(text)
        if (kind.weak and sure) or better:  # a warning of it came before, or a line that says less
            kind.weak, kind.text, kind.line = False, text, self.line
            if unknown:
                kind.count, kind.ranks, kind.others = 0, set(), {}
        if unknown and text.translate(DIGITS) != kind.text.translate(DIGITS):
            return True  # another text: neither is it like the first, nor is the first of its rank
        kind.count += 1
        if (waits := _WAITS.search(text)) and int(waits[2]) <= MAX_RANKS:
            self.came = (int(waits[1]), int(waits[2]))
        self._by(kind, line, text, bool(found))
        return True

    def _by(self, kind: _Kind, line: str, text: str, thrown: bool) -> None:
        rank = rank_in_label(line)
        ends = {int(n) for n in _RANK_IN_END.findall(text)} if _ended(text) else set()
        if len(ends) == 1 and max(ends) < MAX_RANKS:
            kind.ranks |= ends
        elif (whose := _WHOSE.search(text)) is not None:
            kind.ranks |= {
                int(n) for n in re.findall(r"\d+", next(n for n in whose.groups() if n)) if int(n) < MAX_RANKS
            }
        elif (subject := _SUBJECT.search(text)) is not None:
            kind.others[subject[1]] = None
        elif rank is not None:
            kind.ranks.add(rank)
        elif local := _LOCAL.search(line):
            kind.others[f"local rank {local[1]}" if local[1] else f"process {local[2] or local[3]}"] = None
        elif who := _who(line) or (self.whose if thrown else ""):
            self.whose = ""
            kind.others[who] = None

    def causes(self, known_at: int | None = None) -> tuple[Cause, ...]:
        """The first error, and up to two other kinds that do not only follow.

        `known_at` is the line at which another reader found what it knows: errors behind it are taken to follow.
        """
        found: list[Cause] = []
        if self.tasks:
            found.append(_of_tasks(sorted(self.tasks)))
        if self.began and known_at is None and (cause := _of_members(self.began, self.members)):
            found.append(cause)
        for kind in self._shown(known_at is not None):
            late = (
                known_at is not None and (kind.place > 0 or kind.line > known_at) and kind.cause.kind != "missing_rank"
            )
            sure = min(kind.cause.sure, 0.35 if kind.weak else 0.4 if late else 1)
            more = f" (and {counted(kind.count - 1, 'like line')})" if kind.count > 1 else ""
            evidence = f"line {kind.line} says: {shortened(kind.text)}{more}; {kind.cause.evidence}"
            words, rank = kind.words(), kind.cause.rank
            if _WAITS.search(kind.text) and 0 < len(kind.ranks) == self.came[1] < self.came[0]:  # all that came say so
                gone = sorted(set(range(self.came[0])) - kind.ranks)
                words, rank = f"{words[:-1]}; {name_ranks(gone)} did not.", gone[0] if len(gone) == 1 else None
            found.append(Cause(words, evidence, None, sure, "no_times" if late else kind.cause.kind, rank))
        return tuple(found)

    def _shown(self, others: bool) -> list[_Kind]:
        """The kinds that are causes: without one of its own, the first of what follows or only looks like an error."""
        kinds = sorted(self.kinds.values(), key=lambda k: (k.order(), k.line))
        own = [k for k in kinds if not k.order()][:3]
        rest = [k for k in kinds if not (others and (k.weak or k.place > 1))]
        return own or rest[: 1 if rest and rest[0].weak else 2]

    def said(self, others: bool = False) -> list[str]:
        """The other lines that look like errors, as they came."""
        shown = self._shown(others)
        rest = sorted((k for k in self.kinds.values() if k not in shown and " " in k.text), key=lambda k: k.line)
        found = []
        for kind in rest[:5]:
            what = "what only follows" if kind.place == 3 else "another error"
            who = f" ({kind.who()})" if kind.who() else ""
            found.append(f"{what}, line {kind.line}{who}: {shortened(kind.text)}")
        return found


def _of_tasks(tasks: list[int]) -> Cause:
    """What JAX's coordination service says of tasks that it names."""
    named, they = (f"tasks {listed(tasks)}", "they") if len(tasks) > 1 else (f"task {tasks[0]}", "it")
    words = f"JAX's coordination service names {named}: {they} did not come, or sent no heartbeat any more."
    why = (
        f"look at the first error there, how {they} ended, or whether {they} ever began; a task is a process of the job"
    )
    return Cause(words, why, None, 0.8, "missing_rank", tasks[0] if len(tasks) == 1 else None)


def _of_members(began: Counter[int], members: int) -> Cause | None:
    """What Lightning's lines say of who began: a rank that no process has, or that several have."""
    twice = sorted(rank for rank, count in began.items() if count > 1)
    gone = [rank for rank in range(members) if rank not in began]
    if not gone:
        return None
    who = name_ranks(gone) if len(gone) <= 16 else f"{len(gone):,} ranks"
    words = f"Of {counted(members, 'rank')}, {who} did not print that they begin."
    why = "the others wait for them: look how they were started, and at their logs"
    if twice:
        words = f"{words[:-1]}, and {name_ranks(twice)} printed it more than once."
        why = (
            "of one start this means that processes were not told their own rank: look at what gives each its number "
            "(the tasks of a node, SLURM_NTASKS, NODE_RANK); of several attempts in one log it means nothing"
        )
    return Cause(words, why, None, 0.6, "missing_rank", gone[0] if len(gone) == 1 else None)
