"""The typed schema of `conf/serving/`: every key `cudal1 serve` can be given, with its type and its default."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from cudal1_ray.config import all_presets, compose_config, composed_files, config_dir, with_settings
from cudal1_ray.errors import UserError
from cudal1_ray.evaluation.baselines import BASELINES
from cudal1_ray.evaluation.config import EvaluationConfig
from cudal1_ray.exemplars.config import ExemplarsConfig
from cudal1_ray.prompting.config import PromptingConfig
from cudal1_ray.rollout.config import RolloutConfig, check_rollout_config
from cudal1_ray.rollout.endpoint import PolicyEndpointConfig
from cudal1_ray.serving.served_policy import ServedPolicy, find_policy
from cudal1_ray.settings import bounded, check_values, find_keys, one_of
from cudal1_ray.settings.origins import find_origins
from cudal1_ray.settings.overrides import Overrides
from cudal1_ray.settings.presets import Preset, find_presets

KNOWN_PARTS = ("config.yaml", "exemplars/manifest.json")
# Sections whose presets are training's; `policy` is another one here.
_SHARED = ("rollout", "evaluation", "prompting", "exemplars")

# Value of policy where the policy is behind policy.url.
ENDPOINT = "endpoint"


@dataclass
class ServedPolicyConfig(PolicyEndpointConfig):
    """Which policy is served. `policy=FOLDER` is short for `policy.path=FOLDER`.

    `policy=endpoint`, for `cudal1 optimize` alone, takes the model of an OpenAI-compatible server.
    """

    path: str = ""  # a run's folder, a checkpoint, a Hugging Face model folder; or endpoint, with policy.url
    name: str = ""  # what clients call it; empty: the folder's own name
    chat: bool = False  # prompts of /v1/optimize go through the chat template; a run's folder sets it
    # What the chat template is given besides, such as {enable_thinking: false}; a run's folder sets it.
    chat_template_kwargs: Any = None


@dataclass
class ReplicasConfig:
    """The processes that hold an engine each. Ray Serve starts and stops them within these bounds."""

    min: int = 1  # replicas that always run
    max: int = bounded(1, least=1)  # replicas under the heaviest load
    target_ongoing_requests: float = bounded(64.0, least=1)  # requests at once, per replica, that autoscaling aims at
    upscale_delay_s: float = 10.0  # how long there must be more of them before a replica is added
    downscale_delay_s: float = 300.0  # how long there must be fewer before one goes; it ends its requests first
    # Requests at once that a replica takes from the proxy, where further ones wait; no limit without a proxy.
    max_ongoing_requests: int = bounded(512, least=1)
    num_cpus: float = 1.0  # logical CPUs that Ray sets aside for each
    num_gpus: float = 0.0  # GPUs that Ray sets aside for each
    threads: int = bounded(1, least=1)  # OpenMP threads of each
    start_timeout_s: float = 600.0  # seconds after which a replica that is not up has failed to start


@dataclass
class WeightsConfig:
    """Other weights of the same model, rolled in while requests stream. They must be on every replica's file system."""

    # A run's folder: every policy that it finishes is rolled in. That is the last of each stage, or of every checkpoint
    # where the run has checkpoint.export_policy=true.
    follow: str = ""
    follow_every_s: float = bounded(2.0, above=0)  # how often that folder is looked at
    # Names of keys that may `POST /v1/weights`; "anonymous" where there are no keys.
    admin_keys: list[str] = field(default_factory=list)
    # Folders that such a request may take weights from; empty: the run that is served.
    roots: list[str] = field(default_factory=list)
    store_dir: str = "runs/weights"  # copies of what runs have written and is served, the last two of each server
    # Seconds for requests under way to end with the weights they began with; the others continue with the new ones.
    finish_timeout_s: float = 10.0


@dataclass
class SecurityConfig:
    """Which clients may send requests, how often, how large, and for how long."""

    keys_file: str = ""  # API keys, hashed (`cudal1 serve --add-key NAME`); empty: no keys, this machine only
    requests_per_minute: float = bounded(6000.0, above=0)  # per key, on average; a minute's worth may come at once
    max_concurrent: int = bounded(256, least=1)  # requests under way at once, per key
    max_body_kib: int = bounded(1024, least=1)  # largest request body
    body_timeout_s: float = bounded(20.0, above=0)  # seconds after which a body that has not arrived is given up
    request_timeout_s: float = bounded(600.0, above=0)  # a request is answered, streams included, within this time
    metrics_need_key: bool = False  # /metrics asks for a key too; /health and /healthz never do


@dataclass
class OptimizeConfig:
    """`/v1/optimize`: what one job may cost, and where the jobs are kept."""

    jobs_dir: str = "runs/jobs"  # a folder per job; a restart goes on with what it holds
    keep_jobs: int = bounded(1000, least=1)  # jobs that have ended and are kept; the oldest go first
    share_between_keys: bool = True  # the same request under two keys is one job; else only under one key
    known_run: str = ""  # a run's folder: a module that is one of its problems starts from the run's best exemplars
    known_exemplars: int = 4  # how many of them are measured here, and shown to the policy where they hold
    rounds: int = bounded(4, least=1)  # rounds of contrastive prompting; a request may ask for fewer or more
    max_rounds: int = 32  # most rounds that a request may ask for
    samples_per_round: int = bounded(8, least=1)  # candidates written per round; a request may ask for fewer or more
    max_samples_per_round: int = 64  # most samples of a round that a request may ask for
    time_limit_s: float = 600.0  # a job ends with what it has by then; a request may ask for less
    temperature: float = 1.0  # temperature at which candidates are sampled
    min_speedup: float = 1.01  # below this, measured again at the end, the answer is "nothing faster found"
    confirm: int = bounded(3, least=1)  # how many of the fastest candidates are measured again before one is named
    # What the winner is measured against besides; one that this device has not is reported as missing, with the reason.
    baselines: list[str] = field(default_factory=lambda: ["eager", "tuned_eager", "compile"])
    max_tokens: int = 0  # tokens that a job may have written, over all rounds; 0: no limit but rounds and time
    max_source_kib: int = bounded(64, least=1)  # largest module
    max_running: int = bounded(2, least=1)  # jobs worked on at once; further ones wait
    max_jobs_per_key: int = bounded(16, least=1)  # jobs of one key that wait or run
    seed: int = 1  # seed of what is drawn in a job: exemplars and completions
    evaluators: int = bounded(1, least=1)  # replicas that evaluate candidates, a device each
    evaluator_cpus: float = 1.0  # logical CPUs that Ray sets aside for each
    evaluator_gpus: float = 0.0  # GPUs that Ray sets aside for each
    # Beside one replica on a machine's CPU, evaluators start with the first job, and end after these seconds without.
    evaluator_idle_s: float = 600.0


@dataclass
class ServingConfig:
    """One application of `cudal1 serve`."""

    policy: ServedPolicyConfig = field(default_factory=ServedPolicyConfig)
    name: str = "cudal1"  # name of the Ray Serve application
    host: str = "127.0.0.1"  # 0.0.0.0 answers other machines too, and then wants keys
    port: int = bounded(8000, least=1, most=65535)  # what clients connect to, 1 to 65535
    # What listens at the port. replica: the one replica itself, as vLLM's own server would; proxy: Ray Serve, which
    # spreads requests over several; auto: replica where replicas.max=1 on a Ray started here.
    front: str = one_of("auto", "replica", "proxy")
    drain_timeout_s: float = 60.0  # seconds that requests under way have to end after SIGTERM
    address: str | None = None  # address of a running Ray cluster; null: start one here
    num_cpus: int = 8  # logical CPUs of the Ray that is started here
    object_store_mib: int = 256  # shared memory of the Ray that is started here, MiB
    server_id: str = ""  # names one start of the server; the server sets it
    replicas: ReplicasConfig = field(default_factory=ReplicasConfig)
    weights: WeightsConfig = field(default_factory=WeightsConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    optimize: OptimizeConfig = field(default_factory=OptimizeConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    prompting: PromptingConfig = field(default_factory=PromptingConfig)
    exemplars: ExemplarsConfig = field(default_factory=ExemplarsConfig)


def load_serving_config(overrides: list[str]) -> ServingConfig:
    """Compose a preset of `conf/serving/` (`serving=<preset>`; cpu where none is named) with overrides; check it.

    Where `policy` is a run's folder, prompts are built as that run built them, unless an override sets something else.

    Raises:
        UserError: naming the key, the preset or the folder at fault.
    """
    preset, rest = _split(overrides)
    config = compose_serving(preset, rest)
    endpoint = config.policy.path == ENDPOINT
    policy = ServedPolicy(Path(ENDPOINT), config.policy.model) if endpoint else find_policy(config.policy.path)
    explicit = {override.partition("=")[0].lstrip("+~") for override in rest}
    _take_over(policy.run_settings, config, explicit)
    paths = [(config.security, "keys_file"), (config.optimize, "jobs_dir"), (config.optimize, "known_run")]
    for holder, key in (*paths, (config.weights, "follow"), (config.weights, "store_dir")):
        if path := getattr(holder, key):  # actors run in folders of their own
            setattr(holder, key, str(Path(path).expanduser().resolve()))
    config.weights.roots = [str(Path(root).expanduser().resolve()) for root in config.weights.roots]
    config.policy.path, config.policy.name = str(policy.folder), config.policy.name or policy.name
    if not endpoint:  # a prompt leaves at least a third of the model's length to the answer
        longest = config.rollout.max_model_len * 2 // 3
        config.prompting.max_prompt_tokens = min(config.prompting.max_prompt_tokens, longest)
    check_serving_config(config)
    return config


def _split(overrides: list[str]) -> tuple[str, list[str]]:
    """Return the preset of `conf/serving/` that a command line names, and its other overrides in Hydra's grammar.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    preset, rest = "cpu", []
    for override in overrides:
        key, sign, value = override.partition("=")
        if key == "serving" and sign:
            preset = value
        else:
            rest.append(f"policy.path={value}" if key == "policy" and sign else override)
    if f"policy.path={ENDPOINT}" in rest and not any(setting.startswith("prompting=") for setting in rest):
        rest.insert(0, "prompting=full")  # the compact style is for policies that were trained on it
    presets = [each.name for each in serving_presets()["serving"]]
    if preset not in presets:
        raise UserError(f"serving={preset}: there is no such preset, use one of {', '.join(presets)}")
    return preset, Overrides(find_keys(ServingConfig), serving_presets(), "cudal1 serve").prepare(rest)


def compose_serving(preset: str, overrides: list[str]) -> ServingConfig:
    """Compose a preset of `conf/serving/` with overrides in Hydra's grammar; nothing is checked but keys and types.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    _store_schema()
    try:
        config: ServingConfig = compose_config(f"serving/{preset}", overrides, ServingConfig)
    except UserError as error:
        raise UserError(str(error).replace("cudal1 train --", "cudal1 serve --")) from None
    return config


def compose_serving_with_origins(overrides: list[str]) -> tuple[ServingConfig, dict[str, str]]:
    """Return what a command line of `cudal1 serve` composes to, without the policy's own settings, and what set each.

    Raises:
        UserError: naming the key or the preset at fault.
    """
    preset, rest = _split(overrides)
    config, files = compose_serving(preset, rest), composed_files(f"serving/{preset}", rest)
    return config, find_origins(files, find_presets(config_dir()), serving_presets(), rest)


@cache
def _store_schema() -> None:
    """Give Hydra the schema, once in a process. It comes first in the presets of conf/serving/, which fill it in."""
    ConfigStore.instance().store(name="serving_schema", node=ServingConfig)


def serving_presets() -> dict[str, list[Preset]]:
    """Return the presets that `cudal1 serve` takes, by group: its own, and those that it shares with training, such as
    evaluation and evaluation/rules.
    """
    shared = {group: presets for group, presets in all_presets().items() if group.partition("/")[0] in _SHARED}
    return {"serving": find_presets(config_dir())["serving"]} | shared


def check_serving_config(config: ServingConfig) -> None:
    """Check what types cannot express.

    Raises:
        UserError: naming the key and the values it takes.
    """
    check_values(config)
    for name in config.optimize.baselines:
        if name not in BASELINES:
            raise UserError(f"optimize.baselines has {name!r}: choose of {', '.join(BASELINES)}")
    if (run := config.optimize.known_run) and not all((Path(run) / part).exists() for part in KNOWN_PARTS):
        raise UserError(f"optimize.known_run={run}: no run's folder (it holds {' and '.join(KNOWN_PARTS)})")
    if config.replicas.min > config.replicas.max:
        raise UserError(f"replicas.min={config.replicas.min}: must not be above replicas.max={config.replicas.max}")
    if config.replicas.target_ongoing_requests > config.replicas.max_ongoing_requests:
        raise UserError(
            f"replicas.target_ongoing_requests={config.replicas.target_ongoing_requests:g}: must not be above "
            f"replicas.max_ongoing_requests={config.replicas.max_ongoing_requests}"
        )
    if config.front == "replica" and (config.replicas.max > 1 or config.address):
        raise UserError(
            f"front=replica: one replica on this machine, but replicas.max={config.replicas.max}, "
            f"address={config.address}; use front=proxy"
        )
    if config.weights.follow and not Path(config.weights.follow).is_dir():
        raise UserError(f"weights.follow={config.weights.follow}: no such folder; give the folder of a run")
    if config.rollout.engine != "vllm":
        raise UserError(f"rollout.engine={config.rollout.engine}: serving runs on vllm only")
    if not config.security.keys_file and not _local(config.host):
        raise UserError(
            f"host={config.host} answers other machines, but security.keys_file is empty: "
            "make a key with `cudal1 serve --add-key NAME security.keys_file=FILE`, or use host=127.0.0.1"
        )
    check_rollout_config(config.rollout)
    config.evaluation.validate()
    config.evaluation.timing.require_time()
    config.prompting.validate()
    config.exemplars.validate()


def check_gpus(config: ServingConfig) -> None:
    """Check that PyTorch sees a GPU where engine or evaluator of this machine are to compute on one. Without one a
    replica would wait for its place until its start timeout is over.

    Raises:
        UserError: naming the settings.
    """
    import torch

    devices = {"evaluation.device": config.evaluation.device}
    if config.policy.path != ENDPOINT:
        devices = {"rollout.device": config.rollout.device} | devices
    on_gpus = [f"{key}={device}" for key, device in devices.items() if device.startswith("cuda")]
    if on_gpus and torch.cuda.device_count() == 0:
        raise UserError(
            f"{', '.join(on_gpus)}: PyTorch sees no GPU here; take serving=cpu (`cudal1 serve` takes "
            "address=HOST:PORT of a Ray cluster that has GPUs, too)"
        )


def _local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _take_over(settings: dict[str, Any], config: ServingConfig, explicit: set[str]) -> None:
    """Fill in what a run's own configuration has, key by key, where the command line does not.

    Raises:
        UserError: naming the key whose value is of another type.
    """
    for section, values in settings.items():
        rest = {key: value for key, value in values.items() if not {section, f"{section}.{key}"} & explicit}
        place = f"policy={config.policy.path}: config.yaml of its run: {section}"
        setattr(config, section, with_settings(getattr(config, section), rest, place))
