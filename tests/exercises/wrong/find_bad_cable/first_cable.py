"""Always the same cable.

Must get: round
"""


def find_bad_cable(ways, rounds):
    return 0
