"""The parts inside of guides that tests look at where no public name shows a fault, each named in this place alone."""

from collections.abc import Callable

from trellm import Cancellation
from trellm.checks import implements
from trellm.guides.automata.charsets import negate
from trellm.guides.automata.dfa import Dfa, byte_runs, minimise
from trellm.guides.cfg_guide import automaton_of
from trellm.guides.chart.automaton import ChartAutomaton
from trellm.guides.explain import describe, expected, explain, next_characters
from trellm.guides.graph.array_graph import span_of
from trellm.guides.graph.graph import Graph
from trellm.guides.graph.lowering import Lowering
from trellm.guides.healing import Crossings, TrieGuide
from trellm.guides.json_guide import WatchingJSONGuide
from trellm.guides.json_schema import CompiledSchema, SchemaOptions
from trellm.guides.lift.closing import FAR
from trellm.guides.lift.lifted_guide import LiftedGuide
from trellm.guides.lift.mask_table import MaskTable
from trellm.guides.lift.tables import VocabularyTables
from trellm.guides.limits import Meter, NotReadyError, quickly
from trellm.guides.protocol import Mask, Quoting, Rebuildable
from trellm.guides.quoting.quotation import fragment_of_quote
from trellm.guides.quoting.source import Occurrence, boundaries
from trellm.guides.regex import parse
from trellm.guides.regular_guide import RegularGuide
from trellm.guides.syntax import EMPTY, NOTHING, Node, Ranges, Table, flattened, unflattened
from trellm.kernels.answers import LIMIT, NEVER
from trellm.kernels.chart.compaction import least_texts
from trellm.kernels.chart.interning import HI, LO
from trellm.kernels.chart.layout import CALL, EPSILON, HEADER, ITEM
from trellm.kernels.chart.return_sets import signature
from trellm.kernels.trie.whole_mask import MaskParts
from trellm.tokenizers_adapter import Trie

__all__ = [
    "CALL",
    "EMPTY",
    "EPSILON",
    "FAR",
    "LIMIT",
    "NEVER",
    "NOTHING",
    "ChartAutomaton",
    "CompiledSchema",
    "Crossings",
    "Dfa",
    "Graph",
    "LiftedGuide",
    "Lowering",
    "Mask",
    "MaskParts",
    "MaskTable",
    "Meter",
    "Node",
    "NotReadyError",
    "Occurrence",
    "Quoting",
    "Ranges",
    "Rebuildable",
    "RegularGuide",
    "SchemaOptions",
    "Table",
    "Trie",
    "TrieGuide",
    "VocabularyTables",
    "WatchedCancellation",
    "WatchingJSONGuide",
    "automaton_of",
    "boundaries",
    "bounds_of",
    "byte_runs",
    "describe",
    "expected",
    "explain",
    "flattened",
    "fragment_of_quote",
    "implements",
    "items_of",
    "least_texts",
    "minimise",
    "negate",
    "next_characters",
    "parse",
    "quickly",
    "signature",
    "span_of",
    "unflattened",
    "work_of",
]


class WatchedCancellation(Cancellation):
    """Knows the meters of its calls, which stay as they were when the calls ended."""

    def __init__(self, breathe: Callable[[], None] | None = None) -> None:
        super().__init__(breathe)
        self.meters: list[Meter] = []

    def attach(self, meter: Meter) -> None:
        self.meters.append(meter)
        super().attach(meter)


def work_of(asked: Callable[[], object]) -> int:
    """Most steps that one of the meters of a call has counted."""
    with WatchedCancellation() as watched:
        asked()
    return max(meter.spent for meter in watched.meters)


def bounds_of(chart: ChartAutomaton, state: int) -> tuple[int, int]:
    """Where the words of a state begin and end."""
    low, high = chart.chart.states[state, [LO, HI]]
    return int(low), int(high)


def items_of(chart: ChartAutomaton, state: int) -> int:
    """The number of items that a state is made of: places in rules."""
    low, high = bounds_of(chart, state)
    return (high - low - HEADER) // ITEM
