"""Answers: what is rendered can be read back, and anything at all can be read without an exception."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from cudal1_ray.prompting import parse_answer, render_answer
from cudal1_ray.prompting.answer import tidy

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x"
FULL = render_answer("It is slow.", "Fuse it.", CODE)

fragments = st.sampled_from(
    [
        "## Performance Analysis",
        "## Algorithm Design",
        "### 3. Code Implementation:",
        "**Code Implementation**",
        "# code implementation",
        "```python",
        "```",
        "````",
        "~~~",
        "  ```",
        "class ModelNew:",
        "class ModelNew(nn.Module):\n    pass",
        "</think>",
        "<think>",
        "<|channel|>final<|message|>",
        "<|end|>",
        "> ```",
        "'''",
        "x = '''```'''",
        "",
        " ",
        "\ufeff",
        "\u2028",
        "\x0b\x0c",
        "\r",
    ]
)
lines = st.one_of(fragments, st.text(st.characters(exclude_categories=()), max_size=30))
texts = st.lists(lines, max_size=12).map("\n".join)
prose = st.one_of(st.text(max_size=80), texts)
codes = st.tuples(texts, st.just("class ModelNew:\n    pass"), texts).map("\n".join)


def unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def test_answer_when_rendered_has_the_documented_form():
    assert FULL == (
        "## Performance Analysis\nIt is slow.\n## Algorithm Design\nFuse it.\n"
        f"## Code Implementation\n```python\n{CODE}\n```"
    )
    answer = parse_answer(FULL)
    assert (answer.analysis, answer.design, answer.code, answer.error) == (
        "It is slow.",
        "Fuse it.",
        CODE,
        "",
    )


@settings(max_examples=400, deadline=None)
@given(prose, prose, codes)
@example("a", "b", "class ModelNew:\n    '''\n```\n'''\n## Algorithm Design\n```python\n")
@example("a\n## Code Implementation\n```python\nclass ModelNew: 1\n```", "b", "class ModelNew: 2")
@example("</think>", "<think>", "class ModelNew:\n    s = '</think>'")
def test_answer_when_rendered_is_parsed_back(analysis, design, code):
    text = render_answer(analysis, design, code)
    answer = parse_answer(text)
    assert answer.analysis == tidy(analysis)
    assert answer.design == tidy(design)
    assert answer.code == unix(code).strip("\n")
    assert ("no Performance Analysis" in answer.error) == (tidy(analysis) == "")
    assert render_answer(answer.analysis, answer.design, answer.code) == text


@settings(max_examples=150, deadline=None)
@given(prose, codes)
def test_answer_when_rendered_without_analysis_is_parsed_back(design, code):
    assume(tidy(design))
    answer = parse_answer(render_answer("not rendered", design, code, include_analysis=False), require_analysis=False)
    assert (answer.analysis, answer.design, answer.error) == ("", tidy(design), "")
    assert answer.code == unix(code).strip("\n")


@settings(max_examples=600, deadline=None)
@given(texts)
def test_parse_answer_when_text_is_arbitrary_neither_raises_nor_returns_half_an_answer(text):
    answer = parse_answer(text)
    assert "\n" not in answer.error
    if answer.code is None:
        assert answer.error
    else:
        assert "ModelNew" in answer.code
        assert all(line in unix(text) for line in answer.code.split("\n"))


@settings(max_examples=200, deadline=None)
@given(st.integers(0, len(FULL)), st.integers(0, len(FULL)), texts)
def test_parse_answer_when_an_answer_is_damaged_has_an_error_or_code(start, end, inserted):
    answer = parse_answer(FULL[:start] + inserted + FULL[end:])
    assert answer.error or answer.code


@pytest.mark.parametrize("cut", range(0, len(FULL), 7))
def test_parse_answer_when_an_answer_is_cut_names_what_is_missing(cut):
    answer = parse_answer(FULL[:cut])
    assert answer.error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no Performance Analysis; no Algorithm Design; no Code Implementation; no code block"),
        (
            "complete garbage",
            "no Performance Analysis; no Algorithm Design; no Code Implementation; no code block",
        ),
        (FULL.replace("## Performance Analysis\nIt is slow.\n", ""), "no Performance Analysis"),
        (FULL.replace("It is slow.", "  "), "no Performance Analysis"),
        (FULL.replace("## Algorithm Design\n", ""), "no Algorithm Design"),
        (FULL.replace("## Code Implementation\n", ""), "no Code Implementation"),
        (FULL.removesuffix("```"), "the code block is not closed"),
        (FULL.replace("```python\n", "").removesuffix("```"), "the code is in no fenced block"),
        (FULL.replace("class ModelNew", "class Model"), "the code block defines no ModelNew"),
        (FULL.partition("```")[0], "no code block"),
    ],
)
def test_parse_answer_when_a_part_is_missing_names_it(text, error):
    assert parse_answer(text).error == error


@pytest.mark.parametrize(
    "text",
    [
        FULL.replace("## Code Implementation\n", ""),
        FULL.removesuffix("```"),
        FULL.removesuffix("\n```"),
        FULL.replace("```python\n", "").removesuffix("\n```"),
        FULL.replace("```python", "```"),
        FULL.replace("```python", "```py"),
        FULL.replace("```", "~~~"),
        FULL.replace("\n", "\r\n"),
        "Sure, here it is.\n\n" + FULL + "\n\nThis is fast. ```",
        FULL.replace("## Algorithm Design", "**2. Algorithm Design:**"),
        FULL.replace("## ", "# "),
        FULL.replace("## Code Implementation", "### 3. code implementation"),
        "<think>\n```python\nclass ModelNew: 'draft'\n```\n</think>\n" + FULL,
        "thought\n## Code Implementation\n```python\nclass ModelNew: 'draft'\n```\n</think>\n" + FULL,
        "<Thinking>\n```python\nclass ModelNew: 'draft'\n```\n</Thinking>\n" + FULL,
        "<reasoning>```python\nclass ModelNew: 'draft'\n```</reasoning>" + FULL,
        FULL.replace("```python", "```bash\npip install torch\n```\nand then\n```python"),
        FULL + "\n```python\nclass ModelNew: 'second thoughts'\n```",
        FULL + "\n## Code Implementation\n```python\nclass ModelNew: 'rambling on'\n```",
        FULL.replace("It is slow.", "See\n```python\nclass ModelNew: 'exemplar'\n```\nIt is slow."),
    ],
)
def test_parse_answer_when_other_text_surrounds_the_code_returns_the_code(text):
    assert parse_answer(text).code.strip() == CODE


LISTED = "\n".join(f"    {line}" for line in f"```python\n{CODE}\n```".split("\n"))
PREFACE = "## Performance Analysis\nIt is slow.\n## Algorithm Design\nFuse it.\n## Code Implementation\n"


@pytest.mark.parametrize(
    "block",
    [
        f"1. The whole file:\n\n{LISTED}\n\n2. Nothing else is needed.",
        "- ```python\n" + "\n".join(f"  {line}" for line in CODE.split("\n")) + "\n  ```",
        f"    ```python\n{CODE}\n    ```",
        f"The file: ```python\n{CODE}\n```",
        f"Use `ModelNew` from here: ```\n{CODE}\n```",
        f"```python {CODE}\n```",
        f"```{CODE}\n```",
        f"```python title=model.py\n{CODE}\n```",
        f"```python\n{CODE}```",
        f"```python\n{CODE}```\nThis is fast.\n```bash\npython model.py",
    ],
)
def test_code_block_when_indented_or_sharing_a_fence_line_is_read_whole(block):
    answer = parse_answer(PREFACE + block)
    assert (answer.code, answer.error) == (CODE, "")


DRAFT = "A draft:\n```python\nclass ModelNew: 'draft'\n```\nHmm."
CHANNEL = f"<|channel|>analysis<|message|>{DRAFT}<|end|><|start|>assistant"


@pytest.mark.parametrize(
    "text",
    [
        f"{CHANNEL}<|channel|>final<|message|>{FULL}<|return|>",
        f"<|start|>assistant{CHANNEL}<|channel|>final <|message|>{FULL}",
        f"<|channel|>final<|message|>{FULL}",
        f"analysis{DRAFT}assistantfinal{FULL}",
        f"{FULL}<|im_end|>",
        f"{FULL}\n<|eot_id|>\n",
        "\n".join(f"> {line}" for line in FULL.split("\n")),
        "\n\n".join(f">{line}" for line in FULL.split("\n")),
        "\n".join(f"> {line}" for line in f"<think>\nHmm.\n</think>\n{FULL}<|im_end|>".split("\n")),
    ],
)
def test_answer_when_in_channels_or_quoted_is_read_without_their_marks(text):
    answer = parse_answer(text)
    assert (answer.analysis, answer.design, answer.error) == ("It is slow.", "Fuse it.", "")
    assert [line for line in answer.code.split("\n") if line] == [line for line in CODE.split("\n") if line]


def test_answer_when_only_some_lines_are_quoted_keeps_their_marks():
    code = f"{CODE}\n    notes = '''\n> quoted\n'''"
    assert parse_answer(render_answer("a", "b", code)).code == code


FENCED_DOCSTRING = """import torch


class ModelNew(torch.nn.Module):
    '''Squares.

```python
ModelNew()(x)
```

    or

```
model = ModelNew()
```
    '''

    def forward(self, x):
        return x * x"""


@pytest.mark.parametrize(
    "code",
    [
        FENCED_DOCSTRING,
        FENCED_DOCSTRING.replace("'''", '"""'),
        f'README = r"""\n```\ncudal1 evaluate\n```\n"""\n{CODE}',
        f'README = f"""\n```\n{{1}}\n```\n"""\n{CODE}',
        '"""\n```\n"""\n' + "SOURCE = '''\n```\n#include <x>\n'''\n" + CODE,
    ],
)
@pytest.mark.parametrize("before", ["", "```bash\npip install torch\n```\nand\n", "```python\nimport os\n```\nand\n"])
@pytest.mark.parametrize("after", ["\n```", "```", "\n```\nRun it:\n```python\nprint('''a\n```\n''')\n```\nDone.", ""])
def test_code_block_when_a_string_of_its_code_holds_fences_is_read_whole(before, code, after):
    answer = parse_answer(f"{PREFACE}{before}```python\n{code}{after}")
    assert answer.code == code
    assert answer.error == ("" if after else "the code block is not closed")


def test_code_block_when_its_string_is_never_closed_ends_at_its_fence():
    broken = "SOURCE = '''\nvoid gate() {}"
    answer = parse_answer(f"{PREFACE}```python\n{broken}\n```\nBetter:\n```python\n{FENCED_DOCSTRING}\n```")
    assert (answer.code, answer.error) == (FENCED_DOCSTRING, "")
    answer = parse_answer(f"{PREFACE}```python\n{CODE}\n{broken}\n```\nThis is fast.")
    assert (answer.code, answer.error) == (f"{CODE}\n{broken}", "")


KERNEL = "SOURCE = '''\nfloat gate(float x) { return x; }\n'''"
USER = "import torch\n\nclass ModelNew(torch.nn.Module):\n    source = SOURCE"


@pytest.mark.parametrize(
    ("blocks", "code"),
    [
        ([KERNEL, USER], [0, 1]),
        (["import torch\nfrom torch import nn", "class ModelNew(nn.Module): 1"], [0, 1]),
        (["import os", "import os\nBASE = os.sep", "class ModelNew: s = BASE"], [1, 2]),
        (["import os", "BASE = os.sep", "class ModelNew: s = BASE"], [0, 1, 2]),
        (["SOURCE = 1", KERNEL, USER], [1, 2]),
        ([USER, KERNEL], [0, 1]),
        (["print(SOURCE)", USER], [1]),
        (["pip install torch", "class Model: 1", USER], [2]),
        (["SOURCE = (", USER], [1]),
        (["def f():\n    SOURCE = 1", USER], [1]),
        ([USER, "class ModelNew: 'second thoughts'"], [0]),
    ],
)
def test_code_when_split_over_blocks_holds_those_that_define_what_it_uses(blocks, code):
    text = PREFACE + "\n\nand then\n\n".join(f"```python\n{block}\n```" for block in blocks)
    expected = [blocks[number] for number in code]
    answer = parse_answer(text)
    assert (answer.code, answer.error) == ("\n\n\n".join(expected), "")


@pytest.mark.parametrize(
    "text",
    [
        f"<think>\nA draft:\n```python\n{CODE}\n```\nHmm, I should now",
        f"  <think>{FULL}",
        f"<THINKING>{FULL}",
        f"<seed:think>{FULL}",
        f"[THINK]\n{FULL}",
        f"<|begin_of_thought|>{FULL}",
        f"<|START_THINKING|>{FULL}",
        CHANNEL.partition("<|end|>")[0],
        f"<|start|>assistant<|channel|>commentary<|message|>{FULL}",
        f"A draft:\n```python\n{CODE}\n```\n</think>\n\n",
    ],
)
def test_draft_when_the_thought_is_open_or_nothing_follows_it_is_no_answer(text):
    answer = parse_answer(text)
    assert (answer.code, answer.error) == (None, "the thinking has not ended, or nothing follows it")


@pytest.mark.parametrize(
    "text",
    [
        f"Okay.\n<think>\n{DRAFT}",
        f"## Performance Analysis\n<think>\n{DRAFT}",
        f"<think>Hmm.</think>\n<think>\n{DRAFT}",
        f"## Performance Analysis\nIt is slow.\n  <reasoning>{FULL}",
    ],
)
def test_draft_when_a_later_thought_is_open_is_no_answer(text):
    assert parse_answer(text).code is None


@pytest.mark.parametrize(
    "text",
    [
        f"Okay.\n<think>\n{DRAFT}\n</think>\n{FULL}",
        f"<think>{DRAFT}</think>\n<think>\n{DRAFT}</think>{FULL}",
        f"<seed:think>{DRAFT}</seed:think>{FULL}",
        f"[THINK]{DRAFT}[/THINK]{FULL}",
        f"<|begin_of_thought|>\n{DRAFT}\n<|end_of_thought|>\n{FULL}",
        f"<|START_THINKING|>{DRAFT}<|END_THINKING|>{FULL}",
        FULL.replace("It is slow.", f"<think>\n{DRAFT}\n</think>\nIt is slow."),
        f"{FULL}\n<think>\n{DRAFT}",
    ],
)
def test_answer_when_thoughts_stand_around_it_is_read_without_them(text):
    answer = parse_answer(text)
    assert (answer.analysis, answer.design, answer.code, answer.error) == ("It is slow.", "Fuse it.", CODE, "")


def test_code_when_a_line_of_it_looks_like_a_thought_is_kept():
    code = f"{CODE}\n    prompt = '''\n<think>\n'''"
    assert parse_answer(render_answer("a", "b", code)).code == code


@pytest.mark.parametrize(
    ("text", "open_ended"),
    [
        (FULL, False),
        (FULL.removesuffix("```"), True),
        (FULL.replace("```python\n", "").removesuffix("```"), True),
        (f"{FULL}\nRun it:\n```python\nModelNew()", False),
        (FULL.partition("```")[0], False),
    ],
)
def test_answer_when_the_text_ends_within_its_code_is_open_ended(text, open_ended):
    assert parse_answer(text).open_ended is open_ended


def test_parse_answer_when_model_new_is_assigned_takes_it_and_a_mention_is_none():
    assert parse_answer("```\nModelNew = make()\n```").code == "ModelNew = make()"
    assert parse_answer("```\nprint(ModelNew)\n```").code is None
    assert parse_answer("```\nclass ModelNewer: 1\n```").code is None


@pytest.mark.parametrize(
    "piece",
    ["```", "`", "#", "## Performance Analysis\n", "\n", "```\n", " ", "**", "a", "```c\nx```\n"]
    + ["<think>\n", "<think>x</think>\n"],
)
def test_parse_answer_when_text_is_very_long_and_empty_ends(piece):
    # A quadratic parser would need an hour for this, not the seconds that the suite's own limit allows.
    answer = parse_answer(piece * 200_000)
    assert answer.code is None and answer.error


def test_parse_answer_when_an_answer_is_very_long_returns_all_of_it():
    code = CODE + "\n" + "# filler\n" * 200_000 + "last = 1"
    assert parse_answer(render_answer("a", "b", code)).code == code
