#!/usr/bin/env python3
"""Train airbench94 on CIFAR-10 in PyTorch with the recipe of docs/performance/record.md, and print one JSON object.
`bench/record` calls this. "seconds" includes the final evaluation over views. It does not include the preparation, such as
compilation.
"""
import argparse
import json
import math
import pathlib
import time

import numpy
import torch
import torch_models
from torch.nn import functional as F

BATCH, RATE, MOMENTUM, DECAY, BIASES, SMOOTHING = 1024, 1.5, 0.85, 0.00133043, 64, 0.2
LOOKAHEAD, SLOW, WHITENED = 5, 0.95 ** 5, 3


def command_line():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, help="the folder of CIFAR-10's binary version")
    parser.add_argument("--epochs", type=float, default=9.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="bf16", help="bf16: autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", choices=("default", "max-autotune"), help="torch.compile in this mode")
    parser.add_argument("--init", help="initial weights (safetensors), instead of random ones")
    return parser.parse_args()


def read(files):
    """Returns the images as bytes (N,3,32,32), and the labels."""
    records = numpy.concatenate([numpy.fromfile(f, numpy.uint8) for f in files]).reshape(-1, 3073)
    return torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy()), torch.from_numpy(records[:, 0].astype(numpy.int64))


def rate_at(step, steps):
    """Returns the factor of the learning rate, a triangle: from .2 up to 1 at .23 of the run, then down to .07."""
    t = step / steps
    return 0.2 + 0.8 * t / 0.23 if t < 0.23 else 1 - 0.93 * (t - 0.23) / 0.77


def shifted(images, generator):
    """Shifts each image at random by up to 2 pixels along each axis, with reflection."""
    padded, out = F.pad(images, (2,) * 4, "reflect"), torch.empty_like(images)
    places = torch.randint(0, 25, (len(images),), generator=generator)
    for place in range(25):
        y, x = divmod(place, 5)
        out[places == place] = padded[places == place, :, y:y + 32, x:x + 32]
    return out


def views(model, images):
    """Returns the weighted mean of the predictions for the image, two diagonally shifted copies, and their mirror images."""
    padded = F.pad(images, (1,) * 4, "reflect")
    both = [(images, 0.25), (padded[:, :, :32, :32], 0.125), (padded[:, :, 2:, 2:], 0.125)]
    return sum(weight * (model(x) + model(x.flip(3))) for x, weight in both)


def main():
    arguments = command_line()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    generator = torch.Generator().manual_seed(arguments.seed)
    train, labels = read(sorted(arguments.data.glob("data_batch_*.bin")))
    test, test_labels = read([arguments.data / "test_batch.bin"])
    deviation, mean = torch.std_mean(train.double() / 255, (0, 2, 3), keepdim=True, correction=0)
    train, test = (((x / 255 - mean) / deviation).float() for x in (train, test))

    model = torch_models.build("airbench94")
    torch_models.begin_airbench94(model, train[:5000])
    if arguments.init:
        from safetensors.torch import load_file
        model.load_state_dict(load_file(arguments.init))
    model.to(memory_format=torch.channels_last)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(
        [{"params": [p for name, p in named if "norm" not in name], "lr": RATE, "weight_decay": DECAY},
         {"params": [p for name, p in named if "norm" in name], "lr": RATE * BIASES, "weight_decay": DECAY / BIASES}],
        momentum=MOMENTUM, nesterov=True)
    per_epoch = len(train) // BATCH
    steps = int(arguments.epochs * per_epoch + 0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, steps))
    fast = torch.compile(model, mode=arguments.compile) if arguments.compile else model
    cast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16")

    if arguments.compile:       # compile before the clock starts, then restore the statistics and drop the gradients
        before = {k: v.clone() for k, v in model.state_dict().items()}
        with cast:
            F.cross_entropy(fast(train[:BATCH].contiguous(memory_format=torch.channels_last)), labels[:BATCH]).backward()
        model.load_state_dict(before)
        optimizer.zero_grad()

    mirrored = torch.rand(len(train), generator=generator) < 0.5
    slow = {k: v.clone() for k, v in model.state_dict().items() if v.is_floating_point()}
    losses, started = [], time.monotonic()
    for epoch in range(math.ceil(steps / per_epoch)):
        model.train()
        model.whiten.bias.requires_grad_(epoch < WHITENED)
        order = torch.randperm(len(train), generator=generator)
        for i in range(min(per_epoch, steps - epoch * per_epoch)):
            index = order[i * BATCH:(i + 1) * BATCH]
            x = shifted(train[index], generator)
            x = torch.where((mirrored[index] ^ bool(epoch % 2))[:, None, None, None], x.flip(3), x)
            with cast:
                y = fast(x.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(y.float(), labels[index], label_smoothing=SMOOTHING)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            done = len(losses)
            if done % LOOKAHEAD and done < steps:
                continue
            keep = SLOW * (done / steps) ** 3 if done % LOOKAHEAD == 0 else 1
            for name, value in model.state_dict().items():
                if name in slow:
                    value.copy_(slow[name].lerp_(value, 1 - keep))
    trained = time.monotonic() - started
    model.eval()
    with torch.no_grad(), cast:
        said = [views(model, x.contiguous(memory_format=torch.channels_last)).float() for x in test.split(1000)]
    said = torch.cat(said)
    print(json.dumps({"test_top1": (said.argmax(1) == test_labels).double().mean().item(),
                      "test_loss": F.cross_entropy(said, test_labels, label_smoothing=SMOOTHING).item(),
                      "train_seconds": trained, "seconds": time.monotonic() - started, "steps": steps, "losses": losses}))


if __name__ == "__main__":
    main()
