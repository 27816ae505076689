"""Real jobs: the files that profilers and recorders write, read into one model, analysed, and told in words."""

from __future__ import annotations

from allranks.profiles.job import Call, Cause, Job, ProfileError, RankRecord, Skipped
from allranks.profiles.reading import read

__all__ = ["Call", "Cause", "Job", "ProfileError", "RankRecord", "Skipped", "read"]
