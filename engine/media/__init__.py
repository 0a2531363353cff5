"""Images and audio of prompts, read from files, data URLs and objects in memory."""

from collections.abc import Mapping

from .audio import Audio
from .image import Image

Media = Image | Audio
KINDS: Mapping[str, type[Image] | type[Audio]] = {"image": Image, "audio": Audio}
"""Classes by the type of a message part. The part holds the object under the same name."""
