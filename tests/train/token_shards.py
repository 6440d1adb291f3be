"""Token files that are read on demand: peak memory, the cache of checks, several files of a split, runs that are resumed."""
import array
import os
import random
import re
import subprocess
import unittest.mock

from run import FOLDER, command, events, folder, losses, main, ranks, stargrad

MODEL = "gpt:layers=1,heads=2,width=16,context=16,vocabulary=200"
T = 16
TRAIN = ("train", "--model", MODEL, "--batch", 4, "--optimizer", "adamw", "--lr", 0.01, "--deterministic", "--cpus", 1)


def drawn(count, seed=1, most=200):
    draw = random.Random(seed)
    return array.array("H", (draw.randrange(most) for _ in range(count)))


def put(root, files):
    """Makes ROOT a folder with files of these tokens."""
    root = folder(root)
    for name, tokens in files.items():
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(tokens.tobytes())
    return root


def trained(data, *more, out="trained", start=stargrad):
    """Losses of training and test."""
    out = folder(out)
    start(*TRAIN, "--data", data, "--out", out, *more)
    return losses(out), events(out, "epoch")[-1]["test_loss"]


def peak(data, out):
    """The peak of the memory of a run, in bytes."""
    words = command(*TRAIN, "--data", data, "--steps", 3, "--checkpoint-every", 0, "--out", folder(out))
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_maxrss * 1024


def test_memory():
    """The memory of a run does not contain its token file, of 200 MB."""
    small = put("small", {"train.bin": drawn(20000), "val.bin": drawn(200)})
    large = put("large", {"train.bin": drawn(1 << 20) * 100, "val.bin": drawn(200)})
    more = peak(f"tokens:{large},{T},16", "large-run") - peak(f"tokens:{small},{T},16", "small-run")
    order = 8 * 100 * (1 << 20) // T          # the order of the samples
    assert more < order + (40 << 20), f"{more / 1e6} MB more"
    os.remove(os.path.join(large, "train.bin"))


def test_one_pass_over_each_file():
    """Ranks that start together divide the passes over token files, and give the same run as one rank."""
    tokens = drawn(600000)
    root = put("passes", {**{f"x_train_{i}.bin": tokens for i in range(4)}, "x_val.bin": tokens})
    for name in os.listdir(root):
        os.utime(os.path.join(root, name), (1e9, 1e9))
    words = (*TRAIN, "--data", f"tokens:{root},{T},16", "--steps", 3)
    home = folder("cache")
    os.makedirs(home)
    stargrad(*words, "--out", folder("one"))
    with unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=home):
        ranks(4, *words, "--out", folder("four"))
    with open(f"{home}/.starpu/stargrad/passes") as file:
        passes = [line.split("\t")[0].rsplit("/", 1)[-1] for line in file]
    assert sorted(passes) == sorted(os.listdir(root)), passes
    assert losses(f"{FOLDER}/four") == losses(f"{FOLDER}/one")


def parts(tokens, lengths):
    """Divides tokens so that the windows of all parts are those of the whole: a part has the first token of the next one, too."""
    at, found = 0, []
    for windows in lengths:
        found.append(tokens[at:at + windows * T + 1])
        at += windows * T
    return found


def test_shards():
    """Files of a split in every form have the samples of one file, in the order of their names."""
    train, val = drawn(60 * T + 1), drawn(11 * T + 1, 2)
    one, other, last = parts(train, (10, 30, 20))
    first_val, last_val = parts(val, (4, 7))
    more = ("--no-shuffle", "--epochs", 1)
    wanted = trained(f"tokens:{put('whole', {'train.bin': train, 'val.bin': val})},{T}", *more)
    assert len(wanted[0]) == 15
    fine = {"edu_train_000001.bin": other, "edu_train_000000.bin": one, "edu_train_000010.bin": last, "edu_val_000000.bin": first_val,
            "edu_val_000001.bin": last_val, "edu_train.idx.old": one, "notes.bin": val}
    named = put("named", fine)
    assert trained(f"tokens:{named},{T}", *more) == wanted
    assert trained(f"tokens:{named}/edu_*_0*.bin,{T}", *more) == wanted
    assert trained(f"tokens:{named}/edu_train_*.bin,{T}", *more) == wanted
    assert trained(f"tokens:{named}/edu_{{train,val}}_*.bin,{T},16", *more) == wanted
    deep = put("deep", {"train/a.bin": one, "train/b.bin": other, "train/c.bin": last, "val/a.bin": first_val, "val/b.bin": last_val})
    assert trained(f"tokens:{deep}/{{train,val}}/*.bin,{T}", *more) == wanted
    hub = put("hub", {"train-00000-of-00003.bin": one, "train-00001-of-00003.bin": other, "train-00002-of-00003.bin": last,
                      "validation-0.bin": first_val, "validation-1.bin": last_val})
    assert trained(f"tokens:{hub},{T}", *more) == wanted
    assert trained(f"tokens:{hub},{T}", *more, start=lambda *words: ranks(2, *words))[0] == wanted[0]
    said = stargrad(*TRAIN, "--data", f"tokens:{hub},{T}", "--print")
    assert "60 training and 11 test samples; tokens of 16 bits in 3 files" in said, said
    files = {name: tokens for name, tokens in fine.items() if not name.startswith("edu_train")}
    both = put("both", {**files, "train.bin": train, "train_extra.bin": one})       # train.bin alone, as ever
    assert trained(f"tokens:{both},{T}", *more)[0] == wanted[0]


def test_short_file():
    """A file that is too short for a sample is named."""
    data = f"tokens:{put('short', {'a_train_0.bin': drawn(8 * T + 1), 'a_train_1.bin': drawn(T), 'a_val.bin': drawn(50)})},{T}"
    done = subprocess.run(command(*TRAIN, "--data", data, "--print"), capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
    assert re.search(r"1 of 2 training files has no sample, because samples of 16 require 17 tokens: .*/a_train_1.bin", done.stderr), done.stderr
    assert "8 training and 3 test samples" in done.stdout


def test_refused():
    tokens, wide = drawn(100), array.array("I", [5] * 100 + [1 << 31])
    folder_ = put("refused", {"a_train_0.bin": tokens, "a_train_0.npy": tokens, "a_val_0.bin": tokens})
    lone = put("lone", {"a_train_0.bin": tokens, "b.bin": tokens})
    bad = put("bad", {"a_train_0.bin": wide, "a_train_1.bin": wide, "a_val_0.bin": wide})
    for data, why in ((f"{folder_},{T}", "a_train_0.bin and "), (f"{folder_},{T}", "a_train_0.npy both exist; remove one of them"),
                      (f"{lone},{T}", "neither val.bin nor val.npy exists; give tokens:DIR,T, where DIR contains"),
                      (f"{lone}/*.bin,{T}", "b.bin: neither its name nor its folder's has the word train or val"),
                      (f"{lone}/a_train_*.bin,{T}", "no file that it matches has the word val in its name"), (f"{lone}/c*,{T}", "has the word train in its name"),
                      (f"{lone}/a_train_0.bin,{T}", "no file that it matches has the word val in its name"),
                      (f"{lone}/absent,{T}", "absent: No such file or directory; give tokens:DIR,T"),
                      (f"{bad},{T},32", "a_train_0.bin: token 100 is 2147483648, but tokens must be at least 0"),
                      (f"{put('few', {'a_train_0.bin': drawn(9), 'a_train_1.bin': drawn(7), 'a_val.bin': tokens})},{T}",
                       "each file of the training split has at most 9 tokens, but samples of 16 require at least 17")):
        said = stargrad(*TRAIN, "--print", "--data", f"tokens:{data}", status=1)
        assert why in said and said.count("\n") == 1, (why, said)


def test_resume():
    """A run that stopped within an epoch continues with the same samples. Another file is another training set."""
    files = {"a_train_0.bin": drawn(500), "a_train_1.bin": drawn(300, 2), "a_val.bin": drawn(100, 3)}
    data, out = f"tokens:{put('resume', files)},{T}", folder("resumed")
    wanted = trained(data, "--steps", 30)
    stargrad(*TRAIN, "--data", data, "--steps", 17, "--out", out)
    ranks(2, "train", "--resume", "--steps", 30, "--out", out)
    assert losses(out) == wanted[0]
    put("resume", {**files, "a_train_1.bin": drawn(300, 4)})
    assert "whose content has changed" in stargrad("train", "--resume", "--steps", 40, "--out", out, status=2)


if __name__ == "__main__":
    main(globals())
