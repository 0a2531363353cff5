"""The parts of goals that their tests look at, each named in this place alone."""

from trellm.guides.required_content import Goal, goals_of
from trellm.guides.required_content.automaton import GoalAutomaton, automaton_of
from trellm.guides.required_content.joint import GoalTokens

__all__ = [
    "Goal",
    "GoalAutomaton",
    "GoalTokens",
    "automaton_of",
    "goals_of",
]
