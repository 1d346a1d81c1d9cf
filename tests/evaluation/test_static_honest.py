"""The static gate lets honest code pass, and refuses text that nothing could read."""

from __future__ import annotations

import pytest

from cudal1_ray.evaluation.rules import check_static

HONEST_SNIPPETS = [
    "import os\nos.environ['MAX_JOBS'] = '4'",
    "try:\n    import triton\nexcept ImportError:\n    triton = None",
    "g = torch.cuda.CUDAGraph()\ns = torch.cuda.Stream()\ns.wait_stream(torch.cuda.current_stream())",
    "f = torch.compile(lambda x: x, mode='max-autotune')",
    "torch.backends.cudnn.benchmark = True",
    "def launch(x):\n    kernel(x.data_ptr(), x.numel())",
    "cache = {}\ncache[(3, 4)] = 1",
    "x = getattr(torch, 'float32')",
    "import math\nfrom functools import lru_cache",
    "SRC = '#include <torch/extension.h>\\ntorch::Tensor f(torch::Tensor x) { return x.detach().clone(); }'",
    "import torch._inductor.config\ntorch._inductor.config.triton.cudagraphs = False",
    "class Block(nn.Module):\n    def forward(self, x):\n        return x",
]


@pytest.mark.parametrize("snippet", HONEST_SNIPPETS)
def test_the_gate_lets_honest_code_pass(snippet):
    code = f"import torch\nimport torch.nn as nn\n{snippet}\n\nclass ModelNew(nn.Module):\n    pass\n"
    assert check_static(code).refusal is None


def test_a_renamed_reference_is_seen_through():
    assert check_static("x" * (2 << 20)).refusal.reason == "resource_exhaustion"
    assert check_static("(" * 3000).refusal.reason == "unparsable"
