"""A trace has every task of the traced steps once, with its worker and its time, after its dependencies; the report has the same
values."""
import collections
import json
import os
import re
import resource
import shutil
import signal
import subprocess

from run import Skip, command, folder, main, ranks, stargrad

os.environ.pop("STARGRAD_PICTURES", None)      # pictures are looked at

NETWORK = ("train", "--model", "resnet20", "--data", "synthetic:8x8x3,10,64", "--batch", 16, "--micro-batch", 4)
STEPS = 2


def records(path):
    """What a file of recutils holds: a dictionary for each record."""
    with open(path) as f:
        for record in f.read().split("\n\n"):
            if record.strip():
                yield dict(re.split(": ?", line, maxsplit=1) for line in record.strip().split("\n"))


def tasks(out):
    found = [r for r in records(f"{out}/trace/tasks.rec") if "Name" in r and int(r.get("WorkerId", -1)) >= 0]
    for task in found:
        task["rank"], task["begin"], task["end"] = max(0, int(task["MPIRank"])), float(task["StartTime"]), float(task["EndTime"])
    return found


def programme(*words):
    """{(kind, task): how often in a step}, as --print has it."""
    rows = re.findall(r"^(input|forward|backward|reduction|update) +(\S.*?) +(\d+) +\S+ +\S+ +\(", stargrad(*NETWORK, *words, "--print"), re.M)
    total = collections.Counter()
    for kind, name, times in rows:
        total[kind, name] += int(times)
    return total


def trace(count, *words):
    out = folder(f"trace-{count}")
    words = (*NETWORK, *words, "--steps", 4, "--trace", "2-3", "--out", out)
    if count > 1:
        ranks(count, *words)
    else:
        stargrad(*words)
    return out


def roof_ms(task, roof):
    """Of a roofline: as long as the arithmetic takes, or the operands' way, each once, workspace left out."""
    sizes = [int(size) for size, mode in zip(task["Sizes"].split(), task["Modes"].split()) if mode != "S"]
    return 1e3 * max(float(task.get("GFlop", 0)) / roof["gflops"], 1e-9 * sum(sizes) / roof["gbytes"])


def kinds(out):
    with open(f"{out}/trace/kernels.json") as f:
        return json.load(f)["kernels"]


def test_every_task_once():
    out = trace(1)
    kind = kinds(out)
    found = collections.Counter((kind[t["Model"]], re.sub(" #[0-9]+$", "", t["Name"])) for t in tasks(out))
    assert found == {task: times * STEPS for task, times in programme().items()}


def check_order(found):
    ended = {t["JobId"]: t["end"] for t in found}
    for task in found:
        for job in task.get("DependsOn", "").split():
            assert ended.get(job, 0) <= task["begin"] + 1e-3, f"{task['Name']} began before {job} ended"
    rows = collections.defaultdict(list)
    for task in found:
        rows[task["rank"], task["WorkerId"]].append((task["begin"], task["end"]))
    for row in rows.values():
        row.sort()
        assert all(a[1] <= b[0] + 1e-3 for a, b in zip(row, row[1:])), "two tasks at once on one worker"


def longest_chain(out, found):
    """Of tasks as long as they ran and messages as long as the fastest would have taken, by Kahn's algorithm."""
    took = {t["JobId"]: t["end"] - t["begin"] for t in found}
    edges = [(before, r["JobId"], 0) for r in records(f"{out}/trace/tasks.rec") for before in r.get("DependsOn", "").split()]
    messages = [(m["SendJobId"], m["RecvJobId"], float(m["Size"]), float(m["RecvTime"]) - float(m["SendTime"]))
                for m in records(f"{out}/trace/comms.rec")]
    rate = max([size / ms for *_, size, ms in messages if size >= 1 << 14 and ms > 0], default=1)
    edges += [(sends, receives, size / max(rate, 1)) for sends, receives, size, _ in messages]
    after, waits, end = collections.defaultdict(list), collections.Counter(), collections.defaultdict(float)
    for before, job, ms in edges:
        after[before].append((job, ms))
        waits[job] += 1
    ready = [job for job in {job for edge in edges for job in edge[:2]} if not waits[job]]
    while ready:
        job = ready.pop()
        for next_job, ms in after[job]:
            end[next_job] = max(end[next_job], end[job] + took.get(job, 0) + ms)
            waits[next_job] -= 1
            if not waits[next_job]:
                ready.append(next_job)
    return max(end[job] + took.get(job, 0) for job in {*end, *took})


def test_ranks():
    out = trace(2)
    found, report = tasks(out), json.loads(stargrad("report", "--json", out))["trace"]
    check_order(found)
    names = [collections.Counter(t["Name"] for t in found if t["rank"] == rank) for rank in range(2)]
    assert names[0] == names[1], "what one rank ran the other did not"
    messages = [r for r in records(f"{out}/trace/comms.rec")]
    assert messages and {(m["Src"], m["Dst"]) for m in messages} == {("0", "1"), ("1", "0")}
    assert report["tasks"] == len(found) and report["messages"] == len(messages)
    check_sums(out, found, kinds(out), report)
    check_traffic(out, messages, report)
    check_chain(out, found, report)


def test_one_rank():
    out = trace(1)
    found, report = tasks(out), json.loads(stargrad("report", "--json", out))["trace"]
    check_order(found)
    check_sums(out, found, kinds(out), report)
    check_chain(out, found, report)


def check_chain(out, found, report):
    chain = report["critical_path"]
    assert chain["ms"] > 0 and abs(chain["ms"] - longest_chain(out, found)) <= 1e-2 * chain["ms"] and chain["ms"] <= report["ms"]
    assert abs(chain["ms"] - sum(chain["in"].values())) <= 1e-2 * chain["ms"]
    work = collections.Counter()
    for task in found:
        work[task["rank"]] += task["end"] - task["begin"]
    each = max(ms / len({t["WorkerId"] for t in found if t["rank"] == rank}) for rank, ms in work.items())
    bound = report["bound"]
    assert abs(bound["work_ms"] - each) <= 1e-2 * each and bound["ms"] == max(bound["work_ms"], chain["ms"]) <= report["ms"]


def check_traffic(out, messages, report):
    """What messages are of, by their handles' names; what is exposed of each is in sum what is exposed of all."""
    names = {(r["MPIRank"], r["Handle"]): r["Name"] for r in records(f"{out}/trace/data.rec") if "Name" in r}
    sent = collections.Counter(re.sub(" (from|reduced|sum).*", "", names[m["Src"], m["SendHandle"]]) for m in messages)
    assert {p["name"]: p["messages"] for p in report["traffic"]} == sent
    weights = [name for p in report["traffic"] if p["name"].startswith("bucket ") for name in p["of"]]
    assert sorted(weights) == sorted({name for name in names.values() if re.fullmatch(r"\S+\.(weight|bias)", name) and "optimizer" not in name})
    for rank in report["ranks"]:
        exposed = sum(p["exposed_ms"][rank["rank"]] for p in report["traffic"])
        assert abs(exposed - (rank["communication_ms"] - rank["hidden_ms"])) <= 1e-2 * rank["communication_ms"], (exposed, rank)


STATES = {**dict.fromkeys(("B", "Sc", "P", "C", "Su", "Bu", "H", "U", "Th"), "scheduling"), **dict.fromkeys(("Fi", "Po"), "fetching data")}


def states(out, rank, worker, count):
    """ms of the worker in StarPU's states; a state pushed within another counts as its own until it is popped."""
    start, end, stack, since, sums = *stretch(tasks(out)), [None], None, collections.Counter()
    container = f"{rank}_w{worker}" if count > 1 else f"w{worker}"
    with open(f"{out}/trace/paje.trace") as f:
        for line in f:
            field = line.rstrip("\n").split("\t")
            if field[0] not in ("10", "11", "12", "20") or field[2:4] != [container, "WS"]:
                continue
            now = min(end, max(start, float(field[1])))
            if since is not None:
                sums[STATES.get(stack[-1])] += now - since
            since = now
            if field[0] == "12":
                stack.pop()
            elif field[0] == "11":
                stack.append(field[4])
            else:
                stack = [field[4].strip('"')]
    sums[STATES.get(stack[-1])] += end - since
    return sums


def stretch(found):
    return min(t["begin"] for t in found), max(t["end"] for t in found)


def test_states():
    for count in (1, 2):
        out = trace(count)
        for row in json.loads(stargrad("report", "--json", out))["trace"]["workers"]:
            for name, ms in states(out, row["rank"], row["worker"], count).items():
                assert not name or abs(row["ms"][name] - ms) <= 1e-2 * ms + 0.1, f"{name}: {row['ms'][name]} in the report, {ms} in the trace"


def test_kinds():
    """Kinds of task are the trace's; of a trace that was written before it said which, the report says the same."""
    out = trace(1)
    with open(f"{out}/trace/kernels.json") as f:
        both = json.load(f)
    assert [kind["name"] for kind in both["kinds"]] == ["forward", "backward", "reduction", "update", "input"]
    now = json.loads(stargrad("report", "--json", out))["trace"]
    with open(f"{out}/trace/kernels.json", "w") as f:
        json.dump(both["kernels"], f)
    assert json.loads(stargrad("report", "--json", out))["trace"] == now
    both["kinds"][0]["name"] = "walk"
    both["kernels"] = {kernel: "walk" if kind == "forward" else kind for kernel, kind in both["kernels"].items()}
    with open(f"{out}/trace/kernels.json", "w") as f:
        json.dump(both, f)
    shares = json.loads(stargrad("report", "--json", out))["trace"]["workers"][0]["ms"]
    assert list(shares)[:2] == ["walk", "backward"] and shares["walk"] == now["workers"][0]["ms"]["forward"]


def test_memory():
    """What StarPU has allocated, at most and in its course: the weights and their momentum at least, which are there all the time."""
    for count in (1, 2):
        out = trace(count)
        start, end = stretch(tasks(out))
        for node in json.loads(stargrad("report", "--json", out))["trace"]["memory"]:
            name, used = (f"{node['rank']}_" if count > 1 else "") + f"mm{node['node']}", []
            with open(f"{out}/trace/paje.trace") as f:
                for line in f:
                    field = line.split("\t")
                    if field[0] == "13" and field[2:4] == [name, "use"] and float(field[1]) <= end:
                        used = (used if float(field[1]) > start else []) + [float(field[4]) * 2**20 / 1e6]
            assert abs(node["max_mb"] - max(used)) <= 1e-2 * max(used)
            assert min(mb for ms, mb in node["curve"]) > 2 * 4 * 270000 / 1e6 and max(mb for ms, mb in node["curve"]) == node["max_mb"]
        assert f"at most {node['max_mb']:.1f} MB" in stargrad("report", out)


def test_copies():
    """Copies between memory nodes, as StarPU's tool writes them where there are GPUs: this trace of none gets some."""
    out = trace(1)
    assert "copies" not in json.loads(stargrad("report", "--json", out))["trace"] and "MB to devices" not in stargrad("report", out)
    at = tasks(out)[0]["begin"]
    with open(f"{out}/trace/paje.trace", "a") as f:
        for number, (source, to, size, name) in enumerate(((0, 1, 4000000, "conv1.weight"), (0, 2, 4000000, "conv1.weight"), (0, 1, 1000000, "images#0"),
                                                           (1, 0, 2000000, "fc.weight gradient#1"), (1, 2, 500000, "images#0"), (0, 1, 300000, "images#1"))):
            f.write(f"24\t{at:.9f}\tF\tp\t{size}\tmm{source}\tcom_{number}\t5567b95a6650\t\"{name}\"\t0\t0\n"
                    f"11\t{at:.9f}\tmm{to}\tMS\tCo\n")
        for number, (to, size) in enumerate(((1, 4000000), (2, 4000000), (1, 1000000), (0, 2000000), (2, 500000))):     # the last has not arrived
            f.write(f"12\t{at:.9f}\tmm{to}\tMS\n19\t{at:.9f}\tF\tp\t{size}\tmm{to}\tcom_{number}\n")
    copies = json.loads(stargrad("report", "--json", out))["trace"]["copies"]
    assert copies["all"] == {"copies": 5, "to_devices_mb": 9, "to_host_mb": 2, "between_devices_mb": 0.5}, copies
    assert [(c["name"], c["copies"], c["to_devices_mb"]) for c in copies["tensors"]] == [("conv1.weight", 2, 8), ("fc.weight gradient", 1, 0), ("images", 2, 1)]
    assert re.search(r"conv1.weight +2 +8.00 +0.00 +0.00\n", stargrad("report", out))


def check_sums(out, found, kind, report):
    length = max(t["end"] for t in found) - min(t["begin"] for t in found)
    assert abs(report["ms"] - length) <= 1e-3
    for row in report["workers"]:
        sums = collections.Counter()
        for t in found:
            if (t["rank"], int(t["WorkerId"])) == (row["rank"], row["worker"]):
                sums[kind[t["Model"]]] += t["end"] - t["begin"]
        for name, ms in sums.items():
            assert abs(row["ms"][name] - ms) <= 1e-2 * ms, f"{name}: {row['ms'][name]} in the report, {ms} in the trace"
        assert abs(sum(row["ms"].values()) - length) <= 1e-2 * length
    layers = sum(layer["ms"] for layer in report["layers"])
    assert abs(layers - sum(t["end"] - t["begin"] for t in found)) <= 1e-2 * layers
    roofs = {(w["rank"], w["worker"]): w for w in json.load(open(f"{out}/trace/roof.json"))}
    assert all(w["gflops"] > 1 and w["gbytes"] > 0.1 for w in roofs.values()), roofs
    least = sum(roof_ms(t, roofs[t["rank"], int(t["WorkerId"])]) for t in found)
    assert abs(sum(layer["roof_ms"] for layer in report["layers"]) - least) <= 1e-2 * least


def test_pictures():
    out = trace(1)
    said = stargrad("report", out)
    if not shutil.which("gnuplot"):
        raise Skip("there is no gnuplot")
    assert "gantt.svg" in said
    with open(f"{out}/gantt.svg") as f:
        assert "worker 0" in f.read()


def test_compare():
    one, other = trace(1), trace(2, "--lr", 0.05)
    report = json.loads(stargrad("report", "--json", one, other))
    assert [run["folder"] for run in report["runs"]] == [one, other] and report["set otherwise"]["lr"] == [0.1, 0.05]
    for run, folder_of in zip(report["runs"], (one, other)):
        assert abs(sum(run["% of the traced steps"].values()) - 100) <= 1, run
        assert run["steps"] == 4 and folder_of == run["folder"]


def test_colors():
    """A kind has one colour everywhere; Paje's go from 0 to 1."""
    out = trace(1)
    with open(f"{out}/trace/paje.trace") as f:
        colors = dict(re.findall(r'^6\t"(.*?)"\tWS\t.*\t"(.*?)"', f.read(), re.M))
    assert all(0 <= float(x) <= 1 for color in colors.values() for x in color.split())
    forward = {color for name, color in colors.items() if re.search(r" fused forward #[0-9]+$", name)}
    backward = {color for name, color in colors.items() if re.search(r" fused backward #[0-9]+$", name)}
    assert len(forward) == len(backward) == 1 and forward != backward


def test_ends_with_the_run():
    """Of a trace up to the last step, the evaluation after it is no part."""
    out = folder("trace-last")
    stargrad(*NETWORK, "--steps", 3, "--trace", "2-3", "--out", out)
    assert {t["Iteration"] for t in tasks(out)} == {"2", "3"}


def test_marks():
    """On the axis of time, each rank marks where a step ends."""
    with open(f"{trace(2)}/trace/paje.trace") as f:
        marks = re.findall(r'^9\t[0-9.]+\tprog_event\t(\d)_p\t"step (\d+)"', f.read(), re.M)
    assert sorted(marks) == [("0", "2"), ("0", "3"), ("1", "2"), ("1", "3")], marks


def test_window():
    """Where in paje.trace the traced steps are: what the report tells for ViTE holds all tasks, and little else."""
    out = trace(1)
    first, last = map(int, re.search(r"with ViTE \(range in ms\): vite -t (\d+):(\d+) .*paje.trace", stargrad("report", out)).groups())
    start, end = stretch(tasks(out))
    assert start - 1 < first <= start and end <= last < end + 1, (first, last, start, end)


def test_vite():
    if not shutil.which("vite"):
        raise Skip("there is no vite")
    out = trace(2)
    picture = f"{out}/vite.svg"
    subprocess.run(["vite", "-e", picture, f"{out}/trace/paje.trace"], env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
                   check=True, capture_output=True, timeout=120)
    with open(picture) as f:
        assert "<rect" in f.read()


def refused(out, name, text, says):
    """With this text for a file of the trace, one line says what is wrong, and with which."""
    with open(f"{out}/trace/{name}", "w") as f:
        f.write(text)
    said = stargrad("report", out, status=1)
    assert f"{name}: " in said and says in said and said.count("\n") == 1, said


def test_broken_of_ranks():
    out = trace(2)
    for name, foreign in (("comms.rec", 'not "Key: value"'), ("data.rec", 'not "Key: value"'), ("paje.trace", "is not a Paje trace")):
        with open(f"{out}/trace/{name}") as f:
            whole = f.read()
        cut = whole.index("\t" if name == "paje.trace" else ": ", len(whole) // 2) + 2
        refused(out, name, whole[:cut], "the file ends within")
        refused(out, name, "what is this\n", foreign)
        os.rename(f"{out}/trace/{name}", f"{out}/trace/away")
        assert f"{name}: No such file" in stargrad("report", out, status=1)
        with open(f"{out}/trace/{name}", "w") as f:
            f.write(whole)
    stargrad("report", out)


def test_events_cut_short():
    """A disk that is full in the middle of StarPU's events: training ends as ever, one line says that the trace is not whole."""
    def full():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    limit, out = 1 << 20, folder("cut")
    words = ("--model", "convnet", "--data", "digits", "--batch", 16, "--micro-batch", 1, "--steps", 40, "--trace", "11-40", "--out", out)
    done = subprocess.run(command("train", *words), capture_output=True, text=True, preexec_fn=full, timeout=600)
    assert done.returncode == 0 and done.stderr.count("the events of rank 0 end too soon") == done.stderr.count("stargrad: ") == 1, done.stderr


def test_broken():
    out = trace(1)
    path = f"{out}/trace/tasks.rec"
    with open(path) as f:
        whole = f.read()
    cut = whole.index("EndTime: ", len(whole) // 2) + 12
    for text, says in (("", "contains no tasks"), ("what is this\n", 'not "Key: value"'), (whole.replace("EndTime: ", "EndTime: -", 1), "the times of a task are invalid"),
                       (whole[:cut], "the file ends within a record")):
        refused(out, "tasks.rec", text, says)
    os.remove(path)
    assert "tasks.rec: No such file" in stargrad("report", out, status=1)
    os.remove(f"{out}/trace/kernels.json")
    assert "trace the run again" in stargrad("report", out, status=1)


if __name__ == "__main__":
    main(globals())
