"""Which models' rows may go on by themselves, and by what."""

from __future__ import annotations

import torch

from ..models.blocks.devices import has_kernels
from ..models.blocks.storage import BlockStorage
from ..models.decoder import DecoderModel
from ..models.protocol import Memory, Model
from .backend import Backend, LaneModel
from .records import Records

_KINDS = {torch.float32, torch.float16, torch.bfloat16}


def backend_of(model: Model, memory: Memory, records: Records) -> Backend | None:
    """What runs lanes whose texts lie in a model's memory; None where its device, or the model, does not.

    On a GPU that Triton knows: decoders that read packed steps, keep keys and values only, and have a head apart, all
    of them on that device.
    """
    if isinstance(model, LaneModel):
        return model.lanes(memory, records)
    if not isinstance(model, DecoderModel) or not isinstance(memory, BlockStorage) or not _has_graphs(model):
        return None
    parts = model.parts
    if parts is None or model.state_bytes:
        return None
    from .graphs import GraphBackend

    return GraphBackend(*parts, memory, records, model.vocabulary, model.device)


def _has_graphs(model: DecoderModel) -> bool:
    if not has_kernels(model.device) or model.model.dtype not in _KINDS:
        return False
    return all(weights.device == model.device for weights in model.model.parameters())
