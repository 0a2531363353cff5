"""Images and audio of prompts, read from files, data URLs and what callers have in memory."""

from collections.abc import Mapping

from .audio import Audio
from .image import Image

Media = Image | Audio
KINDS: Mapping[str, type[Image] | type[Audio]] = {"image": Image, "audio": Audio}
"""Classes by the types of a message's parts, which hold an object each under the same name."""
