#!/usr/bin/env python3
"""Make lora.json: ten steps of low-rank adapters in double precision, computed by Hugging Face's peft and transformers with PyTorch;
the tests do not run this.

lora.json    for each run: the model, the rank, alpha and layers of the adapters, the shapes of the weights and of the adapters
             (weights.py makes the values of both), and the losses of ten steps; "spread" is the largest relative difference of
             PyTorch's single precision from each loss
"""
import json
import pathlib
import sys

import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict, get_peft_model_state_dict
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Qwen3Config

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import weights  # noqa: E402

STEPS = 10
SMALL = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, vocab_size=256,
             max_position_embeddings=20, attn_implementation="eager")
LLAMA = "llama:layers=2,heads=4,width=32,hidden=56,context=20,kv_heads=%d,tied=%d,eps=%s"
RUNS = {
    "llama": (LlamaConfig(**SMALL, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
              LLAMA % (2, 0, "1e-5"), dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    "qwen3": (Qwen3Config(**SMALL, num_key_value_heads=4, head_dim=8, rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True),
              LLAMA % (4, 1, "1e-6") + ",qk_norm=1", dict(r=3, lora_alpha=4.5, target_modules=r".*_proj")),
    "gpt2": (GPT2Config(n_layer=2, n_head=4, n_embd=32, n_positions=20, vocab_size=256, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
             "gpt:layers=2,heads=4,width=32,context=20", dict(r=8, lora_alpha=8, target_modules=["c_attn"], fan_in_fan_out=True)),
}
HOW = dict(length=20, batch=4, lr=0.01, beta2=0.99, weight_decay=0.1, clip_norm=1.0)


def run(config, model_text, lora):
    data = (HERE / "text.txt").read_bytes()
    train = torch.tensor(list(data[:len(data) * 9 // 10]))
    length, batch = HOW["length"], HOW["batch"]
    tied = "lm_head.weight" if config.tie_word_embeddings else None
    shapes = {name: list(tensor.shape) for name, tensor in AutoModelForCausalLM.from_config(config).state_dict().items()
              if name != tied and not name.endswith((".attn.bias", ".attn.masked_bias"))}
    adapters = {}

    def once(dtype):
        base = AutoModelForCausalLM.from_config(config)
        base.load_state_dict({name: torch.tensor(weights.values(name, shape)).reshape(shape) for name, shape in shapes.items()}, strict=False)
        model = get_peft_model(base, LoraConfig(**lora, lora_dropout=0))
        adapters.update({name: list(tensor.shape) for name, tensor in get_peft_model_state_dict(model).items()})
        set_peft_model_state_dict(model, {name: torch.tensor(weights.values(name, shape)).reshape(shape) for name, shape in adapters.items()})
        model = model.to(dtype)
        trained = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=HOW["lr"], betas=(0.9, HOW["beta2"]), eps=1e-8, weight_decay=HOW["weight_decay"])
        losses = []
        for step in range(STEPS):
            at = [(step * batch + i) * length for i in range(batch)]
            x, y = (torch.stack([train[a + later:a + later + length] for a in at]) for later in (0, 1))
            loss = F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, HOW["clip_norm"])
            optimizer.step()
            losses.append(loss.item())
        return losses

    exact, single = once(torch.float64), once(torch.float32)
    spread = max(abs(a - b) / b for a, b in zip(single, exact))
    print(model_text, "spread", spread, exact)
    texts = ({name: " ".join(map(str, shape)) for name, shape in of.items()} for of in (shapes, adapters))
    return HOW | {"model": model_text, "r": lora["r"], "lora_alpha": lora["lora_alpha"], "target_modules": lora["target_modules"],
                  "loss": exact, "spread": spread, "weights": next(texts), "adapters": next(texts)}


def main():
    torch.set_num_threads(1)
    (HERE / "lora.json").write_text(json.dumps({name: run(*how) for name, how in RUNS.items()}, indent=1) + "\n")


main()
