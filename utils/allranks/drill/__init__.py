"""Questions to a reader: `ask` takes a prediction; `Quiz` asks one question and `Drill` many, with a reason for every answer."""

from allranks.drill.prediction import ask
from allranks.drill.situations import SITUATIONS
from allranks.drill.widget import Drill, DrillError, Question, Quiz

__all__ = ["SITUATIONS", "Drill", "DrillError", "Question", "Quiz", "ask"]
