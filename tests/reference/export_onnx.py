#!/usr/bin/env python3
"""Make the files onnx-*.onnx, exported by PyTorch, their logits onnx.txt, and the seeds of tests/fuzz/onnx. Needs torch, onnx,
onnxscript, onnxruntime and transformers 4."""
import copy
import sys
from pathlib import Path

import numpy
import onnx
import onnxruntime
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, taken, made, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(taken, made, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        self.downsample = nn.Sequential(nn.Conv2d(taken, made, 1, stride, bias=False), nn.BatchNorm2d(made))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.layer1 = Block(6, 8, 2)
        self.fc = nn.Linear(8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 1, 1)
        x = F.adaptive_avg_pool2d(self.layer1(x), 1)
        return self.fc(torch.flatten(x, 1))


class Plain(nn.Module):
    """Two branches, a transposed convolution, a shortcut without parameters, a reshape by the batch's size."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(4, 2, 2, 2)
        self.drop = nn.Dropout(0.25)
        self.fc1 = nn.Linear(8 * 2 * 2, 12, bias=False)
        self.fc2 = nn.Linear(12, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv(x)), 2)
        x = torch.cat([x, F.avg_pool2d(self.up(x), 2)], 1)
        x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1))
        x = x.view(x.size(0), -1)
        return self.fc2(self.drop(F.relu(self.fc1(x))))


class Attention(nn.Module):
    """A block of a small vision transformer, by ONNX's operator, which opset 23 has, or by products of matrices."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 12, 2, 2)
        self.position = nn.Parameter(torch.randn(16, 12) * 0.2)
        self.norm1 = nn.LayerNorm(12)
        self.qkv = nn.Linear(12, 36)
        self.proj = nn.Linear(12, 12)
        self.norm2 = nn.LayerNorm(12)
        self.fc1 = nn.Linear(12, 24)
        self.fc2 = nn.Linear(24, 12)
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        heads = [t.view(*t.shape[:2], 3, 4).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(12, dim=2)]
        y = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
        x = x + self.proj(y.reshape(*y.shape[:2], 12))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return self.head(x.mean(1))


class Normal(nn.Module):
    """GELU by Erf, in the three orders in which it is multiplied, as files have it that opset 20 did not reach."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc1 = nn.Linear(4 * 64, 12)
        self.fc2 = nn.Linear(12, 10)

    def forward(self, x):
        x = F.gelu(self.conv(x))
        x = self.fc1(torch.flatten(x, 1))
        x = 0.5 * x * (1 + torch.erf(x / 2 ** 0.5))
        x = self.fc2(x)
        return x * (0.5 * (1 + torch.erf(x * 0.5 ** 0.5)))


class Tokens(nn.Module):
    """A vision transformer with a class token, (1,T,C) positions and PyTorch's own attention, which transposes the samples."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(1, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8) * 0.5)
        self.position = nn.Parameter(torch.randn(1, 5, 8) * 0.5)
        self.norm1 = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(8)
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8)
        self.scale = nn.Parameter(torch.rand(8) + 0.5)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        y = self.norm1(x)
        x = x + self.scale * self.attention(y, y, y, need_weights=False)[0]
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return self.head(self.norm(x)[:, 0])


class Mobile(nn.Module):
    """Squeeze and excitation, the nonlinearities of mobile networks, unequal borders, and a ConvNeXt block with channels last."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, stride=2)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.fc1 = nn.Conv2d(6, 3, 1)
        self.fc2 = nn.Conv2d(3, 6, 1)
        self.fc3 = nn.Conv2d(6, 3, 1)
        self.fc4 = nn.Conv2d(3, 6, 1)
        self.norm = nn.LayerNorm(6)
        self.up = nn.Linear(6, 12)
        self.down = nn.Linear(12, 6)
        self.scale = nn.Parameter(torch.rand(6, 1, 1) + 0.5)
        self.head = nn.Linear(6, 10)

    def forward(self, x):
        x = F.hardswish(self.conv1(F.pad(x, (0, 1, 0, 1))))
        x = x * F.hardsigmoid(self.fc2(F.relu(self.fc1(x.mean((2, 3), keepdim=True)))))
        x = F.leaky_relu(F.relu6(self.conv2(x)) + x, 0.1)
        x = x * torch.sigmoid(self.fc4(F.silu(self.fc3(F.adaptive_avg_pool2d(x, 1)))))
        y = self.down(F.gelu(self.up(self.norm(x.permute(0, 2, 3, 1)))))
        x = x + self.scale * y.permute(0, 3, 1, 2)
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Language(nn.Module):
    """Qwen 3 of transformers, which has all operators of the Llama family. Without a mask, its attention is causal."""

    def __init__(self):
        super().__init__()
        from transformers import Qwen3Config, Qwen3ForCausalLM
        from transformers.masking_utils import AttentionMaskInterface
        AttentionMaskInterface.register("sdpa", lambda *args, **kwargs: None)
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 16}
        with torch.random.fork_rng():       # other networks keep their numbers
            torch.manual_seed(2)
            self.network = Qwen3ForCausalLM(Qwen3Config(
                vocab_size=10, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=4,
                num_key_value_heads=2, head_dim=4, max_position_embeddings=64, initializer_range=0.3, attention_bias=True,
                rope_scaling=scaling))
            for weight in self.parameters():
                if weight.dim() == 1:
                    weight.data.uniform_(0.5, 1.5)

    def forward(self, x):
        return self.network(input_ids=x, use_cache=False).logits


def tokens():
    """(2,4): 0 to 9."""
    return (torch.arange(8) * 7919 % 10).view(2, 4)


def images():
    """(8,1,8,8): 0 to 250, divided by 255."""
    return ((torch.arange(8 * 64) * 7919 % 251).float() / 255).view(8, 1, 8, 8)


def seeds(model, folder, name):
    """Whole, and with nodes of other kinds."""
    (folder / name).write_bytes(model.SerializeToString())
    for i, node in enumerate(model.graph.node):
        if i % 4:
            continue
        other = copy.deepcopy(model)
        del other.graph.node[i + 1:]
        other.graph.output[0].name = other.graph.node[i].output[0]
        (folder / f"{name}-{i}").write_bytes(other.SerializeToString())


def main():
    here = Path(__file__).parent
    torch.manual_seed(1)
    lines = []
    nets = (("residual", Residual(), 20), ("batchnorm", Residual(), 0), ("plain", Plain(), 20), ("attention", Attention(), 23),
            ("normal", Normal(), 17), ("products", Attention(), 18), ("language", Language(), 23), ("tokens", Tokens(), 14),
            ("heads", Tokens(), 18), ("mobile", Mobile(), 13), ("activations", Mobile(), 18))
    for name, net, opset in nets:
        net.eval()
        x = tokens() if name == "language" else images()
        for m in net.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.normal_(0, 0.2), m.running_var.uniform_(0.5, 1.5)
                m.weight.data.uniform_(0.5, 1.5), m.bias.data.normal_(0, 0.2)
        path = here / f"onnx-{name}.onnx"
        if opset >= 18:
            torch.onnx.export(net, (x,), str(path), dynamo=True, external_data=False, dynamic_shapes={"x": {0: "batch"}},
                              verbose=False, opset_version=opset)
            model = onnx.load(path)
            for node in model.graph.node:
                del node.metadata_props[:]
            for value in list(model.graph.value_info):
                model.graph.value_info.remove(value)
            for tensor in [*model.graph.input, *model.graph.output, *model.graph.initializer]:
                del tensor.metadata_props[:]
            model.doc_string = ""
            onnx.save(model, path)
        elif opset:
            torch.onnx.export(net, (x,), str(path), dynamo=False, opset_version=opset, input_names=["x"],
                              dynamic_axes={"x": {0: "batch"}})
        else:
            torch.onnx.export(net, (x,), str(path), dynamo=False, training=torch.onnx.TrainingMode.PRESERVE,
                              do_constant_folding=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}})
        session = onnxruntime.InferenceSession(str(path))
        logits = session.run(None, {"x": x.numpy()})[0]
        assert numpy.abs(logits - net(x).detach().numpy()).max() < 1e-5
        lines += [name + " " + " ".join(f"{v:.9g}" for v in row) for row in logits.reshape(8, 10)]
        if len(sys.argv) > 1:
            seeds(onnx.load(path), Path(sys.argv[1]), name)
    (here / "onnx.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
