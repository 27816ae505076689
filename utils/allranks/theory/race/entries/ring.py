"""The course's ring, rank after rank."""

from allranks.theory import schedules


def schedule(task):
    return schedules.find(task.collective, "ring")(task.ranks)
