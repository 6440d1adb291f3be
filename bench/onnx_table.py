#!/usr/bin/env python3
"""Make the table of docs/guides/onnx.md: which networks of torchvision and timm Stargrad reads, from ONNX files of both exporters
of PyTorch. Each network gets random weights, is exported, and read. The logits of four images must be those of ONNX Runtime, to
1e-4, or to 1e-4 of the largest. Needs torch, torchvision, timm, onnx, onnxscript, onnxruntime, and libstargrad.

    python3 bench/onnx_table.py [--keep DIR] [--exporters script,dynamo] [--opsets 13,17,18,23] [NETWORK…]

script is torch.onnx.export(…, dynamo=False), which has opsets up to 20; dynamo is dynamo=True, from opset 18 on. With names of
networks, prints their lines only. --keep DIR leaves the files in DIR, and uses those that are there."""
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
    net, x = network(name), torch.rand(2, 3, NETWORKS[name][0], NETWORKS[name][0])
    if exporter == "dynamo":
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


def read(path, side, folder):
    """Returns the largest difference of logits, relative to the largest logit if that is above 1. Raises stargrad.Error if the
    file is refused."""
    import numpy
    import onnxruntime
    os.environ.setdefault("STARGRAD_LIBRARY", os.path.join(BUILD, ".libs", "libstargrad.so"))
    sys.path.insert(0, os.path.join(HERE, "python"))
    import stargrad
    from stargrad.library import Answers, call
    data, x = data_of(side, folder)
    session = onnxruntime.InferenceSession(path)
    images = (x.astype(numpy.float32) / 255).transpose(0, 3, 1, 2).copy()
    batch = session.get_inputs()[0].shape[0]
    batch = batch if isinstance(batch, int) else IMAGES     # a file may have a fixed number of samples
    padded = numpy.resize(images, (-(-IMAGES // batch) * batch, *images.shape[1:]))
    parts = [session.run(None, {session.get_inputs()[0].name: padded[i:i + batch]})[0] for i in range(0, len(padded), batch)]
    wanted = numpy.concatenate(parts)[:IMAGES]
    options = {"model": f"onnx:{path}", "data": f"npy:{data}", "mean": "0,0,0", "deviation": "1,1,1", "cpus": 1}
    answers = Answers()
    call("sgrad_json_predict", None, stargrad._text(options), None, None, ctypes.byref(answers))
    said = numpy.ctypeslib.as_array(answers.said, (answers.samples, answers.numbers))
    spread = abs(wanted - wanted.mean(0)).max()
    assert spread > 1e-3 * abs(wanted).max(), "the logits do not depend on the images"
    return float(abs(said - wanted).max() / max(1, abs(wanted).max()))


def try_one(name, exporter, opset, folder):
    """Prints "read ERROR", or why the file was not exported or not read."""
    path = os.path.join(folder, f"{name.replace(':', '-')}-{exporter}-{opset}.onnx")
    if not os.path.exists(path):
        try:
            export(name, path, exporter, opset)
        except Exception as why:        # of any kind: exporters raise many
            print("RESULT", "not exported:", re.sub(r"\s+", " ", str(why))[:200])
            return
    try:
        error = read(path, NETWORKS[name][0], folder)
        print("RESULT", "read" if error <= LIMIT else "differs", f"{error:.1e}")
    except Exception as why:
        print("RESULT", "refused:", str(why).removeprefix(path + ": "))


def result(name, exporter, opset, folder):
    """In a process of its own, because both libraries need much memory."""
    words = [sys.executable, os.path.abspath(__file__), "--one", name, exporter, str(opset), "--keep", folder]
    said = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    lines = [line[7:] for line in said.splitlines() if line.startswith("RESULT ")]
    return lines[-1] if lines else "failed: " + said[-300:]


def line_of(name, cases, folder):
    """Returns a line of the table, with the reason of the last case that was refused."""
    results = {f"{exporter} {opset}": result(name, exporter, opset, folder) for exporter, opset in cases}
    for case, is_ in results.items():
        print(name, case, is_, file=sys.stderr, flush=True)
    refused = [is_ for is_ in results.values() if is_.startswith(("refused", "failed"))]
    differs = [is_ for is_ in results.values() if is_.startswith("differs")]
    why = re.sub(r"^refused: (?:.*?: )?node '[^']*' \((\w+)\): ", r"\1: ", refused[-1]) if refused else ""
    if differs and not refused:
        why = f"the logits differ by {differs[-1][8:]}"
    done = any(is_.startswith("read") for is_ in results.values())
    word = "partly" if done and (refused or differs) else "refused" if refused else "inexact" if differs else "imported"
    return f"| {name.replace('timm:', '')} | {'timm' if ':' in name else 'torchvision'} | {word} | {why} |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep")
    parser.add_argument("--opsets", default="13,17,18,23")
    parser.add_argument("--exporters", default="script,dynamo")
    parser.add_argument("--one", nargs=3)
    parser.add_argument("names", nargs="*")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = words.keep or temporary
        if words.one:
            return try_one(words.one[0], words.one[1], int(words.one[2]), folder)
        opsets = [int(opset) for opset in words.opsets.split(",")]
        cases = [(exporter, opset) for exporter in words.exporters.split(",") for opset in opsets
                 if (opset >= 18 if exporter == "dynamo" else opset <= 20)]
        lines = [line_of(name, cases, folder) for name in words.names or NETWORKS]
    if words.names:
        print("\n".join(lines))
        return None
    imported = sum("| imported |" in line for line in lines)
    files = " and ".join(f"`dynamo={exporter == 'dynamo'}`, opset {opset}" for exporter, opset in cases)
    head = f"{imported} of these {len(lines)} networks are imported from the files of {files}.\n\n"
    head += "| Network | Library | Result | Reason |\n|---|---|---|---|\n"
    with open(PAGE) as file:
        page = file.read()
    before, after = page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]
    with open(PAGE, "w") as file:
        file.write(before + "\n" + head + "\n".join(lines) + "\n\n" + after)
    return None


if __name__ == "__main__":
    main()
