"""Saved guides: the same masks again, and a clear refusal of every file that is not quite right."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from trellm import Vocabulary
from trellm.errors import GuideFileError, LimitError
from trellm.guides import RegexGuide, regular_guide

from .support import NotReadyError, quickly
from .vocabularies import SMALL

TINY = Vocabulary([b"a", b"b", b"ab", b"b!", None], [4])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "guide.safetensors"
    RegexGuide("(?:ab?){1,3}", TINY).save(path)
    return path


@pytest.mark.parametrize("pattern", ["(?:a|bc){2,4}é?", r"\d{4}-\d\d", "", "[^\n]{0,30}é"])
def test_the_same_masks_again(tmp_path: Path, pattern: str) -> None:
    guide = RegexGuide(pattern, SMALL)
    guide.save(tmp_path / "guide")
    loaded = RegexGuide.load(tmp_path / "guide", SMALL)
    assert (loaded.pattern, loaded.flags, loaded.dialect) == (guide.pattern, guide.flags, guide.dialect)
    queue = [(guide.start, loaded.start)]
    for state, same in queue:
        assert np.array_equal(guide.mask(state), loaded.mask(same))
        assert guide.is_accepting(state) == loaded.is_accepting(same)
        for token in (ord("a"), ord("b"), ord("c"), ord("7"), ord("-"), 0xC3, 0xA9):
            pair = guide.advance(state, token), loaded.advance(same, token)
            assert (pair[0] < 0) == (pair[1] < 0)
            if pair[0] >= 0 and pair not in queue:
                queue.append(pair)


def test_masks_are_taken_from_the_file(saved: Path) -> None:
    """None takes a step of work, as those of a guide do that was made anew."""
    loaded, fresh = RegexGuide.load(str(saved), TINY), RegexGuide("(?:ab?){1,3}", TINY)
    with quickly(1):
        with pytest.raises(NotReadyError):
            fresh.mask(fresh.start)
        for state in range(loaded.automaton.state_count):
            loaded.mask(state)


def test_what_the_file_is_for(tmp_path: Path) -> None:
    path = tmp_path / "guide"
    RegexGuide("A+b", SMALL, flags=2, dialect="ecma").save(path)
    loaded = RegexGuide.load(path, SMALL)
    assert (loaded.pattern, loaded.flags, loaded.dialect) == ("A+b", 2, "ecma")
    RegexGuide.load(path, SMALL, pattern="A+b", flags=2, dialect="ecma")
    same_tokens = Vocabulary(list(SMALL.tokens), SMALL.eos_ids, SMALL.special_ids)
    RegexGuide.load(path, same_tokens)
    for options, message in (
        ({"pattern": "A+c"}, "another pattern: 'A\\+b', not 'A\\+c'"),
        ({"flags": 0}, "another flags"),
        ({"dialect": "python"}, "another dialect"),
    ):
        with pytest.raises(GuideFileError, match=message):
            RegexGuide.load(path, SMALL, **options)  # type: ignore[arg-type]
    with pytest.raises(GuideFileError, match="another vocabulary"):
        RegexGuide.load(path, Vocabulary(list(SMALL.tokens), [305], SMALL.special_ids))


def test_a_vocabulary_that_cannot_spell_the_pattern(saved: Path) -> None:
    with pytest.raises(GuideFileError, match="another vocabulary"):
        RegexGuide.load(saved, Vocabulary([b"x", None], [1]))


def test_every_truncation_is_refused(saved: Path) -> None:
    data = saved.read_bytes()
    for size in {*range(0, 60), *range(60, len(data), 97), len(data) - 1}:
        saved.write_bytes(data[:size])
        with pytest.raises(GuideFileError):
            RegexGuide.load(saved, TINY)


def test_flipped_bits_are_refused_or_harmless(saved: Path) -> None:
    data = saved.read_bytes()
    right = [RegexGuide.load(saved, TINY).mask(state).copy() for state in range(3)]
    refused = 0
    places = [*range(0, 700), *range(700, len(data), 41), len(data) - 1]
    for place in places:
        for bit in (place % 8, 7 - place % 8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            saved.write_bytes(bytes(damaged))
            try:
                guide = RegexGuide.load(saved, TINY)
            except GuideFileError:
                refused += 1
            else:  # white space of the header may change without harm
                assert all(np.array_equal(guide.mask(state), right[state]) for state in range(3))
    assert refused > 1.9 * len(places)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(GuideFileError, match="no file"):
        RegexGuide.load(tmp_path / "absent", TINY)
    with pytest.raises(GuideFileError):
        RegexGuide.load(tmp_path, TINY)
    other = tmp_path / "other"
    other.write_bytes(b"a text")
    with pytest.raises(GuideFileError, match="not a whole safetensors file"):
        RegexGuide.load(other, TINY)
    save_file({"masks": np.zeros((2, 2), np.uint32)}, other)
    with pytest.raises(GuideFileError, match="not a saved guide"):
        RegexGuide.load(other, TINY)


def test_a_guide_too_large_to_save_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(LimitError):
        RegexGuide("[ab]*a[ab]{30}", TINY).save(tmp_path / "guide")
    assert not (tmp_path / "guide").exists()


def forged(path: Path, metadata: dict[str, str], tensors: dict[str, np.ndarray]) -> None:
    """Write a file whose checksum fits whatever it holds."""
    said = {**metadata, "checksum": regular_guide._checksum(metadata, tensors)}  # pyright: ignore[reportPrivateUsage]
    save_file(tensors, path, said)


def test_files_with_a_checksum_that_fits_and_contents_that_do_not(saved: Path) -> None:
    with safe_open(str(saved), framework="numpy") as file:
        metadata = {key: value for key, value in file.metadata().items() if key != "checksum"}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    forged(saved, metadata, tensors)
    RegexGuide.load(saved, TINY)
    masks, transitions = tensors["masks"], tensors["transitions"]
    wrong = [
        *({"masks": other} for other in (masks.astype(np.float32), masks.reshape(-1), np.hstack([masks, masks]))),
        *({"masks": other} for other in (masks[:, :0].copy(), masks[:1].copy(), masks | np.uint32(1 << 31))),
        *({"transitions": other} for other in (transitions + 1, transitions.reshape(-1), transitions.astype(np.int64))),
    ]
    for change in wrong:
        forged(saved, metadata, {**tensors, **change})
        with pytest.raises(GuideFileError):
            RegexGuide.load(saved, TINY)
    for key in metadata:
        forged(saved, {name: value for name, value in metadata.items() if name != key}, tensors)
        with pytest.raises(GuideFileError):
            RegexGuide.load(saved, TINY)
    for key in ("flags", "dialect"):
        forged(saved, {**metadata, key: "((("}, tensors)
        with pytest.raises(GuideFileError, match="lacks parts"):
            RegexGuide.load(saved, TINY)


def test_places_that_cannot_be_written_to_or_read(saved: Path, tmp_path: Path) -> None:
    guide = RegexGuide.load(saved, TINY)
    for place in (tmp_path, tmp_path / "no" / "folder", "", "a\0b", None, 5, "x" * 300, "/"):
        with pytest.raises(GuideFileError):
            guide.save(place)  # type: ignore[arg-type]
        with pytest.raises(GuideFileError):
            RegexGuide.load(place, TINY)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == [saved.name], "nothing half is left behind"
