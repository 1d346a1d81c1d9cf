"""What of the prompts can be configured."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cudal1_ray.errors import UserError
from cudal1_ray.settings import bounded, check_values, several_of

# Folder with a folder of templates for each style.
TEMPLATES = Path(__file__).parent / "templates"


@dataclass
class PromptingConfig:
    """How a problem is put to the policy (CUDA-L1, arXiv 2507.14111, the prompts of stages 1 and 3)."""

    # A bundled style, compact or full, or a folder with one_shot.md.j2 and contrastive.md.j2.
    style: str = "compact"
    # Longest prompt, in tokens of the policy's tokenizer; a longer one is shortened as PromptBuilder
    # documents.
    max_prompt_tokens: int = bounded(2048, least=1)
    # Longest answer the policy may write, in tokens; a longer one is cut, and then seldom holds whole code.
    max_completion_tokens: int = bounded(1024, least=1)
    # Ask for, and teach, the performance analysis part of the answer; false is an ablation of the paper's
    # idea.
    include_analysis: bool = True
    # Leave comments and docstrings out of every prompt, not only when the budget demands it.
    strip_comments: bool = False
    # Name of the device the candidates are timed on, as the full style states it; auto: as the machine that evaluates
    # reports it, with its memory, compute capability, number of SMs and the versions of PyTorch, CUDA and Triton.
    device: str = "auto"
    # Means a candidate may use, as the full style lists them.
    allowed_means: list[str] = field(default_factory=lambda: ["PyTorch", "Triton", "inline CUDA"])
    # Worked candidates that the full style shows before the problem, where a GPU measures: triton, cuda. They show the
    # form of a kernel that builds in seconds and that the evaluator accepts; 430 and 480 tokens of a 49k vocabulary.
    examples: list[str] = several_of(or_else=("triton", "cuda"))
    # Where kernels of related problems come from, as sft.corpus; empty: none are shown. They take the place of the
    # worked examples, and are what a problem without exemplars of its own, such as a held-out one, is answered from.
    # Only kernels of training problems are shown, and none of the problem's own. Their speedups are of this device
    # where the corpus has such, else as recorded, of any device.
    related_from: str = ""
    related_count: int = bounded(2, least=1)  # kernels of related problems in a prompt, each of another problem

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "prompting.")
        if not (self.style and any(folder.is_dir() for folder in (TEMPLATES / self.style, Path(self.style)))):
            raise UserError(f"prompting.style={self.style}: use compact, full, or a folder with templates")
        if not self.allowed_means:
            raise UserError("prompting.allowed_means is empty: name at least one, for example PyTorch")
