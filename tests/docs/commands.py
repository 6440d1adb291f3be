"""Every command of the pages works: the sh blocks of README.md, CONTRIBUTING.md and docs/ are run as they stand, page by page, in a folder in which
the words that stand for the reader's files (DIR, FILE, photos, runs/pets) are real. stand_ins.py limits the work of each command to seconds. The
blocks of Python are compiled.

    tests/docs/commands.py 'test_commands[docs/guides/dedup.md]'      one page
"""
import functools
import glob
import io
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import zlib

from markdown import BUILD, SOURCE, STARGRAD, main, pages, pytest, read
from run import FOLDER, RANKS, long

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(FOLDER, "fixtures")
SECONDS = 600     # the most for a page

# These pages run in check, the others in check-long.
FIRST = r"(README|CONTRIBUTING|docs/(index|start/.*|guides/.*))\.md"

# The programs that commands call, where another one runs in their place: its name in stand_ins.py, and the reason.
STAND_INS = {
    "stargrad": ("stargrad", "a training has few steps of few samples, a search three candidates; bench, plan --simulate and doctor with options "
                             "measure for minutes: their options are read"),
    "mpirun": ("mpirun", "more than four ranks print their tasks; hosts are one host"),
    "make": ("make", "builds, or runs all tests: targets, tests and parts are there"),
    "git": ("git", "a clone of this tree has nothing but quickstart"),
    "sudo": ("sudo", "the command runs, but not as root"),
    "python3": ("python3", "programs of bench/ and tests/ measure, pip needs a network: options are read"),
    "pkg-config": ("pkg_config", "nothing is installed: the flags are those of the build"),
    "sbatch": ("sbatch", "there is no Slurm: options and the script are read, and the script's training runs, on one rank"),
    "taskset": ("taskset", "keeps a core busy that others need"),
    "vite": ("files", "needs a display, and is rarely installed"),
    "readelf": ("files", "nothing is installed"),
}
# Commands of which nothing runs: what they begin with, and the reason.
NOT_RUN = {"autoreconf -fi && mkdir build": "builds for minutes, and installs",
           "apt-get install ./": "needs packages, and installs",
           "python3 -m venv env ": "needs the wheel, which packaging/wheel/build makes and tests", "env/bin/": "likewise",
           **dict.fromkeys(("git clone . /tmp/context", "podman ", "apptainer ", "spack ", "guix "), "needs another program, and builds")}

# Runs that a page takes from its reader, and the words that make them.
PETS = "train --model resnet20 --data folder:DIR,32"
CIFAR = "train --model resnet20 --data cifar10:DIR"
GPT = "train --model gpt:layers=1,heads=1,width=32,context=32 --data text:FILE,32"
RUNS = {
    "docs/guides/onnx.md": {"runs/r20": CIFAR},
    "docs/guides/use-a-run.md": {"runs/pets": PETS, "runs/houses": "train --model mlp --data csv:FILE"},
    "docs/performance/second-order.md": {"OTHER-RUN": CIFAR},
    "docs/reference/command-line.md": {"runs/pets": PETS, "runs/gpt": GPT, "runs/cells": "train --model unet2d --data volume:DIR,1x64x64"},
}


def blocks(page, language):
    """(line, text) of every block of code."""
    text = read(page)
    return [(text.count("\n", 0, found.start()) + 2, found[1])
            for found in re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.S | re.M)]


def complete(text):
    return not text.rstrip().endswith("\\") and subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True).returncode == 0


@functools.cache
def commands(page):
    """Of each block the (line, text) of its commands; one may take several lines."""
    found = []
    for line, block in blocks(page, "sh"):
        found.append([])
        begun, text = line, ""
        for number, one in enumerate(block.splitlines(keepends=True), line):
            begun, text = (begun, text + one) if text else (number, one)
            if complete(text):
                if text.strip() and not text.startswith("#"):
                    found[-1].append((begun, text))
                text = ""
        if text:
            found[-1].append((begun, text))
    return found


# ---- what the words of a page stand for

def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return path


def png(side, draw):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + draw.randbytes(3 * side) for _ in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows, 1)) +
            chunk(b"IEND", b""))


def write_shard(path, images):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for i, (data, label) in enumerate(images):
            for ending, content in ("png", data), ("cls", str(label).encode()):
                member = tarfile.TarInfo(f"{i:06}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def tiff(depth, side, voxel):
    """A stack of grey slices."""
    data, size = struct.pack("<2sHI", b"II", 42, 8), side * side
    for z in range(depth):
        first = len(data) + 2 + 8 * 12 + 4
        tags = ((256, side), (257, side), (258, 8), (259, 1), (262, 1), (273, first), (278, side), (279, size))
        data += struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", tag, 4, 1, number) for tag, number in tags)
        data += struct.pack("<I", first + size if z < depth - 1 else 0) + bytes(voxel(z, y, x) for y in range(side) for x in range(side))
    return data


def stand_in(path, name, called):
    write(path, f"#!/bin/sh\nexec '{sys.executable}' '{HERE}/stand_ins.py' {name} '{called}' \"$@\"\n")
    os.chmod(path, 0o755)


@pytest.fixture(scope="module")
def fixtures():
    """Data sets, and the layout of an installation."""
    draw = random.Random(1)
    for name in ("cifar10", "idx"):
        os.makedirs(FIXTURES, exist_ok=True)
        os.symlink(os.path.join(SOURCE, "tests/reference", name), os.path.join(FIXTURES, name))
    for folder, part, count in (("folder", "train", 60), ("folder", "val", 4), ("folder", "test", 2), ("few", "train", 2), ("few", "val", 1)):
        for kind in ("circle", "square", "triangle"):
            for i in range(count):
                write(f"{FIXTURES}/{folder}/{part}/{kind}/{i:03}.png", png(40, draw))
    for part in ("train", "val"):
        write(f"{FIXTURES}/volume/{part}/image.tif", tiff(2, 256, lambda z, y, x: (x * y + 16 * z) % 251))
        write(f"{FIXTURES}/volume/{part}/label.tif", tiff(2, 256, lambda z, y, x: 255 * (x // 32 + y // 32 & 1)))
    write(f"{FIXTURES}/text.txt", read("tests/reference/text.txt") * 8)
    write(f"{FIXTURES}/table.csv", "a,b,c,d,e,f,g,h,t\n" + "".join(f"{','.join(str(draw.random()) for _ in range(9))}\n" for _ in range(200)))
    train = [STARGRAD, *f"train --model convnet --data folder:{FIXTURES}/folder,32 --steps 1 --quiet --out {FIXTURES}/net".split()]
    subprocess.run(train, check=True, capture_output=True)
    subprocess.run([STARGRAD, "export", FIXTURES + "/net", FIXTURES + "/net.onnx"], check=True, capture_output=True)
    there = f"{FIXTURES}/DIR"
    for name in ("include/stargrad", "lib/stargrad/starpu/lib", "lib/pkgconfig", "share/doc/stargrad", "share/man/man1", "share/stargrad",
                 "share/bash-completion/completions"):
        os.makedirs(os.path.join(there, name))
    for name in ("lib/libstargrad.so", "lib/stargrad/starpu/lib/libstarpu.so", "lib/pkgconfig/stargrad.pc", "share/man/man1/stargrad.1",
                 "share/bash-completion/completions/stargrad"):
        write(os.path.join(there, name), "")
    stand_in(f"{there}/bin/stargrad", "stargrad", "stargrad")
    os.symlink(os.path.join(SOURCE, "python"), f"{there}/share/stargrad/python")
    stand_in(f"{FIXTURES}/venv/bin/pip", "pip", "pip")
    stand_in(f"{FIXTURES}/venv/bin/python", "notebook", "python")


def as_plug_in(page, source):
    """A file of a page, with the changes that the page names for a plug-in."""
    plug_in = re.search(r"^SGRAD_PLUGIN\(.*\);$", read(page), flags=re.M)
    if not plug_in or "SGRAD_PLUGIN" in source or "## As a plug-in" not in read(page):
        return source
    source = source.replace('#include "config.h"\n', '#include "graphs/graphs.h"\n')
    return re.sub(r"^const struct", "static const struct", source, flags=re.M) + plug_in[0]


def scratch(page):
    """A folder like a clone that was built, with the files that the page takes from its reader."""
    work = os.path.join(FOLDER, "pages", re.sub(r"\W", "-", page))
    os.makedirs(work)
    for name in ("docs", "examples", "graphs", "machines", "python"):
        os.symlink(os.path.join(SOURCE, name), os.path.join(work, name))
    for path in ("quickstart", *glob.glob("bench/**/*", root_dir=SOURCE, recursive=True), "tests/gpu/run",
                 *glob.glob("packaging/*/build", root_dir=SOURCE), "packaging/oci/try"):
        source = os.path.join(SOURCE, path)
        if os.path.isfile(source) and (os.access(source, os.X_OK) or path.endswith(".sh")):
            stand_in(os.path.join(work, path), "quickstart" if path == "quickstart" else "script", path)
    for path in (*glob.glob("tests/**/*.c", root_dir=SOURCE, recursive=True), "tests/gpu/emulator/stargrad", "tests/gpu/emulator/operations"):
        stand_in(os.path.join(work, "build", path.removesuffix(".c")), "program_of_tests", path)
    stand_in(f"{work}/build/stargrad", "stargrad", "build/stargrad")
    os.symlink(os.path.join(BUILD, ".libs"), f"{work}/build/.libs")
    for name, (kind, _) in STAND_INS.items():
        stand_in(f"{work}/.bin/{name}", kind, name)
    stand_in(f"{work}/root/usr/bin/time", "timed", "time")
    for name in ("tmp", "shared"):
        os.makedirs(f"{work}/root/{name}")

    draw = random.Random(2)
    if page == "docs/start/first-run.md":      # whose commands make the data set
        shutil.copytree(f"{FIXTURES}/folder/train", f"{work}/photos")
    else:
        write(f"{work}/photos/a.png", png(33, draw))
    os.symlink(f"{FIXTURES}/folder", f"{work}/pets")
    for name in ("FOLDER/a.png", "new/a.png", "new/b.png", "dog.png"):
        write(f"{work}/{name}", png(33, draw))
    for name in ("photo.jpg", "cat.jpg"):
        shutil.copy(os.path.join(SOURCE, "tests/fuzz/corpus/image/rgb.jpg"), f"{work}/{name}")
    shutil.copy(os.path.join(SOURCE, "tests/reference/tokenizer.json"), f"{work}/tokenizer.json")
    write(f"{work}/template.txt", "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{answer}<|im_end|>\n")
    write(f"{work}/chats.jsonl", "".join(json.dumps({"prompt": "red small four", "response": "four small red"}) + "\n" for _ in range(200)))
    write(f"{work}/corpus.jsonl", "".join(json.dumps({"text": " ".join(draw.choices("to be or not in the".split(), k=90))}) + "\n" for _ in range(20)))
    for name in "train-0", "train-1", "val-0":
        write(f"{work}/shards/{name}.jsonl", "".join(json.dumps({"text": " ".join(draw.choices("to be or not".split(), k=90))}) + "\n" for _ in range(20)))
    for name in "web", "books":
        for part in "train", "val":
            write(f"{work}/{name}/{part}.bin", struct.pack("<1000H", *(draw.randrange(500) for _ in range(1000))))
    for name, count in ("train-0", 12), ("train-1", 12), ("val-0", 6):
        write_shard(f"{work}/shards/{name}.tar", [(png(16, draw), i % 3) for i in range(count)])
    write(f"{work}/people.csv", "id,age,colour,income\n" + "".join(f"p{i},{i % 50 or ''},{'red' if i % 3 else 'blue'},{i * 100}\n" for i in range(200)))
    write(f"{work}/new.csv", "id,a,b,c,d,e,f,g,h,age,colour\n" + "".join(f"p{i},{','.join('12345678')},,red\n" for i in range(20)))
    for name, path in (("input.txt", "text.txt"), ("net.onnx", "net.onnx")):
        shutil.copy(f"{FIXTURES}/{path}", f"{work}/{name}")
    write(f"{work}/stack.tif", tiff(4, 64, lambda z, y, x: (x * y + 16 * z) % 251))
    write(f"{work}/FILE.c", "int main(void) { return 0; }\n")
    shutil.copy(os.path.join(SOURCE, "examples/00-task.c"), f"{work}/mine.c")
    shutil.copy(os.path.join(SOURCE, "tests/install.cc"), f"{work}/mine.cc")
    write(f"{work}/.runs.json", json.dumps(RUNS.get(page, {})))
    for _, block in blocks(page, "c"):      # a file of the page
        name = re.match(r"/\* ([a-z0-9_]+\.c):", block)
        if name or page == "docs/reference/c-api.md":
            write(f"{work}/{name[1] if name else 'digits.c'}", as_plug_in(page, block))
    if "libmine.so" in read(page):
        subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", f"-I{BUILD}", f"-I{SOURCE}",
                        os.path.join(SOURCE, "examples/plug-ins/swish.c"), "-o", f"{work}/libmine.so"], check=True)
    return work


# ---- tests

def run_page(page, work):
    """The failures of a page: each command's place, text and output."""
    found, lines, count = commands(page), [f"cd '{work}'"], 0
    for block in found:
        lines.append(f"cd '{work}'; rm -rf DIR; cp -a '{FIXTURES}/DIR' DIR")
        for _, text in block:
            if not text.startswith(tuple(NOT_RUN)):
                write(f"{work}/.page/{count}.sh", re.sub(r"(?<![\w./])/(tmp|shared|usr/bin/time)\b", rf"{work}/root/\1", text))
                files = f"'{work}/.page/{count}"
                lines.append(f"{{ . {files}.sh'; }} >{files}.out' 2>&1 </dev/null; echo $? >{files}.status'")
                lines.append(f'[ "$!" = "$last" ] || {{ last=$! && behind+=("$! {count}"); }}')
            count += 1
        # What runs in the background ends before the next block; 143: the page ended it.
        lines.append("for job in \"${behind[@]}\"; do wait ${job% *}; status=$?; [ $status = 143 ] || [ $status = 0 ] || "
                     f"echo $status >'{work}'/.page/${{job#* }}.status; done; behind=()")
    write(f"{work}/.page/all.sh", "\n".join(lines) + "\n")
    env = {**os.environ, **RANKS, "srcdir": SOURCE, "builddir": BUILD, "STARGRAD": STARGRAD, "COMMANDS_FIXTURES": FIXTURES, "COMMANDS_SCRATCH": work,
           "COMMANDS_PAGE": page, "COMMANDS_PATH": os.environ["PATH"], "PATH": f"{work}/.bin:{os.environ['PATH']}", "STARGRAD_PICTURES": "no",
           "STARPU_HOME": os.environ.get("STARPU_HOME", FOLDER), "TMPDIR": f"{work}/root/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(["bash", f"{work}/.page/all.sh"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    failures = []
    for number, (line, text) in enumerate(command for block in found for command in block):
        if text.startswith(tuple(NOT_RUN)):
            continue
        status, output = ("" if not os.path.exists(path) else open(path, errors="replace").read()
                          for path in (f"{work}/.page/{number}.status", f"{work}/.page/{number}.out"))
        if status.strip() != "0":
            failures.append(f"{page}:{line}: {text}    exit status {status.strip() or f'none: not ended after {SECONDS} s'}\n"
                            + "".join(f"    {one}\n" for one in output.splitlines()[-25:]))
    return failures


@pytest.mark.parametrize("page", [page if re.match(FIRST, page) else pytest.param(page, marks=long) for page in pages()
                                  if blocks(page, "sh")])
def test_commands(page, fixtures):
    work = scratch(page)
    failures = run_page(page, work)
    shutil.rmtree(work)
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page, "python")])
def test_python(page):
    for line, text in blocks(page, "python"):
        compile("\n" * (line - 1) + text, page, "exec")


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page, "bash")])
def test_scripts(page):
    """A script that a page shows is the file that a test runs."""
    for line, text in blocks(page, "bash"):
        name = re.match(r"#!/bin/bash\n# ([a-z-]+\.sh): ", text)
        assert name and text == read(f"examples/slurm/{name[1]}"), f"{page}:{line}"


def test_not_run_commands_are_there():
    everything = [text for page in pages() for block in commands(page) for _, text in block]
    assert not [text for text in NOT_RUN if not any(one.startswith(text) for one in everything)]


if __name__ == "__main__":
    main(globals())
