"""One guess for all.

Must get: is not the diagnosis
"""


def diagnosis(program):
    return 0, 4, 5
