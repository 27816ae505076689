"""The hub's page of GPUs: who uses which, who waits, and how long yet. JupyterHub runs it as its service `gpus`."""
