"""Quizzes that give a reason for every answer: `Quiz` asks one question, `Drill` many."""

from allranks.drill.situations import SITUATIONS
from allranks.drill.widget import Drill, DrillError, Question, Quiz

__all__ = ["SITUATIONS", "Drill", "DrillError", "Question", "Quiz"]
