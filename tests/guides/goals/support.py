"""The parts of goals that their tests look at, each named in this place alone."""

from trellm.guides.goals import Goal, goals_of
from trellm.guides.goals.automaton import GoalAutomaton, automaton_of
from trellm.guides.goals.joint import GoalTokens

__all__ = [
    "Goal",
    "GoalAutomaton",
    "GoalTokens",
    "automaton_of",
    "goals_of",
]
