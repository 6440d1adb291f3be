"""Token files: the same tokens in every format give the same losses, and malformed files are refused with file, place and reason."""
import array
import os
import random
import struct
import subprocess

from run import FOLDER, command, events, folder, losses, main, stargrad

TINY = "gpt:layers=2,heads=2,width=32,context=24"
NPY = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "i8": "q"}
MEGATRON = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 8: "H"}     # codes of types in an index


def npy(kind, tokens, shape=None, order="<"):
    """A NumPy array."""
    header = str({"descr": order + kind, "fortran_order": False, "shape": shape or (len(tokens),)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    letter = {**NPY, "u8": "Q", "f4": "f"}[kind]
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + struct.pack(f"{order}{len(tokens)}{letter}", *tokens)


def index(code, lengths, documents, begins=None, version=1, sequences=None, document_indices=None, more=b""):
    """An index of Megatron-LM."""
    width = array.array(MEGATRON.get(code, "H")).itemsize
    begins = begins or [width * sum(lengths[:i]) for i in range(len(lengths))]
    return (b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, len(lengths) if sequences is None else sequences,
                                         len(documents) if document_indices is None else document_indices) +
            struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(begins)}q", *begins) +
            struct.pack(f"<{len(documents)}q", *documents) + more)


def put(root, files):
    """Makes ROOT a folder that has only FILES."""
    root = folder(root)
    os.makedirs(root)
    for name, content in files.items():
        with open(os.path.join(root, name), "wb") as f:
            f.write(content)
    return root


def train(root):
    """Losses of training and test on the token files of ROOT."""
    out = folder("trained")
    stargrad("train", "--model", "gpt:layers=1,heads=2,width=8,context=16,vocabulary=128", "--data", f"tokens:{root},16", "--batch", 4,
             "--steps", 2, "--lr", 0.1, "--deterministic", "--cpus", 1, "--checkpoint-every", 0, "--out", out)
    return losses(out), events(out, "epoch")[-1]["test_loss"]


def test_formats():
    """Plain files, NumPy arrays and Megatron-LM's data sets with the same tokens, of each type, give the same losses."""
    drawn = random.Random(5)
    tokens = {part: [drawn.randrange(128) for _ in range(n)] for part, n in (("train", 200), ("val", 90))}
    wanted = train(put("plain", {f"{part}.bin": array.array("H", values).tobytes() for part, values in tokens.items()}))
    assert wanted[0][0] != wanted[0][1]
    for kind in NPY:
        assert train(put("arrays", {f"{part}.npy": npy(kind, values) for part, values in tokens.items()})) == wanted, kind
    for code, letter in MEGATRON.items():
        files = {}
        for part, values in tokens.items():         # an empty sequence, a document of two sequences, an empty document
            files[f"{part}.idx"] = index(code, [50, 0, 1, len(values) - 51], [0, 2, 2, 4])
            files[f"{part}.bin"] = array.array(letter, values).tobytes()
        assert train(put("megatron", files)) == wanted, code
    files = {"train.bin": files["train.bin"], "train.idx": files["train.idx"], "val.npy": npy("i8", tokens["val"])}
    assert train(put("mixed", files)) == wanted


def refused(files, why, width=""):
    """Training on files with these contents ends with one line: WHY."""
    said = stargrad("train", "--model", TINY, "--batch", 4, "--print", "--data", f"tokens:{put('refused', files)},16{width}", status=1)
    assert why in said and said.count("\n") == 1, (why, said)


def test_arrays_refused():
    good, plain = [1, 2, 3] * 30, array.array("H", [1, 2, 3] * 30).tobytes()
    for content, why in ((npy("i4", good[:5] + [-3]), "train.npy: token 5 is -3, but tokens must be at least 0 and less than 2147483647"),
                         (npy("i8", good[:7] + [1 << 31]), "train.npy: token 7 is 2147483648, but tokens must be at least 0"),
                         (npy("u4", [0xffffffff]), "train.npy: token 0 is 4294967295, but"),
                         (npy("i8", [5, -1 << 63]), "train.npy: token 1 is -9223372036854775808, but"),
                         (npy("i4", good, shape=(45, 2)), "train.npy: has 2 dimensions, but tokens must have one; save array.reshape(-1)"),
                         (npy("f4", good), "train.npy: has values of type f4, but tokens must be integers of up to 32 bits, or int64"),
                         (npy("u8", good), "train.npy: has values of type u8, but tokens must be integers"),
                         (npy("i4", good, order=">"), "train.npy: is big-endian, but must be little-endian; save array.astype('<i4')"),
                         (npy("i4", good)[:-1], "train.npy: byte 128: 359 bytes of numbers follow, which do not match the shape"),
                         (npy("u2", good[:3]), "the training split has 3 tokens, but samples of 16 require at least 17"),
                         (plain, "train.npy: byte 0: is not a NumPy array")):
        refused({"train.npy": content, "val.npy": npy("u2", good)}, why)
    refused({"train.npy": npy("u2", good), "val.npy": npy("i4", [-1])}, "val.npy: token 0 is -1, but")
    refused({"train.npy": npy("u2", good), "train.bin": plain, "val.bin": plain}, "train.bin and ")
    refused({"train.npy": npy("u2", good), "train.bin": plain, "val.bin": plain}, "train.npy both exist; remove one of them")
    refused({"train.npy": npy("u2", good)}, "neither val.bin nor val.npy exists; give tokens:DIR,T, where DIR contains")


def test_index_refused():
    count = 60
    plain = array.array("H", range(count)).tobytes()
    lengths, documents = [20, 30, 10], [0, 1, 3]
    good = index(8, lengths, documents)
    huge = (1 << 64) - 1
    for content, why in (
            (b"MNIDIDX" + good[7:], "byte 0: is not an index of Megatron-LM; remove it if the .bin file needs no index"),
            (b"", ""),
            (good[:20], "has 20 bytes, but an index of Megatron-LM has at least 34"),
            (index(8, lengths, documents, version=2), "byte 9: version 2 is not supported; it must be 1"),
            (index(6, lengths, documents), "byte 17: tokens of type 6 are not supported; it must be 1 (uint8), 2 (int8), "),
            (index(4, lengths, documents), "byte 38: sequence 1 ends at byte 200 of the .bin file, which has only 120 bytes"),
            (index(8, lengths, documents, sequences=huge), f"byte 18: states {huge} sequences, but the file has only 94 bytes"),
            (index(8, lengths, documents, sequences=1 << 62), f"byte 18: states {1 << 62} sequences"),
            (index(8, lengths, documents, sequences=6), "byte 18: states 6 sequences, but"),
            (index(8, lengths, documents, document_indices=huge), f"byte 26: states {huge} document indices, but"),
            (index(8, lengths, documents, document_indices=1 << 61), f"byte 26: states {1 << 61} document indices, but"),
            (index(8, lengths, documents, document_indices=4), "byte 26: states 4 document indices, but the file has only 94 bytes"),
            (index(8, lengths, documents, document_indices=0), "byte 70: 24 bytes follow the document indices, but the file must end"),
            (index(8, lengths, []), "byte 26: has no document indices"),
            (index(8, lengths, documents, more=b"\0"), "byte 94: 1 byte follows the document indices, but the file must end"),
            (index(8, lengths, documents, more=bytes(3)), "byte 94: has modes of sequences; multimodal data are not supported"),
            (index(8, [20, -30, 70], documents), "byte 38: sequence 1 has -30 tokens, a negative number"),
            (index(8, lengths, documents, begins=[0, 42, 100]),
             "byte 54: sequence 1 begins at byte 42 of the .bin file, but the sequences before it end at byte 40"),
            (index(8, lengths, documents, begins=[-2, 40, 100]), "byte 46: sequence 0 begins at byte -2 of the .bin file, but"),
            (index(8, [20, 30, 11], documents), "byte 42: sequence 2 ends at byte 122 of the .bin file, which has only 120 bytes"),
            (index(8, [2**31 - 1] * 3, documents), "byte 34: sequence 0 ends at byte 4294967294 of the .bin file"),
            (index(8, [20, 30, 9], documents), "byte 18: its 3 sequences have 118 bytes, but the .bin file has 120 bytes"),
            (index(8, [], [0]), "byte 18: its 0 sequences have 0 bytes, but the .bin file has 120 bytes"),
            (index(8, lengths, [1, 3]), "byte 70: document index 0 is 1, but the indices must rise from 0 to 3, the number of sequences"),
            (index(8, lengths, [0, 2, 1, 3]), "byte 86: document index 2 is 1, but"),
            (index(8, lengths, [0, 4]), "byte 78: document index 1 is 4, but"),
            (index(8, lengths, [0, 2]), "byte 78: document index 1 is 2, but"),
            (index(8, lengths, [0, -1, 3]), "byte 78: document index 1 is -1, but"),
            (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is a Git LFS pointer")):
        refused({"train.bin": plain, "train.idx": content, "val.bin": plain, "val.idx": good}, "train.idx: " + why if why else "train.idx")
    signed = {"train.bin": array.array("i", [7] * 59 + [-1]).tobytes(), "train.idx": index(4, lengths, documents)}
    refused({**signed, "val.bin": plain, "val.idx": good}, "train.bin: token 59 is -1, but tokens must be at least 0")
    refused({"train.bin": plain, "train.idx": good, "val.bin": plain, "val.idx": good[:-1]}, "val.idx: byte 26: states 3 document")
    refused({"train.idx": good, "val.bin": plain, "val.idx": good}, "neither train.bin nor train.npy exists")


def test_tokens():
    """nanoGPT's files, and llm.c's with their header, are the same tokens."""
    drawn = random.Random(3)
    tokens = array.array("H", (drawn.randrange(500) for _ in range(400)))
    header = array.array("I", [20240520, 1, len(tokens)] + [0] * 253)
    said = []
    for name, head in (("nano", b""), ("llm", header.tobytes())):
        path = folder(name)
        os.makedirs(path)
        for part in ("train", "val"):
            with open(os.path.join(path, f"{part}.bin"), "wb") as f:
                f.write(head + tokens.tobytes())
        out = folder("tokens")
        stargrad("train", "--model", TINY + ",vocabulary=512", "--data", f"tokens:{path},16", "--batch", 4, "--optimizer", "adamw", "--steps", 3,
                 "--deterministic", "--checkpoint-every", 0, "--out", out)
        said.append(losses(out))
        assert "test_bits_per_byte" not in events(out, "epoch")[-1]
    assert said[0] == said[1]
    for name, head, more in (("wide", b"", ",32"), ("llama", array.array("I", [20240801, 7, len(tokens)] + [0] * 253).tobytes(), "")):
        path = folder(name)
        os.makedirs(path)
        for part in ("train", "val"):
            with open(os.path.join(path, f"{part}.bin"), "wb") as f:
                f.write(head + array.array("I", tokens).tobytes())
        out = folder("tokens")
        stargrad("train", "--model", TINY + ",vocabulary=512", "--data", f"tokens:{path},16{more}", "--batch", 4, "--optimizer", "adamw",
                 "--steps", 3, "--deterministic", "--checkpoint-every", 0, "--out", out)
        assert losses(out) == said[0]
    say = ("train", "--model", TINY + ",vocabulary=512", "--batch", 4, "--print", "--data")
    done = subprocess.run(command(*say, f"tokens:{os.path.join(FOLDER, 'wide')},16"), capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr.count("give tokens:DIR,T,32 to read 32 bits") == 1, done.stderr
    for name, train, val, more, why in (                    # int64, as numpy has it; of validation alone; what is as it should be
            ("long", array.array("q", tokens), array.array("q", tokens), "", "looks like int64 (3 of every 4 values are 0); write it as"),
            ("long32", array.array("q", tokens), array.array("I", tokens), ",32", "looks like int64 (1 of every 2 values is 0)"),
            ("val", tokens, array.array("I", tokens), "", "val.bin: looks like 32-bit tokens (every second value is 0); give tokens:"),
            ("sure", array.array("I", tokens), array.array("I", tokens), ",16", ""), ("plain", tokens, tokens, "", "")):
        other = folder(f"tokens-{name}")
        os.makedirs(other)
        for part, content in (("train", train), ("val", val)):
            with open(os.path.join(other, f"{part}.bin"), "wb") as f:
                f.write(content.tobytes())
        done = subprocess.run(command(*say, f"tokens:{other},16{more}"), capture_output=True, text=True)
        assert done.returncode == 0 and why in done.stderr and done.stderr.count("warning") == bool(why), (name, done.stderr)
    text = "To be, or not to be: na\u00efve \u4e16\u754c\n".encode() * 10
    for content, why in ((text, "is text, not tokens; give text:FILE,T to read text, or give tokens:DIR,T,16 to read it as tokens"),
                         (b'{"tokens": [1, 2]}' + b" " * 70, "is JSON text, not tokens"),
                         (b"\x1f\x8b\x08" + tokens.tobytes()[:101], "is a gzip file, not tokens; unpack it first"),
                         (b"\x80\4\x95" + tokens.tobytes()[:101], "is a Python pickle, not tokens"),
                         (array.array("I", [20990101, 1, 400] + [0] * 253).tobytes() + tokens.tobytes(), "its first number is 20990101"),
                         (array.array("I", [20240801, 1, 400] + [0] * 253).tobytes() + tokens.tobytes(), "has version 1 here"),
                         (header.tobytes() + tokens.tobytes()[:-2], "its header states 400 tokens, but it has 399"),
                         (tokens.tobytes() + b"x", "not a whole number of tokens of 16 bits"),
                         (b"\x93NUMPY\1\0" + tokens.tobytes(), "is a NumPy array"),
                         (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is a Git LFS pointer")):
        with open(os.path.join(path, "train.bin"), "wb") as f:
            f.write(content)
        wrong = stargrad(*say, f"tokens:{path},16", status=1)
        assert why in wrong and "train.bin" in wrong and wrong.count("\n") == 1, wrong
    path = os.path.join(FOLDER, "llm")
    said = stargrad("train", "--model", TINY, "--data", f"tokens:{path},16", "--batch", 4, "--print", status=2)
    assert "vocabulary=256 is too small for tokens up to" in said, said
    with open(os.path.join(path, "val.bin"), "ab") as f:
        f.write(b"xx")
    assert "its header states 400 tokens, but it has 401" in stargrad("train", "--model", TINY, "--data", f"tokens:{path},16", "--print", status=1)


if __name__ == "__main__":
    main(globals())
