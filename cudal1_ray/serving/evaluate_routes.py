"""`/v1/evaluate` over HTTP: a problem and a candidate in, a verdict out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from ray.serve.handle import DeploymentHandle

from cudal1_ray.errors import UserError
from cudal1_ray.problems import parse_problem
from cudal1_ray.serving.access.middleware import error_body
from cudal1_ray.serving.access.scrubbing import scrub
from cudal1_ray.serving.optimize.forms import ErrorForm
from cudal1_ray.source.text import clean_text

# Characters of a problem or a candidate; KernelBench's longest file has 20,000.
MAX_CHARACTERS = 1 << 18


class EvaluateRequest(BaseModel):
    """What to evaluate. Both texts are Python files."""

    model_config = ConfigDict(extra="forbid")

    problem: str = Field(
        min_length=1,
        max_length=MAX_CHARACTERS,
        description="a KernelBench file: Model, get_inputs and get_init_inputs",
    )
    candidate: str = Field(min_length=1, max_length=MAX_CHARACTERS, description="a file that defines ModelNew")
    problem_id: str = Field(default="problem", max_length=120, description="its name in the verdict")
    best_speedup: float = Field(
        default=0.0,
        ge=0.0,
        allow_inf_nan=False,
        description="the problem's best so far; a candidate far beyond it is measured again",
    )


def evaluate_router(evaluator: DeploymentHandle) -> APIRouter:
    """Return the route; `evaluator` is the deployment that owns the device."""
    router = APIRouter(tags=["evaluate"])
    answers: dict[int | str, dict[str, Any]] = {
        400: {"model": ErrorForm, "description": "The body is no such request, or `problem` is no problem."}
    }

    @router.post("/v1/evaluate", responses=answers)
    async def evaluate(body: EvaluateRequest) -> Response:
        """Evaluate one candidate; 200 with the verdict, accepted or rejected."""
        try:
            problem = parse_problem(body.problem, body.problem_id, origin="problem")
        except UserError as error:
            return Response(error_body(400, str(error)), status_code=400, media_type="application/json")
        verdict = await evaluator.evaluate.remote(problem, clean_text(body.candidate), body.best_speedup)
        return JSONResponse(replace(verdict, detail=scrub(verdict.detail)).to_dict())

    return router
