"""The decorators of compiling.py with `wide=True`: for kernels that take integers of any width as int64."""

from __future__ import annotations

from functools import partial
from typing import cast

from . import compiling
from .compiling import Decorator

njit: Decorator = cast("Decorator", partial(compiling.njit, wide=True))
inner_njit: Decorator = cast("Decorator", partial(compiling.inner_njit, wide=True))
shared_njit: Decorator = cast("Decorator", partial(compiling.shared_njit, wide=True))
