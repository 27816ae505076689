"""The fork server: a process that imports torch, ipykernel and ipyparallel once, and forks every rank.

A client needs few of the server's parts, so each is imported from its own file.
"""
