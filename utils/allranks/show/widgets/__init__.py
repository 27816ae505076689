"""Questions to a reader: `predict` asks before a cell runs; `Quiz` asks one question and `Drill` many, with a reason for each answer.

The explorables (explorables.py) and CheatSheet (cheatsheet.py) are taken from `allranks`: they import the cost model.
"""

from allranks.show.widgets.drill import Drill, DrillError, Question, Quiz
from allranks.show.widgets.prediction import Prediction, PredictionError, predict, predictions
from allranks.show.widgets.situations import SITUATIONS

__all__ = [
    "SITUATIONS",
    "Drill",
    "DrillError",
    "Prediction",
    "PredictionError",
    "Question",
    "Quiz",
    "predict",
    "predictions",
]
