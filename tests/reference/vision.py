#!/usr/bin/env python3
"""Make vision.json and vision.safetensors: torchvision's networks, small by their options, and layers that they use. Needs PyTorch 2
and torchvision; the tests do not run this.

vision.json           a line for each network: its name in Stargrad, the shapes of its weights (weights.py makes the values), the
                      log-probabilities of the first test images of cifar10/ in evaluation, and the losses of ten training steps;
                      "spread" is the largest relative difference of runs in single precision, of weights one bit off, from them
vision.safetensors    cases of layers, in the form of layers.safetensors (make.py)

To add a network, add it to NETWORKS. `vision.py NAME…` makes only these networks, and keeps the others.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import torchvision
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import weights  # noqa: E402

HOW = dict(batch=16, lr=0.005, images=4)
RUNS = 40       # a ReLU or a maximum that switches in a few of them makes the spread jump


def vgg(plan, bn):
    """torchvision's network with fewer channels and a narrower classifier."""
    layers = torchvision.models.vgg.make_layers(plan, batch_norm=bn)
    model = torchvision.models.VGG(layers, num_classes=10, init_weights=False, dropout=0)
    model.classifier[0], model.classifier[3] = nn.Linear(49 * plan[-2], 24), nn.Linear(24, 24)
    model.classifier[6] = nn.Linear(24, 10)
    return model


def convnext(width):
    setting = [torchvision.models.convnext.CNBlockConfig(width << i, 2 * width << i if i < 3 else None, blocks)
               for i, blocks in enumerate((3, 3, 9, 3))]
    return torchvision.models.ConvNeXt(setting, stochastic_depth_prob=0, num_classes=10)


def net(name, **how):
    return torchvision.models.get_model(name, num_classes=10, **how)


VGG16 = [8, 8, "M", 16, 16, "M", 32, 32, 32, "M", 64, 64, 64, "M", 64, 64, 64, "M"]
NETWORKS = {
    "vgg16": ("vgg16:large=1,bn=0,width=8,hidden=24,dropout=0", lambda: vgg(VGG16, False)),
    "vgg16_bn": ("vgg16:large=1,width=8,hidden=24,dropout=0", lambda: vgg(VGG16, True)),
    "vit_b_16": ("vit_b_16:patch=8,layers=2,heads=2,width=24,hidden=40",
                 lambda: torchvision.models.VisionTransformer(32, 8, 2, 2, 24, 40, num_classes=10)),
    "convnext_tiny": ("convnext_tiny:width=8,drop_path=0", lambda: convnext(8)),
    "densenet121": ("densenet121:growth=4", lambda: torchvision.models.DenseNet(4, (6, 12, 24, 16), 8, num_classes=10)),
    "mobilenet_v2": ("mobilenet_v2:width_mult=0.5,dropout=0", lambda: net("mobilenet_v2", width_mult=0.5, dropout=0)),
    "mobilenet_v3_small": ("mobilenet_v3_small:dropout=0", lambda: net("mobilenet_v3_small", dropout=0)),
    "mobilenet_v3_large": ("mobilenet_v3_large:width_mult=0.5,dropout=0",
                           lambda: net("mobilenet_v3_large", width_mult=0.5, dropout=0)),
    "efficientnet_b0": ("efficientnet_b0:dropout=0,drop_path=0",
                        lambda: net("efficientnet_b0", dropout=0, stochastic_depth_prob=0)),
    "regnet_y_400mf": ("regnet_y_400mf", lambda: net("regnet_y_400mf")),
}


def images(name):
    """Labels and normalised images of CIFAR-10's binary files."""
    files = [f"data_batch_{i}" for i in range(1, 6)] if name == "train" else ["test_batch"]
    rows = np.concatenate([np.fromfile(HERE / "cifar10" / f"{file}.bin", np.uint8).reshape(-1, 3073) for file in files])
    return torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32)).double() / 255, torch.from_numpy(rows[:, 0]).long()


def run(text, build):
    (x, y), (test, _) = images("train"), images("test")
    mean, deviation = x.mean((0, 2, 3)), x.std((0, 2, 3), correction=0)
    x, test = ((part - mean[:, None, None]) / deviation[:, None, None] for part in (x, test))
    shapes = {name: list(tensor.shape) for name, tensor in build().state_dict().items() if tensor.is_floating_point()}

    def once(dtype, bits):
        model = build()
        model.load_state_dict({name: torch.tensor(weights.values(name, shape, True)).reshape(shape) for name, shape in shapes.items()},
                              strict=False)
        for parameter in model.parameters():
            parameter.data *= 1 + bits * 2**-23 * torch.randint(-1, 2, parameter.shape)
        model = model.to(dtype).eval()
        with torch.no_grad():
            start = F.log_softmax(model(test[:HOW["images"]].to(dtype)).double(), 1)
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=HOW["lr"], momentum=0.9, weight_decay=1e-4)
        losses = []
        for images_of_step, labels in zip(x.to(dtype).split(HOW["batch"]), y.split(HOW["batch"])):
            loss = F.cross_entropy(model(images_of_step), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses[:10], start.tolist()

    exact, start = once(torch.float64, 0)
    others = [once(torch.float32, min(i, 1))[0] for i in range(RUNS)]
    spread = max(abs(a - b) / b for other in others for a, b in zip(other, exact))
    print(text, "spread", spread, exact, start[0])
    return HOW | {"model": text, "start": start, "loss": exact, "spread": spread,
                  "weights": {name: " ".join(map(str, shape)) for name, shape in shapes.items()}}


def layers():
    """Cases of resize and pad: x, y, and dx for a random dy."""
    tensors, attributes = {}, {}

    def case(name, layer, function, shape, **attribute):
        x = torch.randn(shape).double().requires_grad_()
        y = function(x)
        dy = torch.randn(y.shape).double()
        y.backward(dy)
        attributes[name] = json.dumps({"layer": layer} | attribute)
        for kind, tensor in {"x": x, "y": y, "dy": dy, "dx": x.grad}.items():
            tensors[f"{name}/{kind}"] = tensor.detach().float().contiguous()

    for height, width in ((7, 10), (2, 3), (10, 5)):
        size = {"height": height, "width": width}
        for mode in ("nearest", "bilinear", "area"):
            more = {} if mode != "bilinear" else {"align_corners": False}
            case(f"resize {mode} {height}x{width}", "resize",
                 lambda x: F.interpolate(x, (height, width), mode=mode, **more), (2, 3, 5, 5), **size,
                 **({mode: 1} if mode != "nearest" else {}))
    for mode, kind in (("constant", {}), ("reflect", {"reflect": 1})):
        case(f"pad {mode}", "pad", lambda x: F.pad(x, (1, 2, 3, 0), mode), (2, 3, 4, 5), left=1, right=2, top=3, bottom=0, **kind)
    save_file(tensors, HERE / "vision.safetensors", metadata=attributes)


def main(names):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    file = HERE / "vision.json"
    made = json.loads(file.read_text()) if names else {}
    for name, (text, build) in NETWORKS.items():
        if not names or name in names:
            made[name] = run(text, build)
    lines = [f"{json.dumps(name)}: {json.dumps(made[name])}" for name in NETWORKS if name in made]
    file.write_text("{" + ",\n".join(lines) + "}\n")
    layers()


main(sys.argv[1:])
