"""Measurements of pairs: matrices of copies and sweeps of messages, and what stands out of them."""

import json
import os
import threading
import time

import pytest
from allranks.cli import main
from allranks.theory.cost.any_table import tables
from allranks.theory.cost.pair_looks import looks_of
from allranks.theory.cost.pair_tables import MOST_DEVICES, holds_pairs, read_pairs
from click.testing import CliRunner

NVBANDWIDTH = """nvbandwidth Version: v0.8
Device 0: NVIDIA H100 80GB HBM3 (00000000:1b:00.0)
Device 1: NVIDIA H100 80GB HBM3 (00000000:43:00.0)
Device 2: NVIDIA H100 80GB HBM3 (00000000:52:00.0)
Device 3: NVIDIA H100 80GB HBM3 (00000000:61:00.0)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2         3
 0     55.20     55.21     13.90     55.19

SUM host_to_device_memcpy_ce 179.50

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2         3
 0       N/A    {fast}    {slow}    {fast}
 1    {fast}       N/A    {slow}    {fast}
 2    {slow}    {slow}       N/A    {slow}
 3    {fast}    {fast}    {slow}       N/A

SUM device_to_device_memcpy_read_ce 3000.0
"""


def words(text: str) -> str:
    return " ".join(" ".join((r.title, *r.lines, *(s.looks for s in r.shapes))) for r in looks_of(read_pairs(text)))


def test_a_gpu_that_is_slower_to_all_and_one_whose_host_link_is_narrow_are_named():
    text = words(NVBANDWIDTH.format(fast="376.10", slow="180.20"))
    assert "GPU 2 at 13.9 GB/s, others 55.2" in text
    assert "GPU 2 is slower to all others: 180.2 GB/s, others 376.1" in text and "sets" not in text
    assert "has 101% of what NCCL counts" in text


def test_gpus_with_nvlinks_that_reach_only_pcie_are_told():
    text = words(NVBANDWIDTH.format(fast="52.00", slow="51.90"))
    assert "no pair is faster than PCIe, and this GPU's NVLinks carry 371 GB/s" in text
    assert "PCIe 5.0 x16" in text


def test_one_slow_direction_is_named_and_no_set_is_invented():
    rows = [[None if i == j else 40.0 for j in range(4)] for i in range(4)]
    rows[1][3] = 12.0
    lines = [f"{i} " + " ".join("N/A" if x is None else f"{x:.2f}" for x in row) for i, row in enumerate(rows)]
    head = "memcpy SM GPU(row) <- GPU(column) bandwidth (GB/s)\n   0 1 2 3\n"
    (report,) = looks_of(read_pairs(head + "\n".join(lines) + "\n"))
    assert [shape.looks for shape in report.shapes] == ["1 direction is below 80% of the others' 40 GB/s: 1 to 3 at 12"]


def test_json_of_nvbandwidth_says_the_same():
    cases = [
        {"name": "device_to_device_memcpy_read_ce", "status": "Passed",
         "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
         "bandwidth_matrix": [["N/A", "276.07"], ["276.19", "N/A"]], "sum": 552.26},
        {"name": "device_to_device_memcpy_write_sm", "status": "Waived"},
    ]  # fmt: skip
    found = read_pairs(
        "some line of a launcher\n" + json.dumps({"nvbandwidth": {"version": "v0.8", "testcases": cases}})
    )
    assert [m.cells for m in found.matrices] == [{(0, 1): 276.07, (1, 0): 276.19}]
    assert found.waived == ["device_to_device_memcpy_write_sm"]


def test_rocm_bandwidth_test_leaves_the_cpus_out():
    text = """
          Device: 0,  AMD EPYC 9554 64-Core Processor
          Device: 1,  AMD Instinct MI210,  GPU-06c9d21390bc2e70,  05:0.0
          Device: 2,  AMD Instinct MI210,  GPU-8b193c69a6fe8e9b,  08:0.0

          Unidirectional copy peak bandwidth GB/s

          D/D       0           1           2

          0         N/A         27.900      27.910

          1         27.800      1200.100    26.500

          2         27.800      26.400      1201.000

"""
    (matrix,) = read_pairs(text).matrices
    assert matrix.cells == {(1, 1): 1200.1, (1, 2): 26.5, (2, 1): 26.4, (2, 2): 1201.0}
    assert "rocm-bandwidth-test, 2 AMD Instinct MI210 copies between two GPUs, one way: 26.45 GB/s" in words(text)


def test_perftest_and_latencies_are_read():
    text = """                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             92.41              92.40  0.176235
# OSU MPI-CUDA Latency Test v7.2
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size       Latency (us)
1                    2.05
4194304            200.00
"""
    first, second = read_pairs(text).messages
    assert first.test == "RDMA_Write BW Test" and first.rows == [(65536, pytest.approx(11.55), None)]
    assert second.rows == [(1, None, 2.05), (4194304, None, 200.0)]
    assert "2.05 µs at 1 B 20.97 GB/s (167.8 Gb/s) at 4 MiB" in words(text)


def test_ucx_perftest_says_its_test_and_size():
    text = """| Test:         tag match bandwidth                                                                        |
| Message size: 104857600                                                                                  |
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
|              |              |       overhead (usec)        |   bandwidth (MB/s)  |  message rate (msg/s) |
Final:                    10      1.950  2193.999  2193.999    45580.00   45579.77         456         456
"""
    (sweep,) = read_pairs(text).messages
    assert sweep.test == "ucx_perftest tag match bandwidth" and sweep.rows == [
        (104857600, pytest.approx(47.79, abs=0.01), None)
    ]


def test_labels_of_launchers_do_no_harm():
    plain = "# OSU MPI Bandwidth Test v7.2\n# Size      Bandwidth (MB/s)\n1048576   12000.0\n"
    for label in ("[1,0]<stdout>:", "0: "):
        assert read_pairs("".join(label + line + "\n" for line in plain.splitlines())).messages[0].rows == [
            (1048576, 12.0, None)
        ]


@pytest.mark.parametrize(
    "text", ["", "# Size  Avg Latency(us)\n8 1.5\n", "{", '{"bandwidth_matrix": [[1', '{"nvbandwidth": 3}']
)
def test_what_is_no_measurement_of_pairs_says_nothing(text):
    assert not read_pairs(text)


def test_hostile_lines_take_no_time():
    began = time.process_time()
    head = "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
    wide = " ".join(map(str, range(MOST_DEVICES + 1)))
    assert not read_pairs(head + "1" * 100_000 + "x\n").matrices
    assert not read_pairs(head + wide + "\n" + "0 " + "1.0 " * (MOST_DEVICES + 1) + "\n").matrices
    assert not read_pairs("# Size      Bandwidth (MB/s)\n" + "9 " * 100_000 + "x\n").messages
    assert not holds_pairs("9" * 1_000_000)
    assert time.process_time() - began < 3


def test_pairs_beside_a_collective_are_told_and_the_collective_is_fitted(tmp_path):
    both = tmp_path / "out.txt"
    rows = "".join(f"{n}  {n // 4} float sum -1 {t} {n / t / 1e3:.2f} {n / t / 1e3 * 1.75:.2f} 0\n"
                   for n, t in ((1 << 20, 40.0), (1 << 24, 150.0), (1 << 28, 1300.0)))  # fmt: skip
    both.write_text(
        "# size count type redop root time algbw busbw #wrong\n" + rows + NVBANDWIDTH.format(fast="376.1", slow="376.0")
    )
    ran = CliRunner().invoke(main, ["fit", str(both)])
    assert ran.exit_code == 0 and "all_reduce           8" in ran.stdout and "nvbandwidth, 4 NVIDIA H100" in ran.stdout
    found = json.loads(CliRunner().invoke(main, ["fit", str(both), "--json"]).stdout)
    assert found["topology"] and found["pairs"][0]["title"] == "nvbandwidth, 4 NVIDIA H100 80GB HBM3"


def test_a_topology_file_can_not_be_made_of_pairs(tmp_path):
    file = tmp_path / "pairs.txt"
    file.write_text(NVBANDWIDTH.format(fast="376.1", slow="376.0"))
    ran = CliRunner().invoke(main, ["fit", str(file), "--out", str(tmp_path / "mine.json")])
    assert ran.exit_code == 2 and "no collective can be fitted" in ran.stderr and not (tmp_path / "mine.json").exists()


def test_records_that_are_torn_or_foreign_are_no_tables():
    for text in (
        '{"algBw": 1',
        "numCycle,collective,time,algbw,busbw\n1,2\n",
        '{"identifier": "nccl-tests", "benchmark": [{"8":',
    ):
        assert tables(text) == []


def test_a_pipe_is_read_once_as_it_has_no_second_reading(tmp_path):
    head = "# size count type redop root time algbw busbw #wrong\n"
    rows = "".join(f"{n} {n // 4} float sum -1 {10 + n / 1e5} 1.0 1.0 0\n" for n in (8, 1024, 1 << 20, 1 << 24))
    pipe = tmp_path / "all_reduce.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(head + rows,), daemon=True)
    writer.start()
    second = threading.Timer(10, lambda: os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK)))
    second.daemon = True
    second.start()  # ends a second reading, which would wait for ever
    ran = CliRunner().invoke(main, ["fit", str(pipe), "--ranks", "8", "--json"])
    second.cancel()
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["topology"]
