"""A run that is killed at any moment continues from its newest checkpoint, to the same bits."""
import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess

from run import (RANKS, command, content, events, folder, losses, main, mpirun, ranks, resuming, stargrad,
                 wait_for_steps)

RUN = ("train", "--model", "convnet", "--data", "synthetic:16x16x3,10,512", "--augment", "crop:4,flip", "--batch", 64, "--epochs", 3,
       "--deterministic", "--lr", 0.05, "--checkpoint-every", "3s")


def start(*arguments, ranks=1):
    launch = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    return subprocess.Popen([*launch, *command(*arguments)], env={**os.environ, **(RANKS if ranks > 1 else {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def whole():
    out = folder("whole")
    stargrad(*RUN, "--out", out)
    return out


def history(path):
    """What every epoch came to, in the order of their steps: a line comes when its evaluation is over, perhaps after later steps' lines."""
    keys = ("step", "epoch", "train_loss", "test_loss", "test_top1")
    return sorted(tuple(e[key] for key in keys) for e in events(path, "epoch"))


def test_killed_at_any_moment():
    reference = whole()
    dice = random.Random(1)
    for trial in range(4):
        out = folder("killed")
        for attempt in range(3):
            process = start(*RUN, "--out", out, *resuming(out))
            wait_for_steps(out, dice.randrange(1, 24), process)
            process.kill()
            process.communicate()
        stargrad(*RUN, "--out", out, *resuming(out))
        assert losses(out) == losses(reference), f"trial {trial}"
        assert history(out) == history(reference), f"trial {trial}"
        assert content(out) == content(reference), f"trial {trial}"
        assert not [f for f in os.listdir(out) if ".part" in f], os.listdir(out)


def test_groups_are_kept():
    """Batch norm's groups are the run's own: whoever goes on need not name them, and may not name others."""
    for group in ("rank", "micro", "global", 16):
        straight, parted = folder("straight"), folder("parted")
        words = (*RUN, "--micro-batch", 16)
        stargrad(*words, "--steps", 6, "--bn-group", group, "--out", straight)
        stargrad(*words, "--steps", 3, "--bn-group", group, "--out", parted)
        said = stargrad(*words, "--steps", 6, "--resume", "--out", parted, "--bn-group", 32, status=2)
        assert f"the run has bn-group {group}, so it cannot be continued with 32" in said, said
        stargrad(*words, "--steps", 6, "--resume", "--out", parted)
        assert losses(parted) == losses(straight) and content(parted) == content(straight), group


def test_metrics_that_cannot_be_written():
    """The run ends, but not without a checkpoint."""
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--epochs", 200)
    out = folder("full")

    def limit():        # files of 4 MB: a checkpoint has 1.2, histograms of every step more
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    words = command(*run, "--tensorboard", "--histograms", 1, "--checkpoint-every", 1000, "--out", out)
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=limit)
    step = re.search(r"the metrics cannot be written: stopped after step (\d+); checkpoint written", done.stderr)
    assert done.returncode == 1 and step and "File too large" in done.stderr, done
    assert os.path.exists(os.path.join(out, f"checkpoint-{step[1]}.safetensors")), os.listdir(out)
    stargrad(*run, "--out", out, "--resume")
    assert [e["step"] for e in events(out)][-1] == 400


def test_a_checkpoint_that_cannot_be_written():
    """It is written beside later steps, which do not go on for long without it."""
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--steps", 100000, "--cpus", 1)
    for count in (1, 2):
        out = folder("taken")
        path = os.path.join(out, "checkpoint-1000.safetensors")
        words = command(*run, "--checkpoint-every", "1000s", "--out", out)
        process = subprocess.Popen(["mpirun", "-n", str(count), *words] if count > 1 else words, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, **RANKS})
        wait_for_steps(out, 1, process)
        os.mkdir(path)
        said = process.communicate()[1]
        assert process.returncode and said.count(f"{path}: cannot be written: Is a directory") == 1, said
        assert "checkpoint written" not in said and 1000 <= events(out)[-1]["step"] < 2000, events(out)[-1]
        assert not [f for f in os.listdir(out) if ".part" in f], os.listdir(out)


def test_a_corrupt_newest_checkpoint_is_passed_over():
    reference = whole()
    out = folder("corrupt")
    stargrad(*RUN, "--out", out)
    newest = max((f for f in os.listdir(out) if f.startswith("checkpoint-")), key=lambda f: int(f[11:].split(".")[0]))
    os.truncate(os.path.join(out, newest), 1000)
    stargrad(*RUN, "--out", out, "--resume")
    assert content(out) == content(reference)


def test_another_run_is_refused():
    out = whole()
    before = content(out, "metrics.jsonl")
    for other in (("--seed", 2), ("--batch", 32), ("--model", "mlp")):
        said = stargrad(*RUN, *other, "--out", out, "--resume", status=2)
        assert said.count("\n") == 1 and out in said, said
    assert content(out, "metrics.jsonl") == before


def options(out):
    config = json.loads(content(out, "config.json"))
    now = config["options"]
    for entry in config.get("continued", ()):
        now.update(entry["options"])
    return now


SHORT = ("train", "--model", "mlp", "--data", "digits", "--batch", 96, "--deterministic", "--cpus", 1)


def test_a_run_has_its_own_options():
    """Whatever it was asked for holds, and nothing is told of it; what is given holds instead, and is told in one line."""
    asked = ("--lr", 0.02, "--schedule", "cosine", "--warmup", 0.5, "--augment", "crop:1", "--best", "--patience", 9, "--mean", 0.5,
             "--label-smoothing", 0.1, "--nesterov", "--freeze", "*.bias", "--epochs", 3, "--checkpoint-every", "5s", "--evaluate-every", 7)
    whole, out = folder("own-whole"), folder("own")
    stargrad(*SHORT, *asked, "--out", whole)
    stargrad(*SHORT, *asked, "--out", out)
    newest = {int(f[11:].split(".")[0]) for f in os.listdir(out) if f.startswith("checkpoint-")}
    for step in sorted(newest)[1:]:
        os.remove(f"{out}/checkpoint-{step}.safetensors")
    os.remove(f"{out}/model.safetensors")
    said = stargrad("train", "--out", out, "--resume")
    assert re.search(r"continues  after step \d+, with the same options\n", said), said
    keys = ("step", "loss", "lr", "top1", "test_loss", "test_top1", "train_loss", "train_top1")
    for kind in ("step", "epoch"):
        assert [[e.get(key) for key in keys] for e in events(whole, kind)] == [[e.get(key) for key in keys] for e in events(out, kind)], kind
    assert content(out) == content(whole)
    said = stargrad("train", "--out", out, "--resume", "--epochs", 4, "--lr", 0.02, "--batch", 96, "--no-nesterov", "--freeze", "", "--seed", 1)
    changes = re.search(r"continues  after step \d+, with (.*)\n", said)[1]
    assert sorted(changes.split(", ")) == ["epochs 4.0 (was 3.0)", 'freeze null (was "*.bias")', "nesterov false (was true)"], changes
    told = options(out)
    assert (told["epochs"], told["freeze"], told["nesterov"], told["mean"], told["patience"]) == (4, None, False, "0.5", 9), told


def test_what_goes_with_other_options():
    """--epochs takes the place of --steps; another optimizer has its own rate; lists are emptied, flags switched off."""
    one, out = folder("steps"), folder("like")
    stargrad(*SHORT, "--steps", 3, "--lr", 0.3, "--best", "--freeze", "*.bias", "--out", one)
    said = stargrad("train", "--out", one, "--resume", "--epochs", 1)
    assert "steps 0 (was 3), epochs 1.0 (was 10.0)" in said or "epochs 1.0 (was 10.0), steps 0 (was 3)" in said, said
    assert len(losses(one)) == 14
    said = stargrad("train", "--like", one, "--optimizer", "adam", "--no-best", "--freeze", "", "--steps", 2, "--out", out)
    assert "optimizer  adam, learning rate 0.001," in said, said
    told = options(out)
    assert (told["lr"], told["best"], told["freeze"], told["deterministic"]) == (0.001, False, None, True), told
    said = stargrad("train", "--like", one, "--optimizer", "sgd", "--steps", 2, "--print")
    assert "optimizer  sgd, learning rate 0.3," in said, said
    config = os.path.join(folder("config"), "options.json")
    os.makedirs(os.path.dirname(config))
    with open(config, "w") as f:
        json.dump({"best": False, "steps": 2}, f)
    out = folder("like")
    stargrad("train", "--config", config, "--like", one, "--out", out)
    assert options(out)["best"] is False and options(out)["steps"] == 2, options(out)


def test_what_options_imply_is_not_inherited():
    """Steps in flight, gradients to do without, a lag, shares: what others implied goes with them; what was asked for stays."""
    short = ("train", "--model", "convnet", "--data", "digits", "--batch", 96, "--lr", 0.01)
    for words, more, wanted in (
            (("--strategy", "backup"), ("--strategy", "sync"), {"backup": -1, "window": 2, "strategy": "sync"}),
            (("--strategy", "backup", "--staleness", 3), ("--strategy", "async"), {"backup": -1, "staleness": 3, "window": 2}),
            (("--strategy", "async", "--staleness", 4, "--window", 3), ("--strategy", "ps"), {"window": 3}),
            (("--allreduce", "tree", "--scheduler", "eager"), ("--strategy", "ps", "--allreduce", "", "--scheduler", ""),
             {"allreduce": None, "scheduler": None}),
            (("--shard", "gradients"), ("--shard", "none"), {"shard": "none", "strategy": "sync"}),
            (("--optimizer", "kfac"), ("--kfac-eigen-every", 4), {"kfac_lag": -1, "kfac_eigen_every": 4})):
        out = folder("implied")
        ranks(2, *short, *words, "--steps", 2, "--out", out)
        said = ranks(2, "train", "--out", out, "--resume", *more, "--steps", 4)
        assert not re.search("kfac_lag|backup -|window", said), said
        told = options(out)
        assert {key: told[key] for key in wanted} == wanted, (words, more, told)


def test_resume_auto():
    """Begins, then continues; job output and a lock are no files of anybody; other files are."""
    out = folder("auto")
    os.makedirs(out)
    for name in ("slurm-17.out", "slurm-17_4.out", ".lock"):
        with open(os.path.join(out, name), "w"):
            pass
    words = (*SHORT, "--steps", 3, "--out", out, "--resume")
    assert "contains no run to continue" in stargrad(*words, status=2)
    stargrad(*words, "auto")
    assert len(losses(out)) == 3
    assert "continues" not in stargrad(*words, "auto") and len(losses(out)) == 3
    stargrad("train", "--out", out, "--resume=auto", "--steps", 5)
    assert len(losses(out)) == 5
    other = folder("auto-other")
    assert "--model NAME is missing" in stargrad("train", "--out", other, "--resume", "auto", status=2)
    os.makedirs(other)
    with open(os.path.join(other, "notes"), "w"):
        pass
    assert "already contains files" in stargrad(*SHORT, "--steps", 1, "--out", other, "--resume", "auto", status=2)
    assert "'again' is not auto or empty" in stargrad("train", "--out", out, "--resume=again", status=2)
    out = folder("auto")
    for steps in (2, 4):
        said = mpirun(2, command(*SHORT, "--steps", steps, "--out", out, "--resume", "auto"))
    assert "continues  after step 2, with steps 4 (was 2)" in said and len(losses(out)) == 4, said


def test_the_command_that_is_told():
    """It works as it is printed, wherever the run is."""
    out = folder("it's told")
    process = start(*SHORT, "--epochs", 400, "--lr", 0.01, "--out", out)
    wait_for_steps(out, 5, process)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    told = re.search(r"checkpoint written; continue with (.*)\n", said)[1]
    step = len(losses(out))
    done = subprocess.run(f"{told} --steps {step + 2}", shell=True, capture_output=True, text=True)
    assert done.returncode == 0 and len(losses(out)) == step + 2, (told, done)


def test_what_differs_is_named():
    """Data that moved are the same; other data are told from these by name, number and classes."""
    place = folder("tables")
    os.makedirs(place)

    def table(name, rows, classes):
        with open(os.path.join(place, name), "w") as f:
            f.write("a,b,kind\n" + "".join(f"{i % 7}.5,{i % 5}.25,k{i % classes}\n" for i in range(rows)))
        return f"csv:{place}/{name}"

    here, same, longer, more = table("here.csv", 60, 3), table("there.csv", 60, 3), table("longer.csv", 80, 3), table("more.csv", 60, 4)
    out = folder("moved")
    words = ("train", "--model", "mlp", "--batch", 6, "--steps", 2, "--cpus", 1, "--out", out)
    stargrad(*words, "--data", here)
    for other, what in ((longer, "samples, 3 classes"), (more, "samples, 4 classes")):
        said = stargrad("train", "--out", out, "--resume", "--steps", 4, "--data", other, status=2)
        assert f"the run was trained on {here} (" in said and f"cannot be continued with {other} (" in said and what in said, said
        assert "give --data with the same samples" in said and said.count("\n") == 1, said
    os.remove(here[4:])
    said = stargrad("train", "--out", out, "--resume", "--steps", 4, status=1)
    assert here[4:] in said and "give --data" in said, said
    said = stargrad("train", "--out", out, "--resume", "--steps", 4, "--data", same)
    assert f'data "{same}" (was "{here}")' in said and len(losses(out)) == 4, said


def test_another_order_within_an_epoch_is_refused():
    """--no-shuffle and --sampler change the order of the samples, so they may change only between epochs."""
    words = ("train", "--model", "mlp", "--batch", 64, "--deterministic", "--cpus", 1, "--data", "synthetic:4x4x1,2,256", "--checkpoint-every", 1)
    for given, was, other in (((), "--shuffle", "--no-shuffle"), (("--no-shuffle",), "--no-shuffle", "--shuffle"), ((), "--sampler shuffle", "--sampler=balanced")):
        out = folder("order")
        stargrad(*words, *given, "--steps", 6, "--out", out)
        refused = stargrad("train", "--resume", "--out", out, "--steps", 9, other, status=2)
        assert refused.count("\n") == 1 and f"{out}: the run has {was}, so it cannot be continued with {other.replace('=', ' ')} within epoch 2" in refused, refused
        assert "leave that option out, or give it at the end of an epoch, after step 8" in refused, refused
        stargrad("train", "--resume", "--out", out, "--steps", 8)
        said = ranks(2, "train", "--resume", "--out", out, "--steps", 9, other)
        assert "continues  after step 8" in said and len(losses(out)) == 9, said


def test_groups_of_other_ranks_are_kept():
    """Where batch norm's group is a rank's share, it stays what it was."""
    words = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--micro-batch", 16, "--deterministic", "--cpus", 1,
             "--checkpoint-every", "2s")
    whole = folder("groups")
    mpirun(2, command(*words, "--steps", 4, "--out", whole))
    out = folder("fewer")
    mpirun(2, command(*words, "--steps", 2, "--out", out))
    said = stargrad("train", "--out", out, "--resume", "--steps", 4)
    assert "batch norm over 32 samples, as at the start of the run" in said, said
    assert losses(out) == losses(whole) and content(out) == content(whole)
    said = stargrad("train", "--out", out, "--resume", "--steps", 5, "--bn-group", "rank")
    assert "batch norm over 64 samples\n" in said, said


def test_ranks_that_do_not_see_the_folder():
    """A rank that does not see the run's folder ends all of them, and is named."""
    out = folder("apart")
    stargrad(*SHORT, "--steps", 2, "--lr", 0.03, "--out", out)
    nowhere = folder("nowhere")
    os.makedirs(nowhere)
    there, elsewhere = shlex.quote(os.path.dirname(out)), shlex.quote(nowhere)
    one = ["sh", "-c", f'if [ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" = 0 ]; then cd {there}; else cd {elsewhere}; fi; exec "$@"', "sh"]
    said = mpirun(2, [*one, os.path.abspath(command()[0]), "train", "--out", os.path.basename(out), "--resume", "--steps", "4"], status=None)
    assert "rank 1: apart: contains no run to continue" in said and len(events(out)) == 2, said
    assert os.listdir(nowhere) == []


def test_what_is_not_there_is_not_continued():
    empty, other, gone = folder("empty"), folder("other"), folder("gone")
    os.mkdir(empty)
    os.mkdir(other)
    with open(os.path.join(other, "notes"), "w"):
        pass
    for out, way in ((gone, "leave out --resume to begin one"), (empty, "leave out --resume"), (other, "in another --out")):
        said = stargrad(*RUN, "--out", out, "--resume", status=2)
        assert f"{out}: contains no run to continue" in said and way in said and said.count("\n") == 1, said
    said = mpirun(2, command(*RUN, "--cpus", 1, "--out", gone, "--resume"), status=2)
    assert said.count("contains no run to continue") == 1, said
    assert not os.path.exists(gone) and os.listdir(other) != [] and "already contains files" in stargrad(*RUN, "--out", other, status=2)


def test_a_run_without_a_checkpoint_begins_anew():
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--steps", 2, "--deterministic")
    reference, out = folder("reference"), folder("begun")
    stargrad(*run, "--out", reference)
    os.mkdir(out)
    with open(os.path.join(out, "config.json.part.12345"), "w"):    # killed while it wrote this, ...
        pass
    stargrad(*run, "--out", out)
    assert not [f for f in os.listdir(out) if ".part" in f], os.listdir(out)
    for name in os.listdir(out):                                    # ... or before its first checkpoint
        if name.endswith(".safetensors"):
            os.remove(os.path.join(out, name))
    done = subprocess.run(command(*run, "--out", out, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0 and "contains no checkpoint yet; the run starts from the beginning" in done.stderr, done
    assert losses(out) == losses(reference) and content(out) == content(reference)


def test_config_keeps_what_began_the_run():
    out = folder("changed")
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--out", out)
    stargrad(*run, "--epochs", 2, "--lr", 0.01, "--schedule", "cosine")
    began = json.loads(content(out, "config.json"))
    said = stargrad(*run, "--epochs", 3, "--lr", 0.001, "--schedule", "cosine", "--resume")
    assert "continues  after step 4, with epochs 3.0 (was 2.0), lr 0.001 (was 0.01)" in said, said
    stargrad(*run, "--epochs", 1, "--resume")       # done already: nothing goes on
    said = stargrad(*run, "--epochs", 4, "--lr", 0.001, "--schedule", "cosine", "--resume")
    continued = "after step 4, with epochs 3.0 (was 2.0), lr 0.001 (was 0.01)", "after step 6, with epochs 4.0 (was 3.0)"
    begun = 'begun      with optimizer "sgd", lr 0.01, schedule "cosine", batch 32, epochs 2.0, seed "1"'
    assert f"{begun}\ncontinued  {continued[0]}\ncontinues  {continued[1]}\n" in said, said
    said = stargrad("report", out)
    assert f"{begun}\ncontinued  {continued[0]}\ncontinued  {continued[1]}\n" in said, said
    config = json.loads(content(out, "config.json"))
    entries = config.pop("continued")
    assert config.pop("begun") and config == began
    assert [(c["step"], c["options"]) for c in entries] == [(4, {"epochs": 3.0, "lr": 0.001}), (6, {"epochs": 4.0})], entries
    for entry in entries:
        del entry["changes"]        # as if nobody had told: it follows from the options
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump({**config, "continued": entries}, f)
    assert "continued  after step 4\ncontinued  after step 6\n" in stargrad("report", out)
    said = stargrad(*run, "--epochs", 5, "--lr", 0.001, "--schedule", "cosine", "--resume")
    assert f"{begun}\ncontinued  {continued[0]}\ncontinued  {continued[1]}\ncontinues  after step 8, with epochs 5.0 (was 4.0)\n" in said, said


def test_a_rate_that_nobody_gave_is_kept():
    out = folder("own-rate")
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--optimizer", "adam", "--out", out)
    stargrad(*run, "--steps", 2)
    assert json.loads(content(out, "config.json"))["options"]["lr"] == 0.001
    said = stargrad(*run, "--steps", 4, "--resume")
    assert "continues  after step 2, with steps 4 (was 2)\n" in said, said
    assert [e["lr"] for e in events(out)] == 4 * [0.001], events(out)


def test_another_augmentation_is_told():
    out = folder("otherwise")
    run = ("train", "--model", "mlp", "--data", "synthetic:4x4x1,3,64", "--batch", 32, "--out", out)
    stargrad(*run, "--epochs", 1)
    assert "augment" not in stargrad(*run, "--epochs", 2, "--augment", "none", "--resume").split("continues")[1]
    said = stargrad(*run, "--epochs", 3, "--augment", "crop:1", "--resume")
    assert 'continues  after step 4, with epochs 3.0 (was 2.0), augment "crop:1" (was "none")' in said, said


def test_a_loss_that_is_no_number_stops_the_run():
    run = ("train", "--model", "lenet", "--data", "synthetic:28x28x1,10,512", "--batch", 64, "--lr", 1e6, "--steps", 20)
    said = stargrad(*run, "--out", folder("nan"), status=1)
    assert said.count("\n") == 1 and "step" in said and "checkpoint" in said, said
    stargrad(*run, "--nan-ok", "--out", folder("nan-ok"))


def test_the_last_good_checkpoint_is_good():
    model, data = ("--model", "lenet"), ("--data", "synthetic:28x28x1,10,512")
    said = stargrad("train", *model, *data, "--batch", 64, "--lr", 100, "--checkpoint-every", "1s", "--out", folder("diverged"), status=1)
    good = re.search(r"the last good checkpoint is (.*\.safetensors)", said).group(1)
    assert json.loads(stargrad("eval", *model, *data, "--weights", good, "--json"))["test_loss"] is not None


if __name__ == "__main__":
    main(globals())
