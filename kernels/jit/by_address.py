"""`Arrays` as one argument of a kernel: the address of a list of addresses of array objects.

A kernel receives and passes on one word, and loads the fields that it needs from the list. This depends on internals of
Numba; `insides.py` checks them.
"""
# Numba has no complete type stubs.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, infer_getattr, lower_getattr_generic, models, register_model, unbox

from .insides import DATA, SHAPE

_WORD = ir.IntType(64)


def install(base: Any) -> None:
    """Register the loading of arguments and of their fields with Numba, for types that are instances of `base`."""
    register_model(base)(models.OpaqueModel)
    unbox(base)(_take)
    lower_getattr_generic(base)(_read)

    @infer_getattr
    class _Attributes(AttributeTemplate):
        key = base

        def generic_resolve(self, kind: Any, name: str) -> Any:
            field = kind.fields.get(name)
            return field and field.kind


def _take(kind: Any, value: Any, c: Any) -> NativeValue:
    """Unbox the `address` of an object. Fails if the object has none, or if it is not an integer."""
    found = cgutils.alloca_once_value(c.builder, ir.Constant(c.pyapi.voidptr, None))
    address = c.pyapi.object_getattr_string(value, "address")
    with c.builder.if_then(cgutils.is_not_null(c.builder, address), likely=True):
        c.builder.store(c.pyapi.long_as_voidptr(address), found)
        c.pyapi.decref(address)
    pointer = c.builder.load(found)
    return NativeValue(pointer, is_error=cgutils.is_null(c.builder, pointer))


def _read(context: Any, builder: Any, kind: Any, pointer: Any, name: str) -> Any:
    field = kind.fields[name]
    if field.dtype is None:
        return _load(builder, pointer, 8 * field.place, context.get_value_type(field.kind))
    model = context.data_model_manager[field.kind]
    value = ir.Constant(model.get_value_type(), None)

    def put(word: Any, part: str, *axis: int) -> None:
        nonlocal value
        value = builder.insert_value(value, word, [model.get_field_position(part), *axis])

    found = _load(builder, pointer, 8 * field.place, pointer.type)
    put(_load(builder, found, DATA, context.get_value_type(model.get_member_fe_type("data"))), "data")
    shape = _load(builder, found, SHAPE, pointer.type)
    itemsize = _WORD(field.dtype.itemsize)
    put(itemsize, "itemsize")
    items = _WORD(1)
    for axis in reversed(range(field.kind.ndim)):
        length = _load(builder, shape, 8 * axis, _WORD)
        put(length, "shape", axis)
        put(builder.mul(itemsize, items), "strides", axis)
        items = builder.mul(items, length)
    put(items, "nitems")
    return value


def _load(builder: Any, pointer: Any, offset: int, kind: Any) -> Any:
    """Load a value at an offset in bytes from a pointer. The load is invariant: kernels never write to these places."""
    place = builder.bitcast(builder.gep(pointer, [_WORD(offset)]), kind.as_pointer())
    word = builder.load(place)
    word.set_metadata("invariant.load", builder.module.add_metadata([]))
    return word
