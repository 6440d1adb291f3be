#!/usr/bin/env python3
"""Measure one PyTorch training run and print one JSON object. `bench/peers`, `bench/network` and `bench/gpu` call this.

Only the training step is timed: there is no data loader, the loss is not read, and a few batches are generated before. On a GPU,
a step begins with the bytes of the samples in pinned memory, as in Stargrad. A separate stream copies the samples of the next
step during a step. They are normalised on the GPU.

With --serve, each line of standard input has further options and requests one measurement. The answer is one line. Networks stay
compiled between measurements; GPU memory is freed.
"""
import argparse
import contextlib
import gc
import json
import os
import resource
import shlex
import sys
import time

import torch
import torch_models
from torch.nn import functional as F

MEAN, DEVIATION = 127.5, 64.0       # of the bytes of images


def command_line(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--shape", default="32x32x3", help="height x width x channels")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32", help="bf16: autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="0: compile, measure nothing")
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--compile", choices=("default", "reduce-overhead", "max-autotune"), help="torch.compile in this mode")
    parser.add_argument("--graph", action="store_true", help="the whole step, updates too, as one CUDA graph")
    parser.add_argument("--nchw", action="store_true", help="use NCHW instead of channels-last")
    parser.add_argument("--processes", action="store_true",
                        help="data parallel: --threads processes instead of threads, each with a part of the batch "
                             "(and batch norm over this part)")
    parser.add_argument("--rank", type=int, help="the number of this process among --ranks processes with --threads threads each; "
                        "each process has a part of the batch; rank 0 listens at --address")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--address", default="127.0.0.1:29517")
    parser.add_argument("--shard", action="store_true", help="each of --ranks stores a share of the parameters (FSDP2)")
    parser.add_argument("--bucket", type=float, help="MB of gradients summed at once (default: PyTorch's)")
    parser.add_argument("--serve", action="store_true")
    return parser.parse_args(arguments)


def shard(model, processes):
    """Shares the parameters of each block, the members of a sequence or list of modules, and then the rest."""
    from torch.distributed.fsdp import fully_shard
    mesh = torch.distributed.init_device_mesh("cpu", (processes,))
    for sequence in model.modules():
        if isinstance(sequence, (torch.nn.Sequential, torch.nn.ModuleList)):
            for block in sequence:
                if next(block.parameters(), None) is not None:
                    fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def make_model(options, rank, processes):
    torch.manual_seed(1)
    height, width, channels = map(int, options.shape.split("x"))
    model = torch_models.build(options.model, (channels, height, width), options.classes)
    model = model.to(options.device, memory_format=torch.contiguous_format if options.nchw else torch.channels_last)
    if processes > 1:
        torch.distributed.init_process_group("gloo", f"tcp://{options.address}", rank=rank, world_size=processes)
    if options.shard:
        return shard(model, processes)
    if processes > 1:
        if options.bucket:      # torch.compile requires that the first bucket is not larger than the others
            torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = int(options.bucket * 2**20)
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=options.bucket, gradient_as_bucket_view=True,
                                                          broadcast_buffers=False)
    return model


def make_loss(options, model):
    """Returns a function that computes the loss of a batch in --precision, compiled with --compile."""
    def loss_of(x, y):      # no cast cache on a GPU: a CUDA graph needs its own casts, and each weight is used once
        if options.device == "cuda":
            x = (x.float() - MEAN) * (1 / DEVIATION)
        bf16 = options.precision == "bf16"
        cast = torch.autocast(options.device, torch.bfloat16, cache_enabled=options.device == "cpu")
        with cast if bf16 else contextlib.nullcontext():
            said = model(x)
            return F.cross_entropy(said.flatten(0, -2), y.flatten()) if y.dim() > 1 else F.cross_entropy(said, y)

    return torch.compile(loss_of, mode=options.compile) if options.compile else loss_of


def make_batches(options, share):
    text = torch_models.text_options(options.model)
    if text:
        return [tuple(torch.randint(text["vocabulary"], (share, text["context"]), device=options.device) for _ in range(2)) for _ in range(4)]
    height, width, channels = map(int, options.shape.split("x"))
    if options.device == "cpu":
        layout = torch.contiguous_format if options.nchw else torch.channels_last
        return [(torch.randn(share, channels, height, width).to(memory_format=layout),
                 torch.randint(options.classes, (share,))) for _ in range(4)]
    shape = (share, channels, height, width) if options.nchw else (share, height, width, channels)
    return [(torch.randint(256, shape, dtype=torch.uint8).pin_memory(), torch.randint(options.classes, (share,)).pin_memory())
            for _ in range(4)]


class Copies:
    """Copies pinned batches to the GPU. The next batch is copied during the use of the current one."""

    def __init__(self, options, batches):
        self.batches, self.channels_last, self.next = batches, not options.nchw, 0
        self.stream = torch.cuda.Stream()
        self.copy()

    def copy(self):
        with torch.cuda.stream(self.stream):
            self.ahead = [tensor.cuda(non_blocking=True) for tensor in self.batches[self.next % len(self.batches)]]
        self.next += 1

    def take(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        x, y = self.ahead
        for tensor in (x, y):       # the copy stream owns the memory and must not reuse it before this stream is done
            tensor.record_stream(torch.cuda.current_stream())
        self.copy()
        return x.permute(0, 3, 1, 2) if self.channels_last else x, y


class Trainer:
    def __init__(self, options, rank=0, processes=1):
        self.options = options
        self.model = make_model(options, rank, processes)
        sgd = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
        self.optimizer = (torch.optim.AdamW(self.model.parameters(), fused=True) if torch_models.text_options(options.model)
                          else torch.optim.SGD(self.model.parameters(), **sgd, fused=True))
        self.loss_of = make_loss(options, self.model)

    def step(self, x, y):
        self.loss_of(x, y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def graph(self, copies):
        """Captures a step in one CUDA graph with its own input buffers. Returns a function that replays it."""
        x, y = copies.take()
        x, y = x.clone(memory_format=torch.preserve_format), y.clone()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step(x, y)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(x, y)

        def replay(next_x, next_y):
            x.copy_(next_x)
            y.copy_(next_y)
            graph.replay()

        return replay

    def train(self, batches):
        """Returns the seconds of the timed steps."""
        options, cuda = self.options, self.options.device == "cuda"
        copies = Copies(options, batches) if cuda else None
        step = self.graph(copies) if options.graph else self.step
        for count in (options.warmup, options.steps):
            if cuda:
                torch.cuda.synchronize()
            started = time.perf_counter()
            for number in range(count):
                if options.compile == "reduce-overhead":
                    torch.compiler.cudagraph_mark_step_begin()
                step(*(copies.take() if cuda else batches[number % len(batches)]))
            if cuda:
                torch.cuda.synchronize()
        return time.perf_counter() - started


def set_up(options, threads):
    torch.set_num_threads(threads)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = options.precision == "tf32"


def versions(options):
    cuda = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()} if options.device == "cuda" else {}
    return {"version": torch.__version__} | cuda


def memory_of(options):
    device = {"device_mib": torch.cuda.max_memory_reserved() / 2**20} if options.device == "cuda" else {}
    return {"peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024} | device


def measure(rank, options, processes, threads):
    set_up(options, threads)
    share = options.batch // processes
    trainer = Trainer(options, rank, processes)
    seconds = trainer.train(make_batches(options, share))
    result = {"images_per_second": options.steps * share * processes / seconds} | memory_of(options) | versions(options)
    if processes > 1:
        memory = torch.tensor(result["peak_rss_mib"])
        torch.distributed.all_reduce(memory)
        torch.distributed.destroy_process_group()
        result["peak_rss_mib"] = memory.item()
    if rank == 0:
        print(json.dumps(result))


def answer(options, trainers):
    """Makes one measurement. The trainer is retained for later ones with the same precision, layout and compilation."""
    cuda = options.device == "cuda"
    set_up(options, options.threads)
    key = options.precision, options.nchw, options.compile
    if key not in trainers:
        trainers[key] = Trainer(options)
    trainer = trainers[key]
    trainer.options = options
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    seconds = trainer.train(make_batches(options, options.batch))
    return {"images_per_second": options.steps * options.batch / seconds} | memory_of(options) | versions(options)


def serve(arguments):
    torch._dynamo.config.cache_size_limit = 64      # to Dynamo, the losses of all trainers are one function
    trainers, results = {}, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)       # compilers also print to standard output
    for line in sys.stdin:
        options = command_line(arguments + shlex.split(line))
        try:
            result = answer(options, trainers)
        except Exception as error:
            full = "out of memory" in str(error)
            result = {"error": "out of memory" if full else f"{type(error).__name__}: {error}".splitlines()[0]}
        gc.collect()
        if options.device == "cuda" and torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(json.dumps(result), file=results, flush=True)


if __name__ == "__main__":
    chosen = command_line()
    if chosen.serve:
        serve(sys.argv[1:])
    elif chosen.processes:
        torch.multiprocessing.spawn(measure, (chosen, chosen.threads, 1), nprocs=chosen.threads)
    else:
        measure(chosen.rank or 0, chosen, chosen.ranks, chosen.threads)
    sys.stdout.flush()
    os._exit(0)     # gloo's threads sometimes abort during a normal exit of the interpreter
