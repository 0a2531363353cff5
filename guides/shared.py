"""What all guides have in common beside what they answer: there is one of each, whoever holds it."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from ..errors import OptionError


class Shared:
    """Something that never changes as far as its users see: a copy of it is itself, and it stays in its process."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise OptionError(
            f"a {type(self).__name__} cannot be pickled or sent to another process; send what it was made of, and make "
            "it there (a RegexGuide can be saved to a file and loaded)"
        )
