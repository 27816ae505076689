"""A computer and who may use it: its doctor, the proof that it works, its measurements, the hub's page of GPUs."""
