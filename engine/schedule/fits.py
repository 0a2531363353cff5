"""Whether requests fit: how many blocks a model's memory gets, and what could never run in them."""

from __future__ import annotations

from ...errors import OptionError
from ..decode.row import Request
from ..memory.free import free_bytes, shown_size
from ..memory.tables import BLOCK
from ..models.protocol import Model, SourceModel

SHARE = 0.5
"""Of what is free, what an engine takes where it is not told; on the CPU only what is used is really taken."""
MOST = 1 << 22
LARGE = 1 << 28


def blocks_for(model: Model, memory: int | None) -> int:
    """How many blocks an engine has: of so many bytes, by default a share of what is free; 0 for a model without.

    Raises OptionError where there is no room for one.
    """
    size = model.block_bytes
    if size == 0:
        return 0
    free = free_bytes(getattr(model, "device", None))
    if memory is None:
        return MOST if free is None else max(1, min(int(free * SHARE) // size, MOST))
    if free is not None and memory > free:
        raise OptionError(f"memory={memory}: {shown_size(memory)}, and {shown_size(free)} are free; ask for less")
    if memory < size:
        raise OptionError(
            f"memory={memory}: a block of {BLOCK} tokens of this model takes {size} bytes, so that there is room for "
            "none; ask for more"
        )
    return min(memory // size, MOST)


def check_fits(model: Model, request: Request, blocks: int) -> None:
    """Raise OptionError for a request that could not run even if nothing else did."""
    width, source = request.width, request.start.source
    logits = width * model.vocabulary.size * 4
    apart = model.source_bytes(len(source)) if source and isinstance(model, SourceModel) else 0
    free = free_bytes(getattr(model, "device", None)) if logits + apart >= LARGE else None
    if free is not None and logits + apart > free:
        encoded = f" and the prompt of {len(source)} tokens, encoded," if apart else ""
        raise OptionError(
            f"search={request.search!r}: the logits of {width} beams{encoded} take {shown_size(logits + apart)}, and "
            f"{shown_size(free)} are free; ask for fewer beams, or shorten the prompt"
        )
    if blocks == 0:
        return
    prompt, output = request.start.size, request.budget
    needed = -(-prompt // BLOCK) + width * (-(-output // BLOCK) + 1)
    if model.window is not None:
        needed = min(needed, width * (-(-model.window // BLOCK) + 2) + -(-prompt // BLOCK))
    if needed > blocks:
        size = model.block_bytes
        beams = f" in {width} beams" if width > 1 else ""
        raise OptionError(
            f"prompt {request.number} of {prompt} tokens, with up to {output} of output{beams}, takes "
            f"{shown_size(needed * size)} of memory for keys and values, and the engine has "
            f"{shown_size(blocks * size)}; "
            "ask for a smaller max_tokens or fewer beams, or give the engine more: Engine(model, memory=...)"
        )
