"""Answers in words.

Must get: must be a number
"""


def diagnosis(program):
    return "all", "line 4", "dtype"
