"""Questions to a reader: `ask` takes a prediction; `Quiz` asks one question and `Drill` many, with a reason for each answer.

The explorables (explorables.py) and CheatSheet (cheatsheet.py) are taken from `allranks`: they import the cost model.
"""

from allranks.widgets.drill import Drill, DrillError, Question, Quiz
from allranks.widgets.prediction import ask
from allranks.widgets.situations import SITUATIONS

__all__ = ["SITUATIONS", "Drill", "DrillError", "Question", "Quiz", "ask"]
