"""The GPU kernels that communicate, by library: their names, the collective, and whether they compute too.

`FAMILIES` is what docs/explain.md lists. The names were looked up in the libraries' sources at the versions given
there; a kernel of a library that is not listed counts as communication where its own name is that of a collective.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from allranks.jobs.names import UNKNOWN, operation

__all__ = ["FAMILIES", "Family", "Sends", "is_peer_copy", "sends"]


@dataclass(frozen=True)
class Family:
    """Kernels of one library: a pattern for their names, the operation ("" where the name tells it), and whether they
    compute too.

    >>> FAMILIES[0].library
    'NCCL, RCCL, MSCCL'
    """

    library: str
    names: str
    op: str = ""
    computes: bool = False
    seen: str = ""


@dataclass(frozen=True)
class Sends:
    """What is known of a kernel that communicates.

    >>> Sends("all_reduce", False, "vLLM").computes
    False
    """

    op: str
    computes: bool
    library: str


TE, FI = "TransformerEngine", "FlashInfer, TensorRT-LLM"
FAMILIES = (
    # what `^nccl.*Kernel` is to HolisticTraceAnalysis, with AMD's and Microsoft's libraries
    Family(
        "NCCL, RCCL, MSCCL", r"(?:nccl|rccl|msccl)\w*[Kk]ernel\w*|nccl(?:Dev|Sym)\w+", "", False, "NCCL 2.4 to 2.30"
    ),
    Family(
        "torch symmetric memory",
        r"(?:multimem_|one_shot_|two_shot_)\w*_kernel(?:_inplace)?|stream_write_value32_\w+",
        "",
        False,
        "torch 2.5 to 2.13",
    ),
    Family(
        "torch symmetric memory", r"(?:barrier|put_signal|wait_signal)_kernel", "barrier", False, "torch 2.5 to 2.13"
    ),
    Family(
        "torch over NVSHMEM",
        r"(?:allToAllV|allToAllGet|exchangeSplitAndOffset)\w*",
        "all_to_all",
        False,
        "torch 2.8 to 2.13",
    ),
    Family(
        "vLLM, SGLang, aiter",
        r"cross_device_reduce_\w+",
        "all_reduce",
        False,
        "vLLM 0.3, SGLang 0.2, aiter 0.1 and later",
    ),
    Family("aiter", r"reduce_scatter_cross_device_store\w*", "reduce_scatter", False, "aiter 0.1 and later"),
    Family(
        "FlashInfer, TensorRT-LLM, aiter",
        r"(?:moe\w*_)?allreduce_fusion_kernel_\w+|\w*[oO]ne[sS]hotAll[rR]educeFusion\w*",
        "all_reduce",
        True,
        "FlashInfer 0.2 to 0.6, TensorRT-LLM 0.17 to 1.2",
    ),
    Family(FI, r"\w*one_shot_\w*all_reduce_norm_kernel|rmsNormLamport", "all_reduce", True, "FlashInfer 0.3 to 0.6"),
    Family(FI, r"(?:one|two)[sS]hotAll[rR]educe\w*", "all_reduce", False, "TensorRT-LLM 0.9 to 1.2, torch 2.3 to 2.5"),
    Family(FI, r"hybridCubeMeshAllReduce\w*", "all_reduce", False, "torch 2.3 to 2.5"),
    Family(
        FI, r"moe(?:AllToAll|A2A)\w*|helixAllToAll\w*|ulysses_a2a_\w+", "all_to_all", False, "FlashInfer 0.3 to 0.6"
    ),
    Family(FI, r"ipc_\w*rsag\w*_kernel|push_oneshot_param_kernel|ipc_tp2_\w+", "all_reduce", False, "FlashInfer 0.6"),
    Family(
        "GEMMs with a collective inside",
        r"\w*gemm_?\w*(?:all_?reduce|reduce_?scatter)\w*|\w*all_?gather_?(?:matmul|gemm)\w*",
        "",
        True,
        "TensorRT-LLM 0.20 and later, FlashInfer 0.6, Flux 1.0",
    ),
    Family(
        "NVSHMEM",
        r"nvshmem\w*|(?:barrier|sync|alltoall|broadcast|fcollect|\w*reduce\w*|rdxn|quiet|\w*signal\w*)"
        r"_on_stream_kernel\w*",
        "",
        False,
        "NVSHMEM 2.6 to 3.4",
    ),
    Family("rocSHMEM, MORI", r"rocshmem\w*|mori_\w+", "", False, "rocSHMEM 2.0"),
    Family(
        "DeepEP",
        r"deep_ep::(?:legacy::|elastic::)?(?:intranode|internode|internode_ll|comm)::\w+|"
        r"hybrid_ep::\w*(?:dispatch|combine)\w*",
        "all_to_all",
        False,
        "DeepEP 1.0 to 2.0",
    ),
    Family(
        TE, r"kuserbuffers_push(?:send|_)\w*|kuserbuffers_pullsend\w*", "send", False, "TransformerEngine 0.8 to 2.16"
    ),
    Family(TE, r"kuserbuffers_p\w*recv\w*", "recv", False, "TransformerEngine 0.8 to 2.16"),
    Family(TE, r"userbuffers_\w+_sum_inplace_gpu_\w+_ag\w*", "all_gather", False, "TransformerEngine 0.8 to 2.16"),
    Family(TE, r"userbuffers_\w+_sum_inplace_gpu_\w+_rs\w*", "reduce_scatter", False, "TransformerEngine 0.8 to 2.16"),
    Family(TE, r"userbuffers_\w+_sum_inplace_gpu_\w+", "all_reduce", False, "TransformerEngine 0.8 to 2.16"),
    Family(
        "MSCCL++",
        r"all(?:reduce|gather)(?:AllPairs|Fullmesh|Nvls|Packet|RsAg|\d)\w*|mscclpp\w*|executionKernel",
        "",
        False,
        "MSCCL++ 0.5 to 0.9",
    ),
    Family("AMD quick-reduce", r"allreduce_prototype\w*", "all_reduce", False, "vLLM 0.9, aiter 0.1 and later"),
    Family("oneCCL", r"oneccl_\w+|ccl_kernel\w*", "", False, "oneCCL 2021.13"),
)
# before a name: nothing, a namespace, or the digits of a mangled name
_KNOWN = tuple((re.compile(rf"(?:^|::|\d)(?:{family.names})$"), family) for family in FAMILIES)
_COLLECTIVE = re.compile(r"all_?reduce|reduce_?scatter|all_?gather|all_?to_?all|all2all", re.I)
_NOT_BETWEEN_GPUS = re.compile(r"(?:warp|block|cta|group|thread|lane)_?all_?reduce", re.I)
_INDUCTOR = ("triton_poi_", "triton_red_", "triton_per_")  # torch.compile names these after the operators around them
_COMPUTES = re.compile(r"fus(?:ion|ed)|norm|gemm|matmul|quant|residual|bias|silu|gelu|attn|attention", re.I)
_PEER_COPY = re.compile(r"PtoP|Peer|P2P")


@lru_cache(maxsize=65536)
def sends(name: str) -> Sends | None:
    """What a GPU kernel of this name sends; None for a kernel that does not communicate.

    >>> sends("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(RankData*)").op
    'all_reduce'
    >>> sends("void gemm_kernel<float>()") is None
    True
    >>> sends("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()").computes
    True
    """
    plain = _plain(name)
    for pattern, family in _KNOWN:
        if pattern.search(plain):
            return Sends(family.op or operation(plain.rpartition("::")[2]), family.computes, family.library)
    own = plain.rpartition("::")[2]
    if _COLLECTIVE.search(own) and not _NOT_BETWEEN_GPUS.search(own) and not own.startswith(_INDUCTOR):
        op = operation(own)
        return Sends("all_to_all" if op == UNKNOWN else op, bool(_COMPUTES.search(own)), "by its name")
    return None


def is_peer_copy(name: str) -> bool:
    """Whether a copy goes from one GPU to another: a copy engine communicates.

    >>> is_peer_copy("Memcpy PtoP (Device -> Device)"), is_peer_copy("Memcpy DtoD (Device -> Device)")
    (True, False)
    """
    return _PEER_COPY.search(name) is not None


def _plain(name: str) -> str:
    """The qualified name of a kernel without its return type, template arguments and parameters."""
    text = re.sub(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N__\w*::", "", name).strip()
    text = re.sub(r"^(?:(?:static|void|__global__|inline)\s+)+", "", text)
    mangled = re.match(r"_Z\w+", text)
    if mangled:  # the innermost name with its length before it
        parts = []
        at = text
        while (number := re.search(r"(\d+)([A-Za-z_]\w*)", at)) is not None:
            size = int(number[1])
            if not 0 < size <= len(number[2]):
                break
            parts.append(number[2][:size])
            at = number[2][size:]
            if not re.match(r"\d", at):
                break
        return "::".join(parts) or text
    return re.split(r"[<(\s]", text, maxsplit=1)[0]
