"""The rules that prompts state are those in force, and the machine is the one that measures."""

from __future__ import annotations

from cudal1_ray.config import load_config
from cudal1_ray.evaluation import EvaluationConfig
from cudal1_ray.evaluation.hardware import describe_machine, processor_name
from cudal1_ray.evaluation.stated_rules import rules_in_force


def test_rule_when_its_setting_is_off_is_not_stated():
    default = " ".join(rules_in_force(EvaluationConfig(device="cuda")))
    config = load_config(["evaluation/rules=off"]).evaluation
    config.check.static_gate = False
    lax = " ".join(rules_in_force(config))
    for words in ("batch sizes", "side stream", "goes on without your own code", "not build", "fresh tensors", "TF32"):
        assert words in default and words not in lax
    for words in ("anew", "Inputs are never written to"):
        assert words in default and words in lax


def test_rules_in_force_when_the_set_is_strict_are_stated():
    strict = " ".join(rules_in_force(load_config(["evaluation/rules=strict"]).evaluation))
    default = " ".join(rules_in_force(EvaluationConfig()))
    for words in ("A kernel of your own has to run", "No torch.compile", "operators in their order are rejected"):
        assert words in strict and words not in default


def test_machine_when_on_a_cpu_names_the_processor_and_pytorch():
    machine = describe_machine("cpu")
    assert machine.device == processor_name()
    assert machine.details.startswith("PyTorch ") and "+" not in machine.details
