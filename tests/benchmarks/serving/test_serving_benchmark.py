"""The serving benchmark: both servers get the same engine, from settings that `cudal1 serve` takes."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.serving.common import CpuClock, engine_flags, settings_of
from cudal1_ray.rollout.vllm_compilation import compilation_arguments
from cudal1_ray.serving import load_serving_config


@pytest.mark.parametrize("overrides", [[], ["serving=one_gpu", "rollout.max_model_len=4700"], ["serving=gpu"]])
def test_engine_when_both_servers_are_started_has_the_settings_of_ours(tmp_path, overrides):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    config = load_serving_config(settings_of(tmp_path, overrides))
    flags = engine_flags(config.rollout, tmp_path)
    assert flags[flags.index("--max-model-len") + 1] == str(config.rollout.max_model_len)
    assert ("--kv-cache-memory-bytes" in flags) == (config.rollout.kv_cache_gib is not None)
    compilation = compilation_arguments(config.rollout).get("compilation_config")
    assert ("--compilation-config" in flags) == (compilation is not None)
    if compilation is not None:
        assert json.loads(flags[flags.index("--compilation-config") + 1]) == compilation
    assert config.policy.path == str(tmp_path)


def test_cpu_clock_when_a_process_has_ended_keeps_its_time():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        with CpuClock([psutil.Process(process.pid)]) as clock:
            began = time.perf_counter()
            time.sleep(1.2)
            process.kill()
            process.wait()
            time.sleep(0.6)
        assert clock.between(began, time.perf_counter()) > 0.1
