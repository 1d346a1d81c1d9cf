"""The evaluator as a Model Context Protocol server, for agents that write kernels.

    python -m cudal1_ray.integrations.mcp --device cuda        # over standard input and output

One tool, `evaluate_candidate`: a problem and a candidate in, the verdict out.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.integrations.evaluators import LocalEvaluator
from cudal1_ray.integrations.rewards import CompletionScorer
from cudal1_ray.problems import parse_problem

INSTRUCTIONS = (
    "Measures whether a candidate (a Python file that defines ModelNew) computes what a KernelBench problem's Model "
    "computes, and how much faster it is, with a 95% interval. Rejections name their reason and the line at fault."
)
_ANSWER_FIELDS = (
    "status", "reasons", "detail", "kind", "speedup", "speedup_low", "speedup_high", "runtime_ms", "reference_ms",
    "own_kernel", "flags", "hardware",
)  # fmt: skip


def make_server(scorer: CompletionScorer) -> Any:
    """Return the server with its tool; `run()` serves it."""
    from mcp.server import MCPServer

    server = MCPServer("cudal1", instructions=INSTRUCTIONS)

    @server.tool()
    def evaluate_candidate(problem: str, candidate: str) -> str:
        """Evaluate a candidate.

        Args:
            problem: the text of a KernelBench file: Model, get_inputs and get_init_inputs.
            candidate: the text of a Python file that defines ModelNew with the same interface as Model.

        Returns:
            JSON: status (accepted, rejected; refused: nothing was evaluated), reasons and detail of a rejection,
            speedup against PyTorch eager.
        """
        try:
            parsed = parse_problem(problem, "problem", origin="problem")
            (verdict,) = scorer.evaluator.evaluate_all([(parsed, candidate)])
        except UserError as error:  # a server's, too, whose evaluator does not answer
            return json.dumps({"status": "refused", "detail": str(error)})
        fields = verdict.to_dict()
        return json.dumps({name: fields[name] for name in _ANSWER_FIELDS})

    return server


def main(argv: list[str] | None = None) -> None:
    """Serve over standard input and output until the client goes away."""
    parser = argparse.ArgumentParser(description=INSTRUCTIONS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="where to measure")
    parser.add_argument("--url", default="", help="of a `cudal1 serve` whose evaluator is used instead")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings of `cudal1 evaluate`")
    arguments = parser.parse_args(argv)
    try:
        with CompletionScorer(arguments.url, arguments.key, arguments.device, arguments.settings) as scorer:
            if isinstance(scorer.evaluator, LocalEvaluator):
                scorer.evaluator.require_device()
            make_server(scorer).run()
    except UserError as error:
        parser.exit(2, f"cudal1: {error}\n")


if __name__ == "__main__":
    main()
