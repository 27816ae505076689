"""An operation in a thread of the program is refused by that name, also when its exception dies there."""

import pytest
from allranks.ranks.wire import FailureKind

HEAD = "import threading, time\nx = torch.ones(1)\n"
PROGRAMS = {  # the body from line 6 on
    "sends while the main thread receives": (
        "def work():\n    dist.send(x, 1 - r)\nt = threading.Thread(target=work)\nt.start()\ndist.recv(torch.empty(1), 1 - r)\nt.join()",
        7,
    ),
    "its exception is caught": (
        "def work():\n    try:\n        dist.all_reduce(x)\n    except Exception:\n        pass\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()",
        8,
    ),
    "the main thread has returned": (  # most often; where it has not yet, the same must be said
        "def work():\n    time.sleep(0.1)\n    dist.barrier()\nthreading.Thread(target=work).start()",
        8,
    ),
    "waits for what the main thread has begun": (
        "w = dist.all_reduce(x, async_op=True)\nt = threading.Thread(target=w.wait)\nt.start()\nt.join()\nw.wait()",
        None,
    ),
    "comes late": (
        "def work():\n    time.sleep(1.5)\n    dist.send(x, 1)\n"
        "if r == 0:\n    threading.Thread(target=work).start()\n    dist.recv(torch.empty(1), 1)\nelse:\n    time.sleep(2.5)\n    dist.recv(x, 0)",
        8,
    ),
    "a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(lambda q: dist.broadcast(x, q), range(p)))",
        8,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operation_in_a_thread_is_named(name, pool, program):
    body, line = PROGRAMS[name]
    failure = pool.run(program(HEAD + body), 2).failure
    assert failure.kind is FailureKind.THREAD, failure.message
    assert (failure.rank, failure.line) == (0, line)
    assert "only the main thread may" in failure.message
    assert pool.run(program("dist.barrier(); return r"), 2).results == [0, 1]


def test_threads_that_call_no_operation_are_free(pool, program):
    body = "t = threading.Thread(target=lambda: x.mul_(2))\nt.start()\nt.join()\ndist.all_reduce(x)\nreturn x.item()"
    outcome = pool.run(program(HEAD + body), 2)
    assert outcome.failure is None, outcome.failure.text()
    assert outcome.results == [4, 4]
