"""All Ranks: an interactive course on collective communication, live on real ranks."""

from importlib.metadata import version as _version

__version__ = _version("allranks")
