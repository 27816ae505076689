"""Processes that send: engines, worlds of real ranks, the wire whose router sees every message, shared memory, NCCL's rules."""
