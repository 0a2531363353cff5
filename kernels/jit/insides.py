"""Test whether Numba has the internals on which fast compilation of kernels depends.

If not, or if TRELLM_PORTABLE_KERNELS=1 is set, kernels are *portable*: compiled through Numba's public interface only.
This takes several times as long, with the same results. Checks are by name, by parameters, and where neither tells, by
a trial. Versions are not compared.
"""

from __future__ import annotations

import ctypes
import os
import sys
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np

# Functions that by_address.py and linking.py call or replace, with their parameters.
_FUNCTIONS = (
    ("numba.core.codegen:CPUCodeLibrary._get_module_for_linking", "self"),
    ("numba.core.codegen:CPUCodeLibrary.finalize", "self"),
    ("numba.core.dispatcher:Dispatcher.add_overload", "self cres"),
    ("numba.core.dispatcher:Dispatcher.compile", "self sig"),
    ("numba.core.dispatcher:Dispatcher.get_call_template", "self args kws"),
    ("numba.core.dispatcher:Dispatcher._compile_for_args", "self args kws"),
    ("numba.core.dispatcher:_FunctionCompiler._customize_flags", "self flags"),
    ("numba.core.caching:Cache.load_overload", "self sig target_context"),
    ("numba.core.caching:Cache._load_overload", "self sig target_context"),
    ("numba.core.caching:Cache._guard_against_spurious_io_errors", "self"),
    ("numba.core.base:BaseContext.insert_user_function", "self func fndesc libs"),
    ("numba.core.typing.templates:AttributeTemplate._resolve", "self value attr"),
    ("numba.core.types.functions:BaseFunction.get_call_type", "self context args kws"),
    ("numba.core.targetconfig:ConfigStack.top_or_none", ""),
    ("numba.core.compiler_machinery:PassManager.add_pass", "self pss description"),
    ("numba.core.pythonapi:PythonAPI.object_getattr_string", "self obj attr"),
    ("numba.core.pythonapi:PythonAPI.long_as_voidptr", "self numobj"),
)
# Names in the code of these functions: they call the replaced functions, and have the attributes that are read.
_USED = (
    ("numba.core.codegen:CPUCodeLibrary.__init__", "_linking_libraries _final_module _shared_module"),
    ("numba.core.codegen:CPUCodeLibrary.finalize", "_linking_libraries _get_module_for_linking"),
    ("numba.core.caching:Cache.load_overload", "refresh _guard_against_spurious_io_errors _load_overload"),
    ("numba.core.compiler:CompilerBase.__init__", "refresh"),
    ("numba.core.dispatcher:Dispatcher.__init__", "_compiler _cache"),
    ("numba.core.dispatcher:Dispatcher.compile", "add_overload load_overload overloads"),
    ("numba.core.dispatcher:_FunctionCompiler._compile_core", "_customize_flags"),
    ("numba.core.dispatcher:Dispatcher._compile_for_args", "compile"),
    ("numba.core.dispatcher:Dispatcher.get_call_template", "compile"),
    ("numba.core.types.functions:BaseFunction.get_call_type", "_impl_keys"),
    ("numba.core.typing.templates:AttributeTemplate._resolve", "generic_resolve"),
)
# Other names that must exist.
_ATTRIBUTES = (
    *(f"numba.core.compiler:Flags.{name}" for name in ("nrt", "no_compile", "no_cpython_wrapper", "no_cfunc_wrapper")),
    *(f"numba.core.compiler:CompileResult.{name}" for name in ("entry_point", "fndesc", "library", "reload_init")),
    "numba.core.cpu:CPUTargetOptions._nrt",
    "numba.core.runtime.nrt:_nrt.c_helpers",
    "numba.core.codegen:CPUCodeLibrary._finalized",
    "numba.core.compiler:CompilerBase.define_pipelines",
    "numba.extending:lower_getattr_generic",
    "numba.extending:infer_getattr",
    "numba.extending:models.OpaqueModel",
    "numba.core.cgutils:is_null",
    "numba.core.cgutils:get_item_pointer",
    "numba.np.arrayobj:make_array",
    "llvmlite.ir:Constant",
    "llvmlite.binding:parse_assembly",
)
# Fields of an array in compiled code, and offsets of an array object in memory: object header, data, number of
# dimensions, shape. The layout is part of NumPy's ABI through the macros PyArray_DATA and PyArray_DIMS.
_ARRAY = ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides")
DATA = object.__basicsize__
SHAPE = DATA + 16

# Numba's passes that kernels need, in order. The others serve closures, generators, `with`, exceptions, inlining
# before type inference, loops over tuples, and printing.
NEEDED = (
    "TranslateByteCode",
    "FixupArgs",
    "IRProcessing",
    "RewriteSemanticConstants",
    "DeadBranchPrune",
    "GenericRewrites",
    "ReconstructSSA",
    "NopythonTypeInference",
    "PreLowerStripPhis",
    "IRLegalization",
    "NativeLowering",
    "NoPythonBackend",
)
_SPARED = {
    "WithLifting",
    "InlineClosureLikes",
    "RewriteDynamicRaises",
    "MakeFunctionToJitFunction",
    "InlineInlinables",
    "FindLiterallyCalls",
    "LiteralUnroll",
    "LiteralPropagationSubPipelinePass",
    "InlineOverloads",
    "NopythonRewrites",
    "NoPythonSupportedFeatureValidation",
    "AnnotateTypes",
    "DumpParforDiagnostics",
}


def find_missing() -> str:
    """Return a description of the first missing internal; empty if none is missing."""
    places = [(place, parameters.split()) for place, parameters in _FUNCTIONS]
    uses = [(place, set(names.split())) for place, names in _USED]
    try:
        for place, parameters in places:
            if list(signature(_at(place)).parameters) != parameters:
                return f"{place}, with the parameters {parameters}"
        for place, names in uses:
            if not names <= set(_at(place).__code__.co_names):
                return f"{place}, with {names}"
        for place in _ATTRIBUTES:
            _at(place)
        return _missing_passes() or _missing_layout()
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return str(error)


def _at(place: str) -> Any:
    module, names = place.split(":")
    found: Any = import_module(module)
    for name in names.split("."):
        found = getattr(found, name)
    return found


def passes() -> dict[str, Any]:
    """Return Numba's passes of the nopython pipeline by name, in order."""
    flags = SimpleNamespace(no_rewrites=False, enable_ssa=True, auto_parallel=SimpleNamespace(enabled=False))
    builder = _at("numba.core.compiler:DefaultPassBuilder")
    manager = builder.define_nopython_pipeline(SimpleNamespace(func_ir=None, flags=flags))
    return {each.__name__: each for each, _ in manager.passes}


def _missing_passes() -> str:
    """Return a description of an unknown pass, or of a needed pass out of order; empty if there is none."""
    found = passes()
    unknown = set(found) - _SPARED - set(NEEDED)
    if unknown:
        return f"a compiler without {sorted(unknown)}"
    rest = iter(found)
    return next((f"the pass {name} in its place" for name in NEEDED if name not in rest), "")


def _missing_layout() -> str:
    """Return a description of a memory layout unlike that in by_address.py; empty if it is the same."""
    types, manager = _at("numba:types"), _at("numba.core.datamodel:default_manager")
    if tuple(manager[types.Array(types.int32, 2, "C")]._fields) != _ARRAY:
        return f"an array of {_ARRAY}"
    array = np.zeros((3, 5), np.int32)
    if sys.implementation.name != "cpython":
        return "CPython's objects"
    data, shape = (ctypes.c_size_t.from_address(id(array) + offset).value for offset in (DATA, SHAPE))
    if data != array.ctypes.data or shape == 0 or tuple((ctypes.c_ssize_t * 2).from_address(shape)) != array.shape:
        return "an array object's data and shape in their places"
    return ""


_FORCES_PORTABLE = os.environ.get("TRELLM_PORTABLE_KERNELS", "").lower() not in ("", "0", "false", "no")

MISSING = "" if _FORCES_PORTABLE else find_missing()
PORTABLE = _FORCES_PORTABLE or bool(MISSING)
