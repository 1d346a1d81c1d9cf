"""The serving benchmarks: both servers get the same engine, from settings that `cudal1 serve` takes; a job's candidates
are sorted by kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import psutil
import pytest

from benchmarks.serving.common import CpuClock, engine_flags, settings_of
from benchmarks.serving.optimize_job import MODULE, candidate_rows, count_kinds, write_known_run
from cudal1_ray.exemplars import ExemplarsConfig
from cudal1_ray.rollout.vllm_compilation import compilation_arguments
from cudal1_ray.serving import load_serving_config
from cudal1_ray.serving.optimize.known_problems import KnownProblems


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


def test_known_run_when_the_module_is_posted_has_its_cuda_kernel(tmp_path):
    write_known_run(tmp_path / "known")
    prior = KnownProblems(str(tmp_path / "known"), 4, ExemplarsConfig()).of(MODULE.read_text())
    code_by_id = {exemplar.exemplar_id: exemplar.code for exemplar in prior.exemplars}
    verdict = {"status": "accepted", "reasons": [], "speedup": 2.0}
    events = [{"type": "exemplar", "candidate": name, "time": 5.0} | verdict for name in code_by_id]
    events.append({"type": "candidate", "round": 1, "time": 7.5, "status": "rejected", "reasons": ["unparsable"]})
    rows = candidate_rows([{"type": "module", "time": 4.0} | verdict, *events], code_by_id, began=4.0)
    assert [(row["round"], row["s"]) for row in rows] == [(0, 1.0), (1, 3.5)]
    assert count_kinds(rows) == {
        "inline CUDA": {"candidates": 1, "accepted": 1},
        "no code": {"candidates": 1, "accepted": 0},
    }
