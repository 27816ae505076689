"""Written by `python tools/validation.py`: factors of the foretold value between which 8 of 10 published ones lie, by kind."""

BANDS: dict[str, tuple[float, float]] = {
    "first_token": (0.889, 1.494),
    "token": (0.900, 1.160),
    "throughput": (0.811, 1.369),
    "experts": (0.661, 4.826),
    "all_reduce": (0.417, 2.442),
}
