"""The scratch tokenizer: no text is changed by it, and it splits Python as intended."""

from __future__ import annotations

import copy
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from cudal1_ray.learning import encode_completion, encode_prompt, thought_prefix, train_tokenizer

SOURCE = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
    "        for i in range(16):\n            x = torch.relu(x) * 0.125\n        return x\n"
)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([SOURCE] * 3, vocab_size=512)


@pytest.mark.parametrize("chat", [False, True])
def test_text_when_longer_than_the_policy_reads_is_encoded_without_a_warning(tokenizer, chat, caplog, monkeypatch):
    # Prompts are counted to be shortened; transformers warns of "indexing errors".
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.model_max_length, tokenizer.chat_template = 4, "{{ messages[0]['content'] }}"
    assert len(encode_prompt(tokenizer, SOURCE, chat)) > 4 and len(encode_completion(tokenizer, SOURCE)) > 4
    assert caplog.records == []


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
@settings(max_examples=300, deadline=None)
def test_text_when_encoded_and_decoded_is_the_same(tokenizer, text):
    assert tokenizer.decode(encode_completion(tokenizer, text)[:-1]) == text


@given(st.lists(st.sampled_from(["\n", "    ", "\t", "x", " 12", "<eos>", "é", "  ", "\r\n", "_a", "."]), max_size=30))
@settings(max_examples=300, deadline=None)
def test_whitespace_when_encoded_and_decoded_is_the_same(tokenizer, pieces):
    text = "".join(pieces)
    assert tokenizer.decode(encode_completion(tokenizer, text)[:-1]) == text


def test_numbers_and_line_breaks_when_frequent_are_one_token(tokenizer):
    pieces = [
        tokenizer.decode([i]) for i in encode_completion(tokenizer, "x * 0.125\n        return x * 77\n\n\nclass Model")
    ]
    assert " 0.125" in pieces and "77" not in [p.strip() for p in pieces]
    assert "\n        " in pieces and "\n\n\n" in pieces


def test_special_tokens_when_in_a_text_are_text(tokenizer):
    ids = encode_completion(tokenizer, "print('<eos><bos><pad>')")
    assert ids[-1] == tokenizer.eos_token_id == 2
    assert not {0, 1, 2} & set(ids[:-1])


def test_prompt_and_completion_when_encoded_have_begin_and_end_tokens(tokenizer):
    prompt, completion = encode_prompt(tokenizer, SOURCE, chat=False), encode_completion(tokenizer, SOURCE)
    assert prompt[0] == tokenizer.bos_token_id and prompt[1:] == completion[:-1]


def test_chat_prompt_when_encoded_goes_through_the_template(tokenizer):
    tokenizer.chat_template = "{% for m in messages %}<bos>{{ m.role }}:{{ m.content }}<eos>{% endfor %}assistant:"
    ids = encode_prompt(tokenizer, "go", chat=True)
    assert ids[0] == 1 and ids.count(2) == 1
    assert tokenizer.decode(ids, skip_special_tokens=True) == "user:goassistant:"


def test_chat_prompt_when_the_tokenizer_has_no_template_is_the_plain_prompt():
    plain = train_tokenizer([SOURCE] * 3, vocab_size=512)
    assert plain.chat_template is None
    assert encode_prompt(plain, SOURCE, chat=True) == encode_prompt(plain, SOURCE, chat=False)


def test_chat_prompt_when_the_template_takes_settings_is_rendered_with_them(tokenizer):
    thinking = copy.deepcopy(tokenizer)
    thinking.chat_template = "{{ messages[0].content }}{% if enable_thinking | default(true) %}<think>{% endif %}"
    quick = {"enable_thinking": False}
    assert thinking.decode(encode_prompt(thinking, "go", True, quick)) == "go"
    assert thought_prefix(thinking, True) == "<think>" and thought_prefix(thinking, True, quick) == ""


@pytest.mark.parametrize(("ending", "opened"), [("<think>\n", "<think>"), ("<think>\n\n</think>\n\n", ""), ("", "")])
def test_thought_prefix_when_the_template_opens_a_thought_is_that(ending, opened):
    thinking = train_tokenizer([SOURCE] * 3, vocab_size=512)
    assert thought_prefix(thinking, chat=True) == ""
    thinking.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}assistant:" + ending
    assert thought_prefix(thinking, chat=False) == "" and thought_prefix(thinking, chat=True) == opened


def test_vocabulary_when_trained_keeps_its_limit_and_is_saved(tokenizer, tmp_path):
    assert 259 <= len(tokenizer) <= 512
    tokenizer.save_pretrained(tmp_path)
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert encode_prompt(again, SOURCE, False) == encode_prompt(tokenizer, SOURCE, False)
    assert (again.pad_token_id, again.bos_token_id, again.eos_token_id) == (0, 1, 2)
