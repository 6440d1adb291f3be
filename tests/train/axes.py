"""--mesh auto selects the cheapest valid mesh by cost and prints the reason; predictions of plan for meshes."""
import json
import os
import re

from run import REFERENCE, SOURCE, events, folder, main, ranks, stargrad

TEXT = os.path.join(REFERENCE, "text.txt")
GPT = ("train", "--model", "gpt:layers=2,heads=4,width=32,context=24", "--data", f"text:{TEXT},20", "--batch", 8)
PRICE = re.compile(r"^ {11}(\S+) +([\d.]+) ms a step: ([\d.]+) computing, ([\d.]+) sending, ([\d.]+) waiting; [\d.]+ GB$", re.M)


def test_chosen():
    said = ranks(4, *GPT, "--mesh", "auto", "--print")
    prices = [(row[0], float(row[1])) for row in PRICE.findall(said)]
    assert {"data=4", "data=2,pipe=2", "pipe=4", "data=2,tensor=1d:2", "tensor=2d:2"} <= {mesh for mesh, _ in prices}, said
    assert [step for _, step in prices] == sorted(step for _, step in prices), said
    assert re.search(r"^mesh +(\S+): ", said, re.M).group(1) in (prices[0][0], "data=1," + prices[0][0]), said


def test_refused_ones():
    """They say why; and the run is that of a mesh that goes."""
    said = ranks(2, "train", "--model", "convnet", "--data", "digits", "--batch", 63, "--mesh", "auto", "--print")
    assert "data=2                       not possible: a batch of 63 cannot be divided among 2 ranks" in said, said
    assert "tensor=1d:2                  not possible: model convnet does not divide its work over this mesh" in said, said
    assert re.search(r"^mesh +data=1,pipe=2: ", said, re.M), said
    said = ranks(2, "train", "--model", "convnet", "--data", "digits", "--batch", 63, "--mesh", "auto", "--print", "--best", status=2)
    assert "--mesh auto: no mesh is possible; for example, data=2: a batch of 63 cannot be divided among 2 ranks" in said, said
    said = ranks(2, "train", "--model", "convnet", "--data", "digits", "--batch", 64, "--mesh", "auto", "--print", "--ema", 0.9)
    assert "only data parallelism: --ema cannot be combined with other meshes" in said and "pipe" not in said, said


def test_what_a_mesh_must_hold():
    """The slow weights of --lookahead count as memory, and an optimizer of some parameters that cannot be split excludes what would split them."""
    memory = re.compile(r"^ {11}(data=4|pipe=4) .* ([\d.]+) GB$", re.M)
    words = (*GPT[:2], "gpt:layers=4,heads=4,width=256,context=24", *GPT[3:], "--mesh", "auto", "--print")
    plain, slow = (dict(memory.findall(ranks(4, *words, *more))) for more in ((), ("--lookahead", 5)))
    assert plain and plain.keys() == slow.keys() and all(float(slow[mesh]) > float(plain[mesh]) for mesh in plain), (plain, slow)
    said = ranks(4, *GPT, "--mesh", "auto", "--print", "--optimizer-of", "transformer.h.*=lamb")
    assert re.search(r"^ {11}tensor=1d:4 +not possible: ", said, re.M), said
    said = ranks(4, *GPT, "--mesh", "auto", "--print", "--lookahead", 5)       # however fast a mesh would be that splits parameters
    assert re.search(r"^ {11}tensor=1d:4 +not possible: --lookahead requires whole parameters", said, re.M), said


def test_runs():
    out = folder("auto")
    ranks(2, *GPT, "--mesh", "auto", "--steps", 2, "--out", out)
    assert len(events(out)) == 2
    out = folder("auto")
    stargrad(*GPT, "--mesh", "auto", "--steps", 2, "--out", out, "--cpus", 1)
    assert len(events(out)) == 2


def test_resume():
    """--resume chooses again on another number of ranks, from one rank on, too, and keeps the mesh on the same number and a mesh that is named."""
    out, chosen = folder("resumed"), "the mesh of the lowest estimated cost:"
    words = ("train", "--out", out, "--resume", "--steps")
    assert chosen in ranks(2, *GPT, "--mesh", "auto", "--steps", 1, "--out", out)
    assert chosen not in ranks(2, *words, 2)
    assert chosen in ranks(4, *words, 3)
    stargrad(*words, 4, "--cpus", 1)
    assert chosen in ranks(2, *words, 5)
    ranks(4, *words, 6, "--mesh", "pipe=2")
    assert chosen not in ranks(2, *words, 7)
    assert len(events(out)) == 7


def test_plan():
    machine = os.path.join(SOURCE, "machines", "h100-8.json")
    words = ("plan", *GPT[1:], "--mesh", "auto", "--machine", machine, "--nodes", "1-2")
    said = json.loads(stargrad(*words, "--json"))
    assert [point["ranks"] for point in said["points"]] == [8, 16], said
    for point in said["points"]:
        best = [kind for kind in point["kinds"] if kind["best"]]
        assert len(best) == 1 and best[0]["step_seconds"] == min(kind["step_seconds"] for kind in point["kinds"]), point
        for kind in point["kinds"]:
            assert kind["step_seconds"] >= max(kind["computing_seconds"], kind["sending_seconds"]) / 2 and kind["memory_bytes"] > 0, kind
    assert "not possible: " in stargrad(*words) and "best" in stargrad(*words)
    one = json.loads(stargrad("plan", *GPT[1:], "--mesh", "pipe=2", "--machine", machine, "--nodes", "1", "--json"))["points"][0]["kinds"]
    assert [kind["mesh"] for kind in one] == ["pipe=2"] and one[0]["best"], one


if __name__ == "__main__":
    main(globals())
