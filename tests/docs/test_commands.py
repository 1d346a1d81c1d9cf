"""Every `cudal1 ...` command in README, docs and help is taken as printed: parsed, and its configuration composed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from cudal1_ray.commands import help_texts
from cudal1_ray.commands.arguments import build_parser
from cudal1_ray.config import load_config, prepare_overrides
from cudal1_ray.serving import load_serving_config
from cudal1_ray.training.preflight import check_run
from tests.policy_folder import make_policy_folder

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "launch/README.md")
DOCUMENTS = [*(ROOT / page for page in PAGES), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [text for name, text in vars(help_texts).items() if name.endswith("_EXAMPLES")]


def commands_of(text: str) -> list[str]:
    """Return lines of code blocks that are a command or end with one, and code spans that begin with one.

    A span of two words only names a command.
    """
    text = re.sub(r" \\\n\s*", " ", text)
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = [match[1] for block in blocks for match in re.finditer(r"(?:^|-- )(cudal1 [^\n#]*)", block, re.M)]
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.M | re.S)
    spans = [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]
    return lines + [span for span in spans if span.startswith("cudal1 ") and len(span.split()) > 2]


def examples_of(text: str) -> list[str]:
    """Return commands of a help text; two spaces end one."""
    return [re.split(r"\s{2,}", line.strip())[0] for line in text.splitlines() if line.startswith("  cudal1 ")]


COMMANDS = sorted(
    {command for path in DOCUMENTS for command in commands_of(path.read_text())}
    | {command for text in EXAMPLES for command in examples_of(text)}
)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Make the folders that the commands name, as far as composing looks into them."""
    monkeypatch.chdir(tmp_path)
    policies = ("runs/demo/checkpoints/contrastive-final/policy", "runs/mine/checkpoints/sft-final/policy")
    policies += ("FOLDER", "DIR", "path/to/model")
    for folder in policies:
        make_policy_folder(tmp_path / folder)
    for run in ("demo", "mine"):
        settings = {"policy": {"kind": "scratch"}, "prompting": {"style": "compact"}}
        (tmp_path / "runs" / run / "config.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "keys.json").write_text("{}")


def first_values(override: str) -> str:
    """Return the first of a sweep's `key=a,b,c`; a comma within brackets or quotes separates nothing."""
    return re.match(r"[^,\[\"']*(\[[^\]]*\])?(\"[^\"]*\")?", override)[0]


def test_commands_when_the_documents_are_read_are_many():
    assert len(COMMANDS) > 30


@pytest.mark.parametrize("command", COMMANDS)
def test_command_when_printed_in_a_document_composes(command, runs):
    words = shlex.split(command)[1:]
    if words[0] == "--version" or "--help" in words:
        return
    arguments, rest = build_parser().parse_known_args(words)
    assert not [word for word in rest if word.startswith("-")]
    overrides = [*getattr(arguments, "overrides", getattr(arguments, "given", [])), *rest]
    settings = [first_values(word) for word in overrides if "=" in word and not word.startswith("-")]
    if words[0] == "train":
        prepare_overrides(arguments.overrides, sweep=arguments.multirun)
        check_run(load_config(settings))
    elif words[0] in ("serve", "optimize"):
        if not getattr(arguments, "add_key", "") and not getattr(arguments, "server", ""):
            load_serving_config(settings)
    elif words[0] in ("evaluate", "collect"):
        load_config(settings)
