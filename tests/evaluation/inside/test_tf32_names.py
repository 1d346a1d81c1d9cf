"""Several names of torch switch TF32, and the evaluator heeds each of them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SWITCHES = {
    "b.cudnn.conv.fp32_precision = 'ieee'; b.cudnn.rnn.fp32_precision = 'ieee'": [False, False],
    "b.cudnn.fp32_precision = 'ieee'": [False, False],
    "b.fp32_precision = 'ieee'": [False, False],
    "b.cudnn.allow_tf32 = False": [False, False],
    "pass": [False, True],  # torch's own default
    "b.cudnn.fp32_precision = 'tf32'": [False, True],
    "b.cuda.matmul.allow_tf32 = True": [True, True],
    "b.cuda.matmul.fp32_precision = 'tf32'": [True, True],
    "b.cuda.matmul.fp32_precision = 'none'; b.fp32_precision = 'tf32'": [True, True],
}
# Each is switched in a process without earlier switches: torch keeps what other names have set. Importing torch takes
# two seconds, so the processes are forked after the import.
PROGRAM = """
import json, os, sys, torch
from cudal1_ray.evaluation.inside.cuda_device import tf32_products
b = torch.backends
for switch in json.loads(sys.argv[1]):
    if os.fork() == 0:
        torch.set_float32_matmul_precision("highest")
        exec(switch)
        print(json.dumps([switch, list(tf32_products().values())]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def states() -> dict[str, list[bool]]:
    """Return for each switch whether products and convolutions are less exact after it."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(list(SWITCHES))]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(line) for line in answer.stdout.splitlines())


@pytest.mark.parametrize("switch", SWITCHES)
def test_tf32_when_switched_by_any_name_is_reported(states, switch):
    assert states[switch] == SWITCHES[switch]
