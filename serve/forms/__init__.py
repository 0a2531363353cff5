"""Tool calls and thinking in the form that a model was trained for: the guide, and a reader of what comes."""

from .apart import is_apart
from .families import NAMES
from .form import Form, Plan, ThinkingError
from .read.deltas import (
    ArgumentsDelta,
    Call,
    CallDelta,
    CallEndDelta,
    ContentDelta,
    Delta,
    Message,
    ReasoningDelta,
)
from .read.reader import Reader
from .tools import Choice, Tool, ToolError, choice_of, tools_of

__all__ = [
    "NAMES",
    "ArgumentsDelta",
    "Call",
    "CallDelta",
    "CallEndDelta",
    "Choice",
    "ContentDelta",
    "Delta",
    "Form",
    "Message",
    "Plan",
    "Reader",
    "ReasoningDelta",
    "ThinkingError",
    "Tool",
    "ToolError",
    "choice_of",
    "is_apart",
    "tools_of",
]
