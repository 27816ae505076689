"""An example or more for each command, shown at the end of its --help. A test parses each of them."""

from __future__ import annotations

EXAMPLES = {
    "answers": ("allranks answers lab03_all_reduce", "allranks answers lab03_all_reduce --section mine"),
    "bench": (
        "allranks bench --collective all_reduce --max-bytes 64MiB",
        "allranks bench --collective all_gather --ranks 2 --csv sizes.csv",
        "allranks bench -b 1KiB -e 1MiB -f 4 -n 40 -w 10 -d bfloat16 -o max",
    ),
    "board": ("allranks board", "allranks board --host 0.0.0.0 --names"),
    "check": (
        "allranks check ring_all_reduce my_ring.py",
        "allranks check my_ring.py --watch",
        "allranks check ring_all_reduce my_ring.py --topology dgx-h100",
        "allranks check ring_all_reduce my_ring.py --rules nccl",
    ),
    "class": ("allranks class lab03_all_reduce --html overview.html", "allranks class --html map.html"),
    "completion": (
        'eval "$(allranks completion bash)"',
        "allranks completion fish > ~/.config/fish/completions/allranks.fish",
    ),
    "course": (
        "allranks course init ../ml-course --lab lab03_all_reduce",
        "allranks course run lab03_all_reduce --dry-run",
    ),
    "course run": (
        "allranks course run lab03_all_reduce --dry-run",
        "allranks course run lab03_all_reduce --release --export moodle --sum",
    ),
    "course due": ("allranks course due lab03_all_reduce '2026-12-01 23:59'",),
    "course forget": ("allranks course forget ada --dry-run", "echo ada | allranks course forget - --yes"),
    "course export": ("allranks course export ada -o ada.zip",),
    "course connect": (
        "allranks course connect --show pem",
        "allranks course connect moodle https://moodle.example.org --client-id Ut6euo --course-id 2 --tool-id 1",
    ),
    "course passback": ("allranks course passback lab03_all_reduce --dry-run",),
    "course roster": ("allranks course roster --dry-run",),
    "course rubric": (
        "allranks course rubric lab03_all_reduce",
        "allranks course rubric lab03_all_reduce unit --points -0.5 --comment 'The unit is missing.' --dry-run",
    ),
    "course sections": ("allranks course sections lab03_all_reduce",),
    "course late": ("allranks course late lab03_all_reduce 10 --grace 15 --most 50 --dry-run",),
    "course variants": ("allranks course variants lab02_rooted", "allranks course variants lab02_rooted --off"),
    "course init": (
        "allranks course init ../ml-course",
        "allranks course init ../ml-course --lab lab03_all_reduce --lab lab05_sharding --name ml101",
    ),
    "doctor": ("allranks doctor", "allranks doctor --json", "allranks doctor --hub"),
    "explain": ("allranks explain rank0.json.gz rank1.json.gz", "allranks explain traces/ --json"),
    "export": (
        "allranks export lab03_all_reduce moodle",
        "allranks export lab03_all_reduce canvas --roster canvas.csv",
    ),
    "extend": ("allranks extend lab03_all_reduce ada 48",),
    "fit": ("allranks fit all_reduce.txt -o mine.json",),
    "github": ("allranks github lab03_all_reduce ../lab03-template",),
    "gpus": (
        "allranks gpus",
        "allranks gpus --take 2 -- torchrun --nproc-per-node 2 train.py",
        "allranks gpus --serve",
    ),
    "gradescope": ("allranks gradescope lab03_all_reduce -o lab03.zip",),
    "grade": ("allranks grade lab03_all_reduce", "allranks grade lab03_all_reduce --course ../ml-course --student ada"),
    "lab": ("allranks lab", "allranks lab --folder ~/collectives", "allranks lab --no-browser --port 9999"),
    "new": ("allranks new exercise my_ring",),
    "new exercise": ("allranks new exercise my_ring", "allranks new exercise my_ring --package ../my-course"),
    "pairs": ("allranks pairs lab03_all_reduce",),
    "plan": (
        "allranks plan --model 7B --ranks 64 --batch 256",
        "allranks plan --model 7B --sequence 32768 --cp 4 --tp 4 --pp 2 --chunks 2 --zero 1 --recompute full",
    ),
    "price": ("allranks price ddp --parameters 7e9 --ranks 64",),
    "price ddp": ("allranks price ddp --parameters 7e9 --ranks 64 --topology dgx-h100",),
    "price zero": ("allranks price zero --stage 3 --parameters 7e9 --ranks 64",),
    "price tensor": ("allranks price tensor --layers 32 --hidden 4096 --sequence 4096 --ranks 8",),
    "price pipeline": ("allranks price pipeline --microbatches 16 --hidden 4096 --sequence 4096 --ranks 4",),
    "price expert": (
        "allranks price expert --tokens 4096 --top-k 2 --hidden 4096 --ranks 8",
        "allranks price expert --tokens 128 --top-k 8 --hidden 7168 --ranks 64 --dispatch-dtype float8 --forward-only",
    ),
    "price serve": (
        "allranks price serve --model 'Llama 3 70B' --tp 8 --batch max",
        "allranks price serve --tp 8 --prompt 8000 --output 500 --weight-bits 8 --kv-bits 8 --hand-over 50e9",
    ),
    "puzzle": (
        "allranks puzzle",
        "allranks puzzle 5 > ring.py",
        "allranks puzzle 5 ring.py --real",
        "allranks puzzle --from 'https://example.org/puzzles.html#p=ring&c=S0lNU0jMyYkvSk0pTU7VqNC0UtDT0-MCAA'",
    ),
    "race": ("allranks race", "allranks race two-nodes", "allranks race two-nodes my_schedule.py"),
    "regrade": ("allranks regrade lab03_all_reduce", "allranks regrade lab03_all_reduce --dry-run"),
    "similar": ("allranks similar lab03_all_reduce", "allranks similar lab03_all_reduce --earlier ../ml-2025"),
    "simulate": (
        "allranks simulate --collective all_reduce --algorithm ring --ranks 8 --bytes 100MB",
        "allranks simulate --algorithm nccl --topology dgx-h100 --nodes 4 --collective all_reduce --bytes 1GiB",
    ),
    "map": ("allranks map", "allranks map --json", "allranks map --clear"),
    "update": ("allranks update", "allranks update ~/collectives"),
    "verify": ("allranks verify", "allranks verify --gpus 1 --minutes 20"),
}


def epilog(name: str) -> str | None:
    """The examples of a command as the end of its help; None if it has none here."""
    lines = EXAMPLES.get(name)
    if lines is None:
        return None
    return "\b\n" + "\n".join(["Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])
