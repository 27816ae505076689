"""The inputs of public reports: `fit` and `explain` say what is right of each, and nothing that is false."""

import json
import re
from pathlib import Path

import pytest
from allranks.cli import main
from click.testing import CliRunner

REPORTS = Path(__file__).with_name("reports")


def said(command: str, *arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(main, [command, *arguments])
    return ran.exit_code, " ".join((ran.stdout + ran.stderr).split())


def path(name: str) -> str:
    (found,) = REPORTS.glob(name)
    return str(found)


FITS = [
    ("01_*/*.txt", [], 2, ["2 processes ran alone", "MPI=1"], []),
    ("03_*/*.txt", [], 0, ["72 ranks by busbw / algbw", "839.2"], ["sends nothing"]),
    ("03_*/*.txt", ["--nodes", "9"], 0, ["all_reduce 72 9"], []),
    ("05_*/*.txt", [], 0, ["line 14", "left out", "all_reduce 4 2"], []),
    ("06_*/*.txt", [], 0, ["2 settings, which are fitted apart", "NCCL_ALGO=Ring: 145.3", "NCCL_ALGO=Tree: 41.31"], ["median"]),
    ("07_*/*.txt", [], 2, ["say it with --collective"], []),
    ("07_*/*.txt", ["--collective", "broadcast"], 0, ["broadcast 2 2"], []),
    ("08_*/*.json", [], 0, ["all_reduce 2 1", "345.4"], []),
    ("10_*/*.txt", [], 0, ["reduce_scatter 8 2"], []),
    ("11_*/*.txt", [], 0, ["all_reduce 2 1", "alltoallv was left out"], []),
    ("13_*/*.txt", [], 0, ["all_reduce 2 1"], []),
    ("14_*/*.txt", [], 0, ["all_gather 16 2", "325.7"], []),
    ("80_*/*.txt", [], 2, ["all_to_all, 8 ranks", "1 GiB 130.7", "at least 2 sizes"], ["no table of sizes"]),
    ("81_*/*.txt", [], 2, ["which collective ran"], []),
    ("82_*/*.txt", [], 0, ["24 ranks by busbw / algbw", "29.5", "line 5 is cut off"], []),
    ("83_*/*.txt", [], 2, ["one rank ran alone"], []),
    ("84_*/*.log", [], 0, ["all_reduce 2 2"], []),
    ("85_*/*.txt", [], 0, ["all_gather 2 1", "21.4"], []),
    ("86_*/*.log", [], 2, ["all_reduce, 8 ranks on 1 node of MI300X", "161.1", "at least 2 sizes"], []),
    ("87_*/*.txt", [], 2, ["how many ranks ran"], ["which collective"]),
    ("87_*/*.txt", ["--ranks", "2"], 0, ["broadcast 2"], []),
    ("88_*/*.txt", [], 0, ["all_reduce 8", "300.5"], []),
    ("89_*/*.txt", [], 2, ["which collective ran"], ["has no head"]),
    ("89_*/*.txt", ["--collective", "all_reduce"], 2, ["all_reduce, 2 ranks", "43.69", "at least 2 sizes"], []),
    ("89b_*/*.txt", [], 0, ["all_reduce 16", "93.25"], []),
    ("89c_*/*.log", [], 0, ["8 ranks by busbw / algbw; 2 of their device lines", "647.6", "line 11 is cut off"], []),
    ("90_*/*.txt", [], 0, ["all_to_all 8 1", "40.81", "8 times size / time"], ["no table of sizes"]),
    ("91_*/*.txt", [], 2, ["failed before its first size", "internal error"], ["no table of sizes"]),
    ("92_*/*.txt", [], 2, ["1011 to 1035 ranks"], []),
    ("92_*/*.txt", ["--ranks", "1024"], 0, ["all_reduce 1024", "the run failed"], []),
    ("93_*/*.txt", [], 2, ["failed before its first size", "unhandled cuda error"], ["no table of sizes"]),
    ("150_*/*.txt", [], 0, ["reduce 192 1", "192 ranks by the command line", "bandwidth is larger than what is told"], []),
    ("151_*/*.txt", [], 2, ["at least 2 sizes"], []),
    ("152_*/*.txt", [], 0, ["all_reduce 2 1", "2 ranks by the command line", "1.663", "From 16 KiB to 32 KiB the busbw falls to 1/11"], ["left out"]),
    ("153_*/*.txt", [], 0, ["Bandwidth Test, one way between two ranks", "93.13 GB/s (745 Gb/s) at 32 MiB"], ["left out"]),
    ("154_*/*.txt", [], 2, ["how many ranks ran"], ["not one of nccl-tests"]),
    ("154_*/*.txt", ["--ranks", "4"], 0, ["all_to_all 4 1"], []),
    ("155_*/*.txt", [], 0, ["all_reduce 8 1", "8 ranks by busbw / algbw"], []),
    ("156_*/*.txt", [], 0, ["all_reduce 16 1", "wrong elements at 16777216", "50.33"], []),
    ("157_*/*.txt", [], 0, ["all_to_all 2 1", "all_to_all 4 1", "8 MiB", "16 MiB"], ["run 2 times"]),
    ("158_*/*.txt", [], 2, ["52 to 113 ranks"], ["no table of sizes"]),
    ("158_*/*.txt", ["--ranks", "64"], 0, ["all_reduce 64"], []),
    ("159_*/*.txt", [], 0, ["all_to_all 8 1", "216.7"], ["cut off"]),
    ("177_*/*.txt", [], 2, ["all_gather, 4 ranks", "1.927", "at least 2 sizes"], ["how many ranks"]),
    ("174_*/*.txt", [], 2, ["no line of all_reduce is whole (line 12 is cut off"], ["wrong elements"]),
    ("175_*/*.txt", [], 0, ["all_reduce 24 1", "96.4"], ["larger than what is told"]),
    ("190_*/*.txt", [], 0, ["With direct access (P2P), copies are slower", "9.98 against 22.2 GB/s", "ACS"], ["busbw"]),
    ("191_*/*.txt", [], 0, ["with P2P: 375.9 GB/s", "377.5 GB/s, has 102% of what NCCL counts"], ["Usual:"]),
    ("192_*/*.txt", [], 0, ["PCIe 4.0 x16", "{0, 1, 2} and {3, 4, 5}: 26.34 GB/s within them and 22.09"], ["slower to all"]),
    ("193_*/*.txt", [], 0, ["Waived", "reach each other directly", "no peer access"], ["no table of sizes"]),
    ("194_*/*.txt", [], 0, ["1.805 GB/s (14.44 Gb/s)", "From 32 KiB on it no longer grows"], ["no table of sizes"]),
    ("195_*/*.txt", [], 0, ["9.512 GB/s at 256 KiB to 4.036 GB/s at 4 MiB (42%)", "7.098 GB/s to 3.535"], ["no longer grows"]),
    ("196_*/*.txt", [], 0, ["sendrecv, each of 2 ranks to the next one, on 2 nodes", "11.68 GB/s"], ["all_reduce"]),
    ("197_*/*.txt", [], 0, ["all_to_all 8 1", "20.97", "NCCL_P2P_DISABLE=1"], ["no collectives"]),
    ("198_*/*.json", [], 0, ["all_reduce 4 1", "151.9"], []),
    ("199_*/*.csv", [], 0, ["all_reduce 8 1", "348"], []),
    ("214_*/*.txt", [], 0, ["hardly more than copies", "6.6 against 6.34 GB/s", "PCIe 3.0 x8"], ["no peer access"]),
    ("215_*/*.txt", [], 0, ["from the host to a GPU, one way: 35.25", "from a GPU to the host, one way: 52.77"], ["slower for"]),
    ("216_*/*.txt", [], 0, ["TransferBench, 8 GPUs", "57.48 GB/s"], ["PCIe", "Usual:"]),
    ("217_*/*.txt", [], 0, ["ucx_perftest tag_bw", "49.01 GB/s (392.1 Gb/s)"], ["no table of sizes"]),
    ("218_*/*.json", [], 0, ["sendrecv, each of 16 ranks to the next one, on 2 nodes", "44.01 GB/s"], ["left out"]),
    ("219_*/*.txt", [], 0, ["56 pairs have no peer access", "no more than copies through the host's memory"], ["NVLinks carry"]),
    ("227_*/*.txt", [], 0, ["1.77 µs at 1 B", "5.37 GB/s (42.96 Gb/s) at 256 KiB"], ["5.121"]),
    ("228_*/*.txt", [], 0, ["Sendrecv, both ways together", "17.62 GB/s at 512 KiB to 2.727 GB/s at 4 MiB"], ["equal parts"]),
    ("229_*/*.txt", [], 0, ["inside a GPU, each byte read and written", "1116 GB/s"], ["between two GPUs", "Usual:"]),
    ("230_*/*.txt", [], 0, ["was not what was sent, in device_to_device_memcpy_read_ce", "IOMMU"], ["no table of sizes"]),
    ("231_*/*.txt", [], 0, ["48.38 GB/s, is faster than this GPU's PCIe (15.75 GB/s): over NVLink"], ["PCIe 5.0", "Usual:"]),
    ("232_*/*.txt", [], 0, ["{2, 3, 4, 5} and {6, 7, 8, 9}: 26.5 GB/s", "rocm-smi --showtopo"], ["nvidia-smi"]),
    ("236_*/*.txt", [], 0, ["Of the pairs with access: 26.33 GB/s with P2P, 9.535 without"], ["Direct access gives no more"]),
    ("237_*/*.txt", [], 0, ["ucx_perftest tag_bw", "0.03398 GB/s (0.2719 Gb/s) at 512 B"], ["equal parts", "the most"]),
    ("238_*/*.txt", [], 0, ["PingPongAnySource", "1.34 µs at 1 B", "44.91 GB/s (359.3 Gb/s) at 4 MiB"], ["equal parts"]),
    ("240_*/*.txt", [], 2, ["nccl shows 60 µs", "gloo shows 39 µs", "nccl shows 1460 µs", "how many ranks"], []),
    ("240_*/*.txt", ["--ranks", "2"], 0, ["with nccl, run 1", "with gloo, run 4", "256 KiB 2.016", "256 KiB 0.013"], ["median"]),
    ("241_*/*.txt", [], 0, ["all_reduce 128 4", "with ompi tuned", "1.074 GB/s at 512 MiB"], ["left out", "of 0 µs"]),
    ("242_*/*.txt", [], 0, ["all_to_all 4 1", "3.81 MiB 16.99", "3.81 GiB 72.54"], []),
    ("243_*/*.txt", [], 2, ["8 ranks", "the text says 16 ranks", "the text says 24 ranks", "476.8"], ["on 2 nodes", "on 3 nodes"]),
    ("244_*/*.txt", [], 2, ["no unit stands in the cells or in the text"], ["GB/s"]),
    ("245_*/*.txt", [], 0, ["all_gather 64 2", "1.187"], ["how many ranks"]),
    ("246_*/*.txt", [], 0, ["with nccl", "97.54", "with fbgemm 1shot", "65.24"], []),
    ("247_*/*.txt", [], 0, ["all_reduce 8 1", "367"], ["cut off", "how many ranks"]),
    ("248_*/*.txt", [], 0, ["shmem_put_bw", "12.1 GB/s"], ["does not name"]),
    ("70_*/comm_bench.txt", ["--collective", "all_reduce"], 0, ["all_reduce 8", "8 ranks by busbw / algbw"], []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "more", "code", "right", "false"), FITS)
def test_fit_says_what_is_right(name, more, code, right, false):
    got, text = said("fit", path(name), *more)
    assert got == code, text
    assert [words for words in right if words not in text] == [], text
    assert [words for words in false if words in text] == [], text


EXPLAINED = [
    ("40_*", 0, "desync", ["Rank 3 made another call", "NCCL 2.26.2"], ["NCCL None"]),
    ("42_*", 0, "desync", ["Rank 0 made the call with another size", "12 float32", "1 float32"], []),
    ("43_*", 0, "missing_message", ["from rank 1", "in its batch 2", "has no send"], []),
    ("44_*", 2, None, ["no list of entries"], []),
    ("47_*/with_c10d", 0, "no_times", ["how long the calls take"], ["Nothing stands out", "No operator of torch"]),
    ("48_*", 0, None, ["iteration_20"], []),
    ("50_*", 0, "no_hang", ["Every recorded call ended"], ["waits", "did not finish", "never made"]),
    ("51_*", 0, "desync", ["Rank 1 made another call", "barrier"], []),
    ("52_*", 0, "missing_rank", ["Rank 0 never made call 2", "85 % sure"], ["itself waits"]),
    ("54_*", 0, "unread_device", ["mtia_ccp_events"], ["neither compute nor communicate most"]),
    ("70_*/watchdog.log", 0, "desync", ["Rank 2 made another call than ranks 0 and 1", "1042"], []),
    ("70_*/nccl_info.log", 0, "wrong_interface", ["Socket over eth0", "no InfiniBand device was found"], []),
    ("94_*", 0, "hang", ["Ranks 3, 11, 12, 14 and 15 waited in call 2070 of the group of all ranks, reduce of 1 element"], []),
    ("95_*", 0, "hang", ["Rank 0 waited in call 96117", "rank 7 waited in call 64088"], ["never made"]),
    ("96_*", 0, "hang", ["Rank 1 waited in call 1 of group 1", "1,572,864"], ["93459313471793", "never made"]),
    ("97_*", 0, "hang", ["rank 0 of 3", "call 17284", "one of 15 such texts"], ["No watchdog's text is of"]),
    ("98_*", 0, "hang", ["all_to_all of 1,379,328", "of group 119", "all_reduce of 32", "of group 112"], ["another call"]),
    ("99_*", 0, "hang", ["Rank 0 waited in all_reduce of 50 elements"], ["None"]),
    ("101_*", 0, "nccl_error", ["InfiniBand or RoCE was never answered", "vendor err 129"], []),
    ("102_*", 0, None, ["rank 0 of 16", "network: Libfabric", "NET/Libfabric/GDRDMA"], ["Socket"]),
    ("103_*", 0, None, ["2 channels", "0 1 3 2 6 4 5 7 8 9 11 10 14 12 13 15", "2 by NET/AWS Libfabric, 2 by P2P/IPC"], []),
    ("104_*", 0, "nccl_setting", ["NCCL_ALGO=Tree", "all_reduce: 62.6 µs at least, by Tree/LL", "68.8 GB/s at most"], []),
    ("105_*", 0, None, ["24 channels", "NVLS is not available"], []),
    ("106_*", 0, None, ["NCCL 2.18.1", "Socket over eth0", "no InfiniBand device"], []),
    ("107_*", 0, "slow_links", ["No pair of GPUs has an NVLink", "28 of 28 pairs are across", "8 by PIX"], []),
    ("108_*", 0, None, ["28 by 12 NVLinks", "18 network cards; the nearest of each GPU: 8 by PXB"], ["slow or off"]),
    ("109_*", 0, None, ["16 GPUs", "120 by 6 NVLinks", "10 network cards; the nearest of each GPU: 16 by PIX"], []),
    ("110_*", 0, None, ["6 by 18 NVLinks", "no fault"], ["slow or off"]),
    ("111_*", 0, "slow_links", ["GPU2 has no NVLink to any other GPU"], []),
    ("112_*", 0, "slow_links", ["1 by PHB", "no peer access"], []),
    ("113_*", 0, None, ["28 by 8 NVLinks", "9 network cards; the nearest of each GPU: 8 by PIX"], []),
    ("115_*", 0, "nccl_error", ["rank 1 was in call 335, all_reduce", "connection to another rank was lost"], []),
    ("116_*", 0, "failed_rank", ["local rank 3", "signal 9 (SIGKILL"], []),
    ("117_*", 0, "nccl_setting", ["NCCL 2.4.8", "NCCL_IB_DISABLE=1", "2 by NET/Socket"], []),
    ("118_*", 0, "nccl_error", ["given up, as its connection had failed before"], ["card reported an error"]),
    ("119_*", 0, "nccl_error", ["could not connect to another one"], []),
    ("120_*", 0, None, ["rank 6 of 8", "network: IB over mlx4_0"], ["eth1"]),
    ("121_*", 0, "wrong_interface", ["NCCL 2.3.7", "Socket over ib0"], []),
    ("122_*", 0, "nccl_error", ["could not connect to another one", "NCCL 2.7.8"], ["no rule for"]),
    ("123_*", 0, "hang", ["The watchdogs of ranks 0 and 1 got stuck", "600 s"], []),
    ("125_*", 0, "hang", ["The watchdogs of ranks 0 and 4 got stuck", "480 s"], []),
    ("126_*", 0, None, ["rank 3's: 63.03 s", "of 16"], []),
    ("127_*", 0, "nccl_error", ["Two processes say that they are the same rank"], []),
    ("131_*", 0, "stopped", ["ended from outside (signal 15)"], []),
    ("132_*", 0, None, ["3 by P2P/direct pointer"], []),
    ("133_*", 0, None, ["8 channels for collectives", "no channel uses NVLS"], []),
    ("140_*", 0, "missing_rank", ["Rank 1 never made call 9"], []),
    ("141_*", 0, "stopped", ["ended from outside (Slurm: time limit)", "Rank 0 waited in call 9"], []),
    ("142_*", 0, "failed_rank", ["Slurm's task 5 was ended for lack of the host's memory"], []),
    ("143_*", 0, None, ["Rank 1 waited in call 7"], ["cut in the middle"]),
    ("144_*/topo.txt", 2, None, ["rocm-smi"], ["its format is not known"]),
    ("150_*/out.txt", 2, None, ["OSU Micro-Benchmarks", "allranks fit"], ["its format is not known"]),
    ("164_*", 0, "hang", ["Ranks 115 and 5995 waited in call 2", "of 5,994 other ranks"], ["ranks 14"]),
    ("165_*", 0, "desync", ["Rank 6 made the call with another size than rank 4", "coalesced calls of 76,800"], ["unknown of"]),
    ("166_*", 0, "hang", ["of 8, watchdog", "Ranks 0, 3 and 4 waited"], ["of 5, watchdog"]),
    ("167_*", 0, "nccl_error", ["did not make the same collective", "local size 496640"], ["no rule for"]),
    ("168_*", 0, "nccl_error", ["could not open the memory of another one", "NCCL_P2P_DISABLE=1"], ["no rule for"]),
    ("169_*", 0, "nccl_error", ["whose plugin was not found"], ["no rule for"]),
    ("170_*", 0, "slow_links", ["8 GPUs, with no whole row of GPU7"], ["7 GPUs"]),
    ("171_*", 0, "hang", ["ranks that have a text here made call 1 of group 1", "ranks 0 and 1 did not finish it"], ["call 0"]),
    ("172_*", 0, "nccl_error", ["could not connect to another one", "Operation now in progress"], ["nothing of it is wrong"]),
    ("173_*", 0, "missing_rank", ["Ranks 0, 2, 3 and 4 waited in call 1580"], ["Ranks 0, 2 and 4"]),
    ("180_*", 0, "hang", ["Rank 1 waited in call 1522789 of group 3", "whose members no file names"], ["no other rank waits"]),
    ("178_*", 0, "slow_links", ["behind a CPU (SYS, NODE and PHB)", "4 by SYS, 3 by NODE, 1 by PHB"], []),
    ("179_*", 0, "nccl_error", ["could not take a port"], ["no rule for"]),
    ("176_*", 0, "hang", ["Rank 0 waited in call 35582"], ["ended first", "at least 1"]),
    ("160_*", 0, "desync", ["Ranks 12 and 13 made more calls of all_gather than the other 30", "640", "641"], []),
    ("161_*", 0, "missing_rank", ["Rank 1 does not answer"], []),
    ("162_*", 0, "hang", ["rank 118 of 256", "Rank 118 waited in call 2398459", "RAS knew 256 ranks", "OK"], ["ncclras"]),
    ("163_*/stacks.txt", 2, None, ["py-spy"], ["its format is not known"]),
    ("190_*/p2p.txt", 2, None, ["measures pairs", "allranks fit reads it"], ["its format is not known"]),
    ("200_*", 0, "desync", ["GPU 2 made another call than GPUs 0, 1 and 3: all_gather of 59,205,120 int8", "opCount 28c"], []),
    ("201_*", 0, "desync", ["GPU 0 made another call", "broadcast of 53 int64 from root 0", "so that it left one out"], ["nothing of it"]),
    ("202_*", 0, "desync", ["GPU 3 made another call", "opCount 285", "at and around rank 3"], []),
    ("203_*", 0, "hang", ["enqueued fewer calls", "40 % sure", "4 of 128 ranks"], ["another call"]),
    ("204_*", 0, "hang", ["Ranks 0, 1, 2, 4, 5, 6 and 7 wait", "1 of the 8 of this process did not come"], ["ank 3 did"]),
    ("205_*", 0, "missing_rank", ["Devices 0, 1 and 3 wait", "device 2 did not come", "operation 534"], []),
    ("206_*", 0, "no_times", ["late, and no hang"], ["did not come", "wait at a rendezvous"]),
    ("207_*", 0, "hang", ["6 threads wait", "2 of the 8", "after 40 s more it ended the process"], ["device 6"]),
    ("208_*", 0, "hang", ["Rank 101 (in the group rank 25 of 32) waited in all_reduce for rank 24 of group"], ["rank 25 did"]),
    ("209_*", 0, "hang", ["Rank 1 could not connect to other ranks in time"], ["Rank 1 failed", "watchdog"]),
    ("210_*", 0, "desync", ["all_reduce with other arguments", "count 16512 on one, 8320 on the other"], []),
    ("211_*", 0, "nccl_error", ["from rank 1 to rank 0", "look at the other end first"], []),
    ("212_*", 0, "exposed", ["4 ms 1.5 ms", "62.5 %"], ["hardly hidden"]),
    ("213_*/nvprof.txt", 2, None, ["nvprof", "nsys profile"], ["its format is not known"]),
    ("220_*", 0, "missing_message", ["3 messages have no receive in these logs", "23 sends and 20 receives"], ["nothing of it"]),
    ("221_*", 0, "desync", ["GPU 3 made another call than GPU 1", "opCount 4", "in a group of 2"], ["is of rank 0 too", "of 2, log", "Rank 0"]),
    ("222_*", 0, "hang", ["3 threads wait", "1 of the 4 of this process did not come"], ["1 thread waits"]),
    ("223_*", 0, "nccl_error", ["Rank 3: HCCL's helper process", "still runs"], ["Rank 3 failed"]),
    ("224_*", 0, "nccl_error", ["could not listen on port 16666", "rank 12 of the group"], []),
    ("225_*", 0, "missing_rank", ["Rank 1 did not submit what the other ranks wait for (2 tensors"], []),
    ("226_*/*.txt", 2, None, ["torchfrtrace", "give the dumps"], ["its format is not known"]),
    ("233_*", 0, "missing_rank", ["Rank 0 did not submit"], []),
    ("234_*", 0, "missing_rank", ["ranks 1, 3, 5 and 7 did not connect to the first one"], []),
    ("235_*", 0, "healthy", ["19 %", "who comes late, the files of other ranks would say"], ["nobody comes late"]),
    ("239_*", 0, "hang", ["each of which expects 8", "ranks 7 and 15 did not come or have another log"], ["all of this process"]),
    ("70_*/report1.sqlite", 2, None, ["SQLite"], ["its format is not known"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code", "kind", "right", "false"), EXPLAINED)
def test_explain_says_what_is_right(name, code, kind, right, false):
    got, text = said("explain", path(name))
    assert got == code, text
    assert [words for words in right if words not in text] == [], text
    assert [words for words in false if words in text] == [], text
    if kind is not None:
        assert (
            json.loads(CliRunner().invoke(main, ["explain", path(name), "--json"]).stdout)["causes"][0]["kind"] == kind
        )


def test_operators_of_a_file_without_kernels_are_those_of_the_main_thread():
    _, text = said("explain", path("47_*"), "--json")
    found = json.loads(text)
    assert [round(r["compute_us"] / r["span_us"], 2) for r in found["ranks"]] == [0.59, 0.59]
    assert {c["op"] for c in found["collectives"]} == {"all_reduce"}


@pytest.mark.parametrize(
    "label",
    ["{i}: ", " {i}: ", "   ", "(head, rank={i}, pid=38) ", "[1,{i}]<stdout>:", "2026-01-02T03:04:05Z pod-{i} ", "> "],
)
@pytest.mark.parametrize("lost", [False, True])
def test_labels_indents_and_a_lost_sign_do_no_harm(tmp_path, label, lost):
    text = Path(path("14_*/*.txt")).read_text().replace("(head, rank=0, pid=3808) ", "").replace("[1,0]<stdout>:", "")
    text = text.replace("#", "") if lost else text
    file = tmp_path / "all_gather.txt"
    file.write_text("".join(f"{label.format(i=0)}{line}\n" for line in text.splitlines()))
    code, words = said("fit", str(file))
    assert code == 0 and "all_gather 16 2" in words and "325.7" in words, words


def test_rows_without_a_head_are_read_by_size_over_time(tmp_path):
    rows = [line for line in Path(path("03_*/*.txt")).read_text().splitlines() if line.lstrip()[:1].isdigit()]
    (tmp_path / "all_reduce.txt").write_text("\n".join(rows) + "\n")
    code, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert code == 0 and "all_reduce 72" in words and "839.2" in words, words


def test_two_of_sixteen_device_lines_are_sixteen_ranks(tmp_path):
    lines = Path(path("14_*/*.txt")).read_text().splitlines()
    kept = [line for line in lines if "Rank " not in line or "Rank  0 " in line or "Rank  1 " in line]
    (tmp_path / "all_gather.txt").write_text("\n".join(kept) + "\n")
    code, words = said("fit", str(tmp_path / "all_gather.txt"))
    assert code == 0 and "16 ranks by busbw / algbw; 2 of their device lines are in the file" in words, words


def test_times_of_the_cpu_are_refused(tmp_path):
    text = Path(path("03_*/*.txt")).read_text().replace("  time ", "cputime ")
    (tmp_path / "all_reduce.txt").write_text(text)
    code, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert code == 2 and "-C 1" in words and "how long the host took" in words


def test_json_that_is_torn_gives_its_whole_results(tmp_path):
    text = Path(path("08_*/*.json")).read_text()
    whole = json.loads(text)
    whole["results"] += [
        dict(
            whole["results"][1],
            size=2 * whole["results"][1]["size"],
            out_of_place=dict(whole["results"][1]["out_of_place"], time=6217.6),
        )
    ]
    (tmp_path / "a.json").write_text(json.dumps(whole)[:-200])
    code, words = said("fit", str(tmp_path / "a.json"))
    assert code == 0 and "ends in the middle; 2 results are whole" in words, words


def test_the_runs_of_one_setting_count_with_their_median_and_others_do_not(tmp_path):
    text = Path(path("06_*/*.txt")).read_text()
    (tmp_path / "all_reduce.txt").write_text(text.replace("NCCL_ALGO=Tree", "A=1").replace("NCCL_ALGO=Ring", "A=2"))
    _, words = said("fit", str(tmp_path / "all_reduce.txt"))
    assert "2 settings" in words and "run 1: " in words and "145.3" in words, words


FOREIGN = [
    ("#sum\nsize(B)  count  type  redop  latency(us)  algbw(GB/s)\n8  2  int  sum  7.19  0.001\n64  16  int  sum  7.2  0.1\n", "latency(us)"),
    ("   Size (KB) |  NCCL Time (ms) |  Mine (ms)\n------------\n   4 |   0.12 |   0.05\n", "Size (KB) | NCCL Time (ms)"),
    ("| Message Size (MB) | Ring (us) | Tree (us) |\n|---|---|---|\n| 1 | 2 287.61 | 579.78 |\n", "Message Size (MB)"),
    ("12:00:01[1,0]<stdout>:# Size      Latency (us)\n12:00:01[1,0]<stdout>:0      2.35\n", "Size Latency (us)"),
    ("#   size   ntok   NCCL   NCCL_SYMMETRIC\n#     time(us)  algbw\n#-----\n  16384   1   12.3   1.33\n", "size ntok"),
    ("Comm. Op     Message Size    Count    Avg Latency(ms)\nbroadcast\n      2.0 KB    146     0.08\n", "Message Size Count"),
    ("   Elements   Time (us)\n   4096   12.3\n   8192   13.4\n", "Elements Time (us)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "head"), FOREIGN, ids=range(len(FOREIGN)))
def test_a_table_of_another_tool_is_refused_by_its_head(tmp_path, text, head):
    (tmp_path / "table.txt").write_text(text)
    code, words = said("fit", str(tmp_path / "table.txt"))
    assert code == 2 and "its table has the head" in words and head in words
    assert "has no head" not in words and "no table of sizes" not in words


def test_a_text_that_only_speaks_of_sizes_and_times_is_no_table(tmp_path):
    (tmp_path / "text.txt").write_text("The size and the time are below.\n1 2 3\nbytes  and so on\n")
    code, words = said("fit", str(tmp_path / "text.txt"))
    assert code == 2 and "no table of sizes and times that is known" in words


HEAD = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"


def test_a_table_inside_the_string_of_a_logger_is_read(tmp_path):
    rows = "".join(
        f"{s} {s // 4} float sum -1 {s / 1e5:.1f} 100.00 175.00 0 {s / 1e5:.1f} 100.00 175.00 0\n"
        for s in (1 << 26, 1 << 28)
    )
    lines = [{"level": "info", "msg": "starting"}, {"msg": "all_reduce_perf", "output": HEAD + rows}]
    (tmp_path / "job.log").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, words = said("fit", str(tmp_path / "job.log"))
    assert code == 0 and "all_reduce 8 1" in words


def test_the_count_of_one_part_says_how_many_ranks(tmp_path):
    rows = "1048576 4096 float none -1 9012.2 0.12 0.11 0 561.5 1.87 1.84 N/A\n536870912 2097152 float none -1 34500 15.56 15.32 0 34600 15.52 15.27 N/A\n"
    (tmp_path / "alltoall_perf.txt").write_text(HEAD + rows)
    code, words = said("fit", str(tmp_path / "alltoall_perf.txt"))
    assert code == 0 and "64 ranks by size / count" in words


def test_the_readers_own_number_of_ranks_is_said_to_be_that(tmp_path):
    table = Path(path("92_*/*.txt")).read_text(encoding="utf-8")
    devices = "".join(f"#  Rank {i:2d} Group  0 Pid {i} on a device {i} [0x07] NVIDIA H100\n" for i in range(4))
    (tmp_path / "all_reduce.txt").write_text(devices + table)
    code, words = said("fit", str(tmp_path / "all_reduce.txt"), "--ranks", "1024")
    assert code == 0 and "1024 ranks by --ranks; 4 of their device lines are in the file" in words


def test_the_milliseconds_of_2019_are_no_microseconds(tmp_path):
    text = "all_reduce_perf -b 1M -g 1\n#  Rank  0 on a device  0 [0x00] Tesla V100\n#  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res\n"
    text += (
        "#  Rank  1 on b device  0 [0x00] Tesla V100\n1048576 262144 float sum 2.0 0.52 0.52 N/A 2.0 0.52 0.52 N/A\n"
    )
    text += "1073741824 268435456 float sum 1000.0 1.07 1.07 N/A 1000.0 1.07 1.07 N/A\n"
    (tmp_path / "old.txt").write_text(text)
    code, words = said("fit", str(tmp_path / "old.txt"))
    assert code == 0 and "all_reduce 2 2" in words and " 1.07" in words
    # rows that were pasted to the middle, and one whose time is no number
    half = re.sub(r"N/A [12].*", "N/A", text) + "2147483648 536870912 float sum 1.2.3 1.07 1.07 N/A\n"
    (tmp_path / "half.txt").write_text(half)
    code, words = said("fit", str(tmp_path / "half.txt"))
    assert code == 0 and " 1.07" in words and "holds no number where its time is" in words


NOUNS = "ranks nodes calls lines times files channels sizes results processes collectives rows texts kernels settings GPUs cards"
MANY = re.compile(rf"(?<![\d.,/:-])1 (?:{NOUNS.replace(' ', '|')}|(?:of \w+ |\w+ )are)\b")


@pytest.mark.parametrize(("command", "names"), [("fit", FITS), ("explain", EXPLAINED)])
def test_no_sentence_speaks_of_one_thing_as_of_many(command, names):
    told = {name: said(command, path(name))[1] for name, *_ in names}
    assert {name: MANY.findall(text) for name, text in told.items() if MANY.search(text)} == {}
