"""Configuration of the policy, of the algorithm that improves it, and of the learner that runs the algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cudal1_ray.errors import UserError
from cudal1_ray.rollout.endpoint import PolicyEndpointConfig
from cudal1_ray.settings import bounded, check_values, one_of

ATTENTIONS = ("auto", "varlen", "segments", "sdpa", "eager", "flash_attention_2", "flex_attention")
SCHEDULES = ("constant", "linear", "cosine")
OFFLOADS = ("none", "cpu", "nvme")
# Settings of the shape of a scratch policy.
SHAPE = ("hidden_size", "layers", "heads", "intermediate_size", "vocab_size", "max_position")


@dataclass
class PolicyConfig(PolicyEndpointConfig):
    """The language model that is trained: where it comes from, its shape if made here, how it computes."""

    # huggingface: a folder or a hub name | scratch: made here, with a tokenizer made here | gguf: one file
    # | endpoint: behind policy.url, for `cudal1 collect`; it cannot be trained.
    kind: str = one_of("huggingface", "scratch", "gguf", "endpoint")
    # Folder or hub name (huggingface), or the file (gguf); scratch takes none.
    path: str = ""
    # Prompts go through the model's chat template as one user message; a tokenizer without a template adds nothing.
    chat: bool = False
    # What that template is given besides the message, for models that think: chat_template_kwargs={enable_thinking:
    # false} of Qwen3 answers at once. With thoughts, prompting.max_completion_tokens has to hold them too.
    chat_template_kwargs: Any = None
    # Width of a scratch policy, which has to be given its shape (policy=tiny is one); others bring theirs, and null
    # stays. The size of a head, hidden_size / heads, must be one that vLLM serves: 32, 64, 80, 96,
    # 112, 128 or 256.
    hidden_size: int | None = bounded(None, least=1)
    layers: int | None = bounded(None, least=1)  # blocks of a scratch policy
    heads: int | None = bounded(None, least=1)  # attention heads of a scratch policy
    intermediate_size: int | None = bounded(None, least=1)  # width of a scratch policy's MLP
    # Tokens of the scratch tokenizer, at most: 256 bytes and 3 special tokens at least, so that any text has tokens.
    vocab_size: int | None = bounded(None, least=259)
    # Longest prompt and completion of a scratch policy together, in tokens.
    max_position: int | None = bounded(None, least=2)
    # Standard deviation of a scratch policy's initial weights.
    init_std: float = 0.02
    # float32 | bfloat16: of the weights as they are held and saved; beside bfloat16, fp32 master weights are kept.
    dtype: str = one_of("float32", "bfloat16")
    # Rank of low-rank adapters (LoRA, arXiv 2106.09685) on every linear layer of the blocks; 0 trains all weights.
    lora_rank: int = 0
    # Adapters are scaled by lora_alpha / lora_rank.
    lora_alpha: float = 32.0
    # Folder of an adapter in PEFT's format to start from; its rank and alpha are taken where lora_rank is 0.
    adapter: str = ""
    # Recompute activations in the backward pass: less memory, a third more time.
    gradient_checkpointing: bool = False
    # auto | varlen (flash attention over packed rows; CUDA, bfloat16) | segments (one sequence after the other)
    # | sdpa | eager | flash_attention_2 | flex_attention, as transformers names them. auto: sdpa for rows of one
    # sequence each; for packed rows varlen where it can, else segments.
    attention: str = one_of(*ATTENTIONS)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "policy.")
        if not isinstance(self.chat_template_kwargs, dict | None):
            raise UserError(
                f"policy.chat_template_kwargs={self.chat_template_kwargs!r}: must be null or names with values, such "
                "as {enable_thinking: false}"
            )
        if self.kind in ("huggingface", "gguf") and not self.path:
            what = "a model folder or hub name" if self.kind == "huggingface" else "a .gguf file"
            raise UserError(f"policy.path is empty: kind={self.kind} needs policy.path={what}")
        if self.kind == "gguf" and not self.path.endswith(".gguf"):
            raise UserError(f"policy.path={self.path}: kind=gguf takes a .gguf file; policy=huggingface takes a folder")
        if self.kind == "scratch":
            missing = [name for name in SHAPE if getattr(self, name) is None]
            if self.hidden_size is None or self.heads is None or missing:
                names = ", ".join(f"policy.{name}" for name in missing)
                raise UserError(f"{names}: missing; a policy from scratch needs its shape (policy=tiny has one)")
            if self.hidden_size % self.heads or self.hidden_size // self.heads not in (32, 64, 80, 96, 112, 128, 256):
                raise UserError(
                    f"policy.hidden_size={self.hidden_size} / policy.heads={self.heads}: the size of a head must be "
                    "32, 64, 80, 96, 112, 128 or 256, or vLLM cannot serve the policy"
                )


@dataclass
class AlgorithmConfig:
    """How rewards become a change of the policy. CUDA-L1 (arXiv 2507.14111) uses GRPO; it publishes no figures."""

    # grpo | grpo_leave_one_out | dr_grpo | reinforce | gspo, or one added with `register_algorithm`.
    name: str = "grpo"
    # The probability ratio is clipped to [1 - clip_low, 1 + clip_high] (PPO: 0.2; DAPO, arXiv 2503.14476: high 0.28).
    clip_low: float = 0.2
    # The upper side of that interval.
    clip_high: float = 0.2
    # Weight of the KL divergence from the reference policy (DeepSeekMath, arXiv 2402.03300: 0.04); 0: no reference.
    kl_coef: float = 0.0
    # Largest weight given to a token for being likelier under the learner than under the engine that sampled it
    # (truncated importance sampling); 0 trusts the engine's log-probabilities not to differ.
    tis_cap: float = 2.0
    # tokens: sum over all tokens / their number (DAPO) | sequences: mean over sequences of their mean (GRPO, GSPO)
    # | constant: sum over tokens / (sequences x loss_constant_tokens) (Dr. GRPO, arXiv 2503.20783).
    loss_normalisation: str = one_of("tokens", "sequences", "constant")
    loss_constant_tokens: int = bounded(512, least=1)  # tokens that loss_normalisation=constant divides by
    # Weight of an entropy bonus.
    entropy_coef: float = 0.0
    # Passes over a batch of completions.
    epochs_per_batch: int = bounded(1, least=1)
    # Optimiser steps in each pass.
    minibatches: int = bounded(1, least=1)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "algorithm.")
        from cudal1_ray.learning.algorithm import get_algorithm  # imports this module

        get_algorithm(self.name)


@dataclass
class LearnerConfig:
    """Training on one or many devices with DeepSpeed (ZeRO, arXiv 1910.02054)."""

    # auto | cpu | cuda; auto takes the GPU where there is one.
    device: str = one_of("auto", "cpu", "cuda")
    # 0: every rank holds everything; 1: optimiser states are split over ranks; 2: gradients too; 3: weights too.
    zero_stage: int = bounded(0, least=0, most=3)
    # none | cpu | nvme: where optimiser states rest between uses (ZeRO 1 to 3).
    offload_optimizer: str = one_of(*OFFLOADS)
    # none | cpu | nvme: where weights rest between uses (ZeRO 3).
    offload_parameters: str = one_of(*OFFLOADS)
    # Folder on a fast local disk, for offload to nvme.
    nvme_path: str = ""
    # constant | linear | cosine: the learning rate after warm-up; the latter two end at final_rate_share of it.
    schedule: str = one_of(*SCHEDULES)
    # linear, cosine: the last learning rate as a share of the stage's.
    final_rate_share: float = bounded(0.1, least=0, most=1)
    # adamw (arXiv 1711.05101) | muon: Muon for the matrices of the blocks, AdamW for the rest; needs zero_stage=0, for
    # the other stages cut matrices into pieces. It halves the passes a policy from scratch needs.
    optimizer: str = one_of("adamw", "muon")
    # Muon's learning rate is the stage's times this.
    muon_rate_factor: float = 6.0
    weight_decay: float = 0.0  # decoupled, of AdamW and Muon
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])  # decay of AdamW's two moments
    epsilon: float = 1e-8  # number that AdamW adds to the root of the second moment
    # Gradients of a larger norm are scaled down to it; 0 never does.
    max_grad_norm: float = 1.0
    # Tokens of one micro-batch, padding included: what memory allows; has no influence on the result.
    tokens_per_micro_batch: int = bounded(8192, least=1)
    # Lay sequences end to end in one row instead of padding them. No attention crosses from one to the next; the rows
    # that ranks compute at the same time hold about the same number of tokens.
    packing: bool = False
    # Tokens for which logits are made at a time; of more, they are made a second time in the backward pass.
    logit_chunk_tokens: int = bounded(8192, least=1)
    # Matrix products of training steps in bfloat16, weights and log-probabilities of `score` still in fp32.
    autocast: bool = False
    # torch.compile the policy's blocks, all of them once: a start of about a minute, then faster steps. ZeRO 0 to 2.
    compile: bool = False
    # Measure the policy's entropy in every policy-gradient step (it costs one pass over the logits).
    log_entropy: bool = True
    # Seconds after which a rank that hears nothing from the others gives up.
    collective_timeout_s: float = bounded(600.0, above=0)

    def validate(self) -> None:
        """Raise UserError naming the first field whose value cannot work."""
        check_values(self, "learner.")
        for name in ("offload_optimizer", "offload_parameters"):
            if getattr(self, name) == "nvme" and not self.nvme_path:
                raise UserError(f"learner.{name}=nvme: needs learner.nvme_path=<folder on a local disk>")
        if self.optimizer == "muon" and self.zero_stage > 0:
            raise UserError(f"learner.optimizer=muon: needs learner.zero_stage=0, not {self.zero_stage}")
        if self.offload_optimizer != "none" and self.zero_stage == 0:
            raise UserError("learner.offload_optimizer: needs learner.zero_stage of 1 or more")
        if self.offload_parameters != "none" and self.zero_stage < 3:
            raise UserError("learner.offload_parameters: needs learner.zero_stage=3")
        if self.compile and self.zero_stage == 3:
            raise UserError("learner.compile: needs learner.zero_stage of 2 or less; 3 splits weights behind its back")
        if len(self.betas) != 2 or max(self.betas) >= 1:
            raise UserError(f"learner.betas={self.betas}: must be two numbers below 1")
