"""Tables with identifiers, categories, missing values and scaled targets, and held-out samples, in whole runs: train, eval, predict, a
resumed run, several ranks."""
import csv
import io
import json
import os
import random
import shutil
import subprocess

from predict import make_folder, trained
from run import command, folder, losses, main, ranks, stargrad

TITLES = ["id", "age", "colour", "price", "kind"]


def people(count=200):
    """A price that depends on a number and a category, and a class that depends on the price. Some cells are missing."""
    draw, made = random.Random(46), []
    for i in range(count):
        age, colour = draw.randrange(20, 60), draw.choice(("red", "green", "blue"))
        price = 20000 + 500 * age + {"red": 0, "green": 4000, "blue": -3000}[colour] + draw.gauss(0, 300)
        kind = "high" if price > 40000 else "low"
        made.append([f"p{i:03d}", "" if i % 11 == 0 else str(age), "NA" if i % 17 == 0 else colour, f"{price:.1f}", kind])
    return made


def written(name, rows, titles):
    path = os.path.join(os.path.dirname(folder("x")), name)
    with open(path, "w", encoding="utf-8") as f:
        csv.writer(f).writerows([titles, *rows])
    return path


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def said(*words, status=0):
    done = subprocess.run(command(*words, "--cpus", 1), capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def train(run, data, *more, start=stargrad):
    return start("train", "--model", "mlp", "--data", data, "--batch", 16, "--optimizer", "adam", "--lr", .01, "--epochs", 30,
                 "--checkpoint-every", 0, "--cpus", 1, "--out", run, *more)


def test_numbers():
    """Predictions and the mean absolute error have the unit of the table, whatever scale the network learned."""
    rows, run = people(), folder("numbers")
    data = written("people.csv", rows, TITLES)
    printed = train(run, f"csv:{data},price,-id,-kind,missing=mean,scale")
    assert "missing values, replaced by the mean or the most frequent category: " in printed and "; categories: 3 of colour" in printed, printed
    features = json.load(open(f"{run}/config.json", encoding="utf-8"))["features"]
    assert features["titles"] == ["age", "age missing", "colour=blue", "colour=green", "colour=red", "colour missing"], features
    assert features["columns"][0] == {"title": "id", "ignored": True} and features["missing"] == "mean", features

    # Other lines, in another order of columns, without the target: all are predicted, and named by the column id.
    bare = written("bare.csv", [[r[2], r[0], r[1]] for r in rows], ["colour", "id", "age"])
    out, warned = said("predict", run, "--data", f"csv:{bare}", "--id", "id")
    assert "missing values, replaced by" in warned and f"{len(rows) // 11 + 1} of age" in warned and warned.count("\n") == 1, warned
    got = table(out)
    assert [line["id"] for line in got] == [r[0] for r in rows] and list(got[0]) == ["id", "price"], got[0]
    wrong = [abs(float(line["price"]) - float(r[3])) for line, r in zip(got, rows)]
    assert sorted(wrong)[100] < 1500, sorted(wrong)
    metrics = json.loads(stargrad("eval", run, "--json", "--cpus", 1))
    test = wrong[4::5]
    assert abs(metrics["test_mae"] - sum(test) / len(test)) < 1e-3 * metrics["test_mae"], (metrics, sum(test) / len(test))
    lines = [json.loads(line) for line in said("predict", run, "--id", "1", "--json")[0].splitlines()]      # the run's own test lines
    assert [line["sample"] for line in lines] == [r[0] for r in rows[4::5]]
    assert abs(lines[0]["numbers"][0] - float(got[4]["price"])) < 1e-2
    assert "has no column 'name'" in said("predict", run, "--data", f"csv:{bare}", "--id", "name", status=2)[1]
    assert "--id requires --data csv:FILE or jsonl:FILE, not digits" in said("predict", run, "--data", "digits", "--id", "id", status=2)[1]

    # Without the keyword, missing values are refused. A run without them accepts later ones only on request.
    whole, clean = folder("whole"), written("clean.csv", [r for r in rows if r[1] and r[2] != "NA"], TITLES)
    assert "is a missing value; append ,missing=mean" in said("train", "--model", "mlp", "--data", f"csv:{data},price,-id,-kind", status=1)[1]
    train(whole, f"csv:{clean},price,-id,-kind,scale")
    assert "is a missing value; append ,missing=mean" in said("predict", whole, "--data", f"csv:{bare}", status=1)[1]
    assert len(table(said("predict", whole, "--data", f"csv:{bare},missing=mean")[0])) == len(rows)
    assert "contradicts the run" in said("predict", whole, "--data", f"csv:{bare},missing=frequent", status=2)[1]


def test_held_out():
    """All commands and ranks hold out the same lines."""
    rows, run, two = people(), folder("held"), folder("two")
    data = written("people.csv", rows, TITLES)
    how = f"csv:{data},kind,-id,-price,missing=frequent"
    more = ("--split", .2, "--seed", 5, "--deterministic", "--steps", 40)
    printed = train(run, how, *more)
    assert "160 training and 40 test samples; the test samples are held out by --split 0.2" in printed, printed
    train(two, how, *more, start=lambda *words: ranks(2, *words))
    assert losses(run) == losses(two)
    names = [line["id"] for line in table(stargrad("predict", run, "--id", "id", "--cpus", 1))]
    assert len(names) == 40 and names != [r[0] for r in rows[4::5]]
    kinds = {r[0]: r[4] for r in rows}
    high = sum(kind == "high" for kind in kinds.values())
    assert abs(sum(kinds[name] == "high" for name in names) - .2 * high) < 1
    own = json.loads(stargrad("eval", run, "--json", "--cpus", 1))
    last = [json.loads(line) for line in open(f"{run}/metrics.jsonl", encoding="utf-8")][-1]
    assert abs(own["test_loss"] - last["test_loss"]) < 1e-6, (own, last)
    apart = json.loads(stargrad("eval", "--weights", f"{run}/model.safetensors", "--model", "mlp", "--data", how, "--json", "--cpus", 1))
    assert abs(apart["test_loss"] - own["test_loss"]) < 1e-6

    # Of another table, all lines are evaluated; of the run's own, under another path, those that were held out.
    moved, later = written("moved.csv", rows, TITLES), written("later.csv", rows[:30], TITLES)
    for path, count in ((moved, 40), (later, 30)):
        other = json.loads(stargrad("eval", run, "--data", how.replace(data, path), "--json", "--cpus", 1))
        assert other["test_samples"] == count, (path, other)
        assert path == later or abs(other["test_loss"] - own["test_loss"]) < 1e-6
    out, warned = said("eval", run, "--data", how.replace(data, moved), "--split", .5, "--json")
    assert json.loads(out)["test_samples"] == 40 and "--split 0.5 is ignored" in warned, (out, warned)
    assert "--split has no effect: digits has a test set" in said("train", "--model", "mlp", "--data", "digits", "--split", .1, "--print")[1]

    resumed = folder("resumed")
    train(resumed, how, *more, "--checkpoint-every", "20s")
    os.remove(f"{resumed}/model.safetensors")
    stargrad("train", "--resume", "--out", resumed, "--steps", 60, "--cpus", 1)
    assert losses(resumed)[:40] == losses(run) and len(losses(resumed)) == 60
    assert "cannot be continued" in said("train", "--resume", "--out", resumed, "--split", .3, status=2)[1]


def test_folder():
    """A third split, and names of classes for users."""
    pets = make_folder(folder("pets"))
    os.rename(f"{pets}/val", f"{pets}/test")
    names = os.path.join(pets, "names.txt")
    classes = sorted(os.listdir(f"{pets}/train"), key=os.fsencode)
    with open(names, "w", encoding="utf-8") as f:
        f.write("".join(f"the {name}\n" for name in classes))
    run = trained(pets, "--split", .25, "--class-names", names)
    config = json.load(open(f"{run}/config.json", encoding="utf-8"))
    assert config["class_names"] == classes and config["class_titles"] == [f"the {name}" for name in classes]
    os.remove(names)                                    # the run has its content
    own, third = (table(stargrad("predict", run, "--cpus", 1, *more)) for more in ((), ("--on", "test")))
    assert all(line["sample"].startswith("train/") for line in own) and all(line["sample"].startswith("test/") for line in third)
    assert len(own) == config["test_samples"] and {line["class"] for line in own + third} <= set(config["class_titles"])
    # Named again, or by another path, the run's own data are the held-out samples; of other data without val/ all are predicted.
    moved, other = folder("moved"), folder("other")
    shutil.copytree(pets, moved)
    shutil.copytree(pets, other)
    shutil.rmtree(f"{other}/test")
    os.remove(f"{other}/train/{classes[0]}/00.png")
    for data in (pets, moved):
        assert table(stargrad("predict", run, "--data", f"folder:{data}", "--cpus", 1)) == own
    weights = ("--weights", f"{run}/model.safetensors", "--model", "convnet", "--data", f"folder:{pets}")
    assert [line["sample"] for line in table(stargrad("predict", *weights, "--cpus", 1))] == [line["sample"] for line in own]
    assert len(table(stargrad("predict", run, "--data", f"folder:{other}", "--cpus", 1))) == len(classes) * 24 - 1
    # The same is true of eval, whatever the size of the images, and of a run whose data had a test set of their own.
    small, apart = folder("small"), folder("apart")
    for out, how in ((small, (f"folder:{pets},4", "--split", .25)), (apart, (f"folder:{pets}",))):
        stargrad("train", "--model", "convnet", "--data", *how, "--batch", 24, "--steps", 2, "--cpus", 1, "--out", out)

    def evaluated(of, data):
        return json.loads(stargrad("eval", of, "--data", f"folder:{data}", "--json", "--cpus", 1))["test_samples"]
    assert [evaluated(small, data) for data in (f"{pets},4", pets, moved, f"{moved},8")] == 4 * [len(own)]
    assert [evaluated(of, other) for of in (small, run, apart)] == 3 * [len(classes) * 24 - 1]
    assert evaluated(apart, moved) == len(third)
    details = stargrad("eval", run, "--on", "test", "--details", "--cpus", 1)
    assert all(f"the {name}" in details for name in classes), details
    with open(names, "w", encoding="utf-8") as f:
        f.write("".join(f"{i}\n" for i in range(len(classes))))
    assert "the " not in stargrad("predict", run, "--class-names", names, "--cpus", 1)
    assert "must be val or test" in said("eval", run, "--on", "train", status=2)[1]


if __name__ == "__main__":
    main(globals())
