"""Answers in words.

Must get: the cause in what rank 0 returned is of type str; it must be a number
"""


def diagnose_job(job):
    return "straggler", 1, 0.0
