"""Tokens: a byte-level BPE tokenizer for policies made from scratch, and how prompts and completions are encoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"

# What may become one token, at most, in this order. A line break takes the indentation after it along, since in
# Python the two mean something together; a number may be one token, so that it is copied at once.
PIECES = "|".join(
    (
        r"\n+[ \t]*",
        r" ?\p{N}+(?:\.\p{N}+)?(?:e-\p{N}+)?",
        r"[^\r\n\p{L}\p{N}_]?[\p{L}_]+",
        r" ?[^\s\p{L}\p{N}_]+",
        r"[^\S\n]+",
    )
)


def train_tokenizer(texts: Iterable[str], vocab_size: int, max_position: int = 2048) -> PreTrainedTokenizerBase:
    """Learn a byte-level BPE tokenizer from `texts`; every text, seen or not, survives encoding and decoding.

    Args:
        texts: Python files and answers.
        vocab_size: most tokens, 256 bytes and 3 special ones (`<pad>` 0, `<bos>` 1, `<eos>` 2) included;
            fewer where `texts` has too few pairs to merge.
        max_position: recorded as the longest input.

    Returns:
        a fast transformers tokenizer, to be saved with `save_pretrained`.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        model_max_length=max_position,
        clean_up_tokenization_spaces=False,
    )


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase, text: str, chat: bool, template: Mapping[str, Any] | None = None
) -> tuple[int, ...]:
    """Return the token ids of a prompt, up to where the policy goes on.

    Args:
        chat: as one user message in the tokenizer's chat template; without one, or where the tokenizer has no template,
            the text after the beginning token, if any.
        template: what the chat template is given besides, such as {"enable_thinking": False}.
    """
    if chat and tokenizer.chat_template:
        messages = [{"role": "user", "content": text}]
        rendered = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False, **(template or {})
        )
        return tuple(tokenizer(rendered, add_special_tokens=False, verbose=False)["input_ids"])
    start = () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)
    return (*start, *_plain(tokenizer, text))


def thought_prefix(tokenizer: PreTrainedTokenizerBase, chat: bool, template: Mapping[str, Any] | None = None) -> str:
    """Return "<think>" where the chat template begins every answer with an open thought, else "".

    The completions of such a policy begin within the thought; with the mark before them they read as what they are.
    """
    if not (chat and tokenizer.chat_template):
        return ""
    ending = tokenizer.decode(encode_prompt(tokenizer, "", chat, template)[-16:]).rstrip()
    return "<think>" if ending.endswith("<think>") else ""


def encode_completion(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    """Return the token ids of an answer and the end token after it."""
    return (*_plain(tokenizer, text), tokenizer.eos_token_id)


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the token ids of a text without special tokens: `<eos>` in a program is five characters."""
    return tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)["input_ids"]
