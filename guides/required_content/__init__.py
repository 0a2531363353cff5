"""Goals: required content of a text, as automata that any guide can be combined with."""

from .guide import GoalGuide
from .specs import AllOf, AnyOf, Gap, Goal, Ordered, Phrase, Template, goals_of

__all__ = ["AllOf", "AnyOf", "Gap", "Goal", "GoalGuide", "Ordered", "Phrase", "Template", "goals_of"]
