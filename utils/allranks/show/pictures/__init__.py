"""Still pictures, drawn from schedules and formulas: a pictogram for each collective, and the picture at the top of each chapter.

They need no script and no network. Imports without torch.
"""

from allranks.show.pictures.flow import NAMES, Flow, flow
from allranks.show.pictures.pictogram import pictogram

__all__ = ["NAMES", "Flow", "flow", "pictogram"]
