"""The trellm command: what it prints, where it writes, and its exit codes."""

import ast
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from trellm import SMC, Beam, Exact, Importance, Sample, Vocabulary, models
from trellm.cli import demo as demo_module
from trellm.cli import main
from trellm.cli.flags import in_flags
from trellm.cli.generate import generate as generate_command

MODEL_TEXT = "On 2024-05-17 the answer was yes. On 2023-01-02 the answer was no.\n" * 3

COSTLY = """\
# is
  an array of at least 1 item
    item 1: a string, in which "^a" is found, in which "b" is not found
    item 2: true or false
    further items: a number, at most -0.5 or an integer, at least 8
    among them, at most 2 items: one of [{'a': 1}]
  cost: contains keeps its counts apart: a place for each combination of them
  cost: a string, in which "^a" is found, in which "b" is not found: one automaton for all conditions is worked out
  cost: 2 alternatives of one type are followed side by side until the text tells them apart

one of [{'a': 1}] is
  {"a": 1}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A toy model, as --model names it."""
    file = tmp_path / "text.txt"
    file.write_text(MODEL_TEXT, encoding="utf-8")
    return f"ziplm:{file}"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def standard_input(content: bytes) -> io.TextIOWrapper:
    stream = io.BytesIO(content)
    stream.name = "<stdin>"
    return io.TextIOWrapper(stream, encoding="utf-8")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command line that is refused: one line, nothing on standard output, exit code 2."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    # Said once, by whatever first needs a kernel that is not on disk.
    err = "".join(line for line in err.splitlines(keepends=True) if "compiling kernels" not in line)
    assert out == ""
    assert err.startswith("trellm: ")
    assert err.count("\n") == 1
    return err


def test_demo_keeps_to_its_constraints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo"]) == 0
    outputs = re.findall(r"output +(.*)", capsys.readouterr().out)
    assert len(outputs) == len(demo_module.examples())
    assert ast.literal_eval(outputs[0]).keys() == demo_module.ORDER["properties"].keys()
    assert ast.literal_eval(outputs[1].partition(", characters")[0]) in demo_module.PASSAGE
    assert {share.split()[0] for share in outputs[2].split(", ")} == set(demo_module.MOODS)
    assert re.fullmatch(r"'\d{4}-\d{2}-\d{2}'", outputs[3])
    assert ast.literal_eval(outputs[4])["name"] in [tool["name"] for tool in demo_module.TOOLS]
    assert all(word in outputs[6] for word in demo_module.WORDS)


def test_threads_of_the_model_are_chosen() -> None:
    before = torch.get_num_threads()
    try:
        assert main(["generate", "-r", "[ab]{2}", "-p", "x", "--threads", "3"]) == 0
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert main(["generate", "-r", "a", "-p", "x", "--threads", "0"]) == 2


def test_the_small_model_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this name is another model."""
    monkeypatch.chdir(tmp_path)
    assert main(["generate", "-m", "small", "-r", "[ab]", "-p", "x"]) == 0
    Path("small").mkdir()
    assert main(["generate", "-m", "small", "-r", "[ab]", "-p", "x"]) == 2


def test_demo_names_the_constraints_that_it_uses() -> None:
    small = models.small()
    for example in demo_module.examples():
        name = re.match(r"generate\.(\w+)\(model", example.code)
        assert name is not None
        made = example.make(small)
        assert (made.guide is None) == (name[1] == "text")


@pytest.mark.parametrize(
    "command", [[], ["--help"], ["generate", "-h"], ["check", "--help"], ["warmup", "--help"], ["serve", "--help"]]
)
def test_help_is_no_error(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 0
    assert "Usage: trellm" in capsys.readouterr().out


def test_every_option_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    from trellm.cli.main import command

    for name, subcommand in command.commands.items():
        assert subcommand.help, name
        for option in subcommand.params:
            said = getattr(option, "help", None)
            assert said or f"{option.name}".upper() in subcommand.help, f"{name} {option.opts}"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(r"trellm \d+\.\d+\.\d+\n", capsys.readouterr().out)


def test_python_dash_m() -> None:
    """It reads its own standard input, too."""
    command = [sys.executable, "-m", "trellm", "check", "-r", "ab", "--file", "-"]
    for given, code in ((b"ab", 0), (b"b", 1)):
        assert subprocess.run(command, input=given, capture_output=True).returncode == code


class TestCheck:
    def test_a_match(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--regex", r"\d{4}", "--text", "2024"]) == 0
        assert capsys.readouterr().out.startswith("matches")

    def test_a_mismatch_says_where_and_what_was_expected(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--regex", "[0-9]{4}-[0-9]{2}", "--text", "2024/05"]) == 1
        assert capsys.readouterr().out == 'no match: at offset 4 expected "-", found "/"\n  2024/05\n      ^\n'

    def test_choices_and_formats(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "-c", "yes", "-c", "no", "-t", "no"]) == 0
        assert main(["check", "--format", "date", "-t", "2023-02-29"]) == 1
        assert main(["check", "--format", "bool", "-t", "True"]) == 0

    def test_flags_and_dialect(self) -> None:
        assert main(["check", "-r", "AB", "-t", "ab"]) == 1
        assert main(["check", "-r", "AB", "--flags", "i", "-t", "ab"]) == 0
        assert main(["check", "-r", r"\cJ", "--dialect", "ecma", "-t", "\n"]) == 0

    def test_text_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "text"
        file.write_bytes("é\n".encode())
        assert main(["check", "-r", "é\n", "--file", str(file)]) == 0

    def test_a_file_that_is_not_text(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "text"
        file.write_bytes(b"ab\xff")
        assert "not text in UTF-8" in refused(capsys, "check", "-r", "a", "--file", str(file))

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["-t", "a"], "no constraint is given"),
            (["-r", "a"], "--text, --file and --json"),
            (["-r", "a", "-c", "a", "-t", "a"], "--regex and --choice exclude each other"),
            (["-c", "a", "--flags", "i", "-t", "a"], "belong to --regex"),
            (["-r", "a", "--flags", "iq", "-t", "a"], "there is no flag 'q'"),
            (["-r", "a(b", "-t", "a"], "at offset 1 (before '(b')"),
            (["-r", "a[", "-t", "a"], "offset 1"),
            (["-r", r"(a)\1", "-t", "a"], "offset 3"),
            (["-r", "a\n\n(", "--flags", "x", "-t", "a"], "line 3, column 1"),
            (["-r", r"[^\s\S]", "-t", "a"], "language is empty"),
            (["-c", "a", "--boundary", "line", "-t", "a"], "--boundary and --none-text belong to --extract"),
            (["-c", "a", "--extract", __file__, "-t", "a"], "--choice and --extract exclude each other"),
            (["--extract", "nowhere", "-t", "a"], "'nowhere' cannot be read"),
            (["--tex", "a"], "trellm check --help"),
        ],
    )
    def test_mistakes(self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert said in refused(capsys, "check", *arguments)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    """A file with a JSON Schema."""
    file = tmp_path / "schema.json"
    file.write_text(
        '{"properties": {"id": {"type": "integer", "minimum": 1}, "next": {"$ref": "#"}, "tag": {"enum": ["é", "b"]}},'
        ' "required": ["id"], "additionalProperties": false, "type": "object"}',
        encoding="utf-8",
    )
    return str(file)


class TestSchemas:
    def test_an_instance_may_be_written_anyhow(self, schema: str, tmp_path: Path) -> None:
        file = tmp_path / "instance.json"
        file.write_text('{ "tag" :"\\u00e9",\n\t"id": 4}\n')
        assert main(["check", "--schema", schema, "--json", str(file)]) == 0
        assert main(["check", "--schema", schema, "--json", str(file), "--order", "schema"]) == 1
        assert main(["check", "--schema", schema, "--json", str(file), "--escapes", "canonical"]) == 1
        assert main(["check", "--schema", schema, "--file", str(file)]) == 1
        assert main(["check", "--schema", schema, "--text", '{"id": 4, "tag": "\\u00e9"}']) == 1
        assert main(["check", "--schema", schema, "--text", '{"id": 4, "tag": "\\u00e9"}', "--escapes", "any"]) == 0
        assert main(["check", "--schema", schema, "--text", '{"id": 4, "tag": "é"}']) == 0

    def test_where_it_stops_being_one_and_what_would_do(self, schema: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--schema", schema, "--text", '{"id": 0}']) == 1
        assert capsys.readouterr().out == (
            'no match: at offset 7 expected "1" to "9", found "0"\n  {"id": 0}\n         ^\n'
            "the value breaks minimum 1 at /id, where the value is 0\n"
        )

    @pytest.mark.parametrize(
        ("suffix", "grammar"),
        [("lark", 'start: /[a-z]/+ <|im_end|> "b"'), ("gbnf", 'root ::= [a-z]+ <|im_end|> "b"')],
    )
    def test_texts_name_special_tokens(
        self, suffix: str, grammar: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / f"chat.{suffix}"
        file.write_text(grammar)
        for text, code, said in (
            ("so<|im_end|>b", 0, "matches; then expected: the end of the text"),
            ("so<|im_end|>", 1, 'expected "b", found the end of the text'),
            ("so", 1, "expected a letter a-z or <|im_end|>, found the end of the text"),
            ("<|im_end|>b", 1, "at offset 0 expected a letter a-z, found <|im_end|>"),
            ("so<|im_start|>b", 1, 'at offset 2 expected a letter a-z or <|im_end|>, found "<"'),
        ):
            assert main(["check", "--grammar", str(file), "--text", text]) == code
            assert said in capsys.readouterr().out.splitlines()[0]
        assert main(["explain", "--grammar", str(file), "--after", "so<|im_end|>"]) == 0
        assert capsys.readouterr().out.startswith('expected: "b"')
        assert main(["explain", "--grammar", str(file), "--after", "so"]) == 0
        assert "a letter a-z or <|im_end|>" in capsys.readouterr().out
        assert main(["explain", "--grammar", str(file)]) == 0
        assert "<|im_end|>" in capsys.readouterr().out

    def test_captures_beside_special_tokens_have_their_places(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "call.lark"
        file.write_text('start: <call> name\nname[capture="name"]: /[a-z]+/')
        assert main(["check", "--grammar", str(file), "--text", "<call>find", "--spans"]) == 0
        assert "name: 'find', characters 6 to 10" in capsys.readouterr().out

    def test_ids_of_tokens_need_a_tokenizer(
        self, tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "ids.lark"
        file.write_text('start: "a" <[259]> "b"')
        asked = ["--grammar", str(file)]
        for command in (["check", *asked, "--text", "a<call>b"], ["explain", *asked]):
            assert "give --tokenizer" in refused(capsys, *command)
            assert main([*command, "--tokenizer", tokenizer]) == 0
            assert capsys.readouterr().out
        assert main(["check", *asked, "--text", "ab", "--tokenizer", tokenizer]) == 1
        assert 'offset 1 expected <call>, found "b"' in capsys.readouterr().out

    def test_the_tokenizer_of_the_small_model_has_its_name(self, tmp_path: Path) -> None:
        file = tmp_path / "ids.lark"
        file.write_text("start: <[2558]>")
        assert main(["check", "--grammar", str(file), "--text", "<think>", "--tokenizer", "small"]) == 0

    def test_other_schemas_are_passed_as_resources(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        schema, named, unnamed = (tmp_path / name for name in ("schema.json", "named.json", "unnamed.json"))
        schema.write_text('{"items": {"$ref": "https://a.b/c"}}')
        named.write_text('{"$id": "https://a.b/c", "type": "null"}')
        unnamed.write_text('{"type": "null"}')
        for given in (str(named), f"https://a.b/c={unnamed}"):
            arguments = ["--schema", str(schema), "--resources", given]
            assert main(["check", *arguments, "--text", "[null]"]) == 0
            assert main(["check", *arguments, "--text", "[1]"]) == 1
            capsys.readouterr()
            assert main(["explain", *arguments]) == 0
            assert "items: null" in capsys.readouterr().out
        assert "has no $id" in refused(capsys, "explain", "--schema", str(schema), "--resources", str(unnamed))
        assert "is no JSON" in refused(capsys, "explain", "--schema", str(schema), "--resources", __file__)
        assert "resources" in refused(capsys, "explain", "--schema", str(schema))

    def test_explain_tells_the_values_and_the_costs(self, schema: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "--schema", schema]) == 0
        assert capsys.readouterr().out == (
            "# is\n  an object\n"
            '    "id" (required): an integer, at least 1\n    "next": #\n    "tag": one of "b", "é"\n'
            "    other members: none\n"
        )

    def test_explain_names_what_costs(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        rules: dict[str, Any] = {
            "type": "array",
            "prefixItems": [{"type": "string", "pattern": "^a", "not": {"pattern": "b"}}, {"type": "boolean"}],
            "items": {"anyOf": [{"type": "number", "maximum": -0.5}, {"type": "integer", "exclusiveMinimum": 7}]},
            "contains": {"const": {"a": 1}},
            "minContains": 0,
            "maxContains": 2,
            "minItems": 1,
        }
        file = tmp_path / "schema.json"
        file.write_text(json.dumps(rules))
        assert main(["explain", "--schema", str(file)]) == 0
        assert capsys.readouterr().out == COSTLY
        assert main(["explain", "--schema", str(file), "--limit", "1"]) == 0
        assert capsys.readouterr().out.endswith("and 1 more of their parts\n")

    def test_what_is_too_large_is_told_with_its_place(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        lists = {"uniqueItems": True, "items": {"type": "number"}, "minItems": 101}
        file = tmp_path / "schema.json"
        file.write_text(json.dumps({"properties": {"a": lists}}))
        assert "(at #/properties/a/uniqueItems)" in refused(capsys, "check", "--schema", str(file), "-t", "1")
        branches = [{"contains": {"const": number}, "minItems": 1} for number in range(13)]
        file.write_text(json.dumps({"items": {"unevaluatedItems": False, "anyOf": branches}}))
        assert "(at #/items)" in refused(capsys, "explain", "--schema", str(file))
        assert "(at #/items)" in refused(capsys, "explain", "--schema", str(file), "--keywords")

    def test_generate(self, schema: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-p", "On ", "--whitespace", "compact", "--max-tokens", "12"]
        assert main([*command, "--schema", schema]) == 0
        assert json.loads(capsys.readouterr().out)["id"] >= 1
        assert main([*command, "--pydantic", "datetime:date"]) == 0
        assert re.fullmatch(r'"\d{4}-\d{2}-\d{2}"\n', capsys.readouterr().out)
        spaced = ["check", "--schema", schema, "--whitespace", "2"]
        assert main([*spaced, "-t", '{ \t"id"\n:1}']) == 0
        assert main([*spaced, "-t", '{   "id":1}']) == 1
        assert main([*spaced[:-1], "0", "-t", '{"id":1}']) == 0
        assert main([*spaced[:-1], "0", "-t", '{ "id":1}']) == 1
        capsys.readouterr()
        assert "'x5000' is not one of" in refused(
            capsys, "check", "--schema", schema, "--whitespace", "x5000", "-t", "1"
        )

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["check", "--schema", "no-such-file", "-t", "1"], "cannot be read: No such file"),
            (["check", "-r", "1", "--json", "{schema}"], "--json belongs to --schema or --pydantic"),
            (
                ["check", "-r", "1", "-t", "1", "--order", "any"],
                "--order, --whitespace, --escapes, --spelling, --resources and --unenforced belong to",
            ),
            (["check", "-r", "1", "-t", "1", "--whitespace", "0"], "--whitespace, --escapes, --spelling"),
            (["check", "-r", "1", "--schema", "{schema}", "-t", "1"], "exclude each other"),
            (["check", "--schema", "{schema}", "--pydantic", "a:b", "-t", "1"], "cannot be imported: No module"),
            (["check", "--schema", "{schema}", "--pydantic", "datetime:date", "-t", "1"], "exclude each other"),
            (["check", "--schema", "{schema}"], "exactly one of"),
            (["generate", "-m", "x", "-p", "", "--diagnose", "-"], "--diagnose needs the name of a file"),
            (["explain"], "no constraint is given"),
            (["explain", "--schema", "{schema}", "--limit", "0"], "--limit must be at least 1"),
            (["explain", "--pydantic", "Person"], "MODULE:CLASS"),
            (["explain", "--pydantic", "datetime:Person"], "cannot be imported"),
            (["explain", "--schema", __file__], "the schema's text is no JSON"),
        ],
    )
    def test_mistakes(self, schema: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert said in refused(capsys, *(argument.replace("{schema}", schema) for argument in arguments))


@pytest.fixture
def tokenizer(tmp_path: Path) -> str:
    """A folder with a tokenizer of single bytes, "12" and "1.", and the special token 259, <call>."""
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokens = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "12", "1."]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, [("1", "2"), ("1", ".")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special: dict[str, Any] = {"eos_token": "<eos>", "additional_special_tokens": ["<call>"]}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(tmp_path)
    return str(tmp_path)


class TestExplain:
    """`trellm explain` of automata and grammars; of schemas above."""

    def test_the_states_of_an_automaton(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "-r", "([0-9]+)?[.][0-9]+"]) == 0
        assert capsys.readouterr().out == (
            "state 0\n  . -> 1\n  0-9 -> 0\nstate 1\n  0-9 -> 2\nstate 2, where the text may end\n  0-9 -> 2\n"
        )

    def test_a_state_with_the_tokens_it_allows(self, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["explain", "-r", "1+[.]?2", "--state", "1", "--tokenizer", tokenizer]) == 0
        assert capsys.readouterr().out == (
            'state 1\n  . -> 2\n  1 -> 1\n  2 -> 3\nexpected: "." or "1" or "2"\n'
            "5 of 260 tokens are allowed: ., 1, 2, 12, 1.\n"
        )

    def test_after_a_text(self, tmp_path: Path, tokenizer: str, capsys: pytest.CaptureFixture[str]) -> None:
        grammar = tmp_path / "g.lark"
        grammar.write_text('start: "(" start ")" | NUMBER\nNUMBER: /[12]+/\n')
        assert main(["explain", "--grammar", str(grammar)]) == 0
        assert capsys.readouterr().out == 'NUMBER: [12]+\nstart: "(" start ")" | NUMBER\n'
        assert main(["explain", "--grammar", str(grammar), "--after", "(1", "--tokenizer", tokenizer]) == 0
        assert capsys.readouterr().out == (
            'expected: ")" or "1" or "2" in start (NUMBER)\n4 of 260 tokens are allowed: ), 1, 2, 12\n'
        )

    def test_pictures_go_to_files(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for name, begin in (("a.svg", "<svg"), ("a.mmd", "flowchart"), ("a.dot", "digraph")):
            for given in (["-c", "yes", "-c", "no"], ["--pydantic", "datetime:date"]):
                assert main(["explain", *given, "--picture", str(tmp_path / name)]) == 0
                assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["-r", "ab", "--state", "9"], "the states are 0 to 2"),
            (["-r", "ab", "--after", "b"], 'no match: at offset 0 expected "ab", found "b"'),
            (["-r", "ab", "--after", "a", "--state", "1"], "exclude each other"),
            (["-r", "ab", "--tokenizer", "x"], "--tokenizer belongs to --state, --after or --grammar"),
            (["-r", "ab", "--state", "0", "--tokenizer", "./no-such-folder"], "cannot be loaded"),
            (["-r", "ab", "--picture", "a.png"], "must end in .svg, .mmd or .dot"),
            (["-r", "a{200}"], "raise --limit"),
            (["-r", "a{200}", "--picture", "a.svg"], "raise --limit"),
            (["--pydantic", "datetime:date", "--state", "0"], "use --after"),
        ],
    )
    def test_mistakes(self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert said in refused(capsys, "explain", *arguments)


class TestExtraction:
    @pytest.fixture
    def report(self, tmp_path: Path) -> str:
        file = tmp_path / "report.txt"
        file.write_text("The nodule measures 4 mm.\nNo other nodule.", encoding="utf-8")
        return str(file)

    def test_check(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["check", "--extract", report, "-t", "measures 4 mm"]) == 0
        assert main(["check", "--extract", report, "-t", "none", "--none-text", "none"]) == 0
        capsys.readouterr()
        assert main(["check", "--extract", report, "-t", "measures 5 mm"]) == 1
        assert 'at offset 9 expected "4", found "5"' in capsys.readouterr().out
        assert main(["check", "--extract", report, "--boundary", "sentence", "-t", "measures 4 mm"]) == 1

    def test_generate(self, report: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        text = Path(report).read_text(encoding="utf-8")
        command = ["generate", "-m", model, "-p", "Size: ", "--extract", report]
        assert main(command) == 0
        assert capsys.readouterr().out.strip() in text
        assert main([*command, "--out", str(tmp_path / "out"), "--temperature", "3", "-n", "2", "--seed", "1"]) == 0
        for result in lines(tmp_path / "out"):
            span = result["span"]
            assert text[span["start"] : span["end"]] == span["text"] == result["output"]

    def test_a_document_for_each_prompt(self, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        mails = [["Ada wrote this."], ["Kofi wrote that.", "He did."], ["Ada wrote this."]]
        rows = [{"prompt": "Who? ", "id": n, "mail": each[0] if n == 0 else each} for n, each in enumerate(mails)]
        prompts, out = tmp_path / "mails.jsonl", tmp_path / "out.jsonl"
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = ["generate", "-m", model, "--prompts", str(prompts), "--extract-field", "mail", "--out", str(out)]
        assert main(command) == 0
        for row, result, texts in zip(rows, lines(out), mails, strict=True):
            assert {name: result[name] for name in row} == row
            span = result["span"]
            assert texts[span["document"]][span["start"] : span["end"]] == span["text"] == result["output"]
        first, _, third = lines(out)
        assert first["output"] == third["output"]
        out.write_text("".join(out.read_text().splitlines(keepends=True)[:1]))
        assert main([*command, "--resume"]) == 0 and [row["id"] for row in lines(out)] == [0, 1, 2]
        capsys.readouterr()
        alone = ["generate", "-m", model, "-p", "x"]
        assert "of --prompts, which is missing" in refused(capsys, *alone, "--extract-field", "mail")
        assert "--choice and --extract-field exclude" in refused(capsys, *command, "--overwrite", "-c", "a")
        assert "leave the number of samples out" in refused(capsys, *command, "--overwrite", "-n", "2", "--seed", "1")
        for wrong in ("none", "id"):
            said = refused(capsys, *command[:5], "--extract-field", wrong, "--out", "-")
            assert "line 1 has" in said and f"the field {wrong!r}" in said and "a text, or a list of texts" in said
        with prompts.open("a") as file:
            file.write('{"prompt": "Who? ", "mail": " \\n"}\n')
        assert "mails.jsonl, line 4, field 'mail': the context is empty" in refused(capsys, *command, "--overwrite")
        prompts.write_text('{"prompt": "Who? ", "mail": "a", "mail": "b"}\n')
        assert "duplicate name 'mail'" in refused(capsys, *command, "--overwrite")

    def test_prompts_are_not_written_over(self, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text('"a"\n')
        for path in (prompts, tmp_path / "." / "prompts.jsonl", tmp_path / "link"):
            if path.name == "link":
                path.symlink_to(prompts)
            for how in ("--overwrite", "--resume"):
                said = refused(capsys, "generate", "-m", model, "--prompts", str(prompts), "--out", str(path), how)
                assert "is the file of --prompts" in said
        assert prompts.read_text() == '"a"\n'

    def test_quotations_in_json_and_grammars(
        self, report: str, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        schema, finding, grammar = tmp_path / "schema.json", tmp_path / "finding.json", tmp_path / "finding.lark"
        size = {"type": "string", "x-quote": "report"}
        schema.write_text(json.dumps({"type": "object", "properties": {"size": size}, "required": ["size"]}))
        finding.write_text('{ "size": "4 mm" }')
        grammar.write_text('start: "size " quote(report)')
        quoting = ["--context", f"report={report}"]
        assert main(["check", "--schema", str(schema), *quoting, "--json", str(finding), "--spans"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["  /size: '4 mm', characters 20 to 24 of document 0"]
        assert main(["check", "--grammar", str(grammar), *quoting, "-t", "size 4 mm", "--spans"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["  /report/0: '4 mm', characters 20 to 24 of document 0"]
        assert main(["check", "--grammar", str(grammar), *quoting, "-t", "size 5 mm", "--spans"]) == 1
        command = ["generate", "-m", model, "-p", "Size: ", "--schema", str(schema), *quoting]
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
        (result,) = lines(tmp_path / "out")
        span = result["spans"]["/size"]
        text = Path(report).read_text(encoding="utf-8")
        assert text[span["start"] : span["end"]] == span["text"] == json.loads(result["output"])["size"]

    def test_captures_of_grammars_and_patterns(
        self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        grammar = tmp_path / "a.lark"
        grammar.write_text('start: "v" number "." number\nnumber[capture="part"]: /[0-9]+/')
        assert main(["check", "--grammar", str(grammar), "-t", "v1.20", "--spans"]) == 0
        said = ["  part: '1', characters 1 to 2", "  part: '20', characters 3 to 5"]
        assert capsys.readouterr().out.splitlines()[1:] == said
        assert main(["check", "-r", "(?P<year>[0-9]{4}).*", "-t", "1999!", "--spans"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == ["  year: '1999', characters 0 to 4"]
        command = ["generate", "-m", model, "-p", "Version: ", "-r", "v(?P<part>[0-9]{2})"]
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
        (result,) = lines(tmp_path / "out")
        assert result["captures"] == {"part": [{"text": result["output"][1:], "start": 1, "end": 3}]}

    def test_a_limit_of_captures_is_told_beside_the_output(self, model: str, tmp_path: Path) -> None:
        grammar = tmp_path / "a.lark"
        grammar.write_text('start: s{60}\ns[capture]: "a" s? "a" | "a"')
        command = ["generate", "-m", model, "-p", "Size: ", "--grammar", str(grammar), "--max-work", "300000"]
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
        (result,) = lines(tmp_path / "out")
        assert set(result["output"]) == {"a"} and "captures" not in result
        assert "300,000 steps" in result["lookup_error"]

    def test_contexts_are_for_lark(self, report: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        grammar = tmp_path / "a.gbnf"
        grammar.write_text('root ::= "a"')
        command = ["check", "--grammar", str(grammar), "--syntax", "gbnf", "-t", "a"]
        assert main(command) == 0
        capsys.readouterr()
        assert "syntax='lark'" in refused(capsys, *command, "--context", f"a={report}")

    def test_contexts_have_names(self, report: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert "is not NAME=FILE" in refused(capsys, "check", "-r", "a", "--context", report, "-t", "a")
        assert "--context belongs to" in refused(capsys, "check", "-r", "a", "--context", f"a={report}", "-t", "a")
        assert "--spans belongs to" in refused(capsys, "check", "--choice", "a", "--spans", "-t", "a")

    def test_an_empty_file(self, tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "empty").touch()
        said = refused(capsys, "generate", "-m", model, "-p", "x", "--extract", str(tmp_path / "empty"))
        assert "the context is empty" in said


class TestGenerate:
    def test_one_prompt_goes_to_standard_output(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["generate", "-m", model, "-r", r"\d{4}-\d{2}", "-p", "On "]) == 0
        assert re.fullmatch(r"\d{4}-\d{2}\n", capsys.readouterr().out)

    def test_free_text_keeps_to_max_tokens_and_stops(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["generate", "-m", model, "-p", "On 2024-05-17 the", "--max-tokens", "9"]) == 0
        free = capsys.readouterr().out
        assert len(free) == 10
        stop = free[3]
        assert main(["generate", "-m", model, "-p", "On 2024-05-17 the", "--max-tokens", "9", "--stop", stop]) == 0
        assert capsys.readouterr().out == free[: free.index(stop)] + "\n"

    def test_the_output_for_one_prompt_goes_out_as_it_comes(
        self, command_runs: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        printed: list[str] = []
        vocabulary = Vocabulary([b"x", b"t", None], eos_ids=[2])
        slow = models.from_function(lambda ids: printed.append(capsys.readouterr().out) or [0, 1, 0], vocabulary)
        command_runs(slow)
        assert main(["generate", "-m", "slow", "-p", "x", "--max-tokens", "4"]) == 0
        assert "".join(printed) == "ttt", "what was there before the model was asked for the last token"

    def test_prompts_are_healed_unless_told_otherwise(
        self, command_runs: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        vocabulary = Vocabulary([b"x", b"t", b"the", b"he", None], eos_ids=[4])
        wordy = models.from_function(lambda ids: [0, 1, 3, 2, 2.5 if len(ids) > 1 else 0], vocabulary)
        command_runs(wordy)
        assert main(["generate", "-m", "wordy", "-p", "xt", "--max-tokens", "1"]) == 0
        assert main(["generate", "-m", "wordy", "-p", "xt", "--max-tokens", "1", "--no-heal"]) == 0
        assert capsys.readouterr().out == "he\nthe\n"

    def test_samples_differ_and_a_seed_repeats_them(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "--format", "int", "-p", "On ", "-n", "4", "--seed", "5"]
        command += ["--temperature", "2", "--top-k", "9", "--top-p", "0.99", "--min-p", "0.001", "--max-tokens", "6"]
        assert main(command) == 0
        first = capsys.readouterr().out
        assert len(set(first.splitlines())) > 1
        assert all(str(int(line)) == line for line in first.splitlines())
        assert main(command) == 0
        assert capsys.readouterr().out == first

    def test_beams_and_controls(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-r", "[a-z]{2,9}", "-p", "the "]
        assert main([*command, "--beams", "4", "-n", "3", "--length-penalty", "0", "--early-stopping", "never"]) == 0
        assert len(set(capsys.readouterr().out.splitlines())) == 3
        assert main([*command, "--beams", "3", "-n", "3", "--sibling-penalty", "1000"]) == 0
        assert len({line[0] for line in capsys.readouterr().out.splitlines()}) == 3
        controls = ["--no-repeat-ngram-size", "1", "--min-tokens", "6", "--repetition-penalty", "1.1"]
        assert main([*command, "--beams", "2", *controls]) == 0
        text = capsys.readouterr().out.strip()
        assert len(set(text)) == len(text) >= 6

    def test_biases_and_penalties(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-r", "[a-z=]{9}", "-p", "the "]
        assert main([*command, "--logit-bias", "q=50", "--logit-bias", '"q"=50']) == 2
        assert "duplicate token 'q'" in capsys.readouterr().err
        assert main([*command, "--logit-bias", "q=90", "--logit-bias", '"\\u003d"=90.5']) == 0
        assert capsys.readouterr().out == "=========\n"
        assert main([*command, "--logit-bias", "q=90", "--frequency-penalty", "2", "--presence-penalty", "2"]) == 0
        assert capsys.readouterr().out == "qqqqqqqqq\n"
        every = [f"--logit-bias={letter}=90" for letter in "abcdefghijk"]
        assert main([*command, *every, "--frequency-penalty", "2", "--presence-penalty", "2"]) == 0
        assert len(set(capsys.readouterr().out)) > 5
        assert main([*command, "--logit-bias", "0=-inf", "--logit-bias", "==-inf"]) == 0
        assert "=" not in capsys.readouterr().out

    def test_whole_texts_are_drawn(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-r", "[a-z ]{1,3}", "-p", "the ", "--seed", "1", "--temperature", "2"]
        for search in (["exact", "--attempts", "100000"], ["smc", "--particles", "16"], ["importance"]):
            assert main([*command, "--search", *search, "-n", "2"]) == 0
            assert len(capsys.readouterr().out.splitlines()) == 2
        assert main([*command, "--search", "exact", "--particles", "3"]) == 2
        assert "--particles needs --search smc" in capsys.readouterr().err
        assert main([*command, "--particles", "3"]) == 2
        assert "--particles needs --search smc" in capsys.readouterr().err
        assert main([*command, "--search", "smc", "--beams", "3"]) == 2
        assert "leave out --beams" in capsys.readouterr().err

    def test_a_file_of_prompts(self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
        prompts.write_text('"On "\n\n{"prompt": "the answer was ", "id": ["é"]}\n', encoding="utf-8")
        command = ["generate", "-m", model, "-c", "yes", "-c", "no", "--prompts", str(prompts)]
        assert main([*command, "--out", str(out)]) == 0
        first, second = lines(out)
        assert first["prompt"] == "On "
        assert (second["prompt"], second["id"]) == ("the answer was ", ["é"])
        assert {first["output"], second["output"]} <= {"yes", "no"}
        assert first["finish_reason"] == "complete"
        assert list(tmp_path.glob(".*")) == []
        assert main(command) == 0
        assert capsys.readouterr().out == out.read_text(encoding="utf-8")

    def test_chats_and_token_ids(self, tmp_path: Path, command_runs: Any, capsys: pytest.CaptureFixture[str]) -> None:
        class Chatty:
            chat_template = "{role}{tools}"

            def encode(self, text: str) -> list[int]:
                return [0] * len(text)

            def apply_chat_template(self, messages: Any, tools: Any = (), **options: Any) -> list[int]:
                return [1] * len(messages) + [0] * len(tools)

        vocabulary = Vocabulary([b"x", b"t", b"e", None], eos_ids=[3])
        seen: list[list[int]] = []
        model = models.from_function(lambda ids: seen.append(list(ids)) or [0, 0, 1, 0], vocabulary, Chatty())
        command_runs(model)
        file, tools = tmp_path / "prompts.jsonl", tmp_path / "tools.json"
        message = {"role": "user", "content": "t"}
        file.write_text(json.dumps([message, message]) + "\n" + json.dumps({"prompt": [2, 1]}))
        command = ["generate", "-m", "chatty", "--max-tokens", "1"]
        assert main([*command, "--prompts", str(file)]) == 0
        assert [json.loads(line)["prompt"] for line in capsys.readouterr().out.splitlines()] == [[message] * 2, [2, 1]]
        assert seen == [[1, 1], [2, 1]]
        tools.write_text('[{"name": "add"}]')
        assert main([*command, "--chat", "-p", "t", "--tools", str(tools)]) == 0
        assert seen[-1] == [1, 0]
        capsys.readouterr()
        assert "--tools needs a chat" in refused(capsys, *command, "-p", "t", "--tools", str(tools))
        tools.write_text("{}")
        assert "holds no JSON list" in refused(capsys, *command, "--chat", "-p", "t", "--tools", str(tools))
        tools.write_text("{")
        assert "is no JSON" in refused(capsys, *command, "--chat", "-p", "t", "--documents", str(tools))
        assert "cannot be read" in refused(capsys, *command, "--chat", "-p", "t", "--tools", str(tmp_path))

    def test_free_text_before_a_constraint(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-c", "yes", "-c", "no", "-p", "On "]
        assert main([*command, "--after", "!", "--thinking", "3", "--out", "-"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["output"].removeprefix(result["thought"] + "!") in ("yes", "no")
        assert len(result["thought"]) == 3
        assert result["thought_cut"] is True
        assert "--thinking 3 needs the marker" in refused(capsys, *command, "--thinking", "3")

    def test_a_schema_in_the_prompt(
        self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], command_runs: Any
    ) -> None:
        schema = tmp_path / "named.json"
        named = {
            "type": "object",
            "properties": {"a": {"enum": [1, 2]}},
            "required": ["a"],
            "additionalProperties": False,
        }
        schema.write_text(json.dumps(named))
        heard: list[str] = []

        class Listening:
            def encode(self, text: str) -> list[int]:
                heard.append(text)
                return [*text.encode()]

        command_runs(models.from_function(lambda ids: [0.0] * 257, Vocabulary.from_bytes(), Listening()))
        command = ["generate", "-m", model, "--schema", str(schema), "-p", "On ", "--describe", "--out", "-"]
        assert main(command) == 0
        assert json.loads(json.loads(capsys.readouterr().out)["output"])["a"] in (1, 2)
        assert heard[:1] == ['On \nAnswer with JSON like this:\n{"a": 1 | 2}\n']
        assert "--describe belongs to" in refused(capsys, *command[:3], "-r", "a", "-p", "x", "--describe")

    def test_how_likely_each_value_is(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-c", "ab", "-c", "b", "-p", "x"]
        assert main([*command, "--fields", "--out", "-"]) == 0
        record = json.loads(capsys.readouterr().out)
        field = record["fields"][""]
        assert field["value"] == record["output"]
        assert field["exact"] is True
        assert {each["value"] for each in field["alternatives"]} == {"ab", "b"}
        assert "logprobs" not in record
        assert "--fields adds to the results of --out" in refused(capsys, *command, "--fields")

    def test_text_around_an_answer(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-r", "[a-z]{2,4}", "-p", "On "]
        assert main([*command, "--frame", 'she said "', '"', "--out", "-"]) == 0
        assert re.fullmatch("[a-z]{2,4}", json.loads(capsys.readouterr().out)["output"])
        assert main([*command, "--frame", "", "."]) == 0
        assert re.fullmatch("[a-z]{2,4}\n", capsys.readouterr().out)
        assert main([*command, "--sentence", "--out", "-"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert re.fullmatch("[a-z]{2,4}", result["output"])
        assert result["thought"] is not None
        assert "leave all but one out" in refused(capsys, *command, "--frame", "", ".", "--no-frame")
        assert "leave all but one out" in refused(capsys, *command, "--sentence", "--no-frame")
        loose = [*command[:3], "-r", ".*", "-p", "On ", "--frame", "", "."]
        assert "may contain the closing mark" in refused(capsys, *loose)

    def test_results_with_samples_and_logprobs(self, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        command = ["generate", "-m", model, "-r", "[ab]{2}", "-p", "x", "-n", "3", "--logprobs", "--out", "-"]
        assert main(command) == 0
        records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [record["sample"] for record in records] == [0, 1, 2]
        for record in records:
            assert len(record["token_ids"]) == len(record["logprobs"]) == len(record["raw_logprobs"]) == 2
            assert record["score"] == pytest.approx(sum(record["logprobs"]))
            assert "top_logprobs" not in record
        assert main(["generate", "-m", model, "-r", "[ab]c", "-p", "x", "--top-logprobs", "3", "--out", "-"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert sorted(best["token"] for best in record["top_logprobs"][0]) == ["a", "b"]
        assert record["top_logprobs"][1] == [{"token_id": record["token_ids"][1], "token": "c", "logprob": 0.0}]
        assert [len(place) for place in record["raw_top_logprobs"]] == [3, 3]

    def test_a_page_of_diagnostics(self, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        page, prompts = tmp_path / "page.html", tmp_path / "prompts.jsonl"
        command = ["generate", "-m", model, "-r", "[ab<]{2}", "--diagnose", str(page)]
        assert main([*command, "-p", "<x"]) == 0
        assert re.fullmatch("[ab<]{2}\n", capsys.readouterr().out)
        assert "<h2>&lt;x</h2>" in page.read_text(encoding="utf-8")
        prompts.write_text('"one"\n"two"\n', encoding="utf-8")
        assert main([*command, "--prompts", str(prompts), "-n", "2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 4
        assert re.findall("<h2>(.*)</h2>", page.read_text(encoding="utf-8")) == [
            "one (0)",
            "one (1)",
            "two (0)",
            "two (1)",
        ]

    def test_a_page_comes_with_a_warning(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        prompt = "Ann bought a kettle. What did Ann buy? Answer: "
        command = ["generate", "-c", "banana", "-c", "apple", "-p", prompt]
        assert main([*command, "--diagnose", str(tmp_path / "page.html")]) == 0
        told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("trellm: prompt 0, token ")]
        assert len(told) == 1
        assert "the model wanted " in told[0]
        assert main(command) == 0
        assert "the model wanted " not in capsys.readouterr().err

    def test_prompts_from_standard_input(
        self, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stdin", standard_input(b'"On "'))
        assert main(["generate", "-m", model, "-r", "[0-9]", "--prompts", "-"]) == 0
        assert json.loads(capsys.readouterr().out)["output"].isdigit()

    @pytest.mark.parametrize(("size", "count"), [("7", 7), ("1.5 kb", 1500), ("3k", 3000), ("900TiB", 900 << 40)])
    def test_memory_is_given_in_units(self, size: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
        """All of these are too little for a block, or more than there is."""
        assert f"--memory {count}:" in refused(capsys, "generate", "-p", "On ", "--memory", size)

    def test_an_interrupt_keeps_what_is_finished(
        self, tmp_path: Path, command_runs: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def logits(ids: Sequence[int]) -> list[float]:
            if ids[0] == ord("T"):
                raise KeyboardInterrupt
            return [0.0] * 257

        command_runs(models.from_function(logits, Vocabulary.from_bytes()))
        prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
        prompts.write_text('"On "\n"The "\n', encoding="utf-8")
        command = ["generate", "-m", "own", "-r", "[0-9]", "--prompts", str(prompts), "--out", str(out)]
        assert main([*command, "--batch-size", "1"]) == 130
        assert [record["prompt"] for record in lines(out)] == ["On "]
        assert "1 of 2 prompts were finished, and are kept" in capsys.readouterr().err

    def test_a_model_that_fails_leaves_an_older_result_alone(
        self, tmp_path: Path, command_runs: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        command_runs(models.from_function(lambda ids: [math.nan] * 257, Vocabulary.from_bytes()))
        out = tmp_path / "out.jsonl"
        out.write_text("precious")
        assert main(["generate", "-m", "own", "-r", "[0-9]+", "-p", "On ", "--out", str(out), "--overwrite"]) == 1
        assert "NaN" in capsys.readouterr().err
        assert out.read_text() == "precious"
        assert list(tmp_path.glob(".*")) == []

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["-r", "a"], "exactly one of --prompt and --prompts"),
            (["-r", "[0-9]{4}", "-p", "x", "--max-tokens", "3"], "shortest output of this constraint takes 4 tokens"),
            (["-r", "a", "-p", "x", "--stop", "b"], "cut off a constrained output"),
            (["-p", "x", "--temperature", "-1"], "temperature"),
            (["-p", "x", "--max-tokens", "0"], "--max-tokens"),
            (["-p", "x", "--logprobs"], "--out"),
            (["-p", "x", "--top-logprobs", "2"], "--top-logprobs adds to"),
            (["-p", "x", "--top-k", "0"], "--top-k"),
            (["-p", "x", "--beams", "0"], "--beams"),
            (["-p", "x", "--beams", "2", "-n", "3"], "-n 3: expected a whole number from 1 to --beams 2"),
            (["-p", "x", "--beams", "2", "--top-k", "3"], "leave out --top-k"),
            (["-p", "x", "--length-penalty", "2"], "--length-penalty needs --beams"),
            (["-p", "x", "--sibling-penalty", "2"], "--sibling-penalty needs --beams"),
            (["-p", "x", "--weights", "q8"], "--weights needs a model of transformers"),
            (["-p", "x", "--kv-cache-dtype", "float16"], "--kv-cache-dtype needs a model of transformers"),
            (["-p", "x", "--device", "cpu"], "--device and --dtype need a model of transformers"),
            (["-p", "x", "--memory", "lots"], "'lots' is not an amount of memory; write it as 500MB or 2GiB"),
            (["-p", "x", "--memory", "0"], "not an amount of memory"),
            (["-p", "x", "--out", "no/such/folder/file"], "cannot be written: No such file or directory"),
            (["-p", "x", "--out", "."], "is a folder"),
        ],
    )
    def test_mistakes(self, model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert said in refused(capsys, "generate", "-m", model, *arguments)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--search", "exact", "--min-tokens", "3"], "--min-tokens 3 with --search exact: it gives way"),
            (
                ["--search", "smc", "--diagnose", "page.html"],
                "--diagnose with --search smc: diagnostics belong to single tokens",
            ),
            (["--search", "importance", "--logprobs", "--out", "-"], "--logprobs with --search importance"),
            (["--search", "smc", "--top-logprobs", "3", "--out", "-"], "--top-logprobs 3 with --search smc"),
            (["--search", "exact", "--draft", "no-such-folder"], "has no effect with --beams or --search"),
            (["--beams", "2", "--draft", "no-such-folder"], "has no effect with --beams or --search"),
        ],
    )
    def test_mistakes_are_told_before_a_model_is_loaded(
        self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        told = refused(capsys, "generate", "-m", "no-such-folder", "-p", "x", *arguments)
        assert said in told
        assert "=True" not in told and "(n=" not in told

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("", "has no prompts"),
            ('"a"\n{"prompt"', "line 2 is not JSON"),
            ('{"promt": "a"}', "line 1 has no prompt"),
            ("17", "line 1 has no prompt"),
            ('{"prompt": "a", "output": 1}', "already has 'output'"),
        ],
    )
    def test_mistakes_in_prompts(
        self, model: str, tmp_path: Path, content: str, said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "prompts.jsonl"
        file.write_text(content)
        assert said in refused(capsys, "generate", "-m", model, "--prompts", str(file))

    @pytest.mark.parametrize("name", ["ziplm:no-such-file", "./no-such-folder"])
    def test_a_model_that_is_not_there(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert "ziplm:FILE" in refused(capsys, "generate", "-m", name, "-p", "x")

    def test_the_small_model_by_default(self, capsys: pytest.CaptureFixture[str]) -> None:
        passage = "On 3 March 2021, Brela Stonkard bought the copper kettle. When was it bought?"
        prompt = f"{passage} Write the date as YYYY-MM-DD.\nAnswer:\n"
        assert main(["generate", "-r", "[0-9]{4}-[0-9]{2}-[0-9]{2}", "-p", prompt, "--no-heal"]) == 0
        assert capsys.readouterr().out == "2021-03-03\n"
        assert "runs in float32" in refused(capsys, "generate", "-p", "x", "--dtype", "bfloat16")
        assert "--weights needs" in refused(capsys, "generate", "-p", "x", "--weights", "q8")
        small = refused(capsys, "generate", "-p", "x", "--kv-cache-dtype", "float16")
        assert "--kv-cache-dtype needs" in small


class TestEndings:
    """Results are in the file as they finish, whatever ends the command."""

    SLOW = """
import os, signal, sys, time
from trellm import Vocabulary, models
from trellm.cli import generate, main

out, how = sys.argv[1:3]
calls = 0

def logits(ids):
    global calls
    calls += 1
    if calls > 8:
        assert "first" in open(out).read(), "what is finished is there before the end"
        os.kill(os.getpid(), getattr(signal, how)) if how != "raise" else 1 / 0
        time.sleep(60)
    return [1.0, 0, 5.0 if len(ids) > 4 else -5.0]

model = models.from_function(logits, Vocabulary([b"a", b"b", None], [2]), Words())
generate.load_model = lambda *_: model
sys.exit(main(["generate", "-m", "slow", "--prompts", sys.argv[3], "--out", out, "--batch-size", "1"]))
"""
    WORDS = """
class Words:
    def encode(self, text):
        return [0] * (3 if text == "first" else 1)
"""

    @pytest.mark.parametrize(
        ("how", "code"),
        [
            ("SIGTERM", 143),
            *(
                pytest.param(how, code, marks=pytest.mark.slow)
                for how, code in [("SIGINT", 130), ("SIGKILL", -9), ("raise", 1)]
            ),
        ],
    )
    def test_what_is_finished_is_kept(self, how: str, code: int, tmp_path: Path) -> None:
        prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
        prompts.write_text('"first"\n"second"\n"third"\n"fourth"\n')
        program = self.WORDS + self.SLOW
        done = subprocess.run(
            [sys.executable, "-c", program, str(out), how, str(prompts)], capture_output=True, text=True, timeout=1000
        )
        assert done.returncode == code, done.stderr
        assert [record["prompt"] for record in lines(out)][:1] == ["first"]
        assert list(tmp_path.glob(".*")) == []
        if how.startswith("SIG") and how != "SIGKILL":
            word = "terminated" if how == "SIGTERM" else "interrupted"
            assert f"trellm: {word}; " in done.stderr and "were finished, and are kept" in done.stderr

    def test_results_are_in_order_at_the_end(self, tmp_path: Path, command_runs: Any) -> None:
        vocabulary = Vocabulary([b"a", b"b", None], [2])
        by_length = models.from_function(lambda ids: [1.0, 0, 5.0 if len(ids) > 2 + 4 * ids[0] else -5.0], vocabulary)
        command_runs(by_length)
        prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
        prompts.write_text('"b"\n"a"\n"b"\n"a"\n')
        assert main(["generate", "-m", "x", "--prompts", str(prompts), "--out", str(out), "--no-heal"]) == 0
        assert [record["prompt"] for record in lines(out)] == ["b", "a", "b", "a"]


class TestWords:
    """Errors speak of flags, and bytes that are no text are refused."""

    @pytest.mark.parametrize("search", [Sample, Beam, Exact, SMC, Importance])
    def test_every_option_of_a_search_has_a_flag(self, search: type[Any]) -> None:
        flags = {flag for parameter in generate_command.params for flag in parameter.opts}
        functions = {"potential", "accepts"}
        names = {field.name for field in fields(search)} - functions
        lacking = [name for name in names if in_flags(f"{name}=1").split()[0] not in flags]
        assert not lacking, "each needs a flag and a name in cli/search.py, and its name for errors in cli/flags.py"

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["-p", "a\udcff"], "not UTF-8"),
            (["-p", "a", "--stop", "\udcff"], "not UTF-8"),
            (["-p", "a", "--include", "\udcff"], "not UTF-8"),
            (["-p", "a", "-c", "\udcff"], "not UTF-8"),
            (["-p", "a", "-r", "\udcff"], "not UTF-8"),
            (["-p", "a", "--temperature", "nan"], "a number from 0 up to 1e+06"),
            (["-p", "a", "--top-p", "0"], "a number above 0 up to 1"),
            (["-p", "a", "-r", "a{9}", "--max-tokens", "3"], "--max-tokens 3 is too small"),
            (["-p", "a", "--seed", str(2**70)], "--seed "),
            (["-p", "a", "-c", "a", "--max-work", "0"], "--max-work"),
            (["-p", "a", "-c", "a", "--max-seconds", "inf"], "--max-seconds"),
            (["-p", "a", "--dtype", "fp16"], "ziplm has neither"),
            (["-p", "a", "--logit-bias", "a"], "expected TOKEN=NUMBER"),
            (["-p", "a", "--logit-bias", "=2"], "expected TOKEN=NUMBER"),
            (["-p", "a", "--logit-bias", "a=nan"], "expected TOKEN=NUMBER"),
            (["-p", "a", "--logit-bias", '"a=2'], "no JSON string"),
            (["-p", "a", "--logit-bias", "9999=2"], "--logit-bias: 9999 is not a token id"),
            (["-p", "a", "--logit-bias", "a=inf"], "--logit-bias['a']"),
            (["-p", "a", "--presence-penalty", "3"], "a number from -2 up to 2"),
        ],
    )
    def test_mistakes(self, model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        message = refused(capsys, "generate", "-m", model, *arguments)
        assert said in message
        assert "max_tokens" not in message and "Greedy()" not in message

    @pytest.mark.parametrize(
        "line", ['"a\\ud800"', '{"prompt": "a", "id": "\\udfff"}', '{"prompt": "a", "id": NaN}', "[" * 99999]
    )
    def test_prompts_that_could_not_be_written_back(
        self, model: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "prompts.jsonl"
        file.write_text(line)
        assert "line 1" in refused(capsys, "generate", "-m", model, "--prompts", str(file))

    def test_a_module_that_fails_as_it_is_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "failing_module.py").write_text("1 / 0")
        monkeypatch.syspath_prepend(tmp_path)
        assert "ZeroDivisionError" in refused(capsys, "explain", "--pydantic", "failing_module:Person")


def compile_kernel(folder: Path) -> str:
    """Use a kernel in a fresh process that keeps compiled kernels in `folder`; what is said on standard error."""
    code = (
        "import sys\nfrom trellm.kernels import allowed_ids\nimport numpy as np\n"
        "from trellm.kernels.jit.compiling import compile_seconds\n"
        "print(allowed_ids(np.array([5], np.uint32)).tolist(), allowed_ids(np.array([6], np.uint32)).tolist())\n"
        "if compile_seconds():\n    print('compiled', file=sys.stderr)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "NUMBA_DISABLE_JIT": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.stdout == "[0, 2] [1, 2]\n", done.stderr
    return done.stderr


def test_compiling_is_announced_once_and_not_when_the_kernels_are_there(tmp_path: Path) -> None:
    first = compile_kernel(tmp_path)
    assert first.startswith("trellm: compiling kernels once")
    assert first.count("\n") == 2 and first.endswith("\ncompiled\n"), "and how long that took is counted"
    assert compile_kernel(tmp_path) == ""


def test_kernels_compiled_from_other_sources_are_not_used(tmp_path: Path) -> None:
    compile_kernel(tmp_path)
    (marker,) = tmp_path.rglob("*.sha256")
    marker.write_text("of an older version")
    assert "compiling" in compile_kernel(tmp_path)
    assert compile_kernel(tmp_path) == ""


def test_include(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.txt"
    model.write_text("The dog is fast. The fox is slow.\n" * 3)
    out = tmp_path / "out.jsonl"
    command = ["generate", "-m", f"ziplm:{model}", "-p", "The ", "--include", "fox", "--max-tokens", "12"]
    assert main([*command, "--include", "dog"]) == 0
    said = capsys.readouterr().out
    assert "fox" in said and "dog" in said
    assert main([*command, "--stop", " ", "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert ("fox" in record["output"]) == ("unmet" not in record)
    assert main([*command, "--include-word", "do"]) == 0
    assert re.search(r"\bdo\b", capsys.readouterr().out)
    assert main([*command, "--include", ""]) == 2
    assert "an empty phrase has no effect" in capsys.readouterr().err
