"""`Arrays` as one argument of a kernel: a structure of all its arrays, as Numba's manual says how to make one.

That is seven words an array, which Python's objects are unpacked to at every call, and which every kernel hands on to
those that it calls: two hundred for a chart. To compile that takes longer than to compile what the kernels do.
"""
# Numba says little of the types of what is inside it.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from numba.core import cgutils
from numba.extending import NativeValue, make_attribute_wrapper, models, register_model, unbox


def install(which: Any, fields: Any) -> None:
    """Let Numba know how arguments of this type, a class of its own, are read; fields: by name."""

    class Model(models.StructModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, [(name, field.kind) for name, field in fields.items()])

    register_model(which)(Model)
    unbox(which)(_take)
    for name in fields:
        make_attribute_wrapper(which, name, name)


def _take(kind: Any, value: Any, c: Any) -> NativeValue:
    """The arrays that an object has; an error where it lacks one, or has something else there."""
    taken = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    failed = cgutils.alloca_once_value(c.builder, cgutils.false_bit)
    with ExitStack() as stack:
        for name, field in kind.fields.items():
            found = c.pyapi.object_getattr_string(value, name)
            with cgutils.early_exit_if_null(c.builder, stack, found):
                c.builder.store(cgutils.true_bit, failed)
            native = c.unbox(field.kind, found)
            c.pyapi.decref(found)
            with cgutils.early_exit_if(c.builder, stack, native.is_error):
                c.builder.store(cgutils.true_bit, failed)
            setattr(taken, name, native.value)
    return NativeValue(taken._getvalue(), is_error=c.builder.load(failed))
