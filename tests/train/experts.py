"""Mixtures of experts (llama:experts=N). tests/train/llama.py compares Mixtral, Qwen 2 MoE, Qwen 3 MoE and OLMoE with transformers; here
are the ways to run them: micro-batches, recomputation, bf16, ranks, limited memory, resumption, weights in files, and refusals."""
import json
import os
import re
import shutil
import subprocess
import sys

from llama import TEXT, check, words, written
from run import FOLDER, Skip, content, folder, losses, main, pytest, ranks, stargrad
from spill import equal

if not pytest:
    main(())
SMALL = "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=40,context=24,vocabulary=256,experts=6,active=2"
TRAIN = ("--data", f"text:{TEXT},24", "--batch", 16, "--optimizer", "adamw", "--lr", 0.01, "--steps", 6, "--deterministic", "--no-shuffle")


def several(count):
    return lambda *all_words: ranks(count, *all_words)


def test_ways():
    check("mixtral", "--micro-batch", 1)
    check("qwen2_moe", "--no-fuse", "--recompute")
    check("qwen3_moe", "--micro-batch", 1, "--recompute", "--no-fuse")
    for name in "mixtral", "qwen2_moe", "olmoe":
        check(name, "--precision", "bf16", within=0.02)


def test_ranks():
    """The balance loss is computed over all samples only with --bn-group global."""
    for count in 2, 4:
        check("qwen2_moe", start=several(count))
        check("mixtral", "--bn-group", "global", start=several(count))
    check("olmoe", "--mesh", "pipe=2", "--bn-group", "global", start=several(2))
    check("qwen3_moe", "--shard", "parameters", start=several(2))


@pytest.mark.parametrize("model, more", [(SMALL, ()), (f"{SMALL},shared=24,normalize=0,bias_rate=0.01,sigmoid=1", ("--precision", "bf16")),
                                         (f"{SMALL},balance=0.1,mixtral=1", ("--bn-group", "global"))])
def test_same_bits(model, more):
    """On 1, 2 and 4 ranks, with 1 and 2 workers, and after an interruption."""
    one = folder("one")
    run = ("train", "--model", model, *TRAIN, *more)
    stargrad(*run, "--out", one)
    for count in 2, 4:
        out = folder("more")
        ranks(count, *run, "--out", out)
        assert content(out) == content(one), count
    out = folder("workers")
    stargrad(*run, "--cpus", 1, "--out", out)
    assert content(out) == content(one)
    out = folder("twice")
    stargrad(*run, "--steps", 3, "--out", out)
    stargrad("train", "--out", out, "--resume", "--steps", 6)
    assert content(out) == content(one) and losses(out) == losses(one)


def test_memory():
    moved, _ = equal("--model", "llama:layers=3,heads=4,width=128,hidden=256,context=128,vocabulary=2048,experts=4", "--data", f"text:{TEXT},128",
                     "--batch", 32, "--micro-batch", 4, "--optimizer", "adamw", "--gpus", 0, "--cpus", 2, "--steps", 3, "--deterministic",
                     "--checkpoint-every", 0, "--evaluate-last")
    assert moved > 10


def test_use():
    """Sampling with cached keys and values, evaluation and export of a run."""
    out, file = folder("used"), os.path.join(FOLDER, "exported.safetensors")
    stargrad("train", "--model", f"{SMALL},shared=24", *TRAIN, "--evaluate-last", "--out", out)
    assert len(stargrad("sample", out, "--prompt", "ab", "--tokens", 12, "--temperature", 0)) >= 14
    assert "perplexity" in stargrad("eval", out)
    stargrad("export", out, file)
    assert content(FOLDER, "exported.safetensors").count(b"mlp.experts.5.down_proj.weight") == 2, "a tensor per expert and layer"
    said = stargrad("export", out, os.path.join(FOLDER, "exported.onnx"), status=2)
    assert said.count("\n") == 1 and "router of shape (1,24,6) cannot be written as ONNX" in said, said


def test_plan():
    """Flops are those of the active experts; --print shows the experts."""
    def flops(count):
        said = stargrad("train", "--model", SMALL.replace("experts=6", f"experts={count}"), *TRAIN, "--print")
        assert "40 features, 2 active" in said, said
        number, unit = re.search(r"tasks, ([\d.]+)([MG]) flops", said).groups()
        return float(number) * {"M": 1, "G": 1000}[unit]

    assert flops(2) <= flops(16) < 1.2 * flops(2)


@pytest.mark.parametrize("options, reason", [
    ("active=7", "active=7 must be at most experts=6"),
    ("active=0", "active=0 must be a whole number from 1 to"),
    ("experts=0,shared=8", "shared=8 requires experts"),
    ("mixtral=1,shared=8", "mixtral=1 has no shared expert; use shared=0"),
])
def test_refused(options, reason):
    said = stargrad("train", "--model", f"{SMALL},{options}", *TRAIN, "--out", folder("refused"), status=2)
    assert said.count("\n") == 1 and reason in said, said


def test_refused_lora():
    """An adapter does not contain the biases of routers, which would change."""
    base, model = folder("base"), f"{SMALL},bias_rate=0.01"
    stargrad("train", "--model", model, *TRAIN, "--steps", 1, "--out", base)
    said = stargrad("train", "--model", model, *TRAIN, "--init", f"{base}/model.safetensors", "--lora", 2, "--out", folder("refused"), status=2)
    assert said.count("\n") == 1 and "use bias_rate=0" in said, said


def test_refused_mesh():
    said = ranks(2, "train", "--model", SMALL, *TRAIN, "--mesh", "tensor=2", "--out", folder("refused"), status=2)
    assert "experts cannot be split over the ranks of axis tensor" in said, said


@pytest.mark.parametrize("name, key, value, reason", [
    ("qwen2_moe", "decoder_sparse_step", 2, "it must be 1"),
    ("qwen3_moe", "mlp_only_layers", [0], "it must be empty"),
    ("qwen3_moe", "norm_topk_prob", 1, "it must be true or false"),
    ("mixtral", "router_jitter_noise", 0.1, "it must be absent, null, false or 0"),
    ("olmoe", "clip_qkv", 8.0, "it must be absent, null, false or 0"),
    ("llama3", "num_experts", 8, "it must be absent, null, false or 0"),
])
def test_unsupported(name, key, value, reason):
    said = stargrad(*words(name, written(name, **{key: value})), status=2)
    assert f"config.json: {key} " in said and reason in said, said


# Argument 1: a folder with a configuration, weights and text.bin. Prints the loss of the first 40 bytes.
LOSS = """
import sys
try:
    import torch
    from transformers import AutoModelForCausalLM
except (ImportError, OSError):
    sys.exit(77)
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
x = torch.tensor([list(open(sys.argv[1] + "/text.bin", "rb").read()[:41])])
with torch.no_grad():
    print(torch.nn.functional.cross_entropy(model(x[:, :40]).logits[0], x[0, 1:]).item())
"""


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe"])
def test_transformers_loads(name):
    """transformers loads trained weights and has the same loss on a text."""
    path, out = written(name), folder("trained")
    stargrad(*words(name, path), "--out", out)
    shutil.copy(os.path.join(out, "model.safetensors"), path)
    text = b"the quick brown fox jumps over the lazy dog, twice"[:41]
    with open(os.path.join(path, "text.bin"), "wb") as file:
        file.write(text)
    done = subprocess.run([sys.executable, "-c", LOSS, path], capture_output=True, text=True)
    if done.returncode == 77:
        raise Skip("this Python has no transformers and PyTorch")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(FOLDER, "text.bin"), "wb") as file:
        file.write(bytes(9 * 41) + text)        # the last tenth is evaluated
    said = stargrad("eval", "--model", f"llama:config={path}", "--weights", os.path.join(path, "model.safetensors"), "--data",
                    f"text:{FOLDER}/text.bin,40", "--json")
    ours = json.loads(said)["test_loss"]
    assert abs(ours - float(done.stdout)) < 2e-6 * ours, (ours, done.stdout)


if __name__ == "__main__":
    main(globals())
