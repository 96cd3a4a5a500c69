"""A tiny llama as the hub has it: config, safetensors, and a tokenizer of bytes."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WIDTH, INNER, LAYERS, HEADS = 64, 128, 2, 4
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_hf_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = Tokenizer(models.BPE({char: place for place, char in enumerate(alphabet)}, []))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.add_special_tokens([AddedToken("<|im_start|>"), AddedToken("<|im_end|>")])
    tokens.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    words = tokens.get_vocab_size()
    shape = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": words,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "eos_token_id": words - 1,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    random = np.random.default_rng(0)
    weights = {"model.embed_tokens.weight": (words, WIDTH), "model.norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        block = f"model.layers.{layer}"
        weights |= {f"{block}.{name}.weight": (WIDTH,) for name in ("input_layernorm", "post_attention_layernorm")}
        weights |= {f"{block}.self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"}
        weights |= {f"{block}.mlp.{name}_proj.weight": (INNER, WIDTH) for name in ("gate", "up")}
        weights[f"{block}.mlp.down_proj.weight"] = (WIDTH, INNER)
    save_file(
        {name: random.normal(0, 0.1, size).astype(np.float16) for name, size in weights.items()},
        str(folder / "model.safetensors"),
        {"format": "pt"},
    )
    return folder
