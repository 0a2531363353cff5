"""The documentation: its examples give what they say, what is generated is up to date, links lead somewhere."""

import ast
import doctest
import importlib.util
import json
import re
import shlex
import zlib
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from pydantic import BaseModel
from trellm import Sample, generate, guides, models
from trellm.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")])
# What the examples' gzip language model says depends on the deflate implementation.
USUAL_ZLIB = len(zlib.compress(b"".join(b"%d apples, " % (n * n % 97) for n in range(300)), 9)) == 235


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def load(name: str, folder: str = "docs") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not USUAL_ZLIB, reason="this zlib compresses differently from the one the examples were made with")
@pytest.mark.parametrize("page", with_blocks("pycon"), ids=lambda page: page.name)
def test_examples_give_what_they_say(page: Path) -> None:
    source = "\n".join(blocks(page, "pycon"))
    test = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    told: list[str] = []
    failed, attempted = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=told.append)
    assert attempted > 0
    assert not failed, "".join(told)


@pytest.mark.parametrize("page", with_blocks("python"), ids=lambda page: page.name)
def test_other_python_is_python(page: Path) -> None:
    for block in blocks(page, "python"):
        ast.parse(block)


@pytest.mark.parametrize("page", with_blocks("console"), ids=lambda page: page.name)
def test_commands_print_what_they_say(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks(page, "console"):
        for command, output in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.M):
            program, *arguments = shlex.split(command)
            assert program == "trellm"
            main(arguments)
            assert capsys.readouterr().out == output, command


COMING = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")


OURS = sorted(set(re.findall(r"^\|.*\| `((?:generate|guides)\..*)` \|$", COMING, re.M)))


@pytest.mark.parametrize("code", OURS)
def test_what_others_have_is_written_so_here(code: str) -> None:
    """Each cell of the tables that is an expression comes to something."""

    class Person(BaseModel):
        name: Literal["Ada", "Kofi"]

    model = models.small()
    known = {"generate": generate, "guides": guides, "Sample": Sample, "Literal": Literal, "Person": Person}
    known |= {"model": model, "vocabulary": model.vocabulary, "document": "The cat sat.", "prompt": "Who? "}
    known |= {"schema": {"type": "boolean"}, "grammar": 'start: "a" | "b"', "gbnf": 'root ::= "a" | "b"'}
    known |= {"messages": [{"role": "user", "content": "Who?"}]}
    assert len(OURS) >= 30
    assert eval(code.replace("\\|", "|"), known) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\((?!\w+:)([^)#]+)\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_page_is_in_the_site() -> None:
    site = load("site")
    pages = {page for page in PAGES if page.name not in ("SECURITY.md", "CODE_OF_CONDUCT.md")}
    assert set(site.sources()) == pages
    assert len(site.sources()) == len(pages)
    assert all(site.title(page) and site.beginning(page) for page in pages)


def test_a_notebook_has_the_examples_of_its_page() -> None:
    site = load("site")
    page = "# Page\n\n```pycon\n>>> if True:\n...     a = 1\n>>> a\n1\n>>> b = asyncio.run(f(a))\n\n```\n\nText.\n"
    cells = site.notebook(page)["cells"]
    assert [cell["source"] for cell in cells] == ["# Page", "if True:\n    a = 1\na", "b = await f(a)", "Text."]
    assert [[out["data"] for out in cell.get("outputs", [])] for cell in cells] == [[], [{"text/plain": "1"}], [], []]
    cookbook = site.notebook((ROOT / site.NOTEBOOK).read_text(encoding="utf-8"))["cells"]
    sources = [cell["source"] for cell in cookbook if cell["cell_type"] == "code"]
    assert len(sources) > 16
    for source in sources:
        compile(source, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        assert "asyncio.run(" not in source


def test_versions_of_the_site_are_listed_for_its_switch(tmp_path: Path) -> None:
    """By a stand-in of git and zensical that makes the folders that they make."""
    commands: list[str] = []

    def run(command: list[object], **others: object) -> None:
        commands.append(str(command[0]))
        if command[0] == "zensical":
            (Path(str(others["cwd"])) / "build" / "site").mkdir(parents=True)

    load("site").build_versions(["v0.2.0", "main"], tmp_path, run)
    made = tmp_path / "build" / "versions"
    assert sorted(path.name for path in made.iterdir()) == ["index.html", "main", "v0.2.0", "versions.json"]
    versions = [(each["version"], each["aliases"]) for each in json.loads((made / "versions.json").read_text("utf-8"))]
    assert versions == [("v0.2.0", ["latest"]), ("main", [])]
    assert "url=v0.2.0/" in (made / "index.html").read_text("utf-8")


def test_the_pictures_are_what_the_guides_say() -> None:
    drawn: dict[str, str] = load("draw").pictures()
    assert drawn == {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.svg")}


def test_the_table_of_architectures_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "supported-models.md").read_text(encoding="utf-8")
    assert load("architectures").page() == page, "run python docs/architectures.py"


def test_the_record_is_what_was_measured() -> None:
    """But for the commits that a clone without its history does not know."""
    record = load("record", "benchmarks")
    made, page = (re.sub(record.COMMIT, "", text) for text in (record.page(), record.PAGE.read_text(encoding="utf-8")))
    assert made == page, "run python -m benchmarks.record"


def test_the_reference_is_what_the_docstrings_say() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert load("reference").reference() == page, "a public docstring has changed; run python docs/reference.py"


def test_the_readme_has_exactly_the_two_commands() -> None:
    assert blocks(ROOT / "README.md", "sh") == [
        "pip install -e . && trellm demo\n",
        "pip install -e '.[test]' && pytest tests\n",
    ]
