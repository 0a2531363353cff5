"""Several arrays as one argument of a kernel.

A kernel receives the address of a list of addresses of arrays (by_address.py). With Numba's public interface only, it
receives a structure of all arrays instead: seven words an array, unboxed at every call from Python and passed on to
every callee. This takes longer to compile than the bodies of the kernels.
"""
# Numba has no complete type stubs.
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import operator
from array import array
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import numpy as np
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import NativeValue, make_attribute_wrapper, models, register_model, typeof_impl, unbox
from numpy.typing import NDArray

from .insides import PORTABLE


def _install_by_value(which: Any, fields: Any) -> None:
    """Register the unboxing of arguments of this type and their attributes with Numba; fields: by name."""

    class Model(models.StructModel):
        def __init__(self, manager: Any, kind: Any) -> None:
            super().__init__(manager, kind, [(name, field.kind) for name, field in fields.items()])

    register_model(which)(Model)
    unbox(which)(_take)
    for name in fields:
        make_attribute_wrapper(which, name, name)


def _take(kind: Any, value: Any, c: Any) -> NativeValue:
    """Unbox the arrays of an object. Fails if one is missing or has another type."""
    struct = cgutils.create_struct_proxy(kind)(c.context, c.builder)
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
            setattr(struct, name, native.value)
    return NativeValue(struct._getvalue(), is_error=c.builder.load(failed))


_Scalar = TypeVar("_Scalar", bound=np.generic)
Vector: TypeAlias = Annotated[NDArray[_Scalar], 1]
Table: TypeAlias = Annotated[NDArray[_Scalar], 2]


@dataclass_transform(frozen_default=True, eq_default=False)
class Arrays:
    """Base of classes that kernels take as one argument. Fields are annotated Vector, Table, int, or as other `Arrays`.

    Vectors and tables are C-contiguous. Only their contents change; `dataclasses.replace` makes another object. Raises
    TypeError for a field of another kind.

    address: of the list; valid as long as the object lives
    """

    _numba_type_: ClassVar[Any]
    _list: ClassVar[Any]
    address: ClassVar[int]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)
        cls._numba_type_ = _type_for(cls)

    @classmethod
    def numba_type(cls) -> Any:
        """Numba's type of these arrays."""
        return cls._numba_type_

    def __post_init__(self) -> None:
        # Kernels read the list without checks. So it is checked and made before the object can be passed on.
        words = self._words()
        vars(self).update(_list=words, address=words.buffer_info()[0])

    def _words(self) -> array[int]:
        """Return for each field: the address of the array object, a number, or the address of another list."""
        words: list[int] = []
        values = vars(self)
        for name, (kind, dtype, _) in fields_of(type(self)).items():
            value = values[name]
            if dtype is None:
                words.append(value.address if isinstance(value, Arrays) else value)
                continue
            is_array = isinstance(values[name], np.ndarray)
            # Equal dtypes are nearly always the same object, and `is` is ten times as fast as ==.
            fits = is_array and (value.dtype is dtype or value.dtype == dtype) and value.ndim == kind.ndim
            if not fits or not value.flags.c_contiguous:
                actual = f"{value.dtype} {value.shape}" if is_array else type(value).__name__
                raise TypeError(f"{type(self).__name__}.{name}: {kind} is needed, not {actual}")
            words.append(id(value))
        return array("q", words)


class Field(NamedTuple):
    """Numba's type of a field, an array's dtype, and the field's index in the list."""

    kind: Any
    dtype: np.dtype[Any] | None
    place: int


@cache
def fields_of(which: type[Arrays]) -> dict[str, Field]:
    """Return the fields of a subclass by name, in order."""
    hints = get_type_hints(which, include_extras=True)
    found: dict[str, Field] = {}
    for place, field in enumerate(fields(which)):  # type: ignore[arg-type]
        found[field.name] = Field(*_kind(hints[field.name]), place)
    return found


def _kind(hint: Any) -> tuple[Any, np.dtype[Any] | None]:
    if hint is int:
        return types.int64, None
    if isinstance(hint, type) and issubclass(hint, Arrays):
        return hint.numba_type(), None
    values, dimensions = get_args(hint)
    # NDArray[kind] is ndarray[shape, dtype[kind]], or from NumPy 2.5 on an alias without these arguments.
    *_, kind = get_args(values)
    dtype = np.dtype(next(iter(get_args(kind)), kind))
    return types.Array(from_dtype(dtype), dimensions, "C"), dtype


class ArraysType(types.Type):
    """Numba's type of an `Arrays` class."""

    def __init__(self, which: type[Arrays]) -> None:
        super().__init__(which.__name__)
        self.which = which
        self._key = which

    # A getter in C: Numba compares types by it at every call, and an interrupt in a Python property would be lost.
    key = property(operator.attrgetter("_key"))  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __reduce__(self) -> Any:
        return _type_of, (self.which,)

    @property
    def fields(self) -> dict[str, Field]:
        """The fields of the class by name, see `fields_of`."""
        return fields_of(self.which)


def _type_of(which: type[Arrays]) -> ArraysType:
    return which.numba_type()


def _type_for(which: type[Arrays]) -> ArraysType:
    if not PORTABLE:
        return ArraysType(which)
    kind = type(f"{which.__name__}Type", (ArraysType,), {})
    _install_by_value(kind, fields_of(which))
    return kind(which)


if PORTABLE:

    @typeof_impl.register(Arrays)
    def _typeof(value: Arrays, context: Any) -> ArraysType:
        return type(value).numba_type()

else:
    from . import by_address

    by_address.install(ArraysType)
