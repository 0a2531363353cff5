"""Guides for regular languages: regular expressions, choices, and machines of the interegular library.

A saved guide is a safetensors file with the masks of all states, its pattern and vocabulary, and a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_any_text, check_bool
from ..errors import GuideFileError, LanguageError, LimitError, OptionError
from ..kernels.jit.compiling import call
from ..kernels.trie.align import first_unspellable
from ..tokenizers_adapter import Vocabulary
from .arguments import states_of, vocabulary_of
from .automata.byte_table import described, machine_of, table_of
from .automata.dfa import Dfa
from .chart.automaton import ChartAutomaton
from .graph.graph import Graph
from .graph.lowering import Lowering
from .graph.text_tree import any_of
from .graph.utf8 import ByteFragment
from .lift.lifted_guide import LiftedGuide
from .lift.tables import VocabularyTables, horizon_of
from .limits import Limits, Meter
from .pictures import MAX_PICTURED, Drawable, Picture
from .pictures.automata import MinimalAutomaton, tokens_in
from .protocol import Capture
from .regex import named_groups, parse
from .regex.groups import NamedGroups
from .regex.pattern import flags_of
from .syntax import Flat, Node, flattened, unflattened

if TYPE_CHECKING:
    from interegular.fsm import FSM


FORMAT = "trellm guide 1"

Tensors = dict[str, NDArray[Any]]


class SavedGuide(NamedTuple):
    """The content of a file.

    identity: the pattern, flags, dialect and vocabulary
    masks: uint32 [states, words]; transitions: int32 [states, 256]
    """

    path: str
    identity: dict[str, str]
    masks: NDArray[np.uint32]
    transitions: NDArray[np.int32]

    def check(self, transitions: NDArray[np.int32], size: int) -> None:
        """Raise GuideFileError unless the file's transitions equal those given and its masks are of `size` tokens."""
        if not np.array_equal(transitions, self.transitions) or len(self.masks) != len(transitions):
            raise GuideFileError(
                f"{self.path} was saved by a version that builds another automaton; save the guide again"
            )
        words, tail_bits = self.masks.shape[1], size % 32
        if words != (size + 31) // 32 or (tail_bits and (self.masks[:, -1] >> np.uint32(tail_bits)).any()):
            raise GuideFileError(
                f"{self.path} has masks for another number of tokens than {size:,}; save the guide again"
            )


def save_guide(
    path: str | Path,
    masks: NDArray[np.uint32],
    transitions: NDArray[np.int32],
    identity: dict[str, str],
    vocabulary: Vocabulary,
) -> None:
    """Write the masks of a precompiled guide.

    masks: uint32 [states, words]; transitions: int32 [states, 256]; states are numbered breadth first.
    """
    import safetensors.numpy

    library: Any = safetensors.numpy
    tensors: Tensors = {"masks": masks, "transitions": transitions}
    metadata = {**identity, "format": FORMAT, "vocabulary": vocabulary.fingerprint}
    metadata["checksum"] = _checksum(metadata, tensors)
    place = _path(path)
    if os.path.isdir(place):
        raise GuideFileError(f"{place} is a folder; name a file")
    # Written under another name and renamed, so that the file is never incomplete.
    partial = place.with_name(f".{place.name[:200]}.{os.getpid()}.partial")
    try:
        partial.write_bytes(library.save(tensors, metadata))
        partial.replace(place)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise GuideFileError(f"{place} cannot be written: {reason}; name a file in a folder that is there") from None
    finally:
        with suppress(OSError, ValueError):
            partial.unlink(missing_ok=True)


def read_guide(path: str | Path, vocabulary: Vocabulary, expected: Mapping[str, str]) -> SavedGuide:
    """Read a saved guide. Raises GuideFileError if it is damaged, or differs in vocabulary or expected identity."""
    saved = _read(path)
    for key, value in {**expected, "vocabulary": vocabulary.fingerprint}.items():
        found = saved.identity.get(key)
        if found != value:
            raise GuideFileError(
                f"{path} was saved for another {key}: {_short(found)}, not {_short(value)}; save the guide again"
            )
    return saved


def _read(path: str | Path) -> SavedGuide:
    from safetensors import safe_open

    place = _path(path)
    if not os.path.isfile(place):
        raise GuideFileError(f"{path} is a folder, not a file" if os.path.isdir(place) else f"there is no file {path}")
    try:
        opened: Any = safe_open(str(place), framework="numpy")
        with opened as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            if metadata.get("format") != FORMAT or set(file.keys()) != {"masks", "transitions"}:
                raise GuideFileError(f"{path} is not a saved guide of this version; save the guide again")
            tensors: Tensors = {name: file.get_tensor(name) for name in ("masks", "transitions")}
    except GuideFileError:
        raise
    except Exception as error:  # damaged files may raise any exception of the library
        raise GuideFileError(f"{path} is not a whole safetensors file ({error}); save the guide again") from None
    if metadata.pop("checksum", "") != _checksum(metadata, tensors):
        raise GuideFileError(f"{path} is damaged: its checksum does not match; save the guide again")
    found = {name: (str(tensor.dtype), tensor.ndim) for name, tensor in tensors.items()}
    if found != {"masks": ("uint32", 2), "transitions": ("int32", 2)} or not _is_identity(metadata):
        raise GuideFileError(f"{path} lacks parts of a saved guide; save the guide again")
    return SavedGuide(str(path), metadata, tensors["masks"], tensors["transitions"])


def _is_identity(metadata: Mapping[str, str]) -> bool:
    """Test whether metadata has the pattern, flags and dialect that `RegexGuide.load` reads."""
    is_flags = re.fullmatch("[0-9]{1,9}", metadata.get("flags", "")) is not None
    return "pattern" in metadata and is_flags and metadata.get("dialect") in ("python", "ecma")


def _path(path: Any) -> Path:
    if not isinstance(path, (str, Path)) or not str(path) or "\0" in str(path):
        raise GuideFileError(f"{brief(path)} is not a path of a file; give a text or a Path")
    return Path(path)


def _checksum(metadata: dict[str, str], tensors: Tensors) -> str:
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tensors[name].shape}".encode())
        digest.update(np.ascontiguousarray(tensors[name]).tobytes())
    return digest.hexdigest()


def _short(value: str | None) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


Dialect = Literal["python", "ecma"]

MAX_PRECOMPILED = 50_000
SHOWN = 5


class RegularGuide(LiftedGuide, Drawable):
    """A guide whose automaton is finite. See `guides.protocol.Guide` for the methods."""

    def __init__(self, node: Node | ByteFragment, vocabulary: Vocabulary) -> None:
        vocabulary = vocabulary_of(vocabulary, type(self).__name__)
        graph = Graph()
        rule = Lowering(graph).rule(node)
        super().__init__(ChartAutomaton(graph, rule, horizon=horizon_of(vocabulary)), vocabulary)
        self._syntax = node
        self._made_of = {"node": node, "vocabulary": vocabulary}

    def lower_into(self, graph: Graph) -> int:
        """Add the language to a graph and return the start node of its rule."""
        return Lowering(graph).rule(self._syntax)

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = self._made_of or {}
        if "node" in made_of:
            return _of_syntax, (type(self), flattened(made_of["node"]), self._vocabulary)
        return super().__reduce__()

    def precompile(self, max_states: int = MAX_PRECOMPILED) -> Self:
        """Compute the mask of every state now, and return the guide.

        Raises LimitError if there are more than `max_states` states, or more masks than the mask table may hold.
        """
        most = states_of(max_states)
        with self._lock, self._meter, self._tables.lock:
            for state in self.automaton.explore(most):
                self._prepare(state)
                self._compute(state)
                if len(self._cache.rows) >= self.table.max_rows:
                    raise LimitError(
                        f"the guide has more than {self.table.max_rows:,} masks; use it lazily, which needs no "
                        "precompile()"
                    )
        return self

    def dfa(self, max_states: int = MAX_PRECOMPILED) -> Dfa:
        """Build the whole byte automaton as a table. Raises LimitError if it has more than `max_states` states."""
        with self._lock, self._meter:
            return Dfa.of(self.automaton, states_of(max_states))

    def minimal(self, max_states: int = MAX_PICTURED) -> MinimalAutomaton:
        """Build the minimal automaton, with states numbered as in pictures. Raises LimitError above `max_states`."""
        with self._lock, self._meter:
            states = self.automaton.explore(MAX_PRECOMPILED)
            return MinimalAutomaton(Dfa.of(self.automaton, MAX_PRECOMPILED), states_of(max_states), states)

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the minimal byte automaton; `tokens` adds the tokens allowed in each state."""
        minimal = self.minimal(max_states)
        check_bool(tokens, "tokens")
        return minimal.picture(lambda state: tokens_in(self.mask(state), self.vocabulary) if tokens else "")


def _of_syntax(kind: type[RegularGuide], flat: Flat, vocabulary: Vocabulary) -> RegularGuide:
    return kind(unflattened(flat), vocabulary)


class RegexGuide(RegularGuide):
    """Texts that match a regular expression as a whole, as by `re.fullmatch`.

    pattern: the expression; flags: those of `re` (i, s, m, x, a)
    dialect: "python", or "ecma" (JavaScript with its u flag, as in JSON Schema)
    limits: bounds of each call, see `Limits`
    Raises PatternError for a malformed pattern or one that is not regular, LimitError for one that is too
    large, LanguageError if no text matches or the vocabulary cannot spell one.
    """

    def __init__(
        self,
        pattern: str,
        vocabulary: Vocabulary,
        flags: int = 0,
        dialect: Dialect = "python",
        *,
        limits: Limits | None = None,
    ) -> None:
        with Meter(limits):
            node = parse(pattern, flags=flags, dialect=dialect)
            self.pattern = check_any_text(pattern, "the pattern")
            self.flags = flags_of(flags)
            self.dialect: Dialect = dialect
            super().__init__(node, vocabulary)
            identity = {"pattern": self.pattern, "flags": self.flags, "dialect": dialect}
            self._made_of = {**identity, "vocabulary": vocabulary, "limits": limits}

    @cached_property
    def _groups(self) -> NamedGroups | None:
        return named_groups(self.pattern, self.flags, self.dialect)

    def captures(self, text: str) -> dict[str, tuple[Capture, ...]]:
        """Return the texts of named groups in a text of this guide, by name; one per iteration of a repeat, in order.

        An ambiguous text is read as `re` reads it, by the first way in its search order. The result is empty for a text
        that does not match, such as a truncated one. Raises LimitError.
        """
        found: dict[str, list[Capture]] = {}
        with Meter(self._meter.limits):
            for name, begin, end in () if self._groups is None else self._groups.read(text):
                found.setdefault(name, []).append(Capture(text[begin:end], begin, end))
        return {name: tuple(several) for name, several in found.items()}

    def __repr__(self) -> str:
        return f"RegexGuide({self.pattern!r}, flags={self.flags}, dialect={self.dialect!r})"

    def save(self, path: str | Path) -> None:
        """Write all masks to a safetensors file, with the pattern, flags, dialect and vocabulary."""
        self.precompile()
        order, numbered = self._breadth_first()
        masks = np.stack([self.mask(state) for state in order])
        save_guide(path, masks, numbered.transitions, self._identity(), self.vocabulary)

    @classmethod
    def load(
        cls,
        path: str | Path,
        vocabulary: Vocabulary,
        *,
        pattern: str | None = None,
        flags: int | None = None,
        dialect: Dialect | None = None,
        limits: Limits | None = None,
    ) -> Self:
        """Load a saved guide with all its masks.

        Raises GuideFileError if the file is damaged, or was saved for another vocabulary or for another
        pattern, flags or dialect than those given.
        """
        arguments = {"pattern": pattern, "flags": None if flags is None else str(flags_of(flags)), "dialect": dialect}
        saved = read_guide(path, vocabulary, {key: value for key, value in arguments.items() if value is not None})
        identity = saved.identity
        saved_dialect: Dialect = "ecma" if identity["dialect"] == "ecma" else "python"
        guide = cls(identity["pattern"], vocabulary, int(identity["flags"]), saved_dialect, limits=limits)
        order, numbered = guide._breadth_first()
        saved.check(numbered.transitions, vocabulary.size)
        for state, mask in zip(order, saved.masks, strict=True):
            guide._install(state, mask)
        return guide

    def _breadth_first(self) -> tuple[list[int], Dfa]:
        """Return the states in breadth-first order, and the automaton numbered so."""
        dfa = self.dfa()
        states = self.automaton.explore(len(dfa))
        order, numbered = dfa.breadth_first()
        return [states[place] for place in order], numbered

    def _identity(self) -> dict[str, str]:
        return {"pattern": self.pattern, "flags": str(self.flags), "dialect": self.dialect}


class ChoiceGuide(RegularGuide):
    """One of the given texts.

    Raises OptionError if there are no choices or one is not a text, LimitError if there are too many,
    LanguageError if the vocabulary cannot spell one of them.
    """

    def __init__(self, choices: Iterable[str], vocabulary: Vocabulary, *, limits: Limits | None = None) -> None:
        self.choices = _texts_of(choices)
        vocabulary = vocabulary_of(vocabulary, "ChoiceGuide")
        with Meter(limits):
            data, lengths = _encoded(self.choices)
            _check_spellable(self.choices, data, lengths, vocabulary)
            super().__init__(any_of(data, lengths), vocabulary)
            self._made_of = {"choices": self.choices, "vocabulary": vocabulary, "limits": limits}

    def __repr__(self) -> str:
        return f"ChoiceGuide({brief(list(self.choices[:SHOWN]))}, {len(self.choices):,} choices)"


class FSMGuide(RegularGuide):
    """Texts that a finite-state machine of the `interegular` library accepts."""

    def __init__(self, fsm: FSM, vocabulary: Vocabulary, *, limits: Limits | None = None) -> None:
        with Meter(limits):
            super().__init__(table_of(fsm), vocabulary_of(vocabulary, "FSMGuide"))
        self._machine_states = len(fsm.map)
        self._made_of = {"described": described(fsm), "vocabulary": vocabulary, "limits": limits}

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_described, (type(self), dict(self._made_of or {}))

    def __repr__(self) -> str:
        return f"FSMGuide(<a machine of {self._machine_states:,} states>)"


def _of_described(kind: type[FSMGuide], made_of: dict[str, Any]) -> FSMGuide:
    return kind(machine_of(made_of.pop("described")), **made_of)


def _texts_of(choices: Any) -> tuple[str, ...]:
    """Return the choices as a tuple of texts. Raises OptionError."""
    if isinstance(choices, Vocabulary):
        raise OptionError("choices is a Vocabulary: the two arguments are swapped; ChoiceGuide([...], vocabulary)")
    if isinstance(choices, (str, bytes)):
        raise OptionError(f"choices must be several texts, not the one text {brief(choices)}; put it into a list")
    if not isinstance(choices, Iterable):
        raise OptionError(f"choices must be several texts, such as a list, not {brief(choices)}")
    several: Iterable[Any] = choices  # pyright: ignore[reportUnknownVariableType]
    try:
        found = tuple(several)
    except TypeError as error:  # iterating a 0-dimensional array
        raise OptionError(f"choices must be several texts, such as a list, not {brief(choices)}") from error
    if not found:
        raise OptionError("choices is empty; give at least one text")
    if set(map(type, found)) == {str}:
        return found
    return tuple(check_any_text(choice, f"choice {number}") for number, choice in enumerate(found))


def _encoded(choices: tuple[str, ...]) -> tuple[bytes, NDArray[np.int64]]:
    """Return the UTF-8 bytes of all choices, concatenated, and their lengths: int64 [choices]."""
    joined = "".join(choices)
    if joined.isascii():
        return joined.encode(), np.fromiter(map(len, choices), np.int64, len(choices))
    texts: list[bytes] = []
    for choice in choices:
        try:
            texts.append(choice.encode())
        except UnicodeEncodeError as error:
            raise OptionError(
                f"the choice {brief(choice)} has a lone surrogate at character {error.start}, which no text of UTF-8 "
                "can have"
            ) from None
    return b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts))


def _check_spellable(choices: tuple[str, ...], data: bytes, lengths: NDArray[np.int64], vocabulary: Vocabulary) -> None:
    """Raise LanguageError unless the tokens of the vocabulary spell every choice."""
    tables = VocabularyTables.of(vocabulary)
    if tables.spells_all_bytes:
        return
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    spelt = np.zeros(int(lengths.max()) + 1, np.uint8)
    number = call(first_unspellable, tables.trie, np.frombuffer(data, np.uint8), bounds, spelt)
    if number >= 0:
        beginning = data[bounds[number] : bounds[number] + int(np.flatnonzero(spelt)[-1])]
        raise LanguageError(
            f"the vocabulary has no tokens that spell the choice {brief(choices[number])}; the longest beginning that "
            f"they spell is {brief(beginning.decode(errors='replace'))}. Use another tokenizer, or other choices"
        )
