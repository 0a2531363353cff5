"""The parts of the server that its tests look at where no answer shows a fault, each named in this place alone."""

from typing import Any

import pytest
from trellm import Limits
from trellm.cli.serve import tuned_process
from trellm.engine.options import Options
from trellm.guides.limits import Meter, spend
from trellm.sampling import SAMPLE_OPTIONS
from trellm.serve import bodies
from trellm.serve.bodies import KNOWN, MAX_MISTAKES, parse, place_in, read_whole
from trellm.serve.cluster import router
from trellm.serve.cluster.loading import pack_model, unpack_model
from trellm.serve.cluster.replica import Replica, ReplicaRequest, ResponseStart
from trellm.serve.cluster.router import MIN_LOAD_BOUND, PREFIX, prefix_of, ranked
from trellm.serve.constraints import compiler, constraint
from trellm.serve.constraints.compiler import (
    BURST,
    COPIES,
    DOUBLING_DELAY,
    LONG_DELAY,
    CompileQueue,
    ConstraintCompiler,
    RefusalCache,
    TokenBucket,
    key_bytes,
)
from trellm.serve.constraints.constraint import ConstraintSpec
from trellm.serve.constraints.structural_tags import FormatError, structural_guide
from trellm.serve.dispatcher import MAX_NEWS, CursorBatches
from trellm.serve.endpoints import chat, other
from trellm.serve.endpoints.answers import ITEMS, LARGE, error_answer, serialize, while_connected
from trellm.serve.endpoints.responses import ResponseItems
from trellm.serve.errors import ApiError, api_error
from trellm.serve.guard import HEADER_BYTES, Guard
from trellm.serve.hosting.manager import ModelManager
from trellm.serve.hosting.shared import LARGE as LARGE_CHAT
from trellm.serve.hosting.shared import ResponseStore, is_large
from trellm.serve.media.fetching import FetchError, is_public
from trellm.serve.requests.chat import ChatRequest, CompletionRequest
from trellm.serve.requests.fields import ConstraintFields
from trellm.serve.requests.responses import ResponsesRequest
from trellm.serve.server import HEAD, Connection, JoiningTransport, Server, listen
from trellm.serve.service import Service
from trellm.serve.settings import keys_of
from trellm.serve.telemetry import Metrics

__all__ = [
    "BURST",
    "COPIES",
    "DOUBLING_DELAY",
    "HEAD",
    "HEADER_BYTES",
    "ITEMS",
    "KNOWN",
    "LARGE",
    "LARGE_CHAT",
    "LONG_DELAY",
    "MAX_MISTAKES",
    "MAX_NEWS",
    "MIN_LOAD_BOUND",
    "PREFIX",
    "SAMPLE_OPTIONS",
    "ApiError",
    "ChatRequest",
    "CompileQueue",
    "CompletionRequest",
    "Connection",
    "ConstraintCompiler",
    "ConstraintFields",
    "ConstraintSpec",
    "CursorBatches",
    "FetchError",
    "FormatError",
    "Guard",
    "JoiningTransport",
    "Meter",
    "Metrics",
    "ModelManager",
    "Options",
    "RefusalCache",
    "Replica",
    "ReplicaRequest",
    "ResponseItems",
    "ResponseStart",
    "ResponseStore",
    "ResponsesRequest",
    "Server",
    "Service",
    "TokenBucket",
    "api_error",
    "bodies",
    "chat",
    "compiler",
    "error_answer",
    "is_large",
    "is_public",
    "key_bytes",
    "keys_of",
    "listen",
    "make_guides_by",
    "other",
    "pack_model",
    "parse",
    "place_in",
    "prefix_of",
    "ranked",
    "read_whole",
    "router",
    "serialize",
    "spend",
    "structural_guide",
    "tuned_process",
    "unpack_model",
    "while_connected",
    "work_without_end",
]


def make_guides_by(patch: pytest.MonkeyPatch, **makers: Any) -> None:
    """Have the server make guides by these in place of the classes of their names."""
    for name, maker in makers.items():
        patch.setattr(constraint, name, maker)


def work_without_end() -> None:
    """Work of a guide that ends only where it is broken off."""
    with Meter(Limits(work=2**60)):
        while True:
            spend(1000)
