"""The MCP server, asked by MCP's own client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from cudal1_ray.integrations.mcp import main, make_server
from cudal1_ray.integrations.rewards import CompletionScorer
from tests.integrations.conftest import FAST, PROBLEM, SETTINGS, WRONG

pytest.importorskip("mcp")


def test_mcp_client_when_it_calls_the_tool_gets_verdicts():
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def scene():
        command = ["-m", "cudal1_ray.integrations.mcp", "--device", "cpu", *SETTINGS]
        async with stdio_client(StdioServerParameters(command=sys.executable, args=command)) as streams:
            async with ClientSession(*streams) as session:
                await session.initialize()
                (tool,) = (await session.list_tools()).tools
                assert tool.name == "evaluate_candidate"
                answers = []
                for problem, candidate in ((PROBLEM, FAST), (PROBLEM, WRONG), ("x = 1", FAST)):
                    arguments = {"problem": problem, "candidate": candidate}
                    result = await session.call_tool("evaluate_candidate", arguments)
                    answers.append(json.loads(result.content[0].text))
                return answers

    right, wrong, refused = asyncio.run(scene())
    assert right["status"] == "accepted" and right["speedup"] > 0.0, right
    assert wrong["status"] == "rejected" and wrong["reasons"] == ["wrong_output"]
    assert refused["status"] == "refused" and "Model" in refused["detail"]


def test_tool_when_the_server_does_not_answer_returns_the_reason():
    with CompletionScorer("http://127.0.0.1:9") as scorer:
        call = make_server(scorer).call_tool("evaluate_candidate", {"problem": PROBLEM, "candidate": FAST})
        assert "is `cudal1 serve` running there?" in str(asyncio.run(call))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["no.such=1"], "no.such: there is no such setting"),
        (["evaluation.device=cuda:99"], "evaluation.device=cuda:99"),
    ],
)
def test_mcp_server_when_it_cannot_evaluate_ends_with_one_line(capsys, arguments, named):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    error = capsys.readouterr().err
    assert named in error and len(error.splitlines()) == 1
