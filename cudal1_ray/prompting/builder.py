"""Prompts from templates, within a token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2

from cudal1_ray.errors import UserError
from cudal1_ray.prompting.config import TEMPLATES, PromptingConfig
from cudal1_ray.source.comments import strip_comments
from cudal1_ray.source.parsing import parse_named
from cudal1_ray.source.text import split_docstring

if TYPE_CHECKING:
    from cudal1_ray.evaluation.hardware import Machine
    from cudal1_ray.exemplars import Exemplar, Selection
    from cudal1_ray.problems import Problem

EXAMPLES = TEMPLATES / "examples"
ONE_SHOT, CONTRASTIVE = "one_shot.md.j2", "contrastive.md.j2"


class PromptTooLong(Exception):
    """A problem's reference alone does not fit the budget; names the problem, its tokens and the budget."""

    def __init__(self, problem_id: str, tokens: int, budget: int) -> None:
        super().__init__(problem_id, tokens, budget)
        self.problem_id, self.tokens, self.budget = problem_id, tokens, budget

    def __str__(self) -> str:
        return (
            f"problem {self.problem_id} alone makes a prompt of {self.tokens} tokens, "
            f"prompting.max_prompt_tokens is {self.budget}: raise it, or leave the problem out"
        )


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the exemplars it really shows, in its order, with the probability each was drawn with."""

    problem_id: str
    text: str
    exemplar_ids: tuple[str, ...] = ()
    exemplar_probabilities: tuple[float, ...] = ()


class PromptBuilder:
    """Builds prompts that hold at most `config.max_prompt_tokens` tokens, as `count_tokens` counts them.

    A prompt ends with a line break; the answer that continues it starts with its first header. The two are to
    be tokenised apart, in training as in generation, so that the border between them is the same token
    border.

    When a prompt is too long, this is done, in this order, until it fits:
      1. comments and docstrings of the exemplars go;
      2. comments and docstrings of the reference go;
      3. the worked examples go, kernels of related problems with them;
      4. exemplars go one by one, the slowest first (without any left, the prompt is the one-shot prompt);
      5. PromptTooLong.
    """

    def __init__(
        self,
        config: PromptingConfig,
        count_tokens: Callable[[str], int],
        machine: Machine | None = None,
        rules: Sequence[str] = (),
        related: Callable[[Problem], list[dict[str, str]]] | None = None,
    ) -> None:
        """Load the templates of the configured style.

        Args:
            machine: that measures the candidates, as `evaluation.hardware.describe_machine` reports it there. Without
                one, prompts name `config.device` alone. Worked examples are shown for a GPU only.
            rules: that the evaluator enforces, as `evaluation.stated_rules.rules_in_force` words them.
            related: title and code of kernels for problems like a given one, shown in the worked examples' place where
                there are any.

        Raises:
            UserError: when the style is neither bundled nor a folder of templates, or a template is broken.
        """
        config.validate()
        self.config = config
        self._count_tokens = count_tokens
        self._one_shot, self._contrastive = _load(config.style)
        named = config.device if config.device != "auto" else ""
        self._device = named or (machine.device if machine else "the GPU")
        self._hardware = f"{machine.device}, {machine.details}" if machine and not named else ""
        self._rules = tuple(rules)
        on_gpu = machine is None or machine.on_gpu
        self._examples = [_example(name) for name in config.examples] if on_gpu else []
        self._related = related if on_gpu else None

    def one_shot(self, problem: Problem) -> Prompt:
        """Return the prompt that shows the reference alone.

        Raises PromptTooLong, and UserError for a template that names what does not exist.
        """
        return self._fit(problem, [], {})

    def contrastive(self, problem: Problem, selection: Selection) -> Prompt:
        """Return the prompt that shows the selected exemplars, in the order given, with their speedups.

        Without exemplars it is the one-shot prompt. Raises as `one_shot` does.
        """
        exemplars = list(selection.exemplars)
        identities = (exemplar.exemplar_id for exemplar in exemplars)
        return self._fit(problem, exemplars, dict(zip(identities, selection.probabilities, strict=True)))

    def _fit(self, problem: Problem, exemplars: list[Exemplar], probability: dict[str, float]) -> Prompt:
        bare = self.config.strip_comments
        attempts = [(exemplars, bare, bare, True), (exemplars, True, bare, True), (exemplars, True, True, True)]
        attempts.append((exemplars, True, True, False))
        while exemplars:
            slowest = min(exemplars, key=lambda exemplar: exemplar.speedup)
            exemplars = [exemplar for exemplar in exemplars if exemplar is not slowest]
            attempts.append((exemplars, True, True, False))
        tried, tokens = "", 0
        examples = (self._related(problem) if self._related else []) or self._examples
        for exemplars, bare_exemplars, bare_reference, with_examples in attempts:
            text = self._render(problem, exemplars, bare_exemplars, bare_reference, examples if with_examples else [])
            if text == tried:
                continue
            tried, tokens = text, self._count_tokens(text)
            if tokens <= self.config.max_prompt_tokens:
                ids = tuple(exemplar.exemplar_id for exemplar in exemplars)
                return Prompt(problem.problem_id, text, ids, tuple(probability[i] for i in ids))
        raise PromptTooLong(problem.problem_id, tokens, self.config.max_prompt_tokens)

    def _render(
        self,
        problem: Problem,
        exemplars: Sequence[Exemplar],
        bare_exemplars: bool,
        bare_reference: bool,
        examples: Sequence[dict[str, str]],
    ) -> str:
        candidates = [
            {
                "number": number,
                "speedup": _score(exemplar),
                "code": _clean(exemplar.code, bare_exemplars),
                "detail": exemplar.detail,
            }
            for number, exemplar in enumerate(exemplars, 1)
        ]
        template = self._contrastive if candidates else self._one_shot
        try:
            text = template.render(
                name=problem.name or problem.problem_id,
                reference=_clean(problem.source, bare_reference),
                candidates=candidates,
                some_rejected=any(exemplar.reasons for exemplar in exemplars),
                include_analysis=self.config.include_analysis,
                device=self._device,
                hardware=self._hardware,
                allowed_means=list(self.config.allowed_means),
                rules=self._rules,
                examples=examples,
            )
        except jinja2.TemplateError as error:
            raise UserError(f"{template.filename}: {error}; mend the template") from error
        return text.rstrip() + "\n"


def example_names() -> list[str]:
    """Return the names that `prompting.examples` takes: the candidates in templates/examples/."""
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


def _example(name: str) -> dict[str, str]:
    """Return the title (its docstring) and the code of a worked example.

    Raises:
        UserError: when there is none of that name.
    """
    if name not in example_names():
        raise UserError(f"prompting.examples holds {name!r}: use some of {', '.join(example_names())}")
    file = EXAMPLES / f"{name}.py"
    text = file.read_text(encoding="utf-8")
    title, code = split_docstring(text, parse_named(text, str(file)))
    if not title:
        raise UserError(f"{file}: it must begin with a docstring, which is its title")
    return {"title": title, "code": code.strip("\n")}


def _score(exemplar: Exemplar) -> str:
    """Return an exemplar's speedup, or why it was rejected."""
    return f"rejected, {', '.join(exemplar.reasons)}" if exemplar.reasons else speedup_text(exemplar.speedup)


def speedup_text(speedup: float) -> str:
    """Return a speedup as prompts and analyses print it: 3.1 is 3.10x."""
    return f"{speedup:.2f}x"


def _clean(code: str, comments_removed: bool) -> str:
    return (strip_comments(code) if comments_removed else code).strip("\n")


def _load(style: str) -> tuple[jinja2.Template, jinja2.Template]:
    bundled = sorted(folder.name for folder in TEMPLATES.iterdir() if (folder / ONE_SHOT).is_file())
    folder = TEMPLATES / style if style in bundled else Path(style)
    # Templates come from the user's own disk and their output is no HTML: neither sandbox nor escaping.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )

    def template(name: str) -> jinja2.Template:
        try:
            return environment.get_template(name)
        except UnicodeDecodeError as error:
            raise UserError(f"{folder / name} is not UTF-8: save the template as UTF-8") from error

    try:
        return template(ONE_SHOT), template(CONTRASTIVE)
    except jinja2.TemplateNotFound as error:
        raise UserError(
            f"prompting.style is {style!r}: use one of {', '.join(bundled)}, or a folder that holds {error}"
        ) from error
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{error.filename}, line {error.lineno}: {error.message}; mend the template") from error
