#!/usr/bin/env python3
"""Measure one PyTorch training run on CPUs and print one JSON object. `bench/peers` and `bench/network` call this.

No data loader, no reading of the loss: a few batches made beforehand, so nothing but the training step is timed.
"""
import argparse
import contextlib
import json
import os
import resource
import sys
import time

import torch
import torch_models
from torch.nn import functional as F


def command_line():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--shape", default="32x32x3", help="height x width x channels")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--compile", choices=("default", "max-autotune"), help="torch.compile in this mode")
    parser.add_argument("--nchw", action="store_true", help="not channels-last")
    parser.add_argument("--processes", action="store_true",
                        help="data-parallel: not --threads threads but as many processes, each with its share of the "
                             "batch (and batch norm over that share)")
    parser.add_argument("--rank", type=int, help="this is one of --ranks processes of --threads threads, each of which "
                        "has its share of the batch; rank 0 listens at --address")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--address", default="127.0.0.1:29517")
    parser.add_argument("--bucket", type=float, help="MB of gradients summed at once (default PyTorch's)")
    return parser.parse_args()


def measure(rank, options, processes, threads):
    torch.manual_seed(1)
    torch.set_num_threads(threads)
    height, width, channels = map(int, options.shape.split("x"))
    layout = torch.contiguous_format if options.nchw else torch.channels_last
    model = torch_models.build(options.model, (channels, height, width), options.classes).to(memory_format=layout)
    if processes > 1:
        torch.distributed.init_process_group("gloo", f"tcp://{options.address}", rank=rank, world_size=processes)
        if options.bucket:      # torch.compile asks that the first one is no larger than the others
            torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = int(options.bucket * 2**20)
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket, gradient_as_bucket_view=True,
                                                          broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
    share = options.batch // processes
    batches = [(torch.randn(share, channels, height, width).to(memory_format=layout),
                torch.randint(options.classes, (share,))) for _ in range(4)]

    def loss_of(x, y):
        bf16 = options.precision == "bf16"
        with torch.autocast("cpu", torch.bfloat16) if bf16 else contextlib.nullcontext():
            return F.cross_entropy(model(x), y)

    if options.compile:
        loss_of = torch.compile(loss_of, mode=options.compile)

    def train(steps):
        started = time.perf_counter()
        for step in range(steps):
            loss_of(*batches[step % len(batches)]).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - started

    train(options.warmup)
    seconds = train(options.steps)
    memory = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if processes > 1:
        torch.distributed.all_reduce(memory)
        torch.distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps({"images_per_second": options.steps * share * processes / seconds,
                          "peak_rss_mib": memory.item(), "version": torch.__version__}))


if __name__ == "__main__":
    chosen = command_line()
    if chosen.processes:
        torch.multiprocessing.spawn(measure, (chosen, chosen.threads, 1), nprocs=chosen.threads)
    else:
        measure(chosen.rank or 0, chosen, chosen.ranks, chosen.threads)
    sys.stdout.flush()
    os._exit(0)     # gloo's threads abort now and then where an interpreter ends in the ordinary way
