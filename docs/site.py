"""Gathers what the site is made of: `python docs/site.py && zensical build --strict` leaves it in build/site.

Pages lie where they lie in the repository, so that links between them are the same. With them come the files that they
link to, an index, which is the README, the cookbook as a notebook, and llms.txt and llms-full.txt for readers that are
language models.

`python docs/site.py v0.2.0 v0.1.0 main` builds the sites of these tags and branches into folders of build/versions,
the newest first, with the versions.json that the theme's switch reads.
"""

import doctest
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "pages"
NOTEBOOK = "docs/cookbook.md"
LINK = re.compile(r"\]\((?!\w+:|#)([^)#]+)(#[^)]*)?\)")


def navigation() -> dict[str, list[str]]:
    """The pages of the site by section, as zensical.toml lists them; those on top have the section ""."""
    listed: list[Any] = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    found: dict[str, list[str]] = {"": []}
    for each in listed:
        for name, pages in each.items():
            if isinstance(pages, str):
                found[""].append(pages)
            else:
                found[name] = pages
    return found


def sources() -> list[Path]:
    """The pages in the order of the site."""
    return [source(page) for pages in navigation().values() for page in pages]


def source(page: str) -> Path:
    """The file of a page in the repository."""
    return ROOT / ("README.md" if page == "index.md" else page)


def linked(page: Path) -> Iterator[Path]:
    """The files that a page links to. Raises FileNotFoundError."""
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        yield (page.parent / target).resolve(strict=True)


def gather() -> None:
    """Copy pages, and the files that they link to, and write the index and both texts for language models."""
    shutil.rmtree(PAGES, ignore_errors=True)
    pages = sources()
    for file in {*pages, *(target for page in pages for target in linked(page) if target.is_file())}:
        copy = PAGES / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    for page in pages:
        made = PAGES / page.relative_to(ROOT)
        made.write_text(LINK.sub(lambda link, page=page: _moved(link, page), page.read_text(encoding="utf-8")), "utf-8")
    (PAGES / "README.md").rename(PAGES / "index.md")
    download = (PAGES / NOTEBOOK).with_suffix(".ipynb")
    download.write_text(json.dumps(notebook((ROOT / NOTEBOOK).read_text(encoding="utf-8")), indent=1), "utf-8")
    with (PAGES / NOTEBOOK).open("a", encoding="utf-8") as page:
        page.write(f"\n[This page as a notebook]({download.name})\n")
    (PAGES / "llms.txt").write_text(short(), encoding="utf-8")
    (PAGES / "llms-full.txt").write_text(
        "\n\n".join(page.read_text(encoding="utf-8") for page in pages), encoding="utf-8"
    )


def _moved(link: re.Match[str], page: Path) -> str:
    """The link as it is in the site, where the README is the index."""
    leads_home = (page.parent / link[1]).resolve() == ROOT / "README.md"
    return link[0].replace("README.md", "index.md") if leads_home else link[0]


def short() -> str:
    """llms.txt: what the project is, and its pages by section, each with its first sentence."""
    lines = ["# trellm", "", f"> {beginning(ROOT / 'README.md')}"]
    for section, pages in navigation().items():
        if section:
            lines += ["", f"## {section}", ""]
            lines += [f"- [{title(source(page))}]({page}): {beginning(source(page))}" for page in pages]
    return "\n".join([*lines, ""])


def title(page: Path) -> str:
    """Its first heading."""
    return page.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")


def beginning(page: Path) -> str:
    """The first sentence of its first paragraph, without links."""
    paragraphs = page.read_text(encoding="utf-8").split("\n\n")[1:]
    first = next(each for each in paragraphs if re.match(r"[\w`*\[]", each))
    sentence = re.split(r"(?<=[.:])\s", " ".join(first.split()), maxsplit=1)[0]
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence).rstrip(":")


def notebook(page: str) -> dict[str, Any]:
    """A page as a Jupyter notebook, version 4.5: its examples are code cells, with the results that the page shows."""
    cells: list[dict[str, Any]] = []
    for prose, examples in re.findall(r"(.*?)(?:^```pycon\n(.*?)^```$|\Z)", page, re.M | re.S):
        if prose.strip():
            cells.append({"cell_type": "markdown", "source": prose.strip()})
        source = ""
        parsed = doctest.DocTestParser().get_examples(examples)
        for number, example in enumerate(parsed, 1):
            # A notebook has a running event loop.
            source += re.sub(r"\basyncio\.run\((.*)\)$", r"await \1", example.source, flags=re.M)
            if example.want or number == len(parsed):  # a cell shows its last value only
                shown = {"output_type": "display_data", "data": {"text/plain": example.want.rstrip()}, "metadata": {}}
                code = {"cell_type": "code", "source": source.rstrip(), "execution_count": None}
                cells.append(code | {"outputs": [shown] if example.want else []})
                source = ""
    cells = [each | {"id": f"cell-{number}", "metadata": {}} for number, each in enumerate(cells)]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def build_versions(names: list[str], root: Path = ROOT, run: Callable[..., object] = subprocess.run) -> None:
    """Build the site of each tag or branch into a folder of its name. The first of them is the one to show."""
    folder = root / "build" / "versions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        tree = root / "build" / "trees" / name
        run(["git", "worktree", "add", "--force", "--detach", tree, name], cwd=root, check=True)
        run([sys.executable, "docs/site.py"], cwd=tree, check=True)
        run(["zensical", "build", "--strict"], cwd=tree, check=True)
        shutil.move(tree / "build" / "site", folder / name)
        run(["git", "worktree", "remove", "--force", tree], cwd=root, check=True)
    listed = [{"version": name, "title": name, "aliases": ["latest"] if name == names[0] else []} for name in names]
    (folder / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={names[0]}/">', encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:]:
        build_versions(sys.argv[1:])
    else:
        gather()
