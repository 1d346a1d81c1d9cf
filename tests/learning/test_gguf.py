"""A GGUF file becomes an ordinary policy: trainable, tied, saved as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from learning_samples import TEXTS

from cudal1_ray.learning import PolicyConfig, build_policy, encode_completion, encode_prompt, save_policy

pytest.importorskip("accelerate", reason="GGUF files need gguf and accelerate")
gguf = pytest.importorskip("gguf", reason="GGUF files need gguf and accelerate")

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


@pytest.fixture(scope="module")
def original():
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from cudal1_ray.learning import train_tokenizer

    tokenizer = train_tokenizer(TEXTS, 300, 64)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            tie_word_embeddings=True,
        )
    )
    return model, tokenizer


def write_gguf(model, tokenizer, path: Path, output_noise: float) -> None:
    """Write the model as converters do: the output matrix apart, here the embedding plus noise of quantisation."""
    config, writer = model.config, gguf.GGUFWriter(str(path), "qwen2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    vocabulary = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(vocabulary)
    writer.add_token_types([3 if i in tokenizer.all_special_ids else 1 for i in range(len(vocabulary))])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
    for name, weight in model.state_dict().items():
        values = weight.detach().float().numpy()
        if name == "model.embed_tokens.weight":
            writer.add_tensor("token_embd.weight", values)
            writer.add_tensor("output.weight", values + output_noise * torch.randn(*values.shape).numpy())
        elif name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", values)
        elif name.startswith("model.layers."):
            layer, _, rest = name.removeprefix("model.layers.").partition(".")
            module, _, kind = rest.rpartition(".")
            writer.add_tensor(f"blk.{layer}.{NAMES[module]}.{kind}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_gguf_when_loaded_is_a_tied_ordinary_policy(original, tmp_path):
    model, tokenizer = original
    write_gguf(model, tokenizer, tmp_path / "small.gguf", output_noise=1e-3)
    loaded, its_tokenizer = build_policy(PolicyConfig(kind="gguf", path=str(tmp_path / "small.gguf"), chat=True))
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight
    assert loaded.num_parameters() == model.num_parameters()
    ids = torch.tensor([encode_completion(tokenizer, TEXTS[0])])
    assert its_tokenizer.decode(ids[0][:-1]) == TEXTS[0]
    assert encode_completion(its_tokenizer, TEXTS[0])[-1] == its_tokenizer.eos_token_id == tokenizer.eos_token_id
    assert loaded.config.eos_token_id == loaded.generation_config.eos_token_id == tokenizer.eos_token_id
    assert its_tokenizer.decode(encode_prompt(its_tokenizer, TEXTS[0], chat=True)) == TEXTS[0]
    torch.testing.assert_close(loaded(ids).logits, model(ids).logits, rtol=0, atol=1e-5)
    save_policy(loaded, its_tokenizer, tmp_path / "folder")
    again, kept = build_policy(PolicyConfig(kind="huggingface", path=str(tmp_path / "folder")))
    assert kept.eos_token_id == tokenizer.eos_token_id and kept.pad_token_id == tokenizer.pad_token_id
    assert torch.equal(again(ids).logits, loaded(ids).logits)


def test_gguf_when_its_output_matrix_is_its_own_keeps_it(original, tmp_path):
    model, tokenizer = original
    write_gguf(model, tokenizer, tmp_path / "untied.gguf", output_noise=1.0)
    loaded, _ = build_policy(PolicyConfig(kind="gguf", path=str(tmp_path / "untied.gguf")))
    assert loaded.lm_head.weight is not loaded.model.embed_tokens.weight
    assert loaded.num_parameters() > model.num_parameters()
