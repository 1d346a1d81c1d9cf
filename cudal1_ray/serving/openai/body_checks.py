"""What a body asks for and this server cannot do, found before the engine sees it.

vLLM's engine answers mistakes in a regex, a grammar or a JSON schema with 500 and an empty message, or within a stream
that has begun with 200; and tools with advice on flags of its own command line.
"""

from __future__ import annotations

import asyncio
from typing import Any

TOOLS = (
    "tools cannot be called here: no parser of tool calls belongs to a served policy; leave `tools` out, or send "
    'tool_choice="none"'
)


async def body_fault(request: Any, engine_config: Any, tokenizer: Any) -> str:
    """Return what is wrong with a body that vLLM has parsed; empty where nothing is.

    Args:
        request: vLLM's CompletionRequest or ChatCompletionRequest.
        engine_config: vLLM's VllmConfig.
    """
    # vLLM's types keep fields that they do not know: `tools` in a body for plain completions is one.
    if "tools" in type(request).model_fields and request.tools and request.tool_choice != "none":
        return TOOLS
    if not _asks_for_structure(request):
        return ""
    return await asyncio.to_thread(structure_fault, request, engine_config, tokenizer)


def structure_fault(request: Any, engine_config: Any, tokenizer: Any) -> str:
    """Return what vLLM's own validators object to in the structure that a body asks for; empty where they take it."""
    try:
        sampling = request.to_sampling_params(1, {})
        sampling.verify(engine_config.model_config, None, engine_config.structured_outputs_config, tokenizer)
    except Exception as error:  # the backends' parsers raise their own, besides ValueError
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines)[:500] or type(error).__name__
        return f"the structure that the answer must have cannot be built: {reason}"
    return ""


def _asks_for_structure(request: Any) -> bool:
    form = getattr(request, "response_format", None)
    return request.structured_outputs is not None or (form is not None and form.type != "text")
