"""The networks of `stargrad list models` in PyTorch, with the same names of weights.

    model = torch_models.build("resnet20", shape=(3, 32, 32), classes=10)
"""
import torch
from torch import nn
from torch.nn import functional as F


class Airbench94(nn.Module):
    """Jordan, arXiv:2404.00498: a whitening layer and three blocks of two convolutions. begin_airbench94 sets the initial
    weights."""

    class Group(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.norm1, self.norm2 = (nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4) for _ in range(2))

        def forward(self, x):
            x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
            return F.gelu(self.norm2(self.conv2(x)))

    def __init__(self, shape, classes):
        super().__init__()
        patch = 4 * shape[0]
        self.whiten = nn.Conv2d(shape[0], 2 * patch, 2)
        self.block1, self.block2, self.block3 = self.Group(2 * patch, 64), self.Group(64, 256), self.Group(256, 256)
        self.fc = nn.Linear(256, classes, bias=False)
        self.whiten.weight.requires_grad_(False)
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name != "whiten.weight" and not (".norm" in name and name.endswith("weight")))

    def forward(self, x):
        x = self.block3(self.block2(self.block1(F.gelu(self.whiten(x)))))
        return self.fc(x.amax((2, 3))) / 9


def begin_airbench94(model, images):
    """Sets the initial weights. The first layer whitens IMAGES (N,C,H,W), normalised; the other convolutions are identities."""
    patches = F.unfold(images, 2).transpose(1, 2).flatten(0, 1).double()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.flip(0).reshape(-1, images.shape[1], 2, 2)
    with torch.no_grad():
        model.whiten.weight.copy_(torch.cat([filters, -filters]))
        model.whiten.bias.zero_()
        for name, parameter in model.named_parameters():
            if "conv" in name:
                nn.init.dirac_(parameter[:parameter.shape[1]])


class LeNet(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        channels, height, width = shape
        pad = 2 if height == 28 else 0
        rows, columns = (((size + 2 * pad - 4) // 2 - 4) // 2 for size in (height, width))
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=pad)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * rows * columns, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class Mlp(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.fc1 = nn.Linear(torch.Size(shape).numel(), 512)
        self.fc2 = nn.Linear(512, 256)
        self.fc3 = nn.Linear(256, classes)

    def forward(self, x):
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class ConvNet(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        widths = [shape[0], 32, 32, 64, 64]
        for i in range(1, 5):
            setattr(self, f"conv{i}", nn.Conv2d(widths[i - 1], widths[i], 3, padding=1, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(widths[i]))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.bn3(self.conv3(x)))
        x = F.relu(self.bn4(self.conv4(x)))
        return self.fc(x.mean((2, 3)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.outputs = stride, outputs

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + shortcut(x, self.stride, self.outputs))


def shortcut(x, stride, outputs):
    """He et al. 2015, option A: every stride-th pixel; zero channels, half before and half after."""
    if stride == 1 and x.shape[1] == outputs:
        return x
    zeros = outputs - x.shape[1]
    return F.pad(x[:, :, ::stride, ::stride], (0, 0, 0, 0, zeros // 2, zeros - zeros // 2))


class ResNet(nn.Module):
    """He et al. 2015, section 4.2: 6n+2 layers."""

    def __init__(self, depth, shape, classes):
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(blocks)))
        self.layer2 = nn.Sequential(*(Block(32 if i else 16, 32, 1 if i else 2) for i in range(blocks)))
        self.layer3 = nn.Sequential(*(Block(64 if i else 32, 64, 1 if i else 2) for i in range(blocks)))
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Projecting(nn.Module):
    """A block of He et al. 2015. Its shortcut is a convolution if the shape changes (option B)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.downsample = nn.Sequential() if stride == 1 and inputs == outputs else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(Projecting):
    def __init__(self, inputs, outputs, stride):
        super().__init__(inputs, outputs, stride)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(Projecting):
    def __init__(self, inputs, outputs, stride):
        super().__init__(inputs, outputs, stride)
        self.conv1 = nn.Conv2d(inputs, outputs // 4, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs // 4)
        self.conv2 = nn.Conv2d(outputs // 4, outputs // 4, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs // 4)
        self.conv3 = nn.Conv2d(outputs // 4, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class LargeResNet(nn.Module):
    """He et al. 2015, table 1, in torchvision's version "v1.5"."""

    PLANS = {18: (BasicBlock, 64, (2, 2, 2, 2)), 34: (BasicBlock, 64, (3, 4, 6, 3)), 50: (Bottleneck, 256, (3, 4, 6, 3)),
             101: (Bottleneck, 256, (3, 4, 23, 3)), 152: (Bottleneck, 256, (3, 8, 36, 3))}

    def __init__(self, depth, shape, classes):
        super().__init__()
        block, width, blocks = self.PLANS[depth]
        self.conv1 = nn.Conv2d(shape[0], 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for stage, count in enumerate(blocks):
            outputs, stride = width << stage, 2 if stage else 1
            setattr(self, f"layer{stage + 1}", nn.Sequential(block(inputs, outputs, stride),
                                                             *(block(outputs, outputs, 1) for _ in range(count - 1))))
            inputs = outputs
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class Nin(nn.Module):
    """Lin et al. 2013, "Network in network", its CIFAR-10 form."""

    def __init__(self, shape, classes):
        super().__init__()
        widths = [shape[0], 192, 160, 96, 192, 192, 192, 192, 192, classes]
        kernels = [None, 5, 1, 1, 5, 1, 1, 3, 1, 1]
        for i in range(1, 10):
            setattr(self, f"conv{i}", nn.Conv2d(widths[i - 1], widths[i], kernels[i], padding=kernels[i] // 2))

    def forward(self, x):
        for i in range(1, 10):
            x = F.relu(getattr(self, f"conv{i}")(x))
            if i == 3:
                x = F.dropout(F.max_pool2d(x, 3, 2, 1), 0.5, self.training)
            if i == 6:
                x = F.dropout(F.avg_pool2d(x, 3, 2, 1), 0.5, self.training)
        return x.mean((2, 3))


class Vgg(nn.Module):
    """vggN_bn of torchvision, with one linear layer as the classifier."""

    PLANS = {11: "64 M 128 M 256 256 M 512 512 M 512 512 M",
             13: "64 64 M 128 128 M 256 256 M 512 512 M 512 512 M",
             16: "64 64 M 128 128 M 256 256 256 M 512 512 512 M 512 512 512 M"}

    def __init__(self, depth, shape, classes):
        super().__init__()
        layers, inputs = [], shape[0]
        for item in self.PLANS[depth].split():
            if item == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                outputs = int(item)
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
                inputs = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(512 * (shape[1] // 32) * (shape[2] // 32), classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Turned(nn.Module):
    """A linear layer with a weight of shape (in, out), as in GPT-2."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


class GptBlock(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Turned(width, 3 * width), "c_proj": Turned(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Turned(width, 4 * width), "c_proj": Turned(4 * width, width)})

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.attn["c_attn"](self.ln_1(x)).split(width, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.attn["c_proj"](y)
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT2LMHeadModel of Hugging Face, with its names and layouts of weights."""

    def __init__(self, layers, heads, width, context, vocabulary):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(GptBlock(heads, width) for _ in range(layers)), "ln_f": nn.LayerNorm(width)})
        for embedding in (self.transformer["wte"], self.transformer["wpe"]):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        parts = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1], device=tokens.device))
        for block in parts["h"]:
            x = block(x)
        return F.linear(parts["ln_f"](x), parts["wte"].weight)


class LlamaBlock(nn.Module):
    def __init__(self, heads, kv_heads, width, hidden):
        super().__init__()
        size = width // heads
        self.size = size
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.self_attn = nn.ModuleDict({
            "q_proj": nn.Linear(width, width, False), "k_proj": nn.Linear(width, kv_heads * size, False),
            "v_proj": nn.Linear(width, kv_heads * size, False), "o_proj": nn.Linear(width, width, False)})
        self.mlp = nn.ModuleDict({"gate_proj": nn.Linear(width, hidden, False), "up_proj": nn.Linear(width, hidden, False),
                                  "down_proj": nn.Linear(hidden, width, False)})

    def rotate(self, x, cos, sin):
        left, right = x.chunk(2, -1)
        return x * cos + torch.cat((-right, left), -1) * sin

    def forward(self, x, cos, sin):
        n, t, width = x.shape
        y = self.input_layernorm(x)
        q, k, v = (self.self_attn[f"{name}_proj"](y).view(n, t, -1, self.size).transpose(1, 2) for name in "qkv")
        q, k = self.rotate(q, cos, sin).to(v.dtype), self.rotate(k, cos, sin).to(v.dtype)
        shared = q.shape[1] // k.shape[1]       # faster on CPUs than enable_gqa, which has no fused kernel there
        k, v = (part.repeat_interleave(shared, 1) if shared > 1 else part for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.self_attn["o_proj"](y)
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


class Llama(nn.Module):
    """LlamaForCausalLM of Hugging Face with a tied head, with its names of weights."""

    def __init__(self, layers, heads, width, context, vocabulary, kv_heads=0, hidden=1024):
        super().__init__()
        self.model = nn.ModuleDict({
            "embed_tokens": nn.Embedding(vocabulary, width), "norm": nn.RMSNorm(width, 1e-5),
            "layers": nn.ModuleList(LlamaBlock(heads, kv_heads or heads, width, hidden) for _ in range(layers))})
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        size = width // heads
        angles = torch.outer(torch.arange(context), 10000 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), False)
        self.register_buffer("sin", angles.sin(), False)

    def forward(self, tokens):
        x, rows = self.model["embed_tokens"](tokens), tokens.shape[1]
        for block in self.model["layers"]:
            x = block(x, self.cos[:rows], self.sin[:rows])
        return F.linear(self.model["norm"](x), self.model["embed_tokens"].weight)


class VitBlock(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.attn["qkv"](self.norm1(x)).split(width, 2))
        x = x + self.attn["proj"](F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.norm2(x))))


class Vit(nn.Module):
    """A vision transformer without a class token: the class is predicted from the mean over the patches."""

    def __init__(self, shape, classes, layers=12, heads=3, width=192, patch=4):
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(shape[0], width, patch, patch)})
        self.pos_embed = nn.Embedding(shape[1] // patch * (shape[2] // patch), width)
        self.blocks = nn.ModuleList(VitBlock(heads, width) for _ in range(layers))
        self.fc_norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patch_embed["proj"](x).flatten(2).transpose(1, 2) + self.pos_embed.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x.mean(1)))


def of_torchvision(name, shape, classes):
    import torchvision
    if shape[0] != 3:
        raise ValueError(f"{name} takes images of 3 channels, not {shape[0]}")
    size = {"image_size": shape[1]} if name.startswith("vit") else {}
    return torchvision.models.get_model(name, num_classes=classes, **size)


MODELS = {"airbench94": Airbench94, "lenet": LeNet, "mlp": Mlp, "convnet": ConvNet, "nin": Nin}
MODELS |= {f"resnet{n}": lambda *a, n=n: ResNet(n, *a) for n in (20, 32, 44, 56, 110)}
MODELS |= {f"resnet{n}": lambda *a, n=n: LargeResNet(n, *a) for n in LargeResNet.PLANS}
MODELS |= {f"vgg{n}": lambda *a, n=n: Vgg(n, *a) for n in (11, 13, 16)}
MODELS["vit_tiny"] = Vit
TORCHVISION = ("mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0", "regnet_x_400mf", "regnet_y_400mf",
               "regnet_y_800mf", "densenet121", "densenet161", "densenet169", "densenet201", "convnext_tiny", "convnext_small",
               "convnext_base", "convnext_large", "vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32")
MODELS |= {name: lambda shape, classes, name=name: of_torchvision(name, shape, classes) for name in TORCHVISION}
TEXT_MODELS = {"gpt": Gpt, "llama": Llama}


def text_options(name):
    """Returns the options of a NAME such as "gpt:layers=6,heads=6,width=384,context=256" as keywords of its class; None for models
    that are not language models. The default vocabulary is the 256 bytes."""
    kind, _, options = name.partition(":")
    if kind not in TEXT_MODELS:
        return None
    sizes = {"layers": 6, "heads": 6, "width": 384, "context": 256, "vocabulary": 256}
    return sizes | {key: int(value) for key, value in (option.split("=") for option in options.split(",") if option)}


def build(name, shape=(3, 32, 32), classes=10):
    """Returns a network. shape is (channels, height, width). A language model takes its sizes from its name."""
    sizes = text_options(name)
    return TEXT_MODELS[name.partition(":")[0]](**sizes) if sizes else MODELS[name](shape, classes)
