"""Requests and answers of `/v1/optimize` as the OpenAPI document shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from cudal1_ray.serving.optimize.examples import MAX_CHARACTERS, MAX_DIMENSIONS, DtypeName, Example, TensorExample
from cudal1_ray.serving.optimize.job_queue import Submission

_LARGEST_NUMBER = 1_000_000_000
_Bound = Annotated[float, Field(allow_inf_nan=False, ge=-(2.0**64), le=2.0**64)]


class TensorForm(BaseModel):
    """A tensor of random values: normally distributed, or uniform in low <= x < high; integers want high."""

    model_config = ConfigDict(extra="forbid")
    shape: list[Annotated[int, Field(ge=0, le=2**32)]] = Field(max_length=MAX_DIMENSIONS)
    dtype: DtypeName = "float32"
    low: _Bound | None = None
    high: _Bound | None = None

    def example(self) -> TensorExample:
        return TensorExample(tuple(self.shape), self.dtype, self.low, self.high)


ExampleForm = (
    TensorForm
    | bool
    | Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
    | Annotated[float, Field(allow_inf_nan=False)]
    | Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS, description="a Python expression")]
    | None
)
ArgumentsForm = (
    Annotated[list[ExampleForm], Field(max_length=64, description="by position")]
    | Annotated[dict[str, ExampleForm], Field(max_length=64, description="by name")]
)


class OptimizeRequest(BaseModel):
    """A module, how to call it, and what the job may cost.

    The source is a problem in KernelBench's form (`Model`, `get_inputs()`, `get_init_inputs()`), or any `nn.Module`
    with examples of its arguments, from which the missing functions are written.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "source": "import torch.nn as nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
                    "        return (x * 2).relu()\n",
                    "inputs": [{"shape": [64, 128]}],
                    "rounds": 2,
                }
            ]
        },
    )
    source: str = Field(min_length=1)
    inputs: ArgumentsForm | None = Field(default=None, description="examples of what `forward` takes")
    init_inputs: ArgumentsForm | None = Field(default=None, description="what the constructor takes")
    class_name: str = Field(default="", max_length=100, description="which class, where the source has several")
    rounds: int | None = Field(default=None, ge=1, le=_LARGEST_NUMBER)
    samples_per_round: int | None = Field(default=None, ge=1, le=_LARGEST_NUMBER)
    time_limit_s: float | None = Field(default=None, gt=0, le=_LARGEST_NUMBER, allow_inf_nan=False)
    max_tokens: int | None = Field(
        default=None, ge=1, le=_LARGEST_NUMBER, description="tokens that the policy may write"
    )
    fresh: bool = Field(default=False, description="a new job even where the same was asked before")

    def submission(self) -> Submission:
        values = {name: getattr(self, name) for name in self.__class__.model_fields}
        arguments = {name: _examples(values[name]) for name in ("inputs", "init_inputs")}
        return Submission(**values | arguments)


def _examples(value: Any) -> Sequence[Example] | Mapping[str, Example] | None:
    if isinstance(value, Mapping):
        return {name: _example(item) for name, item in value.items()}
    return value if value is None else tuple(map(_example, value))


def _example(value: Any) -> Example:
    return value.example() if isinstance(value, TensorForm) else value


class SettingsForm(BaseModel):
    """What a job may cost. max_tokens 0: no limit."""

    rounds: int
    samples_per_round: int
    time_limit_s: float
    max_tokens: int = 0


class BaselineForm(BaseModel):
    """The winner beside one baseline, measured together; times are medians per call. missing: why there is none."""

    baseline: str
    baseline_ms: float
    runtime_ms: float
    speedup: float
    speedup_low: float
    speedup_high: float
    device: str
    missing: str


class ResultForm(BaseModel):
    """What became of a job; empty until it has finished. speedup_low to speedup_high is the 95% interval."""

    model_config = ConfigDict(extra="allow")
    found: bool | None = None
    message: str | None = None
    code: str | None = None
    analysis: str | None = None
    design: str | None = None
    origin: Literal["policy", "known"] | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    runtime_ms: float | None = None
    reference_ms: float | None = None
    against: str | None = None
    device: str | None = None
    device_name: str | None = None
    baselines: list[BaselineForm] | None = None
    candidates: int | None = None
    accepted: int | None = None
    known: int | None = None
    rounds: int | None = None
    best_tried: float | None = None
    tried: list[dict[str, Any]] | None = None
    note: str | None = None
    spent_s: float | None = None
    costs: dict[str, float] | None = None


class ListedForm(BaseModel):
    """A job without its source."""

    object: Literal["optimize.job"] = "optimize.job"
    id: str
    settings: SettingsForm
    created_at: float
    status: Literal["queued", "running", "finished", "failed", "cancelled"]
    finished_at: float
    result: ResultForm
    error: str


class JobForm(ListedForm):
    """One job. Times are seconds since 1970, 0 for what has not happened."""

    source: str


class SubmittedForm(JobForm):
    """A job that was taken in; `shared`: it had been asked for before."""

    shared: bool


class JobListForm(BaseModel):
    """A page of jobs, newest first."""

    object: Literal["list"] = "list"
    data: list[ListedForm]
    has_more: bool


class _Error(BaseModel):
    message: str
    type: str
    param: str | None
    code: int


class ErrorForm(BaseModel):
    """OpenAI's form of an error."""

    error: _Error
