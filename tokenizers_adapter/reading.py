"""Reading of tokenizers of any kind, objects and files: tokenizer.json and folders with one, tekken.json, GGUF."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..errors import VocabularyError
from .fast import read_fast
from .gguf import is_gguf, read_gguf
from .slow import read_pieces, read_slow
from .spelling import TokenTable


def read_tokenizer(tokenizer: Any) -> TokenTable:
    """Return the tokens of any supported tokenizer. Kinds are recognised by attributes, without importing libraries.

    Raises VocabularyError for other objects.
    """
    if isinstance(tokenizer, (str, Path)):
        return read_file(tokenizer)
    if isinstance(tokenizer, type):
        raise VocabularyError(f"{tokenizer.__name__} is a class, not a tokenizer; give an instance of it")
    mistral = _mistral(tokenizer)
    if mistral is not None:
        return read_mistral(mistral)
    if hasattr(tokenizer, "model_path") and hasattr(tokenizer, "n_vocab"):  # a Llama of llama-cpp-python
        return read_file(tokenizer.model_path)
    wrapped = [getattr(tokenizer, name, None) for name in ("backend_tokenizer", "_tokenizer")]
    for backend in (tokenizer, *wrapped):
        if hasattr(backend, "get_added_tokens_decoder"):
            return read_fast(tokenizer, backend)
    if hasattr(tokenizer, "token_byte_values"):
        return _read_encoding(tokenizer)
    if hasattr(tokenizer, "convert_ids_to_tokens"):
        return read_slow(tokenizer)
    if hasattr(tokenizer, "tokenizer"):  # a processor of text and images or audio
        return read_tokenizer(tokenizer.tokenizer)
    raise VocabularyError(
        f"{type(tokenizer).__name__} is not a tokenizer that can be read; pass a Hugging Face tokenizer, a "
        "tokenizers.Tokenizer, a tiktoken.Encoding, one of mistral-common, or the path of a tokenizer.json or a GGUF "
        "file; or build Vocabulary(tokens, eos_ids) yourself"
    )


def _mistral(tokenizer: Any) -> Any:
    """Return the inner tokenizer of mistral-common, also from a wrapper; None for others."""
    for outer in (tokenizer, getattr(tokenizer, "tokenizer", None)):
        inner: Any = getattr(getattr(outer, "instruct_tokenizer", outer), "tokenizer", outer)
        if hasattr(inner, "n_words") and hasattr(inner, "special_ids"):
            return inner
    return None


def _read_encoding(encoding: Any) -> TokenTable:
    """Return the tokens of a `tiktoken.Encoding`. EOS is its `<|endoftext|>`, if it has one."""
    tokens: list[bytes | None] = [None] * encoding.n_vocab
    for data in encoding.token_byte_values():
        tokens[encoding.encode_single_token(data)] = data
    special = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    eos: int | None = special.get("<|endoftext|>")
    return TokenTable(tokens, frozenset(special.values()), () if eos is None else (eos,), special)


def read_file(file: str | Path) -> TokenTable:
    """Return the tokens of a file or folder.

    A tokenizer.json does not name EOS; a tokenizer_config.json beside it does.
    Raises VocabularyError for a missing file, or one of another kind.
    """
    try:
        path = _file_of(Path(file))
        if path is None:
            raise VocabularyError(
                f"{str(file)!r} is not a file with a vocabulary; give a tokenizer.json, a tekken.json or a GGUF file, "
                "a folder with one, or the tokenizer itself"
            )
        if is_gguf(path):
            return read_gguf(path)
        content = _json_of(path)
    except OSError as error:  # no permission, or an impossible name
        raise VocabularyError(f"{str(file)!r} cannot be read: {error.strerror or error}") from error
    if isinstance(content, dict) and {"vocab", "config"} <= cast("dict[str, Any]", content).keys():
        return _read_tekken(cast("dict[str, Any]", content), path)
    if not isinstance(content, dict) or "model" not in content:
        raise VocabularyError(f"{path} is not a valid tokenizer.json, tekken.json or GGUF file")
    return _read_json(path)


def _file_of(path: Path) -> Path | None:
    """Return the file of a path: itself, or in its folder."""
    places = [path / name for name in ("tokenizer.json", "tekken.json")] if path.is_dir() else [path]
    return next((place for place in places if place.is_file()), None)


def _json_of(path: Path) -> Any:
    """Return the value of a JSON file; None if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def _read_json(path: Path) -> TokenTable:
    """Return the tokens of a tokenizer.json."""
    from tokenizers import Tokenizer

    library: Any = Tokenizer
    try:
        backend = library.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise VocabularyError(f"{path} cannot be read: {error}") from error
    table = read_fast(backend, backend)
    end = _eos_of_config(path)
    token: int | None = None if end is None else backend.token_to_id(end)
    return table if token is None else replace(table, eos_ids=(token,))


def _eos_of_config(path: Path) -> str | None:
    """Return the EOS token of the tokenizer_config.json beside a file."""
    try:
        eos: Any = _json_of(path.parent / "tokenizer_config.json")["eos_token"]
    except (OSError, KeyError, TypeError):
        return None
    text = cast("dict[str, Any]", eos).get("content") if isinstance(eos, dict) else eos
    return text if isinstance(text, str) else None


def _read_tekken(content: dict[str, Any], path: Path) -> TokenTable:
    """Return the tokens of a tekken.json: special ones, then the vocabulary, up to its `default_vocab_size`."""
    try:
        config = content["config"]
        count, special = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
        tokens: list[bytes | None] = [None] * special
        tokens += [
            base64.b64decode(entry["token_bytes"], validate=True) for entry in content["vocab"][: count - special]
        ]
        named: list[dict[str, Any]] = content.get("special_tokens") or []
        names = [str(entry["token_str"]) for entry in named]
    except (KeyError, TypeError, ValueError) as error:
        raise VocabularyError(f"{path} is not a valid tekken.json: {error!r}") from error
    end = names.index("</s>") if "</s>" in names else 2
    return TokenTable(tokens, frozenset(range(special)), (end,), {name: token for token, name in enumerate(names)})


def read_mistral(tokenizer: Any) -> TokenTable:
    """Return the tokens of a Tekkenizer or SentencePieceTokenizer of mistral-common."""
    if hasattr(tokenizer, "id_to_byte_piece"):
        special = frozenset(int(token) for token in tokenizer.special_ids)
        pieces = (None if token in special else tokenizer.id_to_byte_piece(token) for token in range(tokenizer.n_words))
        added = {str(tokenizer.id_to_piece(token)): token for token in special}
        return TokenTable(list(pieces), special, (int(tokenizer.eos_id),), added)
    model = tokenizer._model
    tokens, special = read_pieces(model)
    return TokenTable(tokens, special, (int(tokenizer.eos_id),), {model.id_to_piece(token): token for token in special})
