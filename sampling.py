"""Options of `Sample` and `Beam`: bounds and descriptions, for Python, the command line, the server and the pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .checks import MAX_INT, check_int, check_number
from .errors import OptionError


@dataclass(frozen=True)
class NumberOption:
    """A number as an option of a search. about: description; hint: advice in the message for other values

    least, most: bounds; is_open: whether `least` itself is excluded; is_whole: whether values are whole numbers
    """

    about: str
    least: float
    most: float = MAX_INT
    is_open: bool = False
    is_whole: bool = False
    hint: str = ""

    @property
    def bounds(self) -> str:
        """The valid values, in words."""
        if self.is_whole:
            return f"a whole number of at least {self.least:g}"
        least = f"above {self.least:g}, up" if self.is_open else f"from {self.least:g}"
        return f"a number {least} to {self.most:g}"

    def checked(self, value: Any, name: str) -> Any:
        """Return a valid value. Raises OptionError, with the name of the option, for others."""
        if self.is_whole:
            return check_int(value, name, int(self.least), int(self.most))
        meaning = f"{self.bounds}{self.hint}"
        found = check_number(value, name, meaning)
        if not self.least <= found <= self.most or (self.is_open and found == self.least):
            raise OptionError(f"{name}={value!r}: {meaning}")
        return value


SAMPLE_OPTIONS = {
    "temperature": NumberOption(
        "Choose at random; below 1 sharper, above 1 wilder.", 1e-6, 1e6, hint="; for no randomness use Greedy()"
    ),
    "top_k": NumberOption("Choose at random among the K most likely tokens.", 1, is_whole=True),
    "top_p": NumberOption(
        "Choose at random among the likeliest tokens that make up probability P.", 0, 1, is_open=True
    ),
    "min_p": NumberOption("Leave out tokens below P times the likeliest token's probability.", 0, 1),
}
"""By name, in order of application. In the command and the server temperature 0 means greedy search."""

BEAM_OPTIONS = {
    "length_penalty": NumberOption("Above 0 favours long texts; 1 by default.", -10, 10),
    "sibling_penalty": NumberOption("Above 0 finds texts that differ more; 0 by default.", 0, 1000),
}
"""By name. Greater length penalties overflow powers of lengths."""
