"""The parts of the training that its tests look at, each named in this place alone."""

from trellm.training import batches, drafting, passes
from trellm.training import network as networks
from trellm.training import tokenizer as tokenizers
from trellm.training.batches import ROWS, chunk
from trellm.training.evaluation import ByTransformers, cases, constrained, grammar_of, measure, unconstrained
from trellm.training.loop import Plan, Training
from trellm.training.optimiser import Muon, Optimiser, orthogonal
from trellm.training.scoring import Score
from trellm.training.text import documents, names
from trellm.training.text.documents import ANSWER, END, GIVEN, STOP, chat_prompt, messages_of, plain_prompt, written
from trellm.training.text.forms import expand, fill, is_held_out, slots_of
from trellm.training.text.scenes import DOMAINS, draw
from trellm.training.text.schemas import described, fields_of, has_held_out_name, record, styled
from trellm.training.text.tasks import Task, checks_task, sum_task, tool_task
from trellm.training.text.tools import call_schema, drawn
from trellm.training.text.values import in_words, make, ordinal, spell_date, spell_time
from trellm.training.validation import KINDS, held_out_task

__all__ = [
    "ANSWER",
    "DOMAINS",
    "END",
    "GIVEN",
    "KINDS",
    "ROWS",
    "STOP",
    "ByTransformers",
    "Muon",
    "Optimiser",
    "Plan",
    "Score",
    "Task",
    "Training",
    "batches",
    "call_schema",
    "cases",
    "chat_prompt",
    "checks_task",
    "chunk",
    "constrained",
    "described",
    "documents",
    "drafting",
    "draw",
    "drawn",
    "expand",
    "fields_of",
    "fill",
    "grammar_of",
    "has_held_out_name",
    "held_out_task",
    "in_words",
    "is_held_out",
    "make",
    "measure",
    "messages_of",
    "names",
    "networks",
    "ordinal",
    "orthogonal",
    "passes",
    "plain_prompt",
    "record",
    "slots_of",
    "spell_date",
    "spell_time",
    "styled",
    "sum_task",
    "tokenizers",
    "tool_task",
    "unconstrained",
    "written",
]
