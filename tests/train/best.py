"""--best, --patience, --evaluate-every: the weights of the best evaluation are saved, a run without improvement ends, and
evaluations can be within epochs."""
import json

from run import content, events, folder, main, ranks, stargrad

# A rate so high that accuracy goes up and down.
WORDS = ("--model", "convnet", "--data", "digits", "--batch", 64, "--lr", 0.4, "--deterministic", "--cpus", 1)


def best_of(out):
    tops = [e["test_top1"] for e in events(out, "epoch")]
    return tops, max(tops)


def check(out):
    tops, best = best_of(out)
    told = json.loads(stargrad("eval", out, "--weights", f"{out}/best.safetensors", "--json"))
    assert told["test_top1"] == best, (told, tops)


def test_best():
    out = folder("best")
    said = stargrad("train", *WORDS, "--epochs", 5, "--best", "--out", out)
    check(out)
    tops, best = best_of(out)
    assert f"best: top-1 {100 * best:.2f} %, after epoch {tops.index(best) + 1}" in said, said
    stargrad("train", *WORDS, "--epochs", 8, "--best", "--out", out, "--resume")
    check(out)


def test_patience():
    for count in (1, 2):
        out = folder("patient")
        words = ("train", *WORDS, "--epochs", 60, "--best", "--patience", 2, "--bn-group", "global", "--out", out)
        said = stargrad(*words) if count == 1 else ranks(count, *words[:-2], "--out", out)
        tops, best = best_of(out)
        assert "without an improvement of the top-1" in said and len(tops) < 60 and content(out)
        assert all(top <= best for top in tops[tops.index(best) + 1:]) and len(tops) - 1 - tops.index(best) >= 2
        check(out)


def ends_with_its_best(out, said):
    """The run's weights, its last line and its best evaluation are the same; no step follows the evaluation that ended it."""
    tops, best = best_of(out)
    epochs = events(out, "epoch")
    step = epochs[tops.index(best)]["step"]
    assert said.splitlines()[-1] == f"{out}: test accuracy {100 * best:.2f} %, from the best evaluation, after step {step}", said
    told = json.loads(stargrad("eval", out, "--json"))
    assert told["test_top1"] == best, (told, tops)
    assert abs(told["test_loss"] - epochs[tops.index(best)]["test_loss"]) <= 1e-5 * told["test_loss"], (told, epochs)
    assert events(out)[-1]["step"] == epochs[-1]["step"], "steps behind the last evaluation"


def test_the_run_ends_with_its_best():
    """Whatever the window; with --best, with --patience, with both; on ranks, too."""
    last = {}
    for name, count, more in (("window 1", 1, ("--patience", 2, "--window", 1)), ("window 4", 1, ("--patience", 2, "--window", 4)),
                              ("best", 1, ("--best", "--epochs", 4)), ("within", 1, ("--patience", 3, "--best", "--evaluate-every", 5)),
                              ("ranks", 2, ("--patience", 2,))):
        out = folder("ends")
        words = ("train", *WORDS, "--epochs", 60, "--bn-group", "global", *more, "--out", out)
        said = stargrad(*words) if count == 1 else ranks(count, *words)
        ends_with_its_best(out, said)
        last[name] = events(out)[-1]["step"], content(out)
    assert last["window 1"] == last["window 4"] == last["ranks"], {name: step for name, (step, _) in last.items()}


def test_patience_goes_on():
    """Evaluations of before count; a run that has had enough trains no more, and is what it was."""
    out, halved = folder("patient"), folder("halved")
    words = ("train", *WORDS, "--epochs", 60, "--patience", 2, "--json")
    told = json.loads(stargrad(*words, "--out", out))
    tops, steps, weights = best_of(out)[0], len(events(out, "step")), content(out)
    stargrad("train", *WORDS, "--epochs", 2, "--patience", 2, "--out", halved)
    stargrad(*words, "--out", halved, "--resume")
    assert best_of(halved)[0] == tops and content(halved) == weights, (tops, best_of(halved)[0])
    same = json.loads(stargrad(*words, "--out", out, "--resume"))
    assert len(events(out, "step")) == steps and content(out) == weights
    assert same["steps"] == told["steps"] and same["test_top1"] is not None, (told, same)


def test_best_from_here_on():
    """Weights that were not kept when they were the best are not told of; the best of those from then on are."""
    out = folder("late")
    stargrad("train", *WORDS, "--epochs", 3, "--out", out)
    said = stargrad("train", *WORDS, "--epochs", 5, "--best", "--out", out, "--resume")
    best = max(e["test_top1"] for e in events(out, "epoch")[3:])
    told = json.loads(stargrad("eval", out, "--weights", f"{out}/best.safetensors", "--json"))
    assert told["test_top1"] == best and f"best: top-1 {100 * best:.2f} %" in said, (told, said)


def test_within_epochs():
    """Also of a run that goes on; what is told of training is of the steps since the evaluation before."""
    words = ("train", *WORDS, "--epochs", 2, "--evaluate-every", 8, "--checkpoint-every", "4s")
    whole, halved = folder("whole"), folder("halved")
    stargrad(*words, "--out", whole)
    stargrad(*words, "--steps", 12, "--out", halved)
    stargrad(*words, "--out", halved, "--resume")
    told = [[(e["step"], e["train_top1"], e["test_top1"]) for e in events(out, "epoch")] for out in (whole, halved)]
    assert [step for step, _, _ in told[0]] == [8, 16, 22, 24, 32, 40, 44], told
    assert [e for e in told[1] if e[0] != 12] == told[0], told
    steps = [e["top1"] for e in events(whole, "step")]
    for (end, train, _), begin in zip(told[0], [0] + [e[0] for e in told[0]]):
        assert abs(sum(steps[begin:end]) / (end - begin) - train) < 1e-6, (begin, end, train)
    report = json.loads(stargrad("report", whole, "--json"))
    assert [e["train_top1"] for e in report["epochs"]] == [train for _, train, _ in told[0]], report


if __name__ == "__main__":
    main(globals())
