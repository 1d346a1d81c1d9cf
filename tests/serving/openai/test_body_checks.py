"""What a body asks for and a server cannot do, in vLLM's own types of request."""

from __future__ import annotations

import asyncio

import pytest

from cudal1_ray.serving.openai.body_checks import TOOLS, body_fault

pytest.importorskip("vllm")
MESSAGES = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}


def fault(body: dict) -> str:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    request = (ChatCompletionRequest if "messages" in body else CompletionRequest)(**body)
    return asyncio.run(body_fault(request, engine_config=None, tokenizer=None))


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_body_when_it_has_tools_to_call_is_refused_with_what_to_do(choice):
    assert fault({"messages": MESSAGES, "tools": [TOOL], "tool_choice": choice}) == TOOLS


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES},
        {"messages": MESSAGES, "tools": [TOOL], "tool_choice": "none"},
        {"messages": MESSAGES, "response_format": {"type": "text"}},
        {"prompt": "hello", "tools": [TOOL]},
    ],
    ids=["plain", "tools_unused", "text_asked_for", "unknown_field"],
)
def test_body_when_it_asks_for_neither_tools_nor_structure_has_no_fault(body):
    assert fault(body) == ""
