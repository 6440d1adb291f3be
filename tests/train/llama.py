"""Models of the Llama family: ten steps from given weights have the losses of Hugging Face's transformers (tests/reference/llama.py
made them), at any micro-batch and on several ranks. Networks are read from config.json. Unsupported features are refused by name.
Sampling with cached keys and values equals the whole network. The most probable text of a model is that of transformers, which also
loads the weights that Stargrad trained, and saves weights that Stargrad loads."""
import json
import os
import shutil
import subprocess
import sys

from run import FOLDER, REFERENCE, Skip, command, folder, losses, main, pytest, ranks, stargrad

sys.path.insert(0, REFERENCE)
import weights  # noqa: E402

if not pytest:
    main(())
TEXT = os.path.join(REFERENCE, "text.txt")
with open(os.path.join(REFERENCE, "llama.json"), encoding="utf-8") as _file:
    RUNS = json.load(_file)


def written(name, **changes):
    """A folder with a run's config.json, in which CHANGES replace keys, or, with value ..., remove them."""
    path = folder(name)
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        config = {**RUNS[name]["config"], **changes}
        json.dump({key: value for key, value in config.items() if value is not ...}, file)
    return path


def words(name, config=None):
    how, init = RUNS[name], os.path.join(FOLDER, f"llama-{name}.safetensors")
    weights.write(init, {tensor: [int(size) for size in shape.split()] for tensor, shape in how["weights"].items()})
    return ("train", "--model", f"llama:config={config or written(name)}", "--data", f"text:{TEXT},{how['length']}", "--init", init,
            "--batch", how["batch"], "--no-shuffle", "--optimizer", "adamw", "--lr", how["lr"], "--beta2", how["beta2"],
            "--weight-decay", how["weight_decay"], "--no-decay-1d", "--clip-norm", how["clip_norm"], "--steps", 10,
            "--checkpoint-every", 0)


def check(name, *more, start=stargrad, within=2e-6, config=None):
    out = folder("reference")
    start(*words(name, config), "--out", out, *more)
    got, exact = losses(out), RUNS[name]["loss"]
    assert len(got) == 10
    for step, (a, b) in enumerate(zip(got, exact)):
        assert abs(a - b) <= within * b, f"{name} {more}, step {step + 1}: {a} is not {b}, by {abs(a - b) / b:.1e}"


@pytest.mark.parametrize("name", RUNS)
def test_reference(name):
    check(name)


def test_ways():
    check("llama3", "--micro-batch", 1)
    check("qwen3", "--no-fuse", "--recompute")
    check("qwen3", "--precision", "bf16", within=0.02)
    check("mistral", start=lambda *all_words: ranks(2, *all_words))


def test_mesh():
    check("llama3", "--mesh", "tensor=2", start=lambda *all_words: ranks(2, *all_words), within=1e-5)
    check("qwen3", "--mesh", "data=2,tensor=2", start=lambda *all_words: ranks(4, *all_words), within=1e-5)
    check("qwen2", "--mesh", "tensor=2d:2", start=lambda *all_words: ranks(4, *all_words), within=1e-5)


def test_new_rotary_options():
    old = RUNS["llama3"]["config"]
    both = {"rope_theta": old["rope_theta"], **old["rope_scaling"]}
    check("llama3", config=written("llama3", rope_theta=None, rope_scaling=None, rope_parameters=both))


@pytest.mark.parametrize("name, key, value, reason", [
    ("llama3", "model_type", "gemma", "use type llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe or olmoe"),
    ("llama3", "hidden_act", "gelu", "it must be silu"),
    ("llama3", "attention_bias", True, "it must be absent, null, false or 0"),
    ("llama3", "rope_scaling", {"rope_type": "yarn", "factor": 2}, "rope_type must be default, linear or llama3"),
    ("llama3", "rope_scaling", {"factor": 2}, "rope_type must be default, linear or llama3"),
    ("llama3", "rope_scaling", {"rope_type": "linear", "type": "yarn", "factor": 2}, "rope_type and type must be equal"),
    ("llama3", "rope_scaling", "linear", "it must be an object or null"),
    ("llama3", "rope_parameters", {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be 1"),
    ("llama3", "tie_word_embeddings", 1, "it must be true or false"),
    ("mistral", "sliding_window", 16, "it must be null, or at least max_position_embeddings"),
    ("qwen3", "layer_types", ["full_attention", "sliding_attention"], "all layers must be full_attention"),
    ("llama3", "quantization_config", {"bits": 4}, "it must be absent, null, false or 0"),
])
def test_unsupported(name, key, value, reason):
    said = stargrad(*words(name, written(name, **{key: value})), status=2)
    assert f"config.json: {key} " in said and reason in said, said


def test_windows():
    """Mistral has windows of 4096 by default. Qwen has windows only with use_sliding_window, and only after max_window_layers."""
    said = stargrad(*words("mistral", written("mistral", sliding_window=..., max_position_embeddings=8192)), status=2)
    assert "sliding_window (absent) is not supported" in said, said
    short = dict(use_sliding_window=True, sliding_window=8, layer_types=...)
    said = stargrad(*words("qwen2", written("qwen2", **short, max_window_layers=1)), status=2)
    assert "use_sliding_window true is not supported; it must be false" in said, said
    check("qwen2", config=written("qwen2", **short, max_window_layers=2))
    check("qwen3", config=written("qwen3", **{**short, "use_sliding_window": ...}))


def test_invalid():
    path = written("llama3", hidden_size=None)
    said = stargrad(*words("llama3", path), status=1)
    assert "config.json: has no hidden_size" in said, said
    path = written("llama3", num_hidden_layers=1.5)
    said = stargrad(*words("llama3", path), status=1)
    assert "num_hidden_layers is 1.5, but must be a whole number from 1 to 1000" in said, said
    said = stargrad(*words("llama3", path + "/nowhere"), status=1)
    assert "nowhere/config.json" in said, said


def test_short_samples():
    """max_position_embeddings limits samples; it is not their length."""
    said = stargrad(*words("llama3", written("llama3", max_position_embeddings=16)), status=2)
    assert "samples have 20 tokens, but the network has context=16" in said, said


def test_cache():
    """Keys and values that are cached from step to step give the result of the whole network: the byte that is drawn as the likeliest
    has the least loss."""
    model = "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=64,context=24,qk_norm=1"
    out = folder("learned")
    stargrad("train", "--model", model, "--data", f"text:{TEXT},24", "--batch", 16, "--optimizer", "adamw", "--lr", 0.01, "--epochs", 4,
             "--checkpoint-every", 0, "--out", out)
    text = stargrad("sample", out, "--prompt", "ab", "--tokens", 12, "--temperature", 0)[:14].encode()

    def loss(last):
        path = os.path.join(FOLDER, "said.txt")
        with open(path, "wb") as file:
            file.write(bytes(126) + text[:13] + bytes([last]))      # the last tenth: the text
        return json.loads(stargrad("eval", "--weights", out + "/model.safetensors", "--model", model, "--data", f"text:{path},13", "--json"))["test_loss"]

    assert len(text) == 14
    drawn = loss(text[13])
    for other in {*b" aeiourstn,.\n"} - {text[13]}:
        assert drawn < loss(other), (text, other)


# Argument 1: text to train on. The others: pairs of a folder with config.json and weights that Stargrad trained, and a folder for a
# model that is trained here. The weights of this model are divided into files if its embedding is tied. Prints, in JSON, the bytes
# that follow PROMPT for each of these folders.
TRANSFORMERS = """
import json, sys
try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
except (ImportError, OSError):
    sys.exit(77)
torch.set_num_threads(1)
torch.manual_seed(1)
data = torch.tensor(list(open(sys.argv[1], "rb").read()))
prompt = torch.tensor([list(b"%s")])
def text(model):
    return model.eval().generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=%d)[0].tolist()
texts = []
for theirs, ours in zip(sys.argv[2::2], sys.argv[3::2]):
    texts.append(text(AutoModelForCausalLM.from_pretrained(theirs)))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(theirs))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(60):
        x = torch.stack([data[at:at + 64] for at in torch.randint(len(data) - 64, (8,)).tolist()])
        optimizer.zero_grad()
        model(x, labels=x).loss.backward()
        optimizer.step()
    model.save_pretrained(ours, max_shard_size="40KB" if model.config.tie_word_embeddings else "1GB")
    texts.append(text(model))
print(json.dumps(texts))
"""
PROMPT, TOKENS = "the king ", 200


def test_text_of_transformers():
    """The most probable 200 tokens are the same, for a model that was trained here and one that was trained there. (With router logits,
    transformers cannot generate text of Mixtral.)"""
    folders = []
    for name in "llama3", "mixtral", "qwen3":
        theirs = written(name, max_position_embeddings=256, eos_token_id=None, output_router_logits=False)
        ours, out = folder(f"{name}-saved"), folder(f"{name}-trained")
        stargrad("train", "--model", f"llama:config={theirs}", "--data", f"text:{TEXT},64", "--batch", 8, "--optimizer", "adamw", "--lr", 0.01,
                 "--steps", 60, "--checkpoint-every", 0, "--evaluate-last", "--out", out)
        shutil.copy(os.path.join(out, "model.safetensors"), theirs)
        folders += [theirs, ours]
    done = subprocess.run([sys.executable, "-c", TRANSFORMERS % (PROMPT, TOKENS), TEXT, *folders], capture_output=True, text=True)
    if done.returncode == 77:
        raise Skip("this Python has no transformers and PyTorch")
    assert done.returncode == 0, done.stderr
    for path, tokens in zip(folders, json.loads(done.stdout), strict=True):
        file = next(name for name in ("model.safetensors", "model.safetensors.index.json") if os.path.exists(os.path.join(path, name)))
        said = subprocess.run(command("sample", "--model", f"llama:config={path}", "--weights", os.path.join(path, file), "--prompt", PROMPT,
                                      "--tokens", TOKENS, "--temperature", 0), capture_output=True, check=True).stdout
        assert said == bytes(tokens) + b"\n" and len(tokens) == len(PROMPT) + TOKENS, (path, said, bytes(tokens))
    assert file.endswith(".index.json"), "the last model has several files of weights"


if __name__ == "__main__":
    main(globals())
