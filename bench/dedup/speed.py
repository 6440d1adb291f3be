#!/usr/bin/env python3
"""Compare the speed of stargrad and of imagededup with two processes: speed.py STARGRAD SEARCH CIFAR-10-DIR FOLDER [TURNS]

Hashing. imagededup hashes the files of a folder, or one array at a time. CIFAR-10 is passed to it as arrays in memory, half of
them to each of two processes; stargrad reads the files of the data set. Both also hash the images of CIFAR-10 as PNG files, and
the JPEG files of FOLDER.

Searching. The hashes are random, and one in twenty is a near copy of another. SEARCH (search.c) searches them; so do both methods
of imagededup: every pair in Cython, its default, and its BK-tree.

The figures are medians over TURNS, for hashing only and for the whole command with its start, its search and its output files.
The two programs run in turn. On a machine in use by others, processor time is more reliable than elapsed time."""
import glob
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy
from PIL import Image
from peer import KINDS      # must be first: it replaces modules that imagededup imports
from imagededup.handlers.search.retrieval import HashEval
from imagededup.methods.hashing import Hashing

stargrad, searcher, cifar, tree = sys.argv[1:5]
TURNS = int(sys.argv[5]) if len(sys.argv) > 5 else 3
place = tempfile.mkdtemp(prefix="dedup-speed-")
records = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 3073)
                             for file in sorted(glob.glob(f"{cifar}/**/data_batch_*.bin", recursive=True))])
images = numpy.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
for i, image in enumerate(images[:10000]):
    os.makedirs(f"{place}/png/train/{records[i, 0]}", exist_ok=True)
    Image.fromarray(image).save(f"{place}/png/train/{records[i, 0]}/{i}.png")


def spent():
    """Returns the elapsed time, and the processor time of this process and its children, in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return numpy.array([time.monotonic(), sum(u.ru_utime + u.ru_stime for u in used)])


def mine(data, kind):
    with tempfile.TemporaryDirectory() as out:
        begin = spent()
        told = subprocess.run([stargrad, "dedup", "--data", data, "--hash", kind, "--threshold", "0", "--out", out, "--no-test", "--json"],
                              check=True, capture_output=True, text=True).stdout
        return [*(spent() - begin), json.loads(told)["hash_seconds"]]


def theirs(folder, kind):
    begin = spent()
    KINDS[kind](verbose=False).encode_images(folder, recursive=True, num_enc_workers=2)
    clock, used = spent() - begin
    return [clock, used, clock]


def hash_arrays(kind, begin, end):
    method = KINDS[kind](verbose=False)
    return [method.encode_image(image_array=image) for image in images[begin:end]]


def theirs_of_arrays(kind):
    """Hashes both halves concurrently. The processes exist and have the arrays before the clock starts."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        begin, half = spent(), len(images) // 2
        pool.starmap(hash_arrays, [(kind, 0, half), (kind, half, len(images))], chunksize=1)
        clock = (spent() - begin)[0]
    return [clock, 2 * clock, clock]    # both processes were busy all the time


def compare(what, one, other):
    times = numpy.array([(one(), other()) for _ in range(TURNS)])
    (clock, work, hashing), (their_clock, their_work, _) = numpy.median(times, axis=0)
    print(f"{what}: stargrad: hashing {hashing:.3g} s, whole command {clock:.3g} s, processor time {work:.3g} s; imagededup: hashing "
          f"{their_clock:.3g} s, processor time {their_work:.3g} s; stargrad is {their_clock / hashing:.1f} times as fast in hashing, "
          f"{their_work / work:.1f} times by processor time of the whole command", flush=True)


for kind in KINDS:
    compare(f"{kind} of {len(images):,} CIFAR-10 images", lambda: mine(f"cifar10:{cifar}", kind), lambda: theirs_of_arrays(kind))
for name, folder in (("10,000 CIFAR-10 images as PNGs", f"{place}/png"), ("10,000 JPEGs of Tiny ImageNet", tree)):
    for kind in KINDS:
        compare(f"{kind} of {name}", lambda: mine(f"folder:{folder}", kind), lambda: theirs(f"{folder}/train", kind))


def drawn(count):
    draw = numpy.random.default_rng(1)
    word = draw.integers(0, 2**64, count, dtype=numpy.uint64)
    for i in range(0, count, 20):
        for bit in draw.integers(0, 64, draw.integers(0, 8)):
            word[i] = word[(i * 7 + 1) % count] ^ numpy.uint64(1 << int(bit))
    word.tofile(f"{place}/words")
    return {str(i): f"{int(w):016x}" for i, w in enumerate(word)}


def search(threshold):
    return json.loads(subprocess.run([searcher, f"{place}/words", str(threshold)], check=True, capture_output=True, text=True).stdout)


def peer_search(hashes, threshold, method):
    """Returns the estimated seconds for all queries, from two runs with few queries: a fixed part (building the tree, starting
    the processes) and a part for each query."""
    seconds, queries = [], (20, 60)
    for count in queries:
        part = {name: hashes[name] for name in list(hashes)[::len(hashes) // count][:count]}
        begin = spent()
        HashEval(test=hashes, queries=part, distance_function=Hashing.hamming_distance, verbose=False, threshold=threshold,
                 search_method=method, num_dist_workers=2)
        seconds.append(spent() - begin)
    each = (seconds[1] - seconds[0]) / (queries[1] - queries[0])
    return numpy.maximum(seconds[1], seconds[0] + each * (len(hashes) - queries[0]))


for count in (60000, 100000, 1000000):
    hashes = drawn(count)
    for threshold in (0, 4, 10):
        begin = spent()
        told = search(threshold)
        work = (spent() - begin)[1]
        print(f"{count} hashes, threshold {threshold}: stargrad {told['seconds']:.3g} s, processor time with its start {work:.3g} s, "
              f"{told['pairs']} pairs, {told['megabytes']} MB", flush=True)
        for method in ("brute_force_cython", "bktree") if count == 60000 else ():
            clock, used = peer_search(hashes, threshold, method)
            print(f"    imagededup's {method}: {clock:.4g} s, processor time {used:.4g} s (estimated from 80 queries): stargrad is "
                  f"{clock / told['seconds']:.0f} times as fast, {used / work:.0f} times by processor time", flush=True)
