"""The parts of the engine that tests look at where no public name shows a fault, each named in this place alone."""

from collections.abc import Callable

import pytest
from trellm.engine import engine as engines
from trellm.engine.decode.beam_search import BeamGroup, BeamSearch
from trellm.engine.decode.controls import repeated
from trellm.engine.decode.draft_history import QUOTED, SPELT, AcceptanceRates, DraftHistory
from trellm.engine.decode.frames import Sentence
from trellm.engine.decode.guide_cache import AllowedTokens, GuideCache, StateTable
from trellm.engine.decode.randomness import row_key, uniform
from trellm.engine.decode.requests import requests_of
from trellm.engine.decode.sequence import Request, SequenceState
from trellm.engine.diagnostics import Bias, Diagnostics, Step
from trellm.engine.drafts import Drafter, ForcedDrafts, ForwardCosts
from trellm.engine.engine import run_together
from trellm.engine.fields import places_in
from trellm.engine.formats import format_of
from trellm.engine.memory.pool import BlockPool
from trellm.engine.memory.tables import BLOCK, FREED, NO_SLOT, BlockTable, Chunk
from trellm.engine.memory.weights import Weights
from trellm.engine.models.decoder import DecoderModel
from trellm.engine.models.function import FunctionModel
from trellm.engine.options import Options, RunOptions
from trellm.engine.prompts.arguments import prompts_of
from trellm.engine.prompts.description import MAX_CHARS
from trellm.engine.prompts.encoding import MARK, ChatEncoder, ids_of, read
from trellm.engine.results import listed
from trellm.engine.schedule.call import Call
from trellm.engine.schedule.core import EngineCore
from trellm.engine.schedule.scheduler import LEAST, SELDOM, Budget, Scheduler, SchedulerConfig
from trellm.engine.search import BeamHypothesis, SearchTrace, StopStrings, Target, TracedBeam, round_robin
from trellm.engine.structures import structure_of
from trellm.guides.lift.lifted_guide import LiftedGuide
from trellm.guides.tagged import Part
from trellm.kernels.logits import reference

__all__ = [
    "BLOCK",
    "FREED",
    "LEAST",
    "MARK",
    "MAX_CHARS",
    "NO_SLOT",
    "QUOTED",
    "SELDOM",
    "SPELT",
    "AcceptanceRates",
    "AllowedTokens",
    "BeamGroup",
    "BeamHypothesis",
    "BeamSearch",
    "Bias",
    "BlockPool",
    "BlockTable",
    "Budget",
    "Call",
    "ChatEncoder",
    "Chunk",
    "DecoderModel",
    "Diagnostics",
    "DraftHistory",
    "Drafter",
    "EngineCore",
    "ForcedDrafts",
    "ForwardCosts",
    "FunctionModel",
    "GuideCache",
    "LiftedGuide",
    "Options",
    "Part",
    "Request",
    "RunOptions",
    "Scheduler",
    "SchedulerConfig",
    "SearchTrace",
    "Sentence",
    "SequenceState",
    "StateTable",
    "Step",
    "StopStrings",
    "Target",
    "TracedBeam",
    "Weights",
    "drafts_pay",
    "engines",
    "format_of",
    "ids_of",
    "listed",
    "places_in",
    "prompts_of",
    "read",
    "reference",
    "repeated",
    "requests_of",
    "round_robin",
    "row_key",
    "run_together",
    "steps_by_clock",
    "structure_of",
    "uniform",
]


def drafts_pay(patch: pytest.MonkeyPatch, pays: Callable[[float], bool]) -> None:
    """Read drafts wherever this holds of the probability that they are right, whatever steps cost."""
    patch.setattr(ForwardCosts, "pays", lambda self, probability, *others: pays(probability))


def steps_by_clock(patch: pytest.MonkeyPatch, now: Callable[[], float]) -> None:
    """Take the time of steps from this clock."""
    patch.setattr("trellm.engine.schedule.core.perf_counter", now)
