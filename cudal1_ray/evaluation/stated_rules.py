"""The rules that the evaluator enforces, as sentences for whatever writes candidates; made from its settings."""

from __future__ import annotations

from .config import EvaluationConfig


def rules_in_force(config: EvaluationConfig) -> tuple[str, ...]:
    """Returns one terse sentence for each rule that a candidate is rejected for breaking under these settings.

    A rule that a setting switches off is not stated, so a prompt that prints them cannot drift from the evaluator.
    """
    check, on_gpu = config.check, config.device != "cpu"
    batch = ", of other batch sizes too" if check.shape_trials else ""
    rules = [
        "Same hyper-parameters, shapes and numbers of iterations; same number, shapes, dtypes and device of outputs.",
        f"Right for every input{batch}, and for every value of the weights: other scales, shifts and sparse values "
        f"are tried. RMS error at most {check.rms_tolerance:g} of the output's spread.",
        "No lower precision than the reference works in; TF32, autocast, default dtype, threads and every other global "
        "setting stay as they are.",
        "Every call computes its whole output anew from the values of its inputs. Nothing is reused by content, "
        "address, identity, version or number of the call.",
        "Every call returns fresh tensors, each element written. Inputs are never written to.",
    ]
    if on_gpu:
        rules.append("Every side stream is joined with the current stream before forward returns.")
    rules.append("No threads or processes of your own, no forked or deferred work.")
    if check.static_gate:
        rules.append(
            "No handler or condition in forward that goes on without your own code when that fails; every extension "
            "that is built is used."
        )
        rules.append(
            "No clocks, frames, garbage collector, random seeds, files, network, exec or eval; nothing of torch or "
            "Python is replaced."
        )
    if check.unbuilt == "reject":
        rules.append("A file that goes on after its extension did not build is rejected.")
    if check.no_op == "reject":
        rules.append("The reference renamed is rejected.")
    return tuple(rules)
