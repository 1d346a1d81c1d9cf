"""`/v1/weights` over HTTP: which weights are served, and, for keys that may, others in their place."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from cudal1_ray.serving.access.middleware import error_body
from cudal1_ray.serving.config import WeightsConfig
from cudal1_ray.serving.optimize.forms import ErrorForm

_REFUSALS = {
    400: {"model": ErrorForm, "description": "No weights of the served model are there; the old ones stay."},
    403: {"model": ErrorForm, "description": "This key may not change the weights."},
    409: {"model": ErrorForm, "description": "Other weights are being rolled in."},
}


class ReplicaForm(BaseModel):
    """One replica: what it serves, and whether it is loading."""

    policy_version: int
    loading: bool


class WeightsForm(BaseModel):
    """Which weights are served. `rolling_in`: those that follow; `last_fault`: why the last refused ones were."""

    policy_version: int
    weights: str
    rolling_in: str | None
    replicas: list[ReplicaForm]
    rolled_in: int
    turned_away: int
    last_fault: str | None = None
    seconds: float | None = None


class WeightsRequest(BaseModel):
    """A folder on the server's side: a run (its newest policy), a checkpoint, or a model folder."""

    model_config = ConfigDict(extra="forbid")
    path: str = Field(min_length=1, max_length=4096)


def weights_router(coordinator: Any, config: WeightsConfig) -> APIRouter:
    """Return the routes; `request.state.key_name`, which the middleware sets, names the client."""
    router = APIRouter(tags=["weights"])

    @router.get("/v1/weights", response_model=WeightsForm)
    async def state(request: Request) -> Response:
        """Report which weights are served, and by how many replicas."""
        roll_state = await coordinator.roll_state()
        if request.state.key_name not in config.admin_keys:
            roll_state.pop("last_fault")  # of weights that another key asked for
        return JSONResponse(roll_state)

    @router.post("/v1/weights", response_model=WeightsForm, responses=_REFUSALS)
    async def change(request: Request, body: WeightsRequest) -> Response:
        """Roll weights in; answer when all replicas serve them. Requests under way are not disturbed."""
        if request.state.key_name not in config.admin_keys:
            return _refusal(403, "this key may not change the weights: its name is not in weights.admin_keys")
        if "\x00" in body.path:
            return _refusal(400, "path: no folder has such a name")
        state = await coordinator.change(body.path)
        return _refusal(state["refused"], state["message"]) if "refused" in state else JSONResponse(state)

    return router


def _refusal(status: int, message: str) -> Response:
    return Response(error_body(status, message), status_code=status, media_type="application/json")
