#!/usr/bin/env python3
"""Make llama.json: ten training steps of models of the Llama family in double precision, and the logits of their initial weights,
computed by Hugging Face's transformers 4 with PyTorch 2; the tests do not run this.

llama.json    for each run: Hugging Face's configuration, the shapes of the weights (weights.py makes the values), the losses of ten
              steps, and the sum of the logits of the first sample, weighted by cosines; "spread" is the largest relative difference
              of PyTorch's single precision from each loss
"""
import json
import math
import pathlib
import sys

import torch
from torch.nn import functional as F
from transformers import (AutoModelForCausalLM, LlamaConfig, MistralConfig, MixtralConfig, OlmoeConfig, Qwen2Config, Qwen2MoeConfig,
                          Qwen3Config, Qwen3MoeConfig)

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import weights  # noqa: E402

STEPS = 10
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
SMALL = dict(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
             max_position_embeddings=64, attn_implementation="eager")
RUNS = {
    "llama3": LlamaConfig(**SMALL, rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=SCALING, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**SMALL, head_dim=12, rms_norm_eps=1e-6, rope_theta=1000000.0, tie_word_embeddings=True),
    "qwen2": Qwen2Config(**SMALL, rms_norm_eps=1e-6, rope_theta=10000.0, tie_word_embeddings=True),
    "mistral": MistralConfig(**SMALL, rms_norm_eps=1e-5, rope_theta=10000.0, sliding_window=None, tie_word_embeddings=False),
    "mixtral": MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2, rope_theta=10000.0, output_router_logits=True,
                             router_aux_loss_coef=0.05),
    "qwen2_moe": Qwen2MoeConfig(**SMALL, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40,
                                tie_word_embeddings=True),
    "qwen3_moe": Qwen3MoeConfig(**SMALL, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, norm_topk_prob=True, head_dim=12),
    "olmoe": OlmoeConfig(**{**SMALL, "num_key_value_heads": 4}, num_experts=8, num_experts_per_tok=3, output_router_logits=True),
}
HOW = dict(length=20, batch=4, lr=0.001, beta2=0.99, weight_decay=0.1, clip_norm=1.0)


def logits_sum(logits):
    """The mean over all elements of logit · cos(index)."""
    flat = logits.detach().double().flatten()
    return sum(x * math.cos(i) for i, x in enumerate(flat.tolist())) / flat.numel()


def balance(config, given):
    """The loss that balances experts, which is not part of the losses in the file."""
    return config.router_aux_loss_coef * given.aux_loss if getattr(config, "output_router_logits", False) else 0


def run(config):
    data = (HERE / "text.txt").read_bytes()
    train = torch.tensor(list(data[:len(data) * 9 // 10]))
    length, batch = HOW["length"], HOW["batch"]
    first = AutoModelForCausalLM.from_config(config)
    tied = "lm_head.weight" if config.tie_word_embeddings else None
    shapes = {name: list(tensor.shape) for name, tensor in first.state_dict().items() if name != tied}

    def once(dtype):
        model = AutoModelForCausalLM.from_config(config)
        values = {name: torch.tensor(weights.values(name, shape)).reshape(shape) for name, shape in shapes.items()}
        model.load_state_dict(values, strict=False)
        model = model.to(dtype)
        decay = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": HOW["weight_decay"]}, {"params": rest, "weight_decay": 0}],
                                      lr=HOW["lr"], betas=(0.9, HOW["beta2"]), eps=1e-8)
        losses, start = [], None
        for step in range(STEPS):
            at = [(step * batch + i) * length for i in range(batch)]
            x, y = (torch.stack([train[a + later:a + later + length] for a in at]) for later in (0, 1))
            given = model(x)
            logits = given.logits
            start = start or logits_sum(logits[0])
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            (loss + balance(model.config, given)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), HOW["clip_norm"])
            optimizer.step()
            losses.append(loss.item())
        return losses, start

    (exact, start), (single, _) = once(torch.float64), once(torch.float32)
    spread = max(abs(a - b) / b for a, b in zip(single, exact))
    print(config.model_type, "spread", spread, exact)
    kept = {key: value for key, value in config.to_diff_dict().items() if not key.startswith("_") and key != "transformers_version"}
    return HOW | {"config": kept, "loss": exact, "logits": start, "spread": spread,
                  "weights": {name: " ".join(map(str, shape)) for name, shape in shapes.items()}}


def main():
    torch.set_num_threads(1)
    (HERE / "llama.json").write_text(json.dumps({name: run(config) for name, config in RUNS.items()}, indent=1) + "\n")


main()
