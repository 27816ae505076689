"""A rank on the CPU: torch must take it for one, also a torch that was built for GPUs."""

from __future__ import annotations

import os
import warnings


def see_no_gpu() -> None:
    """From now on this process shows torch no GPU. Call it before CUDA starts.

    A torch that was built for GPUs names CUDA as its accelerator even where it sees no GPU, and `fully_shard` without a mesh
    then puts the model there.
    """
    import torch

    # the first backward looks for GPUs all the same, and says what is wrong with a driver that the rank does not use
    warnings.filterwarnings("ignore", "CUDA initialization")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # else the first backward starts CUDA, and a thread for each GPU
    if torch._C._get_accelerator().type != "cpu":
        for name, none in (("_get_accelerator", torch.device("cpu")), ("_accelerator_getAccelerator", None)):
            setattr(torch._C, name, lambda *_, none=none: none)
