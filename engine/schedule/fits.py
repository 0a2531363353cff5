"""Checks that requests fit: how many blocks a model's memory gets, and what could never run in them."""

from __future__ import annotations

from ...errors import OptionError
from ..decode.sequence import Request
from ..memory.free import free_bytes, shown_size
from ..memory.tables import BLOCK
from ..models.protocol import Model, SourceModel
from ..search import Target

SHARE = 0.5
"""Of what is free, what an engine takes where it is not told; on the CPU only what is used is really taken."""
MOST = 1 << 22
MOST_SLOTS = 1024
"""Sequences that keep a state and are read at once; their slots are made when they are first used."""
LARGE = 1 << 28


def blocks_for(model: Model, memory: int | None) -> int:
    """Number of an engine's blocks: of so many bytes, by default a share of what is free; 0 for a model without.

    Raises OptionError where there is no room for one.
    """
    size = model.block_bytes
    if size == 0:
        return MOST if model.state_bytes else 0
    free = free_bytes(getattr(model, "device", None))
    taken = slots_for(model, memory) * model.state_bytes
    if memory is None:
        return MOST if free is None else max(1, min((int(free * SHARE) - taken) // size, MOST))
    if free is not None and memory > free:
        raise OptionError(f"memory={memory}: {shown_size(memory)}, and {shown_size(free)} are free; ask for less")
    if memory - taken < size:
        raise OptionError(
            f"memory={memory}: a block of {BLOCK} tokens of this model takes {size} bytes, so that there is room for "
            "none; ask for more"
        )
    return min((memory - taken) // size, MOST)


def slots_for(model: Model, memory: int | None) -> int:
    """Number of sequences with a slot: half of the memory is theirs, all where there are no keys and values.

    0 for a model that keeps no states. Raises OptionError where there is no room for one.
    """
    size = model.state_bytes
    if size == 0:
        return 0
    free = free_bytes(getattr(model, "device", None))
    given = memory
    if given is None:
        given = MOST_SLOTS * size * 2 if free is None else int(free * SHARE)
    share = given // 2 if model.block_bytes else given
    if share < size:
        raise OptionError(
            f"memory={given}: the state of a text of this model takes {size} bytes, so that there is room for none; "
            f"ask for {size * (2 if model.block_bytes else 1)} or more"
        )
    return min(share // size, MOST_SLOTS)


def check_fits(model: Model, request: Request, blocks: int, slots: int = 0) -> None:
    """Raise OptionError for a request that could not run even if nothing else did."""
    width, source = request.width, request.start.source
    kind = "texts" if isinstance(request.search, Target) else "beams"
    logits = width * model.vocabulary.size * 4
    apart = model.source_bytes(len(source)) if source and isinstance(model, SourceModel) else 0
    free = free_bytes(getattr(model, "device", None)) if logits + apart >= LARGE else None
    if free is not None and logits + apart > free:
        encoded = f" and the prompt of {len(source)} tokens, encoded," if apart else ""
        raise OptionError(
            f"search={request.search!r}: the logits of {width} {kind}{encoded} take {shown_size(logits + apart)}, and "
            f"{shown_size(free)} are free; ask for fewer {kind}, or shorten the prompt"
        )
    if slots and width > slots:
        raise OptionError(
            f"search={request.search!r}: {width} {kind} take {shown_size(width * model.state_bytes)} of memory for "
            f"their states, and the engine has {shown_size(slots * model.state_bytes)}; ask for fewer {kind}, or give "
            "the engine more: Engine(model, memory=...)"
        )
    if blocks == 0:
        return
    prompt, output = request.start.size, request.budget
    needed = -(-prompt // BLOCK) + width * (-(-output // BLOCK) + 1)
    if model.window is not None:
        needed = min(needed, width * (-(-model.window // BLOCK) + 2) + -(-prompt // BLOCK))
    if needed > blocks:
        size = model.block_bytes
        beams = f" in {width} {kind}" if width > 1 else ""
        raise OptionError(
            f"prompt {request.number} of {prompt} tokens, with up to {output} of output{beams}, takes "
            f"{shown_size(needed * size)} of memory for keys and values, and the engine has "
            f"{shown_size(blocks * size)}; "
            f"ask for a smaller max_tokens or fewer {kind}, or give the engine more: Engine(model, memory=...)"
        )
