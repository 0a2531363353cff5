"""Vocabularies of files: tokenizer.json and folders with one, GGUF, and what mistral-common reads."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, cast

from ..errors import VocabularyError
from .fast import read_fast
from .gguf import is_gguf, read_gguf
from .spelling import TokenTable


def read_file(given: str | Path) -> TokenTable:
    """The tokens of a file or folder.

    A tokenizer.json says nothing of EOS; what a tokenizer_config.json beside it names counts.
    Raises VocabularyError for what is not there, or is none of these.
    """
    path = Path(given)
    if path.is_dir():
        path = next((path / name for name in ("tokenizer.json", "tekken.json") if (path / name).is_file()), path)
    if not path.is_file():
        raise VocabularyError(
            f"{str(given)!r} is no file with a vocabulary; give a tokenizer.json, a tekken.json or a GGUF file, a "
            "folder with one, or the tokenizer itself"
        )
    if is_gguf(path):
        return read_gguf(path)
    try:
        content: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict) and {"vocab", "config"} <= cast("dict[str, Any]", content).keys():
        return _read_tekken(cast("dict[str, Any]", content), path)
    if not isinstance(content, dict) or "model" not in content:
        raise VocabularyError(f"{path} is no tokenizer.json, tekken.json or GGUF file that can be read")
    return _read_json(path)


def _read_json(path: Path) -> TokenTable:
    """The tokens of a tokenizer.json."""
    from tokenizers import Tokenizer

    library: Any = Tokenizer
    try:
        backend = library.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise VocabularyError(f"{path} cannot be read: {error}") from error
    table = read_fast(backend, backend)
    end = _end_beside(path)
    token: int | None = None if end is None else backend.token_to_id(end)
    return table if token is None else TokenTable(table.tokens, table.special_ids, (token,))


def _end_beside(path: Path) -> str | None:
    """The EOS token that the tokenizer_config.json beside a file names."""
    try:
        found: Any = json.loads((path.parent / "tokenizer_config.json").read_bytes())["eos_token"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    text = cast("dict[str, Any]", found).get("content") if isinstance(found, dict) else found
    return text if isinstance(text, str) else None


def _read_tekken(content: dict[str, Any], path: Path) -> TokenTable:
    """The tokens of a tekken.json: special ones first, then those of the vocabulary, as many as it says."""
    try:
        config = content["config"]
        count, special = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
        tokens: list[bytes | None] = [None] * special
        tokens += [base64.b64decode(entry["token_bytes"]) for entry in content["vocab"][: count - special]]
        named: list[dict[str, Any]] = content.get("special_tokens") or []
        names = [str(entry["token_str"]) for entry in named]
    except (KeyError, TypeError, ValueError) as error:
        raise VocabularyError(f"{path} is no tekken.json that can be read: {error!r}") from error
    end = names.index("</s>") if "</s>" in names else 2
    return TokenTable(tokens, frozenset(range(special)), (end,))


def read_mistral(tokenizer: Any) -> TokenTable:
    """The tokens of mistral-common: its Tekkenizer or SentencePieceTokenizer."""
    if hasattr(tokenizer, "id_to_byte_piece"):
        special = frozenset(int(token) for token in tokenizer.special_ids)
        own = (None if token in special else tokenizer.id_to_byte_piece(token) for token in range(tokenizer.n_words))
        return TokenTable(list(own), special, (int(tokenizer.eos_id),))
    from .slow import read_pieces

    model = tokenizer._model
    tokens, special = read_pieces(model)
    return TokenTable(tokens, special, (int(tokenizer.eos_id),))
