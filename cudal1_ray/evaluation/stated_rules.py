"""The rules that the evaluator enforces, as sentences for the prompts; made from its settings."""

from __future__ import annotations

from cudal1_ray.evaluation.config import EvaluationConfig


def rules_in_force(config: EvaluationConfig) -> tuple[str, ...]:
    """Return one terse sentence for each rule that a candidate is rejected for breaking under these settings.

    A rule that a setting switches off is not stated, so a prompt that prints them cannot drift from the evaluator.
    """
    rules, on_gpu = config.rules, config.device != "cpu"
    check = rules.applied_to(config.check)
    batch = ", of other batch sizes too" if check.shape_trials else ""
    stated = [
        "Same hyper-parameters, shapes and numbers of iterations; same number, shapes, dtypes and device of outputs.",
        f"Right for every input{batch}, and for every value of the weights: other scales, shifts and sparse values "
        f"are tried. RMS error at most {check.rms_tolerance:g} of the output's spread.",
    ]
    if rules.precision == "strict":
        stated.append("No lower precision than the reference works in: no autocast, no half precision inside.")
    if rules.tf32 == "reset":
        stated.append("Switches for TF32 are put back; default dtype, threads and every other setting stay.")
    elif rules.tf32 == "as_reference":
        stated.append("TF32, default dtype, threads and every other global setting stay as they are.")
    stated += [
        "Every call computes its whole output anew from the values of its inputs. Nothing is reused by content, "
        "address, identity, version or number of the call.",
        "Inputs are never written to. Every element of the output is written.",
    ]
    if rules.outputs == "fresh":
        stated.append("Every call returns fresh tensors: no buffer that a later call overwrites.")
    if on_gpu:
        stated.append("Every side stream is joined with the current stream before forward returns.")
    stated.append("No work is left to threads, processes or futures when forward returns.")
    if rules.fallbacks == "neutralise":
        stated.append(
            "A handler in forward that goes on without your own code re-raises, and an extension that does not build "
            "is an error: write no fallback."
        )
    elif rules.fallbacks == "reject":
        stated.append("No handler or condition in forward that goes on without your own code when that fails.")
    if check.static_gate:
        stated.append("Nothing of torch or Python is replaced; no frames, no garbage collector.")
    if check.static_gate and rules.findings == "refuse":
        stated.append("No clocks, random seeds, threads, files, network, exec or eval; every extension built is used.")
    if rules.compilers == "refuse":
        stated.append("No torch.compile and no torch.jit.")
    if rules.own_kernel == "required":
        stated.append("A kernel of your own has to run: Triton, or an inline extension.")
    if rules.same_operations == "flag":
        stated.append("The reference's own operators in their order are worth exactly 1.0, however they are written.")
    elif rules.same_operations == "reject":
        stated.append("The reference's own operators in their order are rejected, however they are written.")
    return tuple(stated)
