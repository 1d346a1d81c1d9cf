"""Adapters in PEFT's format: written by a learner, read by PEFT and by the next learner."""

from __future__ import annotations

import json

import pytest
import torch
from learning_samples import SHAPE, some_sequences

from cudal1_ray.errors import UserError
from cudal1_ray.learning import PolicyConfig
from cudal1_ray.learning.adapter_files import CONFIG, load_adapter, read_shape, save_adapter, with_adapter_shape
from cudal1_ray.rollout import AdapterShape


@pytest.fixture(scope="module")
def trained(tmp_path_factory, policy_folder):
    """Return a learner whose adapters moved, the folder that it wrote them to, and a merged copy of its policy."""
    from cudal1_ray.learning import Learner, LearnerConfig

    policy = PolicyConfig(**{**vars(SHAPE), "lora_rank": 4, "lora_alpha": 12.0})
    learner = Learner(LearnerConfig(device="cpu"), policy, policy_folder)
    learner.start_stage(2e-2)
    for _ in range(10):
        learner.train_sft(some_sequences(4))
    folder = tmp_path_factory.mktemp("adapter")
    learner.save_adapter(folder / "adapter")
    learner.save_policy(folder / "merged")
    return learner, folder


def test_adapter_when_a_learner_wrote_it_is_the_same_in_peft(trained, policy_folder):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    _, folder = trained
    ids = torch.randint(3, 259, (2, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        base = AutoModelForCausalLM.from_pretrained(policy_folder)
        before = base(ids).logits
        adapted = peft.PeftModel.from_pretrained(base, str(folder / "adapter"))(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(folder / "merged")(ids).logits
    torch.testing.assert_close(adapted, merged, atol=5e-5, rtol=0)
    assert (adapted - before).abs().max() > 0.1


def test_adapter_when_peft_wrote_it_is_the_same_in_a_learner(tmp_path, make_learner, policy_folder):
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(policy_folder)
    config = peft.LoraConfig(r=3, lora_alpha=9, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    theirs = peft.get_peft_model(base, config)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in theirs.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.2
    theirs.save_pretrained(str(tmp_path))
    shape = with_adapter_shape(PolicyConfig(), tmp_path)
    ours = make_learner(
        policy_adapter=str(tmp_path), policy_lora_rank=shape.lora_rank, policy_lora_alpha=shape.lora_alpha
    )
    sequences = some_sequences(3)
    for sequence, scores in zip(sequences, ours.score(sequences), strict=True):
        ids = torch.tensor([[*sequence.prompt_token_ids, *sequence.completion_token_ids]])
        with torch.no_grad():
            logprobs = theirs(ids).logits[0, len(sequence.prompt_token_ids) - 1 : -1].log_softmax(-1)
        expected = logprobs.gather(-1, ids[0, len(sequence.prompt_token_ids) :, None]).squeeze(-1)
        torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-4, rtol=0)


def test_learner_when_started_from_an_adapter_is_the_one_that_wrote_it(trained, make_learner):
    learner, folder = trained
    again = make_learner(policy_adapter=str(folder / "adapter"), policy_lora_rank=4, policy_lora_alpha=12.0)
    assert again.score(some_sequences(4)) == learner.score(some_sequences(4))
    assert dict(again.adapter_weights()).keys() == load_adapter(folder / "adapter").keys()


@pytest.mark.parametrize(
    ("zero_stage", "dtype"), [(0, "float32"), (0, "bfloat16"), (2, "bfloat16"), (3, "float32"), (3, "bfloat16")]
)
@pytest.mark.parametrize("kind", ["adapter", "fresh_adapter", "all_weights"])
def test_learner_when_it_takes_first_weights_goes_on_as_one_that_starts_with_them(
    trained, make_learner, zero_stage, dtype, kind
):
    adapter = str(trained[1] / "adapter") if kind == "adapter" else ""
    fields = {"zero_stage": zero_stage, "policy_dtype": dtype}
    if kind != "all_weights":
        fields |= {"policy_lora_rank": 4, "policy_lora_alpha": 12.0}
    learner, fresh = make_learner(**fields), make_learner(policy_adapter=adapter, **fields)
    before, sequences = fresh.score(some_sequences(4)), some_sequences(5, seed=4)
    learner.start_stage(2e-2)
    learner.train_sft(some_sequences(4))
    assert learner.score(some_sequences(4)) != before
    learner.load_first_weights(adapter)
    assert learner.score(some_sequences(4)) == before
    if kind == "fresh_adapter":  # A makes no difference until B has moved
        return
    for each in (learner, fresh):
        each.start_stage(2e-2)
        each.train_sft(sequences)
    assert learner.score(sequences) == fresh.score(sequences)


def test_adapter_when_it_leaves_out_layers_leaves_nothing_of_another_in_them(trained, make_learner, tmp_path):
    fields = {"policy_lora_rank": 4, "policy_lora_alpha": 12.0}
    weights = load_adapter(trained[1] / "adapter")
    save_adapter(tmp_path, {k: v for k, v in weights.items() if ".q_proj." in k}, AdapterShape(4, 12.0), "")
    learner = make_learner(policy_adapter=str(trained[1] / "adapter"), **fields)
    learner.load_first_weights(str(tmp_path))
    started = make_learner(policy_adapter=str(tmp_path), **fields)
    assert learner.score(some_sequences(4)) == started.score(some_sequences(4))
    with pytest.raises(UserError, match=r"the policy's is \[2, \d+\]"):
        make_learner(policy_lora_rank=2, zero_stage=3).load_first_weights(str(tmp_path))


def test_adapter_when_of_another_shape_is_refused_with_both_values(trained, make_learner, tmp_path):
    _, folder = trained
    assert read_shape(folder / "adapter") == AdapterShape(4, 12.0)
    with pytest.raises(UserError, match=r"policy.lora_rank=8.* give policy.lora_rank=4 policy.lora_alpha=12$"):
        with_adapter_shape(PolicyConfig(lora_rank=8), folder / "adapter")
    with pytest.raises(UserError, match=r"lora_A.weight is \[4, \d+\], the policy's is \[2, \d+\]"):
        make_learner(policy_adapter=str(folder / "adapter"), policy_lora_rank=2)
    with pytest.raises(UserError, match="no adapter_config.json there"):
        read_shape(tmp_path)
    (tmp_path / CONFIG).write_text(json.dumps({"r": 4, "lora_alpha": 8, "use_dora": True}))
    with pytest.raises(UserError, match="use_dora=True"):
        read_shape(tmp_path)
    (tmp_path / CONFIG).write_text("{")
    with pytest.raises(UserError, match=CONFIG):
        read_shape(tmp_path)


@pytest.mark.parametrize("first", ["pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"])
def test_adapter_when_its_initialisation_changed_the_base_weights_is_refused(tmp_path, first):
    config = {"r": 4, "lora_alpha": 8, "init_lora_weights": first}
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(UserError, match=rf"{CONFIG}: init_lora_weights='{first}': .*weight_conversion"):
        read_shape(tmp_path)


@pytest.mark.parametrize("first", [True, False, "gaussian", "eva", "orthogonal"])
def test_adapter_when_its_initialisation_left_the_base_weights_alone_is_read(tmp_path, first):
    (tmp_path / CONFIG).write_text(json.dumps({"r": 4, "lora_alpha": 8, "init_lora_weights": first}))
    assert read_shape(tmp_path) == AdapterShape(4, 8.0)
