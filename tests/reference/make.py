#!/usr/bin/env python3
"""Make the reference files with which the tests compare Stargrad. Needs PyTorch 2; the tests do not run this.

layers.safetensors     CASE/x, CASE/weight, CASE/y, CASE/dy, CASE/dx, ... for every layer, NCHW and OIHW; the metadata has the
                       attributes of each case as JSON, under the name of the case; missing attributes are 0
MODEL.safetensors      initial weights; for large networks, losses.json has the shapes, and weights.py makes the values
idx/, cifar10/         tiny data sets in the formats of their publishers
losses.json            ten training steps of each model, with these weights and data: the losses; for some tensors the sum, the
                       l2 norm, and the l2 norm of the change; "spread" is the effect of rounding on each number

All results are computed in double precision from values that are exact in single precision, and rounded once.
"""
import gzip
import json
import pathlib
import struct
import sys

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import torch_models  # noqa: E402
import weights  # noqa: E402

tensors, attributes = {}, {}


def randn(*shape):
    return torch.randn(*shape).double()


def uniform(*shape):
    return (torch.rand(*shape) + 0.5).double()


# layers -------------------------------------------------------------------------------------------------------------

def record(case, layer, given, results, **attribute):
    attributes[case] = json.dumps({"layer": layer} | attribute)
    for name, tensor in (given | results).items():
        tensor = tensor.detach().contiguous().clone()
        tensors[f"{case}/{name}"] = tensor.float() if tensor.is_floating_point() else tensor


def layer(case, kind, function, given, buffers=None, **attribute):
    """y = function(**given), and the gradient of every given tensor for a random dy."""
    given = {name: tensor.float().double() for name, tensor in given.items()}
    buffers = buffers or {}
    before = {name: tensor.clone() for name, tensor in buffers.items()}
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in given.items()}
    y = function(**leaves)
    dy = randn(*y.shape)
    y.backward(dy)
    results = {"y": y, "dy": dy} | {f"d{name}": leaf.grad for name, leaf in leaves.items()}
    results |= {f"{name}_after": tensor for name, tensor in buffers.items() if not torch.equal(tensor, before[name])}
    record(case, kind, given | before, results, **attribute)


def conv2d():
    def case(name, x, outputs, kernel, bias=True, stride=1, padding=0, dilation=1, groups=1):
        given = {"x": randn(*x), "weight": randn(outputs, x[1] // groups, kernel, kernel) / kernel}
        if bias:
            given["bias"] = randn(outputs)
        how = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        layer(f"conv2d-{name}", "conv2d", lambda x, weight, bias=None: F.conv2d(x, weight, bias, **how),
              given, kernel=kernel, bias=int(bias), **how)

    case("3x3", (2, 5, 9, 7), 6, 3, padding=1)
    case("3x3-nobias", (3, 16, 5, 6), 16, 3, padding=1, bias=False)
    case("3x3-stride2", (2, 5, 9, 8), 7, 3, padding=1, stride=2, bias=False)
    case("5x5", (2, 3, 9, 8), 6, 5)
    case("3x3-dilation2", (2, 4, 9, 8), 5, 3, padding=2, dilation=2)
    case("3x3-groups2", (2, 6, 7, 5), 8, 3, padding=1, groups=2)
    case("1x1", (3, 7, 5, 4), 9, 1)
    case("1x1-stride2", (2, 6, 7, 6), 5, 1, stride=2, bias=False)
    case("7x7-stride2", (1, 3, 15, 13), 4, 7, padding=3, stride=2, bias=False)
    case("3x3-one-channel", (3, 1, 6, 7), 2, 3, padding=1)


def batchnorm():
    def case(name, training=True, relu=False, residual=False, shape=(3, 5, 4, 7)):
        channels = shape[1]
        given = {"x": randn(*shape) * 2 + 0.5, "weight": uniform(channels), "bias": randn(channels)}
        if residual:
            given["r"] = randn(*shape)
        buffers = {"running_mean": randn(channels), "running_var": uniform(channels)}

        def function(x, weight, bias, r=0):
            y = F.batch_norm(x, buffers["running_mean"], buffers["running_var"], weight, bias, training, 0.1, 1e-5) + r
            return F.relu(y) if relu else y

        layer(f"batchnorm-{name}", "batchnorm", function, given, buffers, training=int(training), relu=int(relu),
              residual=int(residual), eps=1e-5, momentum=0.1)

    case("train")
    case("train-relu", relu=True)
    case("train-residual-relu", relu=True, residual=True)
    case("train-16", shape=(4, 16, 3, 5), relu=True)
    case("eval", training=False)
    case("eval-relu", training=False, relu=True)
    case("eval-residual-relu", training=False, relu=True, residual=True)


def small():
    def linear(x, weight, bias=None):
        return F.linear(x, weight, bias)

    layer("relu", "relu", lambda x: F.relu(x), {"x": randn(3, 5, 4, 7)})
    layer("add-relu", "add", lambda x, r: F.relu(x + r), {"x": randn(2, 5, 4, 3), "r": randn(2, 5, 4, 3)}, relu=1)
    layer("linear", "linear", linear, {"x": randn(5, 7), "weight": randn(11, 7), "bias": randn(11)}, bias=1)
    layer("linear-nobias", "linear", linear, {"x": randn(3, 17), "weight": randn(2, 17)}, bias=0)
    layer("concat", "concat", lambda x0, x1, x2: torch.cat([x0, x1, x2], 1),
          {"x0": randn(2, 5, 3, 4), "x1": randn(2, 1, 3, 4), "x2": randn(2, 16, 3, 4)})
    layer("flatten", "flatten", lambda x: x.flatten(1), {"x": randn(3, 5, 2, 4)})
    for name, shape, outputs, stride in (("even", (2, 4, 6, 8), 8, 2), ("odd", (2, 6, 7, 5), 10, 2),
                                         ("stride1", (1, 3, 4, 5), 6, 1)):
        layer(f"shortcut-{name}", "shortcut", lambda x: torch_models.shortcut(x, stride, outputs),
              {"x": randn(*shape)}, stride=stride, channels=outputs)
    for name, how in (("caffe", dict(size=5, alpha=1e-4, beta=0.75, k=1.0)),
                      ("strong", dict(size=5, alpha=0.5, beta=0.75, k=2.0)),
                      ("size3", dict(size=3, alpha=0.3, beta=0.5, k=1.0))):
        layer(f"lrn-{name}", "lrn", lambda x: F.local_response_norm(x, **how), {"x": randn(2, 9, 3, 4)}, **how)


def pool():
    def case(name, kind, function, x, kernel, **how):
        layer(f"{kind}-{name}", kind, lambda x: function(x, kernel, **how), {"x": randn(*x)}, kernel=kernel,
              **{key: int(value) for key, value in how.items()})

    case("2x2", "maxpool", F.max_pool2d, (2, 5, 6, 8), 2, stride=2, padding=0)
    case("3x3-pad1", "maxpool", F.max_pool2d, (2, 5, 9, 8), 3, stride=2, padding=1)
    case("3x3", "maxpool", F.max_pool2d, (2, 3, 8, 9), 3, stride=2, padding=0)
    case("2x2", "avgpool", F.avg_pool2d, (2, 5, 7, 6), 2, stride=2, padding=0, count_include_pad=True)
    for include in (True, False):
        case(f"3x3-{'with' if include else 'without'}-pad", "avgpool", F.avg_pool2d, (2, 5, 9, 8), 3, stride=2,
             padding=1, count_include_pad=include)
    layer("global_avgpool", "global_avgpool", lambda x: x.mean((2, 3)), {"x": randn(3, 5, 4, 7)})


def softmax_cross_entropy():
    for smoothing, shape in ((0.0, (5, 10)), (0.1, (5, 10)), (0.1, (3, 17))):
        x = (3 * randn(*shape)).float().double().requires_grad_()
        target = torch.randint(shape[1], shape[:1])
        loss = F.cross_entropy(x, target, label_smoothing=smoothing)
        loss.backward()
        record(f"softmax_cross_entropy-{smoothing:g}-{shape[1]}", "softmax_cross_entropy", {"x": x, "target": target},
               {"loss": loss.reshape(1), "dx": x.grad}, label_smoothing=smoothing)


def volumes():
    def conv3d(name, x, outputs, kernel, depth, bias=True, stride=1, padding=0, dilation=1, groups=1):
        given = {"x": randn(*x), "weight": randn(outputs, x[1] // groups, depth, kernel, kernel) / kernel}
        if bias:
            given["bias"] = randn(outputs)
        how = dict(stride=(1, stride, stride), padding=(depth // 2, padding, padding), dilation=(1, dilation, dilation))
        layer(f"conv3d-{name}", "conv3d", lambda x, weight, bias=None: F.conv3d(x, weight, bias, groups=groups, **how), given,
              kernel=kernel, depth=depth, bias=int(bias), stride=stride, padding=padding, dilation=dilation, groups=groups)

    conv3d("3x3x3", (2, 5, 4, 6, 7), 6, 3, 3, padding=1)
    conv3d("3x3x3-16", (1, 16, 5, 4, 6), 32, 3, 3, padding=1, bias=False)
    conv3d("1x3x3", (2, 16, 3, 5, 6), 16, 3, 1, padding=1)
    conv3d("3x5x5-stride2", (1, 3, 5, 9, 8), 4, 5, 3, stride=2, padding=2)
    conv3d("groups2", (1, 6, 4, 5, 6), 4, 3, 3, padding=1, groups=2)
    for name, x, outputs, kernel, stride, padding in (("2x2", (2, 16, 3, 4), 32, 2, 2, 0), ("3x3", (2, 5, 4, 3), 3, 3, 2, 1)):
        layer(f"conv_transpose-{name}", "conv_transpose",
              lambda x, weight: F.conv_transpose2d(x, weight, stride=stride, padding=padding),
              {"x": randn(*x), "weight": randn(x[1], outputs, kernel, kernel)}, kernel=kernel, stride=stride, padding=padding)
    layer("conv_transpose-volume", "conv_transpose",
          lambda x, weight: F.conv_transpose3d(x, weight, stride=(1, 2, 2)),
          {"x": randn(1, 6, 3, 4, 5), "weight": randn(6, 4, 1, 2, 2)}, kernel=2, stride=2, padding=0, volume=1)
    layer("maxpool-volume", "maxpool", lambda x: F.max_pool3d(x, (1, 2, 2)), {"x": randn(2, 5, 3, 6, 4)}, kernel=2, stride=2,
          padding=0)
    for dice, weight in ((0.0, [1.0, 1.0, 1.0]), (0.0, [0.5, 2.0, 3.0]), (0.7, [1.0, 0.25, 1.0])):
        x = (2 * randn(2, 3, 5, 6)).float().double().requires_grad_()
        target = torch.randint(3, (2, 5, 6))
        p, q = x.softmax(1), F.one_hot(target, 3).permute(0, 3, 1, 2).double()
        both, either = (p * q).sum((2, 3)), (p + q).sum((2, 3))
        loss = F.cross_entropy(x, target, torch.tensor(weight).double(), reduction="sum") / target.numel()
        loss = loss + dice * (1 - ((2 * both + 1) / (either + 1)).mean(1)).mean()
        loss.backward()
        record(f"voxel_loss-{dice:g}-{weight[0]:g}", "voxel_loss", {"x": x, "target": target},
               {"loss": loss.reshape(1), "dx": x.grad}, dice=dice, **{f"weight{c}": w for c, w in enumerate(weight)})
    for relu, groups, x in ((0, 4, (2, 16, 5, 6)), (1, 3, (3, 6, 4, 5)), (0, 1, (2, 4, 3, 4, 5))):
        layer(f"group_norm-{groups}", "group_norm",
              lambda x, weight, bias: F.group_norm(x, groups, weight, bias).clamp(min=0.0 if relu else -1e9),
              {"x": randn(*x), "weight": uniform(x[1]), "bias": randn(x[1])}, groups=groups, relu=relu)
    layer("crop", "crop", lambda x: x[:, :, 1:3, 0:4, 2:5], {"x": randn(2, 3, 4, 5, 6)}, size=[2, 4, 3], **{"from": [1, 0, 2]})


def optimizers():
    def case(name, kind, optimizer, **how):
        weight = nn.Parameter(randn(7, 5))
        step, results = optimizer([weight], **how), {}
        given = {"weight": weight.detach().clone()}
        for update in range(1, 4):
            given[f"gradient{update}"] = randn(7, 5)
            weight.grad = given[f"gradient{update}"].clone()
            step.step()
            results[f"weight{update}"] = weight.detach().clone()
        beta = dict(zip(("beta1", "beta2"), how.pop("betas", ())))
        record(name, kind, given, results, **how | beta)

    sgd, adam = torch.optim.SGD, dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    case("sgd-plain", "sgd", sgd, lr=0.1)
    case("sgd-decay", "sgd", sgd, lr=0.1, weight_decay=0.01)
    case("sgd-momentum", "sgd", sgd, lr=0.1, momentum=0.9)
    case("sgd-momentum-decay", "sgd", sgd, lr=0.1, momentum=0.9, weight_decay=0.01)
    case("sgd-nesterov-decay", "sgd", sgd, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=1)
    for weight_decay in (0.0, 0.1):
        suffix = "-decay" if weight_decay else ""
        case(f"adam{suffix}", "adam", torch.optim.Adam, weight_decay=weight_decay, **adam)
        case(f"adamw{suffix}", "adamw", torch.optim.AdamW, weight_decay=weight_decay, **adam)


# data and training --------------------------------------------------------------------------------------------------

def images(seed, count, shape):
    """Waves, one pattern a class, shifted and noisy: bytes (count, channels, height, width), and labels."""
    random = np.random.default_rng(seed)
    channels, height, width = shape
    rows, columns = np.mgrid[0:height, 0:width] / height
    waves = np.random.default_rng(1).normal(size=(10, channels, 4))
    labels = random.integers(10, size=count).astype(np.uint8)
    pixels = np.empty((count, *shape))
    for image, label in zip(pixels, labels):
        shift = random.normal(scale=0.05, size=2)
        for channel, (a, b, c, d) in zip(image, waves[label]):
            channel[:] = np.sin(3 * a * (rows + shift[0]) + 3 * b * (columns + shift[1]) + c) + d / 2
    pixels += random.normal(scale=0.3, size=pixels.shape)
    return np.clip(128 + 45 * pixels, 0, 255).astype(np.uint8), labels


def write_idx(folder, sets):
    folder.mkdir(exist_ok=True)
    for name, (pixels, labels) in sets.items():
        for kind, array in (("images-idx3", pixels[:, 0]), ("labels-idx1", labels)):
            head = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
            (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes(), 9, mtime=0))


def write_cifar10(folder, sets):
    folder.mkdir(exist_ok=True)
    for name, (pixels, labels) in sets.items():
        rows = np.concatenate([labels[:, None], pixels.reshape(len(labels), -1)], 1)
        parts = [(f"data_batch_{i + 1}", part) for i, part in enumerate(np.split(rows, 5))]
        for file, part in parts if name == "train" else [("test_batch", rows)]:
            (folder / f"{file}.bin").write_bytes(part.tobytes())


def train(model, data, lr, names):
    """Ten steps of 16 images in file order: what each step's loss was before its update and is after, and the end."""
    (train_x, train_y), (test_x, test_y) = data
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    before, after = [], []
    for x, y in zip(train_x.split(16), train_y.split(16)):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        before.append(loss.item())
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        with torch.no_grad():
            after.append(F.cross_entropy(model(x), y).item())
        model.load_state_dict(buffers, strict=False)
    model.eval()
    with torch.no_grad():
        logits = model(test_x)
    end = model.state_dict()
    return {"loss": before, "loss_after": after, "test_loss": [F.cross_entropy(logits, test_y).item()],
            "test_top1": [(logits.argmax(1) == test_y).double().mean().item()]} | {
            f"final {name}": [end[name].sum().item(), end[name].norm().item(), (end[name] - start[name]).norm().item()]
            for name in names}


class Rows(nn.Module):
    """tests/graphs/train/rows.c: linear layers on the pixels' channels, one of them used twice, a value added to itself."""

    def __init__(self, shape, classes):
        super().__init__()
        self.mix, self.twice, self.fc = nn.Linear(shape[0], 6), nn.Linear(6, 6), nn.Linear(6, classes)

    def forward(self, x):
        x = self.mix(x.permute(0, 2, 3, 1))
        x = torch.relu(self.twice(torch.relu(self.twice(x))))
        return self.fc((x + x).mean((1, 2)))


torch_models.MODELS["rows"] = Rows
SMALL_VIT = "vit_tiny:layers=2,heads=2,width=48"
torch_models.MODELS[SMALL_VIT] = lambda *a: torch_models.Vit(*a, layers=2, heads=2, width=48)


def dataset(folder, write, shape, tests):
    train_set, test_set = images(2, 160, shape), images(3, tests, shape)
    write(HERE / folder, {"train": train_set, "t10k": test_set})
    pixels = torch.from_numpy(train_set[0]).double() / 255
    mean, deviation = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3), correction=0)
    sets = [((torch.from_numpy(x).double() / 255 - mean[:, None, None]) / deviation[:, None, None],
             torch.from_numpy(y).long()) for x, y in (train_set, test_set)]
    return shape, sets, {"data": folder, "mean": mean.tolist(), "deviation": deviation.tolist()}


def start_of(name, shape):
    """Initial weights, and the shapes to make them of where they are too large to keep."""
    start = torch_models.build(name, shape).state_dict()
    if name != SMALL_VIT and sum(tensor.numel() for tensor in start.values()) < 1e6:
        save_file(start, HERE / f"{name}.safetensors")
        return start, {}
    shapes = {key: list(tensor.shape) for key, tensor in start.items() if tensor.is_floating_point()}
    return start | {key: torch.tensor(weights.values(key, shape)).reshape(shape) for key, shape in shapes.items()}, {
        "weights": {key: " ".join(map(str, shape)) for key, shape in shapes.items()}}


def run(name, data, lr, names):
    """The run in double precision, and how far six in single precision, of weights one bit off, stray from it.

    That spread is the error that rounding alone explains. A ReLU that switches the other way makes it jump.
    """
    shape, sets, facts = data
    torch.manual_seed(4)
    start, made = start_of(name, shape)

    def once(dtype, bits):
        model = torch_models.build(name, shape)
        model.load_state_dict(start)
        for parameter in model.parameters():
            parameter.data *= 1 + bits * 2**-23 * torch.randint(-1, 2, parameter.shape)
        return train(model.to(dtype), [(x.to(dtype), y) for x, y in sets], lr, names)

    exact, others = once(torch.float64, 0), [once(torch.float32, min(i, 1)) for i in range(6)]
    spread = {key: [max(abs(other[key][i] - value) for other in others) for i, value in enumerate(values)]
              for key, values in exact.items()}
    how = {"model": name, **facts, **made, "batch": 16, "lr": lr, "momentum": 0.9, "weight_decay": 1e-4}
    return how | exact | {"spread": spread}


torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
for make in (conv2d, batchnorm, small, pool, softmax_cross_entropy, optimizers):
    make()
with torch.random.fork_rng():
    torch.manual_seed(1)
    volumes()
save_file(tensors, HERE / "layers.safetensors", metadata=attributes)

idx = dataset("idx", write_idx, (1, 28, 28), 40)
cifar10 = dataset("cifar10", write_cifar10, (3, 32, 32), 20)
lenet = ["conv1.weight", "conv2.bias", "fc1.weight", "fc3.bias"]
resnet = ["conv1.weight", "bn1.running_mean", "bn1.running_var", "layer1.0.conv2.weight", "layer2.0.conv1.weight",
          "layer2.0.bn1.bias", "layer3.2.bn2.weight", "layer3.2.bn2.running_mean", "layer3.2.bn2.running_var",
          "fc.weight", "fc.bias"]
large = ["conv1.weight", "layer2.0.downsample.0.weight", "layer4.1.bn2.running_var", "fc.bias"]
losses = {"lenet": run("lenet", idx, 0.05, lenet), "resnet20": run("resnet20", cifar10, 0.1, resnet),
          "resnet20-gentle": run("resnet20", cifar10, 0.002, resnet),
          "rows": run("rows", cifar10, 0.05, ["mix.weight", "twice.weight", "twice.bias", "fc.weight"]),
          "resnet18": run("resnet18", cifar10, 0.0005, large), "resnet50": run("resnet50", cifar10, 0.0005, large),
          "airbench94": run("airbench94", cifar10, 0.005, ["whiten.bias", "block1.conv2.weight", "block2.norm1.bias",
                                                           "block3.norm2.running_var", "fc.weight"]),
          "vit_tiny": run(SMALL_VIT, cifar10, 0.01, ["pos_embed.weight", "blocks.1.attn.qkv.weight", "head.weight"])}
(HERE / "losses.json").write_text(json.dumps(losses, indent=1) + "\n")
