"""Real jobs: the files that profilers and recorders write, read into one model, analysed, and told in words."""

from __future__ import annotations

from allranks.jobs.explaining import Explanation, explain
from allranks.jobs.job import Call, Cause, Job, ProfileError, RankRecord, Skipped
from allranks.jobs.lanes import trace_of_files
from allranks.jobs.planted import RECORDED, recorded
from allranks.jobs.reading import read

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
    "trace_of_files",
]
