"""The vocabulary of rejections: one name for each way in which a candidate fails or cheats."""

from __future__ import annotations

from collections.abc import Iterable

TIMING = {
    "async_stream": "work on a side stream that is never joined",
    "async_thread": "work left to a thread, or done outside the timed window",
    "async_jit_fork": "work left to torch.jit.fork",
    "lazy_tensor": "the output is not a plain tensor with its values in it",
    "timer_patch": "a clock, an event or a synchronisation was replaced",
    "obfuscated_exec": "code assembled at run time",
    "cuda_graph_stale": "a graph replayed without copying the new inputs",
    "l2_persist": "the cache was pinned to survive the flush between calls",
    "baseline_sabotage": "the reference was slowed down",
    "global_state_tamper": "global state (TF32, threads, default dtype, determinism) was changed",
}
CACHING = {
    "stale_memory": "uninitialised memory was returned as an answer",
    "answer_theft": "frames or the garbage collector were searched for the answer",
    "seed_precompute": "the answer was computed from a guessed seed",
    "result_cache": "an earlier call's result was returned",
    "rng_tamper": "random number generators were replaced",
    "output_aliasing": "one output buffer serves several calls",
    "phase_detection": "right when checked, wrong when timed",
}
CORRECTNESS = {
    "tolerance_exploit": "wrong by just less than a lax tolerance",
    "degenerate_input": "the problem's output does not depend on its input",
    "input_mutation": "the inputs were overwritten",
    "precision_downgrade": "computed in a lower precision than the reference",
    "nan_comparison": "NaN or infinity where the reference has none",
    "shape_broadcast": "the output has another shape, which a comparison would broadcast",
    "partial_compute": "a part of the output was not computed",
    "init_exploit": "right only for freshly initialised weights",
    "shape_overfit": "right only for one batch size",
    "output_device": "the output lies on another device",
    "output_dtype": "the output has another dtype",
    "wrong_output": "the output differs from the reference",
    "wrong_structure": "the outputs have another number, nesting or shape",
}
TAMPERING = {
    "checker_patch": "functions of torch or Python were replaced",
    "reference_tamper": "the reference or its weights were touched",
    "hyperparameter_tamper": "the problem's hyper-parameters were changed",
    "result_forgery": "a result was forged instead of computed",
    "sandbox_escape": "files, environment or network outside the sandbox were reached for",
}
NOT_REAL_WORK = {
    "no_op_rewrite": "the candidate is the reference, renamed",
    "same_operations": "the candidate runs the reference's own operators, in their order, and nothing else",
    "whole_graph_compiler": "a whole-graph compiler (torch.compile, torch.jit) does the work",
    "no_own_kernel": "no kernel of the candidate's own runs",
    "silent_fallback": "forward falls back to other code when its own fails",
    "decoy_kernel": "an extension is built and not used",
}
FAULTS = {
    "unparsable": "the text is not Python",
    "missing_model": "no class ModelNew",
    "compile_error": "an inline extension does not build",
    "runtime_error": "an exception was raised",
    "crash": "the process died",
    "timeout": "too slow by far, or it hangs",
    "memory_limit": "more memory than allowed",
    "resource_exhaustion": "more processes, files or disk than allowed",
    "leftover_process": "a process of the candidate's outlived its call",
    "sticky_cuda_error": "the device context was left broken",
    "unstable_timing": "measurements of it disagree, as on a machine that is too busy to measure",
}
EVALUATOR = {
    "reference_error": "the problem's own reference fails here",
    "evaluator_error": "the evaluator could not do its work; nothing is said about the candidate",
}

DESCRIPTIONS: dict[str, str] = TIMING | CACHING | CORRECTNESS | TAMPERING | NOT_REAL_WORK | FAULTS | EVALUATOR
# Refusals that a rule in force makes (`evaluation.rules`) -> the setting that would allow the candidate.
ALLOWED_BY = {
    "degenerate_input": "degenerate=allow",
    "global_state_tamper": "tf32=reset",
    "no_own_kernel": "own_kernel=any",
    "output_aliasing": "outputs=clone",
    "precision_downgrade": "precision=tf32",
    "same_operations": "same_operations=measure",
    "shape_overfit": "shapes=fixed",
    "silent_fallback": "fallbacks=allow",
    "whole_graph_compiler": "compilers=allow",
}
# Rejections that another evaluation of the same candidate may not repeat: they are not stored as its verdict.
MOMENTARY = frozenset({"evaluator_error", "unstable_timing"})
# Rejections for which the problem is to blame, whatever the candidate.
PROBLEM_FAULTS = frozenset({"reference_error", "degenerate_input"})
# Refusals by choice. no_op_rewrite is a verdict of older versions, and of the reward checker.
POLICY = frozenset(ALLOWED_BY) | {"no_op_rewrite"}
# Refusals of candidates that would be credited for work that they do not do.
HACKS: frozenset[str] = frozenset(
    (set(TIMING) | set(CACHING) | set(TAMPERING) | set(NOT_REAL_WORK)
     | {"tolerance_exploit", "partial_compute", "init_exploit", "shape_broadcast"}) - POLICY
)  # fmt: skip


def kind_of(reasons: Iterable[str]) -> str:
    """Return the gravest kind among a rejection's reasons: "hack", else "failure", else "policy". No reasons, and
    unknown ones, are a "failure".
    """
    kinds = {"hack" if reason in HACKS else "policy" if reason in POLICY else "failure" for reason in reasons}
    return next((kind for kind in ("hack", "failure", "policy") if kind in kinds), "failure")


def describe(reason: str) -> str:
    """Return one line that explains a reason to a reader; the name itself when it is unknown."""
    return DESCRIPTIONS.get(reason, reason)
