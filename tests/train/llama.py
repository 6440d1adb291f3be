"""Models of the Llama family: ten steps from given weights have the losses of Hugging Face's transformers (tests/reference/llama.py
made them), at any micro-batch and on several ranks. Networks are read from config.json. Unsupported features are refused by name.
Sampling with cached keys and values equals the whole network."""
import json
import os
import sys

from run import FOLDER, REFERENCE, folder, losses, main, pytest, ranks, stargrad

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
    ("llama3", "model_type", "gemma", "use a model of type llama, mistral, qwen2 or qwen3"),
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


if __name__ == "__main__":
    main(globals())
