"""Real jobs: the files that profilers and recorders write, read into one model, analysed, and told in words."""

from __future__ import annotations

from allranks.profiles.explaining import Explanation, explain
from allranks.profiles.job import Call, Cause, Job, ProfileError, RankRecord, Skipped
from allranks.profiles.lanes import trace_of_files
from allranks.profiles.planted import RECORDED, recorded
from allranks.profiles.reading import read
from allranks.trace import READERS

__all__ = [
    "RECORDED",
    "Call",
    "Cause",
    "Explanation",
    "Job",
    "ProfileError",
    "RankRecord",
    "Skipped",
    "explain",
    "read",
    "recorded",
]

READERS["profile"] = trace_of_files  # what Trace.from_profile calls
