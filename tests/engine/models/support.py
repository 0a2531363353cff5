"""The parts inside of models that tests look at where no public name shows a fault, each named in this place alone."""

from trellm.engine.models import body, threads
from trellm.engine.models.blocks.attention import ScoreOptions, attend, is_undivided
from trellm.engine.models.blocks.reach import AttentionSpan, layer_kinds, unscaled_context
from trellm.engine.models.blocks.step import DeviceStep, PackedStep
from trellm.engine.models.blocks.storage import BlockStorage, DeviceRows, LayerBlocks
from trellm.engine.models.body import AttentionMasks, BodyRunner
from trellm.engine.models.encoder_decoder import SourceLayer
from trellm.engine.models.generation_config import NOTHING, suppressed_of
from trellm.engine.models.gguf_files.file import GGUFFile
from trellm.engine.models.gguf_files.loading import load_gguf
from trellm.engine.models.gguf_files.network import GGUFNetwork
from trellm.engine.models.gguf_files.tokenizer import GGUFTokenizer, tokenizer_of
from trellm.engine.models.head import Head, find_head
from trellm.engine.models.modules import Modules, has_quick_parts, norm_shift, quick_copy, quick_forward
from trellm.engine.models.packed import device, host, lora
from trellm.engine.models.packed.architectures import NotDescribedError
from trellm.engine.models.packed.decoder import BACKENDS, Backend, DescribedDecoder
from trellm.engine.models.packed.device import DeviceKernels
from trellm.engine.models.packed.host import HostKernels
from trellm.engine.models.packed.quantized import QuantizedKernels
from trellm.engine.models.packed.runner import PackedRunner
from trellm.engine.models.packed.source import ModuleSource
from trellm.engine.models.quantized.modules import QuantizedEmbedding, QuantizedLinear
from trellm.engine.models.stock import entry_device, is_absent, is_spread, strangeness
from trellm.engine.models.ways import WAYS, Way, tolerance, way_of
from trellm.kernels.decoder.plain import Heads

__all__ = [
    "BACKENDS",
    "NOTHING",
    "WAYS",
    "AttentionMasks",
    "AttentionSpan",
    "Backend",
    "BlockStorage",
    "BodyRunner",
    "DescribedDecoder",
    "DeviceKernels",
    "DeviceRows",
    "DeviceStep",
    "GGUFFile",
    "GGUFNetwork",
    "GGUFTokenizer",
    "Head",
    "Heads",
    "HostKernels",
    "LayerBlocks",
    "ModuleSource",
    "Modules",
    "NotDescribedError",
    "PackedRunner",
    "PackedStep",
    "QuantizedEmbedding",
    "QuantizedKernels",
    "QuantizedLinear",
    "ScoreOptions",
    "SourceLayer",
    "Way",
    "attend",
    "body",
    "device",
    "entry_device",
    "find_head",
    "has_quick_parts",
    "host",
    "is_absent",
    "is_spread",
    "is_undivided",
    "layer_kinds",
    "load_gguf",
    "lora",
    "norm_shift",
    "quick_copy",
    "quick_forward",
    "strangeness",
    "suppressed_of",
    "threads",
    "tokenizer_of",
    "tolerance",
    "unscaled_context",
    "way_of",
]
