"""`cudal1 doctor` names what is missing and how to install it, and stays readable on a narrow terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console

from cudal1_ray.commands import doctor


def printed(finding: doctor.MachineFinding, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(doctor._row(finding))
    return console.file.getvalue()


def test_finding_when_the_terminal_is_narrow_keeps_its_words_whole():
    text = printed(
        doctor.MachineFinding("compilers", doctor.FAIR, "g++ (13.2.0), nvcc (13.0)", "ninja: for inline C++"), 60
    )
    assert "compilers" in text and "g++ (13.2.0)," in text and "for more: ninja" in text
    assert all(len(line) <= 60 for line in text.splitlines())


def test_optional_packages_when_missing_are_named_with_their_use():
    finding = doctor._optional()
    for name, use in doctor.OPTIONAL.items():
        named = name in finding.advice and use in finding.advice
        assert name in finding.observation or named or name == "triton"  # of no use without a GPU


def test_missing_packages_when_advised_name_a_command_of_the_repository(repository):
    assert "make setup" in doctor.SETUP and "GPU" in (repository / "Makefile").read_text()


def test_missing_packages_when_advised_are_those_of_an_index(repository):
    """This project is on none: pip would find nothing, or what another author published under its name."""
    texts = [*repository.glob("*.md"), *(repository / "requirements").iterdir()]
    for folder in ("cudal1_ray", "conf", "docs", "launch"):
        texts += [file for end in ("py", "md", "yaml", "sh") for file in (repository / folder).rglob(f"*.{end}")]
    advice = re.compile(r"pip install[^\n`]{0,40}\bcudal1_ray\b")
    assert [str(file) for file in texts if advice.search(file.read_text())] == []


def test_reference_verdicts_when_a_reference_meets_itself_are_measured_and_not_set_to_1():
    (verdict,) = doctor.reference_verdicts(problems=1, repeats=1)
    assert verdict.accepted and verdict.same_operations, verdict.detail
    assert verdict.timed_runs > 0
