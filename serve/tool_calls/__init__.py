"""Tool calls and thinking in a model's own format: guides and incremental parsing."""

from .deltas import (
    ArgumentsDelta,
    CallDelta,
    CallEndDelta,
    ContentDelta,
    Delta,
    ParsedCall,
    ParsedMessage,
    ReasoningDelta,
)
from .formats import FORMATS, NAMES
from .grammar import is_unembeddable
from .plan import TAIL, AnswerPlan, Thinking, ThinkingError, ToolCallFormat
from .reader import AnswerReader
from .tools import Tool, ToolChoice, ToolError, choice_of, tools_of

__all__ = [
    "FORMATS",
    "NAMES",
    "TAIL",
    "AnswerPlan",
    "AnswerReader",
    "ArgumentsDelta",
    "CallDelta",
    "CallEndDelta",
    "ContentDelta",
    "Delta",
    "ParsedCall",
    "ParsedMessage",
    "ReasoningDelta",
    "Thinking",
    "ThinkingError",
    "Tool",
    "ToolCallFormat",
    "ToolChoice",
    "ToolError",
    "choice_of",
    "is_unembeddable",
    "tools_of",
]
