"""Shards of images: tar:PATTERN trains as folder:DIR does with the same images, compressed or not, on one rank or more, resumed or not;
damaged members are named; memory does not grow with the shards."""
import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile

from run import FOLDER, Skip, command, content, events, folder, long, losses, main, ranks, stargrad

CLASSES = ("ape", "bee", "cat")
SIDE = 16
RUN = ("train", "--model", "convnet", "--batch", 20, "--epochs", 2, "--lr", 0.02, "--deterministic", "--bn-group", "global", "--checkpoint-every", 0)


def setup_module():
    if "libarchive" not in subprocess.run(command("--version"), capture_output=True, text=True).stdout:
        raise Skip("this build has no libarchive")


def image(seed, label, side=SIDE):
    return b"P6\n%d %d\n255\n" % (side, side) + random.Random(seed).randbytes(3 * side * side).translate(bytes(60 * label + i % 120 for i in range(256)))


def samples():
    """For each split, the images and labels in the order of a folder: by class, then by name."""
    return {split: [(f"{CLASSES[label]}/{i:03d}", image(1000 * label + i + first, label), label) for label in range(3) for i in range(count)]
            for split, first, count in (("train", 0, 40), ("val", 500, 10))}


def member(archive, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def written(path, members):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            member(archive, name, data)
    return path


def shards(name, label_of=lambda label: ("cls", b"%d" % label), per_shard=25):
    """DIR/train-0.tar … and DIR/val-0.tar …; returns DIR."""
    place = folder(name)
    for split, all_of in samples().items():
        for first in range(0, len(all_of), per_shard):
            members = []
            for key, data, label in all_of[first:first + per_shard]:
                ending, text = label_of(label)
                members += [(f"{key}.ppm", data), (f"{key}.{ending}", text)]
            written(f"{place}/{split}-{first // per_shard}.tar", members)
    return place


def images(name):
    place = folder(name)
    for split, all_of in samples().items():
        for key, data, _ in all_of:
            path = f"{place}/{split}/{key}.ppm"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
    return place


def outcome(run):
    return losses(run), [(e["test_loss"], e["test_top1"]) for e in events(run, "epoch")], content(run)


def trained(data, *more, count=1):
    out = folder("run")
    words = (*RUN, "--data", data, *more, "--out", out)
    printed = ranks(count, *words) if count > 1 else stargrad(*words, "--cpus", 1)
    return outcome(out), printed


def test_as_a_folder():
    """In the order of the files, the images of a folder and of shards give the same bits, whatever form the labels have."""
    plain, named = shards("plain"), shards("named", lambda label: ("json", json.dumps({"class": CLASSES[label]}).encode()))
    expected, printed = trained(f"folder:{images('images')}", "--no-shuffle")
    assert "120 training and 30 test samples" in printed
    for place in (plain, named):
        found, printed = trained(f"tar:{place}", "--no-shuffle")
        assert "120 training and 30 test samples" in printed and found == expected, printed
    assert trained(f"tar:{plain}/{{train,val}}-*.tar,8", "--no-shuffle")[0] == trained(f"folder:{FOLDER}/images,8", "--no-shuffle")[0]
    predicted = stargrad("predict", f"{FOLDER}/run", "--data", f"tar:{plain}")
    assert predicted.splitlines()[1].startswith("val-0.tar/ape/000,"), predicted


def test_compressed():
    """Compressed shards give the same bits as plain ones, also if only one fits into memory."""
    plain = shards("plain")
    expected = trained(f"tar:{plain}")[0]
    packed = folder("packed")
    os.makedirs(packed)
    for i, name in enumerate(sorted(os.listdir(plain))):
        if i % 2 and shutil.which("zstd"):
            subprocess.run(["zstd", "-q", f"{plain}/{name}", "-o", f"{packed}/{name}.zst"], check=True)
        else:
            with gzip.open(f"{packed}/{name}.gz", "wb") as file:
                file.write(content(plain, name))
    assert trained(f"tar:{packed}")[0] == expected
    most = max(os.path.getsize(f"{plain}/{name}") for name in os.listdir(plain))
    assert trained(f"tar:{packed}", "--data-memory", most, "--shuffle-window", 10)[0] == trained(f"tar:{plain}", "--shuffle-window", 10)[0]
    refused = stargrad(*RUN, "--data", f"tar:{packed}", "--data-memory", most // 2, status=2)
    assert refused.count("\n") == 1 and "after decompression" in refused and "give --data-memory 1M, or decompress the shards" in refused, refused


def test_ranks_and_resumed():
    """Two and four ranks, and a run that is continued within a shard, see the same samples in the same order."""
    data = f"tar:{shards('plain')}"
    for more in ((), ("--shuffle-window", 7), ("--split", 0.2)):
        where = data + "/train-*.tar" if "--split" in more else data
        one = trained(where, *more)[0]
        for count in (2, 4):
            assert trained(where, *more, count=count)[0] == one, (more, count)
        out = folder("parted")
        for steps in (2, 5, None):
            words = (*RUN, "--checkpoint-every", 1, "--data", where, *more, "--cpus", 1, "--out", out, *(["--resume"] if steps != 2 else []))
            stargrad(*words, *(["--steps", steps] if steps else []))
        assert outcome(out)[0] == one[0] and outcome(out)[2] == one[2], more
    stargrad(*RUN, "--checkpoint-every", 1, "--data", data, "--cpus", 1, "--out", folder("parted"), "--steps", 5)
    for count in (1, 2):
        refused = ranks(count, "train", "--resume", "--out", f"{FOLDER}/parted", "--steps", 7, "--shuffle-window", 7, status=2)
        assert "the run has --shuffle-window 16384, so it cannot be continued with --shuffle-window 7 within epoch 1" in refused, refused
    stargrad("train", "--resume", "--out", f"{FOLDER}/parted", "--steps", 6)
    assert "shuffle_window 7 (was 16384)" in stargrad("train", "--resume", "--out", f"{FOLDER}/parted", "--steps", 7, "--shuffle-window", 7)


def test_damaged():
    """A damaged member is named with its shard and byte; --damaged skip leaves it out on each rank."""
    place = folder("damaged")
    good = samples()["train"]
    for s in range(2):
        members = []
        for i, (key, data, label) in enumerate(good[60 * s:60 * s + 60]):
            members += [(f"{key}.ppm", data[:90] if 60 * s + i == 77 else data), (f"{key}.cls", b"%d" % label)]
        written(f"{place}/train-{s}.tar", members)
    with tarfile.open(f"{place}/train-1.tar") as archive:
        where = f"{place}/train-1.tar: bee/037.ppm at byte {archive.getmember('bee/037.ppm').offset_data}"
    data = f"tar:{place}/train-*.tar"
    refused = stargrad(*RUN, "--data", data, "--split", 0.2, status=1)
    assert refused.count("\n") == 1 and where in refused and "--damaged skip" in refused, refused
    one, printed = trained(data, "--split", 0.2, "--damaged", "skip")
    assert "1 training and 0 test samples damaged" in printed or "0 training and 1 test sample damaged" in printed, printed
    assert where in content(f"{FOLDER}/run", "damaged.txt").decode()
    assert trained(data, "--split", 0.2, "--damaged", "skip", count=2)[0] == one


def test_unlabelled():
    """Samples without labels are an error in training, and can be predicted."""
    bare = written(f"{folder('bare')}/0.tar", [(f"{key}.ppm", data) for key, data, _ in samples()["val"]])
    assert "0.tar: ape/000.ppm at byte 512: the sample has no label" in stargrad(*RUN, "--data", f"tar:{bare}", "--split", 0.1, status=1)
    for form in (lambda label: ("cls", b"%d" % label)), (lambda label: ("json", json.dumps({"class": CLASSES[label]}).encode())):
        run, place = folder("labelled"), shards("labels", form)
        stargrad(*RUN, "--data", f"tar:{place}", "--cpus", 1, "--out", run)
        assert len(stargrad("predict", run, "--data", f"tar:{bare}").splitlines()) == 31
        os.replace(shutil.copy(bare, f"{place}/copy"), f"{place}/val-0.tar")
        os.remove(f"{place}/val-1.tar")
        assert len(stargrad("predict", run, "--data", f"tar:{place}").splitlines()) == 31


def most_memory(data, *more):
    """The largest resident memory in MB of a run on DATA."""
    words = [str(w) for w in (*RUN, "--data", data, *more, "--cpus", 1, "--epochs", 1, "--out", folder("memory"))]
    text = "import os, sys\npid = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])\nstatus, use = os.wait4(pid, 0)[1:]\nprint(use.ru_maxrss)\nsys.exit(status != 0)"
    done = subprocess.run([sys.executable, "-c", text, *command(*words)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return int(done.stdout.split()[-1]) / 1024


def test_memory():
    """A run on 160 MB of shards needs hardly more memory than one on 16 MB, plain or compressed."""
    place = folder("large")
    data = [image(i, i % 3, 256) for i in range(8)]
    for s in range(20):
        members = []
        for i in range(40):
            members += [(f"{i}.ppm", data[(s + i) % 8]), (f"{i}.cls", b"%d" % ((s + i) % 8 % 3))]
        path = written(f"{place}/{s:02d}.tar", members)
        with gzip.open(f"{path}.gz", "wb", compresslevel=1) as file:
            file.write(content(place, f"{s:02d}.tar"))
    for ending, most in (("", ()), (".gz", ("--data-memory", "16M", "--shuffle-window", 40))):
        small = most_memory(f"tar:{place}/{{00..01}}.tar{ending},16", "--split", 0.1, *most)
        large = most_memory(f"tar:{place}/{{00..19}}.tar{ending},16", "--split", 0.1, *most)
        assert large - small < 30, (ending, small, large)


@long
def test_many_archives():
    """More archives than a process may have maps, in both splits together."""
    place = folder("many")
    for s in range(33000):
        path = written(f"{place}/{s:05d}.tar", [("0.ppm", image(s, s % 3, 4)), ("0.cls", b"%d" % (s % 3))])
        os.utime(path, (10**9, 10**9))
    for _ in range(2):
        printed = stargrad(*RUN, "--data", f"tar:{place}/*.tar", "--split", 0.01, "--steps", 2, "--cpus", 1, "--out", folder("run"),
                           env={"XDG_CACHE_HOME": f"{FOLDER}/cache"})
        assert "32670 training and 330 test samples" in printed, printed


if __name__ == "__main__":
    main(globals())
