"""Measurements that the documents quote. Each module of this package has `run(quick) -> Result`."""
