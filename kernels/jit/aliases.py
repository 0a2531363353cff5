"""Types in the signatures of kernels, for readers and type checkers. Numba infers its own."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Int: TypeAlias = "int | np.int32 | np.int64"
Truth: TypeAlias = "bool | np.bool_"
Float: TypeAlias = "float | np.float32"
Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]
Words: TypeAlias = NDArray[np.uint32]
Bits: TypeAlias = NDArray[np.uint64]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
