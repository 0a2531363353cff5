"""The claims of docs/charts.md on the core, of docs/architecture.md and CONTRIBUTING.md on the rooms, looked up."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from trellm import Vocabulary
from trellm.guides import RegexGuide
from trellm.guides.chart.automaton import ChartAutomaton
from trellm.guides.lift.tables import VocabularyTables
from trellm.kernels.chart import cost, interning, layout, return_sets, rows
from trellm.kernels.jit.arrays import Arrays
from trellm.kernels.trie import branches, loop_slice

PACKAGE = Path(__file__).resolve().parents[1]
ROOMS = (PACKAGE / "docs" / "architecture.md").read_text(encoding="utf-8")
PAGE = (PACKAGE / "docs" / "charts.md").read_text(encoding="utf-8")
CONTRIBUTING = (PACKAGE / "CONTRIBUTING.md").read_text(encoding="utf-8")
BENCHMARKS = (PACKAGE / "benchmarks" / "README.md").read_text(encoding="utf-8")
DECISIONS = {page.name: page.read_text(encoding="utf-8") for page in (PACKAGE / "docs" / "decisions").glob("[0-9]*.md")}
CLASSES = (
    layout.GraphArrays,
    layout.Chart,
    cost.Costs,
    branches.TokenTrie,
    branches.Branches,
    loop_slice.LoopSlice,
)
KERNELS = [
    import_module(f"trellm.{'.'.join(file.relative_to(PACKAGE).with_suffix('').parts)}")
    for folder in ("", "chart", "trie")
    for file in sorted((PACKAGE / "kernels" / folder).glob("*.py"))
    if file.name != "__init__.py"
]
# What the page names in capitals that is no column, code or other constant of the kernels of charts and tries.
ELSEWHERE = {"EOS"}
FILE = r"`((?:guides|kernels|tests|engine|serve|cli|docs|benchmarks|tokenizers_adapter)/[\w/.-]*)(?:::(\w+))?`"
Test = tuple[str, str]


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose first line begins with a cell."""
    lines = PAGE.split(f"\n| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


@pytest.mark.parametrize("which", CLASSES, ids=lambda which: which.__name__)
def test_every_array_is_in_the_table_of_its_class(which: type[Arrays]) -> None:
    named = [name for cells in table(f"Array of `{which.__name__}`") for name in names_in(cells[0])]
    assert sorted(named) == sorted(field.name for field in fields(which))  # type: ignore[arg-type]


def test_every_table_of_a_vocabulary_is_in_the_table() -> None:
    tables = VocabularyTables.of(Vocabulary.from_bytes())
    held = {name: getattr(tables, name) for name in dir(tables) if not name.startswith("__")}
    known = {name for name, value in held.items() if isinstance(value, np.ndarray | Arrays)}
    known = known - {"bytes"} | {field.name for field in fields(tables.bytes)}
    known |= {name for name, value in vars(tables.masks).items() if isinstance(value, np.ndarray)}
    named = {name for cells in table("Table") for name in names_in(cells[0])}
    assert named == known | {"_slices", "_cached"}
    assert all(hasattr(tables, name) for name in ("_slices", "_cached"))


def arrays_of(automaton: ChartAutomaton, tables: VocabularyTables) -> dict[str, Any]:
    split = tables.loop_slice((2**64 - 1, 2**64 - 1, 1), at_once=True)
    assert split is not None
    made = (automaton.graph_arrays, automaton.chart, tables.trie, tables.branches, split)
    return {type(each).__name__: each for each in made}


def test_shapes_and_types_are_those_of_the_tables() -> None:
    """int32 [n, 8] means so much: as far as sizes are numbers."""
    vocabulary = Vocabulary.from_bytes()
    guide = RegexGuide("[a-z]{2,9}!", vocabulary)
    guide.mask_within(guide.start, 5)
    guide.distance(guide.start)
    every = arrays_of(guide.automaton, VocabularyTables.of(vocabulary)) | {"Costs": guide._closing._costs}
    assert sorted(every) == sorted(which.__name__ for which in CLASSES)
    checked = 0
    for name, arrays in every.items():
        for cells in table(f"Array of `{name}`"):
            found = re.fullmatch(r"(\w+) \[(.*)\]", cells[1])
            for array in (getattr(arrays, each) for each in names_in(cells[0])):
                if found is None:
                    assert cells[1] in ("a number", "`Branches`")
                    assert type(array).__name__ in ("int", "Branches")
                    continue
                sizes = found.group(2).split(", ")
                assert (str(array.dtype), array.ndim) == (found.group(1), len(sizes)), cells[0]
                known = [(size, said) for size, said in zip(array.shape, sizes, strict=True) if said.isdigit()]
                assert all(size == int(said) for size, said in known), cells[0]
                checked += 1
    assert checked > 50


def columns(module: ModuleType) -> set[str]:
    """The names in capitals that a module gives to numbers by itself."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z][A-Z_0-9]+)`", PAGE)) - ELSEWHERE))
def test_columns_and_answers_exist(name: str) -> None:
    assert any(hasattr(module, name) for module in KERNELS)


@pytest.mark.parametrize("module", [layout, loop_slice], ids=lambda module: module.__name__)
def test_every_column_is_on_the_page(module: ModuleType) -> None:
    assert not columns(module) - set(re.findall(r"`([A-Z_]+)`", PAGE))


def test_columns_of_other_modules_are_on_the_page() -> None:
    named = set(re.findall(r"`([A-Z_]+)`", PAGE))
    assert {"BYTE", "NEXT", "TOKENS", "COST"} <= columns(cost) & named
    assert {"ADDED", "ALL", "BITS", "KEPT_BITS", "REFUSED", "SETS"} <= columns(interning) & named
    assert {"BEFORE", "BEFORE_TO_END"} <= columns(return_sets) & named
    wanted = {name for name in columns(rows) if name.startswith(("ASCII", "LEADS", "LOOP", "MEMO", "ROOM"))}
    assert len(wanted) == 12 and wanted <= named


def test_words_are_laid_out_as_the_page_says() -> None:
    assert names_in(table("What")[0][1])[:3] == ["OWN_RETURN_SET", "ACCEPTING", "HEADER"]
    for row, last, first in ((0, "ITEM", 4), (1, "ENTRY", 1)):
        named = names_in(table("What")[row][1])[first:]
        assert [getattr(layout, name) for name in named] == list(range(getattr(layout, last)))


NAMING = "".join((PAGE, ROOMS, CONTRIBUTING, BENCHMARKS, *DECISIONS.values()))


@pytest.mark.parametrize(("path", "test"), sorted(set(re.findall(FILE, NAMING))))
def test_files_and_tests_exist(path: str, test: str) -> None:
    assert (PACKAGE / path).exists()
    if test:
        assert re.search(rf"^ *def {test}\(", (PACKAGE / path).read_text(encoding="utf-8"), re.M), test


@pytest.mark.parametrize("page", sorted(DECISIONS))
def test_decisions_are_told_on_a_page_each_in_one_form(page: str) -> None:
    text = DECISIONS[page]
    assert re.match(rf"# {int(page[:2])}\. [A-Z]", text)
    assert re.findall(r"^## (.*)$", text, re.M) == ["Context", "Decision", "Consequences", "Rejected"]
    assert len(text.splitlines()) <= 40
    assert f"]({page})" in (PACKAGE / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")


def test_no_change_touches_more_than_four_places() -> None:
    changes = CONTRIBUTING.split("\n## Where to change what\n", 1)[1].split("\n## ", 1)[0].split("\n### ")[1:]
    rows = [re.findall(r"^\| (?!\||---).*$", change, re.M) for change in changes]
    assert len(rows) > 2 and all(1 < len(each) <= 4 for each in rows)


def test_changes_name_what_there_is() -> None:
    """`_FORMATS` in `guides/.../formats.py`: a name that stands in the file."""
    changes = CONTRIBUTING.split("\n## Where to change what\n", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", changes)
    assert len(named) > 20
    lacking = [
        (name, path) for name, path in named if not re.search(rf"\b{name}\b", (PACKAGE / path).read_text("utf-8"))
    ]
    assert not lacking, "CONTRIBUTING.md names what is no longer in these files"


def test_every_shortcut_names_its_test() -> None:
    shortcuts = PAGE.split("\n## Why the shortcuts are exact\n", 1)[1].split("\n### ")[1:]
    assert len(shortcuts) > 10
    for shortcut in shortcuts:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", shortcut), shortcut.splitlines()[0]
        assert "*Claim:*" in shortcut and "*Why:*" in shortcut


def test_charts_are_shown_byte_by_byte() -> None:
    """tests/test_docs.py runs what is on the page; here, that it is still there."""
    shown = re.findall(r"^state \d+.*:", PAGE.split("## Three charts", 1)[1], re.M)
    assert len(shown) >= 8


def test_the_drawing_has_every_room_in_its_order() -> None:
    drawing = ROOMS.split("```text", 1)[1].split("```", 1)[0]
    for room in (folder.name for folder in (PACKAGE / "guides").iterdir() if (folder / "__init__.py").is_file()):
        assert re.search(rf"\b{room}/", drawing), room
    lines = re.findall(r"^  (\w+)/? ", drawing.split("guides/", 1)[1].split("\ntokenizers_adapter", 1)[0], re.M)
    layering = (PACKAGE / "tests" / "test_layering.py").read_text(encoding="utf-8")
    order = re.findall(r'"(\w+)"', layering.split('("guides",): (', 1)[1].split("\n    ),", 1)[0])
    assert [name for name in reversed(lines) if name in order] == order


def test_the_page_of_the_rooms_is_short_and_mostly_about_the_engine() -> None:
    engine = ROOMS.split("\n## A step\n", 1)[1].split("\n## The server\n", 1)[0]
    assert len(ROOMS.split()) <= 6000 and 2 * len(engine.split()) >= len(ROOMS.split())


def arguments_of(benchmark: Path) -> int:
    """How many arguments a script cannot do without."""
    return len(re.findall(r'add_argument\("(?!-)', benchmark.read_text(encoding="utf-8")))


def test_every_benchmark_is_listed_with_its_arguments() -> None:
    listed = {
        line.split()[1]: sum("path/" in word for word in line.split()[2:])
        for line in re.findall(r"^python benchmarks/.*$", BENCHMARKS, re.M)
    }
    scripts = [file for file in (PACKAGE / "benchmarks").rglob("*.py") if "__main__" in file.read_text("utf-8")]
    assert listed == {file.relative_to(PACKAGE).as_posix(): arguments_of(file) for file in scripts}
    assert not [file.name for file in scripts if "ArgumentParser(" not in file.read_text("utf-8")]


def test_steps_of_a_constraint_name_what_there_is() -> None:
    steps = CONTRIBUTING.split("| Step | Where |", 1)[1].split("\n\n", 1)[0]
    named = re.findall(r"`([\w/.]+)`", steps)
    assert len(named) > 20
    assert [name for name in named if not (PACKAGE / "guides" / name).exists() and not (PACKAGE / name).exists()] == []


def test_the_glossary_names_files_and_what_is_in_them() -> None:
    """`SequenceState` in `engine/decode/sequence.py`: a name that stands in the file; at most 80 terms, each once."""
    lines = (PACKAGE / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| ") and not line.startswith("| Term")]
    terms = [name.strip() for row in rows if "---" not in row[0] for name in row[0].split(", ")]
    assert len(terms) <= 80 and len(set(terms)) == len(terms)
    for _, _, where in (row for row in rows if "---" not in row[0]):
        for path in re.findall(r"`(\w+/[\w/]+(?:\.py)?)`", where):
            assert (PACKAGE / path).exists(), path
        for name, path in re.findall(r"`([\w.]+)` in `([\w/]+\.py)`", where):
            assert re.search(rf"\b{name.split('.')[-1]}\b", (PACKAGE / path).read_text(encoding="utf-8")), (name, path)


def test_the_fast_tests_are_there_and_some_of_each_folder() -> None:
    folder = PACKAGE / "tests"
    lines = (folder / "fast.txt").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("::") for line in lines if not line.startswith("#")]
    assert len(set(listed)) == len(listed)
    for file, _, name in listed:
        text = (folder / file).read_text(encoding="utf-8")
        assert not name or re.search(rf"^(?:def|class) {name}\b", text, re.M), (file, name)
    assert {(folder / file).parent for file, _, _ in listed} == {file.parent for file in folder.rglob("test_*.py")}
