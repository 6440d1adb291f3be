"""Low-rank adapters: ten steps have the losses of Hugging Face's peft (tests/reference/lora.py made them), in every manner of training.
Only the adapters are trained and stored. Results are merged. Adapters are exchanged with peft."""
import array
import json
import os
import struct
import subprocess
import sys

from run import FOLDER, REFERENCE, STARGRAD, Skip, content, events, folder, losses, main, pytest, ranks, stargrad

sys.path.insert(0, REFERENCE)
import weights  # noqa: E402

if not pytest:
    main(())
TEXT = os.path.join(REFERENCE, "text.txt")
with open(os.path.join(REFERENCE, "lora.json"), encoding="utf-8") as _file:
    RUNS = json.load(_file)
PREFIX = "base_model.model."


def shapes(text):
    return {tensor: [int(size) for size in shape.split()] for tensor, shape in text.items()}


def base(name):
    path = os.path.join(FOLDER, f"lora-{name}.safetensors")
    if not os.path.exists(path):
        weights.write(path, shapes(RUNS[name]["weights"]))
    return path


def adapter(name, **changes):
    """The folder of the run's adapter, as peft writes it. CHANGES replace keys of its configuration."""
    path = folder(f"adapter-{name}")
    os.makedirs(path)
    weights.write(f"{path}/adapter_model.safetensors", shapes(RUNS[name]["adapters"]))
    with open(f"{path}/adapter_config.json", "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "bias": "none", **{key: RUNS[name][key] for key in ("r", "lora_alpha", "target_modules")}, **changes}, file)
    return path


def words(name):
    how = RUNS[name]
    return ("train", "--model", how["model"], "--data", f"text:{TEXT},{how['length']}", "--init", base(name),
            "--batch", how["batch"], "--no-shuffle", "--optimizer", "adamw", "--lr", how["lr"], "--beta2", how["beta2"],
            "--weight-decay", how["weight_decay"], "--no-decay-1d", "--clip-norm", how["clip_norm"], "--steps", 10)


def check(name, *more, start=stargrad, within=2e-6):
    out = folder("reference")
    start(*words(name), "--adapter", adapter(name), "--checkpoint-every", 0, "--out", out, *more)
    got, exact = losses(out), RUNS[name]["loss"]
    assert len(got) == 10
    for step, (a, b) in enumerate(zip(got, exact)):
        assert abs(a - b) <= within * b, f"{name} {more}, step {step + 1}: {a} is not {b}, by {abs(a - b) / b:.1e}"
    return out


def tensors(path):
    """The F32 tensors of a file: {name: (shape, array)}."""
    data = content(*os.path.split(path))
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    read = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        assert tensor["dtype"] == "F32", name
        read[name] = tensor["shape"], array.array("f", data[8 + size + begin:8 + size + end])
    return read


@pytest.mark.parametrize("name", RUNS)
def test_reference(name):
    check(name)


def test_ways():
    check("llama", "--micro-batch", 1)
    check("qwen3", "--no-fuse", "--recompute")
    check("gpt2", "--recompute", "--micro-batch", 2)
    check("llama", "--precision", "bf16", within=0.02)
    check("llama", "--lora", "4:8", "--lora-on", "*.q_proj,*.v_proj")


def test_ranks():
    two = lambda *all_words: ranks(2, *all_words)  # noqa: E731
    check("llama", start=two)
    check("gpt2", "--mesh", "data=2", "--recompute", start=two)
    check("qwen3", "--mesh", "pipe=2", start=two)
    check("llama", "--mesh", "data=2,pipe=2", start=lambda *all_words: ranks(4, *all_words))
    check("llama", "--shard", "optimizer", start=two)
    check("llama", "--shard", "parameters", start=two)
    said = ranks(2, *words("llama"), "--lora", 4, "--mesh", "data=2", "--print")
    assert "gradients in 3 buckets of about 1 kB, " in said, said      # 896 values are trained
    assert "gradients in 1 bucket of about 4 kB, " in ranks(2, *words("llama"), "--lora", 4, "--mesh", "data=2", "--bucket", 1, "--print")
    said = ranks(2, *words("llama"), "--lora", 4, "--mesh", "tensor=2", "--out", folder("tensor"), status=2)
    assert "--lora supports meshes with axes data, pipe and context only, not axis tensor" in said, said


def test_only_adapters_are_trained():
    """Messages, gradients and optimizer states are of the adapters; the network keeps its weights."""
    out = check("llama", "--checkpoint-every", 1)
    start, end = tensors(base("llama")), tensors(f"{out}/checkpoint-10.safetensors")
    matrices = {name[len(PREFIX):] for name in RUNS["llama"]["adapters"]}
    assert {name for name in end if not name.startswith("optimizer.")} == start.keys() | matrices
    assert {name.split(".", 2)[2] for name in end if name.startswith("optimizer.")} == matrices
    for name, value in start.items():
        assert end[name] == value, name
    said = stargrad(*words("llama"), "--lora", 4, "--print", "--no-fuse")
    assert "lora       rank 4, alpha 4, on 4 of 15 linear layers: 896 parameters are trained\n" in said, said
    assert "q_proj.lora_A.weight update" in said and "q_proj.weight update" not in said and "q_proj backward-weight" not in said


def test_initial_values():
    """A is uniform in ±1/√C, and B is zero, so that the first loss is that of the network."""
    out, plain = folder("initial"), folder("plain")
    stargrad(*words("llama"), "--lora", 4, "--steps", 1, "--lr", 0, "--checkpoint-every", 0, "--out", out)
    stargrad(*words("llama"), "--steps", 1, "--lr", 0, "--checkpoint-every", 0, "--out", plain)
    assert losses(out) == losses(plain)
    for name, (shape, value) in tensors(f"{out}/adapter_model.safetensors").items():
        if "lora_B" in name:
            assert not any(value)
        else:
            assert shape == [4, 32] and 0.9 < 32 ** .5 * max(map(abs, value)) <= 1 and len(set(value)) > 100
    assert tensors(f"{out}/model.safetensors") == tensors(base("llama"))


def test_resume():
    one, two = folder("once"), folder("twice")
    start = (*words("llama"), "--lora", "4:8", "--deterministic", "--ema", 0.9, "--checkpoint-every", "5s")
    stargrad(*start, "--out", one)
    stargrad(*start, "--steps", 5, "--out", two)
    os.rename(base("llama"), base("llama") + ".away")       # the checkpoint has the weights
    stargrad("train", "--out", two, "--resume", "--steps", 10)
    os.rename(os.path.join(FOLDER, "lora-llama.safetensors.away"), os.path.join(FOLDER, "lora-llama.safetensors"))
    for file in ("model.safetensors", "adapter_model.safetensors"):
        assert content(one, file) == content(two, file), file
    assert losses(one) == losses(two)
    said = stargrad("train", "--out", two, "--resume", "--lora", "4:4", "--steps", 12, status=2)
    assert "the run has lora 4:8, so it cannot be continued with 4:4" in said and said.count("\n") == 1, said
    said = stargrad("train", "--out", two, "--resume", "--lora-on", "*.q_proj", "--steps", 12, status=2)
    assert "has lora-on *.q_proj,*.v_proj,*.c_attn,*.qkv,*.mlp.0,*.mlp.3, so it cannot be continued with *.q_proj; " in said and said.count("\n") == 1, said
    said = stargrad("train", "--out", two, "--resume", "--adapter", adapter("llama"), "--steps", 12, status=2)
    assert "the run has adapter none, so it cannot be continued with " in said and said.count("\n") == 1, said
    stargrad("train", "--out", two, "--resume", "--lora", "4:8.0", "--steps", 11)
    of_adapter = folder("of-adapter")
    stargrad(*words("llama"), "--adapter", adapter("llama"), "--steps", 5, "--out", of_adapter)
    folder("adapter-llama")         # which removes it
    said = stargrad("train", "--out", of_adapter, "--resume", "--adapter", folder("other"), "--steps", 10, status=2)
    assert f"the run has adapter {FOLDER}" in said and "leave that option out" in said and said.count("\n") == 1, said
    stargrad("train", "--out", of_adapter, "--resume", "--steps", 10)
    assert max(abs(a - b) for a, b in zip(losses(of_adapter), RUNS["llama"]["loss"])) < 1e-5


def test_turned_off():
    """An empty value turns an option off that --like inherits."""
    out = folder("on")
    stargrad(*words("llama"), "--adapter", adapter("llama"), "--steps", 1, "--out", out)
    said = stargrad("train", "--like", out, "--lora", "", "--print", "--no-fuse")
    assert "\nlora  " not in said and "q_proj.weight update" in said, said
    said = stargrad("train", "--like", out, "--adapter", "", "--lora-on", "", "--lora", 2, "--print")
    assert "lora       rank 2, alpha 2, on 4 of 15 linear layers" in said, said


def merged(name, scale):
    """The run's base with the adapter of its folder, computed here."""
    def of(folder_of_run):
        whole, low = tensors(base(name)), tensors(f"{folder_of_run}/adapter_model.safetensors")
        for weight, (shape, value) in whole.items():
            at = f"{PREFIX}{weight[:-len('.weight')]}"
            if f"{at}.lora_A.weight" not in low:
                continue
            (r, inputs), a = low[f"{at}.lora_A.weight"]
            b = low[f"{at}.lora_B.weight"][1]
            by_output = shape[1] == inputs and name != "gpt2"
            for k in range(len(b) // r):
                for c in range(inputs):
                    value[k * inputs + c if by_output else c * (len(b) // r) + k] += scale * sum(b[k * r + i] * a[i * inputs + c] for i in range(r))
        return whole
    return of


@pytest.mark.parametrize("name, scale", [("llama", 2), ("gpt2", 1)])
def test_merged(name, scale):
    """A run's weights are the network's with the adapters added, under the network's names, and have the run's results. A checkpoint and
    the best weights do, too."""
    out = check(name, "--best", "--checkpoint-every", 1)
    for file in ("model.safetensors", "best.safetensors"):
        for tensor, (_, value) in merged(name, scale)(out).items():
            got = tensors(f"{out}/{file}")[tensor][1]
            assert max(abs(a - b) for a, b in zip(got, value)) < 1e-5, (file, tensor)
    exact = events(out, "epoch")[-1]["test_loss"]
    how = ("--model", RUNS[name]["model"], "--data", f"text:{TEXT},{RUNS[name]['length']}", "--json")
    for source in ((out,), ("--weights", f"{out}/checkpoint-10.safetensors", *how)):
        loss = json.loads(stargrad("eval", *source, "--json"))["test_loss"]
        assert abs(loss - exact) < 2e-6 * exact, (source, loss, exact)
    assert json.loads(stargrad("eval", "--weights", base(name), *how))["test_loss"] != exact
    drawn = [subprocess.run([STARGRAD, "sample", *source, "--tokens", "5", "--prompt", "ab", "--seed", "1"], capture_output=True, check=True).stdout
             for source in ((out,), ("--model", RUNS[name]["model"], "--weights", f"{out}/checkpoint-10.safetensors"))]
    assert len(drawn[0]) >= 7 and drawn[0] == drawn[1], drawn
    path = os.path.join(FOLDER, "exported.safetensors")
    stargrad("export", out, path)
    assert "could replace" in stargrad("export", out, f"{out}/model.safetensors", status=2)
    assert tensors(path) == tensors(f"{out}/model.safetensors")
    stargrad("export", out, os.path.join(FOLDER, "exported.onnx"))
    assert os.path.getsize(os.path.join(FOLDER, "exported.onnx")) > os.path.getsize(path)


def test_images():
    """Other networks with linear layers have adapters, too, and predict with them."""
    plain, out = folder("digits"), folder("digits-lora")
    how = ("train", "--model", "mlp", "--data", "digits", "--steps", 30)
    stargrad(*how, "--out", plain)
    stargrad(*how, "--init", f"{plain}/model.safetensors", "--lora", 2, "--lora-on", "fc*", "--out", out)
    loss = json.loads(stargrad("eval", out, "--json"))["test_loss"]
    assert abs(loss - events(out, "epoch")[-1]["test_loss"]) < 1e-5 * loss
    assert json.loads(content(out, "adapter_config.json"))["task_type"] is None
    onnx = folder("onnx")
    stargrad("export", out, f"{FOLDER}/mlp.onnx")
    again = json.loads(stargrad("eval", "--model", f"onnx:{FOLDER}/mlp.onnx", "--data", "digits", "--json"))["test_loss"]
    assert abs(again - loss) < 1e-5 * loss
    stargrad(*how, "--model", f"onnx:{FOLDER}/mlp.onnx", "--lora", 2, "--lora-on", "*", "--lr", 0.01, "--out", onnx)
    assert losses(onnx)[0] < losses(plain)[0]


def test_vision_transformer():
    """torchvision's names: by default the layers of the MLP are adapted."""
    plain, out, again = folder("vit"), folder("vit-lora"), folder("vit-again")
    how = ("train", "--model", "vit:patch=4,layers=2,heads=2,width=16", "--data", "digits", "--optimizer", "adamw", "--steps", 20)
    stargrad(*how, "--out", plain)
    said = stargrad(*how, "--init", f"{plain}/model.safetensors", "--lora", 2, "--lr", 0.01, "--out", out)
    assert "lora       rank 2, alpha 2, on 4 of 7 linear layers: " in said, said
    adapted = {f"encoder.layers.encoder_layer_{i}.mlp.{j}" for i in (0, 1) for j in (0, 3)}
    assert set(json.loads(content(out, "adapter_config.json"))["target_modules"]) == adapted
    before, after = tensors(f"{plain}/model.safetensors"), tensors(f"{out}/model.safetensors")
    assert {name for name in before if before[name] != after[name]} == {f"{layer}.weight" for layer in adapted}
    assert losses(out)[-1] < losses(plain)[-1]
    stargrad(*how, "--init", f"{plain}/model.safetensors", "--adapter", out, "--lr", 0.01, "--out", again)
    assert losses(again)[0] < losses(out)[0]


def test_memory():
    """At most a third of the memory of full training, as the program prints it."""
    model = "llama:layers=4,heads=4,width=256,hidden=688,context=32"
    full = ("train", "--model", model, "--data", f"text:{TEXT},32", "--batch", 2, "--optimizer", "adamw", "--cpus", 2, "--print")
    path = folder("large")
    stargrad(*full[:-1], "--steps", 1, "--checkpoint-every", 0, "--evaluate-last", "--out", path)

    def memory(*more):
        said = stargrad(*full, *more)
        return float(next(line for line in said.splitlines() if line.startswith("memory ")).split()[3])

    for more in ((), ("--recompute",)):
        whole, adapters = memory(*more), memory(*more, "--init", f"{path}/model.safetensors", "--lora", 4)
        assert adapters * 3 <= whole, (more, adapters, whole)

    def estimated(*more):
        """The memory of a mesh in plan, which knows that frozen weights have no gradients, states or sums."""
        said = stargrad("plan", "--model", model, "--data", f"text:{TEXT},32", "--batch", 64, "--optimizer", "adamw", "--mesh", "data=8",
                        "--machine", "h100-8", "--nodes", 1, "--json", *more)
        kind = json.loads(said[said.index("{"):])["points"][0]["kinds"][0]
        return kind["memory_bytes"], kind["sending_seconds"]
    whole, adapters = estimated(), estimated("--init", f"{path}/model.safetensors", "--lora", 4)
    assert adapters[0] < 0.7 * whole[0] and adapters[1] < 0.2 * whole[1], (adapters, whole)


def test_refused():
    for more, reason in (
            (("--lora-on", "*.q_proj"), "--lora-on requires --lora RANK"),
            (("--lora", "0"), "--lora '0' is invalid; give RANK or RANK:ALPHA"),
            (("--lora", "4:"), "--lora '4:' is invalid"),
            (("--lora", "4:0"), "--lora '4:0' is invalid"),
            (("--lora", "4:8x"), "--lora '4:8x' is invalid"),
            (("--lora", "4", "--lora-on", "*.q_proj,fc"), "--lora-on: 'fc' matches no weight of a linear layer; these are model.layers.0.self_attn.q_proj.weight, "),
            (("--lora", "4", "--lora-on", "model.norm"), "'model.norm' matches no weight of a linear layer"),
            (("--lora", "4", "--init-skip", "lm_head"), "--init-skip cannot be combined with --lora"),
            (("--adapter", adapter("llama"), "--lora", "4:4"), "--lora 4:4 does not suit the adapter in "),
            (("--adapter", adapter("llama"), "--lora", "2:4"), "which has --lora 4:8"),
    ):
        said = stargrad(*words("llama"), *more, "--out", folder("refused"), status=2)
        assert reason in said and said.count("\n") == 1, said
    without = [w for w in words("llama") if w not in ("--init", base("llama"))]
    assert "--lora requires --init FILE" in stargrad(*without, "--lora", 4, "--out", folder("refused"), status=2)
    said = stargrad(*words("llama"), "--model", RUNS["llama"]["model"].replace("hidden=56", "hidden=64"), "--lora", 4, "--out", folder("refused"), status=1)
    assert "; check --model and --data, or first train with --init-skip and without --lora" in said and said.count("\n") == 1, said
    said = stargrad("train", "--model", "convnet", "--data", "digits", "--init", base("llama"), "--lora", 4, "--out", folder("refused"), status=2)
    assert "'*.q_proj,*.v_proj,*.c_attn,*.qkv,*.mlp.0,*.mlp.3' matches no weight of a linear layer; these are fc.weight" in said, said


@pytest.mark.parametrize("changes, status, reason", [
    ({"peft_type": "LOHA"}, 2, "peft_type LOHA is not supported; it must be LORA"),
    ({"use_dora": True}, 2, "use_dora true is not supported"),
    ({"bias": "all"}, 2, 'bias "all" is not supported'),
    ({"modules_to_save": ["lm_head"]}, 2, 'modules_to_save ["lm_head"] is not supported'),
    ({"rank_pattern": {"q_proj": 2}}, 2, "rank_pattern"),
    ({"r": 0}, 1, "r must be a whole number from 1 to 65536"),
    ({"lora_alpha": "8"}, 1, "lora_alpha must be a number above 0"),
    ({"r": 8}, 1, "q_proj.lora_A.weight has shape (4,32), but the network requires (8,32); check --model, and r in adapter_config.json"),
])
def test_unsupported_adapters(changes, status, reason):
    said = stargrad(*words("llama"), "--adapter", adapter("llama", **changes), "--out", folder("refused"), status=status)
    assert reason in said, said


def test_invalid_adapter():
    path = adapter("llama")
    weights.write(f"{path}/adapter_model.safetensors", {"lora_A.weight": [4, 32]})
    said = stargrad(*words("llama"), "--adapter", path, "--out", folder("refused"), status=1)
    assert "adapter_model.safetensors: has no tensor base_model.model.NAME.lora_A.weight" in said, said
    path, name = adapter("llama"), "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"
    weights.write(f"{path}/adapter_model.safetensors", shapes({tensor: shape for tensor, shape in RUNS["llama"]["adapters"].items() if tensor != name}))
    said = stargrad(*words("llama"), "--adapter", path, "--out", folder("refused"), status=1)
    assert f"has no tensor {name}, which the network requires; check --lora-on" in said and said.count("\n") == 1, said
    said = stargrad(*words("llama"), "--adapter", adapter("llama"), "--lora-on", "*.q_proj", "--out", folder("refused"), status=1)
    assert "v_proj.lora_A.weight, which the network does not have; check --lora-on" in said and said.count("\n") == 1, said
    os.remove(f"{path}/adapter_model.safetensors")
    assert "adapter_model.safetensors" in stargrad(*words("llama"), "--adapter", path, "--out", folder("refused"), status=1)
    said = stargrad(*words("llama"), "--adapter", FOLDER + "/nowhere", "--out", folder("refused"), status=1)
    assert "nowhere" in said, said


def rewritten(path, metadata, changes):
    """The safetensors file PATH, as another one with these metadata and shapes of tensors, by name; None: without the tensor."""
    read = tensors(path)
    read.update({name: (shape, array.array("f", bytes(4 * shape[0] * shape[1]))) for name, shape in changes.items() if shape})
    read = {name: read[name] for name in read if changes.get(name, True)}
    header, end = {"__metadata__": metadata}, 0
    for name, (shape, value) in read.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * len(value)]}
    text, to = json.dumps(header).encode(), os.path.join(FOLDER, "rewritten.safetensors")
    with open(to, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(value.tobytes() for _, value in read.values()))
    return to


def test_invalid_checkpoint():
    """An adapter in a file of weights that is malformed, or does not fit, is refused."""
    out, name = folder("few"), "model.layers.0.self_attn.q_proj.lora_"
    stargrad(*words("llama"), "--lora", "4:8", "--steps", 1, "--out", out)
    how = ("eval", "--model", RUNS["llama"]["model"], "--data", f"text:{TEXT},20", "--weights")
    path = f"{out}/checkpoint-1.safetensors"
    stargrad(*how, rewritten(path, {"lora_scale": "2"}, {}))
    for scale, changes, reason in (
            ("2", {f"{name}A.weight": [4, 31]}, "the adapter of model.layers.0.self_attn.q_proj.weight is incomplete, or does not fit it"),
            ("2", {f"{name}B.weight": [32, 5]}, "is incomplete, or does not fit it"),
            ("2", {f"{name}B.weight": None}, "is incomplete, or does not fit it"),
            ("-1", {}, "lora_scale in its metadata is invalid: '-1'"),
            ("x", {}, "lora_scale in its metadata is invalid: 'x'"),
            ("nan", {}, "lora_scale in its metadata is invalid: 'nan'")):
        said = stargrad(*how, rewritten(path, {"lora_scale": scale}, changes), status=1)
        assert reason in said and said.count("\n") == 1, said
    said = stargrad(*how, rewritten(path, {}, {}), status=1)
    assert f"has a tensor {name}A.weight, which the network does not have" in said, said


PEFT = """
import json, sys, torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig
base, merged, adapter, own, text = sys.argv[1:]
def network(file):
    config = LlamaConfig(hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=256,
                         max_position_embeddings=20, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False, attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(load_file(file), strict=False)
    return model.eval()
tokens = torch.tensor([list(open(text, "rb").read()[:20])])
with torch.no_grad():
    loaded = PeftModel.from_pretrained(network(base), adapter)(tokens).logits
    print(float((loaded - network(merged)(tokens).logits).abs().max()), float((loaded - network(base)(tokens).logits).abs().max()))
torch.manual_seed(1)
model = get_peft_model(network(base), LoraConfig(r=2, lora_alpha=6, use_rslora=True, target_modules="all-linear", init_lora_weights=False))
model.save_pretrained(own)
with torch.no_grad():
    x, y = tokens[:, :-1], tokens[:, 1:]
    print(float(torch.nn.functional.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())))
"""


def test_peft():
    """peft loads the adapter of a run, and has the logits of the run's merged weights. A run loads an adapter that peft wrote."""
    if subprocess.run([sys.executable, "-c", "import peft, transformers"], capture_output=True).returncode:
        raise Skip("this Python has no peft, transformers and PyTorch")
    out, own = check("llama"), folder("own")
    short = os.path.join(FOLDER, "short.txt")
    with open(TEXT, "rb") as file, open(short, "wb") as to:
        to.write(file.read()[:20] * 20)
    done = subprocess.run([sys.executable, "-c", PEFT, base("llama"), f"{out}/model.safetensors", out, own, short], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    error, effect, loss = map(float, done.stdout.split())
    assert error < 1e-5 < 0.01 < effect, (error, effect)
    run = folder("of-peft")
    stargrad("train", "--model", RUNS["llama"]["model"], "--init", base("llama"), "--adapter", own, "--data", f"text:{short},19", "--batch", 1,
             "--no-shuffle", "--steps", 1, "--lr", 0, "--checkpoint-every", 0, "--out", run)
    assert abs(losses(run)[0] - loss) < 1e-5, (losses(run), loss)


if __name__ == "__main__":
    main(globals())
