#!/usr/bin/env python3
"""Make the table of docs/guides/onnx.md: which networks of torchvision and timm Stargrad reads, from ONNX files of both exporters
of PyTorch. Each network gets random weights, is exported, and read. The logits of four images must be those of ONNX Runtime, to
1e-4, or to 1e-4 of the largest ("yes"); "inexact" if they differ by more, "no" if Stargrad refuses the file, with the reason in the
second table, and "no export" if PyTorch does not export the network to the opset. Needs torch, torchvision, timm, onnx, onnxscript,
onnxruntime, and libstargrad.

    python3 bench/onnx_table.py [--keep DIR [--kept]] [--cases script:13,script:17,script:20,dynamo:18,dynamo:23] [NETWORK…]

A case is an exporter and an opset. script is torch.onnx.export(…, dynamo=False), which has opsets up to 20; dynamo is dynamo=True,
from opset 18 on; fixed is script for exactly 8 images. The first file of a network that is read is also trained for one step and
exported again. With names of networks, prints their tables only. --keep DIR leaves the files in DIR, and uses those that are
there; with --kept, no other files are tried."""
import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("builddir", os.path.join(HERE, "build"))
PAGE = os.path.join(HERE, "docs", "guides", "onnx.md")
BEGIN, END = "<!-- bench/onnx_table.py writes this table -->\n", "<!-- end of the table -->\n"
IMAGES, CLASSES, LIMIT = 4, 10, 1e-4

# The name, the side of images, and arguments of the network. timm's begin with "timm:".
NETWORKS = {
    "alexnet": (224, {}), "convnext_tiny": (64, {}), "densenet121": (64, {}), "efficientnet_b0": (64, {}),
    "efficientnet_v2_s": (64, {}), "googlenet": (64, {"aux_logits": False, "init_weights": False}),
    "inception_v3": (96, {"aux_logits": False, "init_weights": False}), "mnasnet1_0": (64, {}), "mobilenet_v2": (64, {}),
    "mobilenet_v3_large": (64, {}), "mobilenet_v3_small": (64, {}), "regnet_x_400mf": (64, {}), "regnet_y_400mf": (64, {}),
    "resnet18": (64, {}), "resnet50": (64, {}), "resnext50_32x4d": (64, {}), "shufflenet_v2_x1_0": (64, {}),
    "squeezenet1_1": (64, {}), "swin_t": (64, {}), "vgg16_bn": (224, {}), "vit_b_16": (64, {"image_size": 64}),
    "timm:convnext_atto": (64, {}), "timm:deit_tiny_patch16_224": (64, {"img_size": 64}),
    "timm:efficientnet_lite0": (64, {}), "timm:ghostnet_100": (64, {}), "timm:mixer_s16_224": (64, {"img_size": 64}),
    "timm:mobilenetv4_conv_small": (64, {}), "timm:resnetv2_50": (64, {}), "timm:seresnet50": (64, {}),
    "timm:vit_tiny_patch16_224": (64, {"img_size": 64}),
}


def network(name):
    """Random weights. The statistics of batch norm are those of random images, so that activations neither vanish nor grow.
    Weights that begin at zero, or almost, become larger, so that an error in them would show."""
    import timm
    import torch
    import torchvision
    torch.manual_seed(1)
    torch.set_num_threads(1)
    side, how = NETWORKS[name]
    if name.startswith("timm:"):
        net = timm.create_model(name[5:], num_classes=CLASSES, **how)
    else:
        net = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **how)
    for p in net.parameters():
        if float(p.detach().abs().max()) < 1e-3:
            p.data.normal_(0, 0.1)
    for m in net.modules():
        if isinstance(m, torch.nn.BatchNorm2d):
            m.momentum = 1
    with torch.no_grad():
        net.train()(torch.rand(4, 3, side, side))
    return net.eval()


def export(name, path, exporter, opset):
    import torch
    net, x = network(name), torch.rand(8 if exporter == "fixed" else 2, 3, NETWORKS[name][0], NETWORKS[name][0])
    if exporter == "fixed":
        torch.onnx.export(net, (x,), path, dynamo=False, opset_version=opset)
    elif exporter == "dynamo":
        torch.onnx.export(net, (x,), path, dynamo=True, external_data=False, dynamic_shapes=({0: "batch"},), opset_version=opset,
                          verbose=False)
    else:
        torch.onnx.export(net, (x,), path, dynamo=False, opset_version=opset, input_names=["x"], output_names=["logits"],
                          dynamic_axes={"x": {0: "batch"}})


def data_of(side, folder):
    import numpy
    draw = numpy.random.default_rng(3)
    path = os.path.join(folder, f"images{side}.npz")
    x = draw.integers(0, 256, (16 + IMAGES, side, side, 3), numpy.uint8)
    y = numpy.arange(16 + IMAGES) % CLASSES
    numpy.savez(path, x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    return path, x[16:]


def logits_of(path, images):
    """ONNX Runtime's logits of IMAGES. A file may have a fixed number of samples."""
    import numpy
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    x, = session.get_inputs()
    batch = x.shape[0] if isinstance(x.shape[0], int) else len(images)
    padded = numpy.resize(images, (-(-len(images) // batch) * batch, *images.shape[1:]))
    return numpy.concatenate([session.run(None, {x.name: padded[i:i + batch]})[0] for i in range(0, len(padded), batch)])[:len(images)]


def stargrad():
    os.environ.setdefault("STARGRAD_LIBRARY", os.path.join(BUILD, ".libs", "libstargrad.so"))
    if os.path.join(HERE, "python") not in sys.path:
        sys.path.insert(0, os.path.join(HERE, "python"))
    import stargrad as module
    return module


def distance(said, wanted):
    """The largest difference of logits, relative to the largest logit if that is above 1."""
    return float(abs(said - wanted).max() / max(1, abs(wanted).max()))


def options_of(path, data):
    return {"model": f"onnx:{path}", "data": f"npy:{data}", "mean": "0,0,0", "deviation": "1,1,1", "cpus": 1}


def read(path, side, folder):
    """Returns the distance of Stargrad's logits from ONNX Runtime's. Raises stargrad.Error if the file is refused."""
    import numpy
    module = stargrad()
    from stargrad.library import Answers, call
    data, x = data_of(side, folder)
    wanted = logits_of(path, (x.astype(numpy.float32) / 255).transpose(0, 3, 1, 2).copy())
    answers = Answers()
    call("sgrad_json_predict", None, module._text(options_of(path, data)), None, None, ctypes.byref(answers))
    said = numpy.ctypeslib.as_array(answers.said, (answers.samples, answers.numbers))
    assert abs(wanted - wanted.mean(0)).max() > 1e-3 * abs(wanted).max(), "the logits do not depend on the images"
    return distance(said, wanted)


def train(path, side, folder):
    """Trains the network of the file for one step and exports it. Returns the distance of the run's logits from ONNX Runtime's. The
    learning rate is small, because gradients are large with random weights: the logits must not grow without limit."""
    data, x = data_of(side, folder)
    with tempfile.TemporaryDirectory() as out:
        run = stargrad().train(**options_of(path, data), batch=4, steps=1, lr=1e-5, augment="none", out=os.path.join(out, "run"))
        again = os.path.join(out, "again.onnx")
        run.export(again)
        return distance(run.predict(cpus=1), logits_of(again, x.transpose(0, 3, 1, 2).copy()))


def attempt(action, *words):
    """Returns "yes", "inexact: why", or "no: why"."""
    try:
        error = action(*words)
        return "yes" if error <= LIMIT else f"inexact: the logits differ by {error:.1e}"
    except Exception as why:                # of any kind
        return "no: " + re.sub(r"\s+", " ", str(why)).replace(words[0] + ": ", "")


def try_one(name, cases, folder, kept):
    """Prints the result of each case, and of training from the first file that is read. KEPT: exports nothing."""
    side, trained = NETWORKS[name][0], "no: no file was read"
    for exporter, opset in cases:
        path = os.path.join(folder, f"{name.replace(':', '-')}-{exporter}-{opset}.onnx")
        if kept and not os.path.exists(path):
            print("RESULT", exporter, opset, "none: not tried", flush=True)
            continue
        if not os.path.exists(path):
            try:
                export(name, path, exporter, opset)
            except Exception as why:        # of any kind: exporters raise many
                print("RESULT", exporter, opset, "none:", re.sub(r"\s+", " ", str(why))[:200], flush=True)
                continue
        said = attempt(read, path, side, folder)
        print("RESULT", exporter, opset, said, flush=True)
        if said == "yes" and trained != "yes":
            trained = attempt(train, path, side, folder)
    print("RESULT train 0", trained, flush=True)


def results(name, cases, folder, kept):
    """In a process of its own, because both libraries need much memory."""
    words = [sys.executable, os.path.abspath(__file__), "--one", name, "--keep", folder, "--cases", text_of(cases), *["--kept"] * kept]
    said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace").stdout
    found = {(exporter, int(opset)): text for exporter, opset, text in re.findall(r"^RESULT (\w+) (\d+) (.*)$", said, re.M)}
    for case in [*cases, ("train", 0)]:
        found.setdefault(case, "no: failed: " + re.sub(r"\s+", " ", said[-200:]))
        print(name, *case, found[case], file=sys.stderr, flush=True)
    return found


def text_of(cases):
    return ",".join(f"{exporter}:{opset}" for exporter, opset in cases)


def row(name, found, columns):
    words = ["not tried" if found[c].endswith("not tried") else found[c].split(":")[0].replace("none", "no export") for c in columns]
    return f"| {name.replace('timm:', '')} | {'timm' if ':' in name else 'torchvision'} | " + " | ".join(words) + " |"


def reasons(name, found):
    """Why files of the network are not imported: the reason of the last one, and the exporters and opsets if some are imported."""
    bad = {case: text for case, text in found.items() if text.split(":")[0] in ("no", "inexact") and case[0] != "train"}
    if not bad:
        return []
    why = re.sub(r"^\w+: (?:node '[^']*' \((\w+)\): )?", lambda m: m[1] + ": " if m[1] else "", list(bad.values())[-1])
    return [f"| {name.replace('timm:', '')} | {why} |"]


def page_of(found, cases):
    """Returns the tables."""
    columns = [*cases, ("train", 0)]
    kinds = {"script": "`dynamo=False`", "fixed": "`dynamo=False`, 8 images", "dynamo": "`dynamo=True`"}
    titles = [f"{kinds[exporter]}, opset {opset}" for exporter, opset in cases] + ["Trained"]
    counts = [sum(found[name][c] == "yes" for name in found) for c in columns]
    head = "| Network | Library | " + " | ".join(titles) + " |\n|" + "---|" * (len(columns) + 2) + "\n"
    last = f"| imported, of {len(found)} | | " + " | ".join(map(str, counts)) + " |"
    why = [line for name in found for line in reasons(name, found[name])]
    text = head + "\n".join([row(name, found[name], columns) for name in found] + [last]) + "\n"
    return text + ("\n| Network | Reason |\n|---|---|\n" + "\n".join(why) + "\n" if why else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep")
    parser.add_argument("--kept", action="store_true")
    parser.add_argument("--cases", default="script:13,script:17,script:20,dynamo:18,dynamo:23")
    parser.add_argument("--one")
    parser.add_argument("names", nargs="*")
    words = parser.parse_args()
    cases = [(case.split(":")[0], int(case.split(":")[1])) for case in words.cases.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = words.keep or temporary
        if words.one:
            return try_one(words.one, cases, folder, words.kept)
        text = page_of({name: results(name, cases, folder, words.kept) for name in words.names or NETWORKS}, cases)
    if words.names:
        print(text)
        return None
    with open(PAGE) as file:
        page = file.read()
    before, after = page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]
    with open(PAGE, "w") as file:
        file.write(before + "\n" + text + "\n" + after)
    return None


if __name__ == "__main__":
    main()
