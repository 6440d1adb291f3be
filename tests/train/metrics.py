"""--tensorboard writes a file that TensorBoard reads, also with --histograms; --prometheus answers during the run; config.json
contains the environment."""
import bisect
import collections
import glob
import json
import math
import os
import socket
import struct
import subprocess
import urllib.request

from run import Skip, by_rank, command, content, events, folder, has_open_mpi, losses, main, mpirun, ranks, stargrad, wait_until

NETWORK = ("train", "--model", "lenet", "--data", "synthetic:28x28x1,10,640", "--batch", 64)


def checksum(data):
    """CRC-32C, masked as TFRecord wants it."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """{number: value} of a protobuf message, each number once."""
    at, found = 0, {}
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            found[key >> 3], at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            found[key >> 3], at = data[at:at + size], at + size
        else:
            form = {1: "<d", 5: "<f"}[key & 7]
            found[key >> 3], = struct.unpack_from(form, data, at)
            at += struct.calcsize(form)
    return found


def values(out):
    """{tag: [(step, fields of its Value)]} of the run's event files, in the order of their names. As TensorBoard does, drops what begins
    with the step of a START before it."""
    found = {}
    for path in sorted(glob.glob(f"{out}/tensorboard/events.out.tfevents.*")):
        read_file(path, found)
    return found


def read_file(path, found):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        (size,), (of_size,) = struct.unpack_from("<Q", data, at), struct.unpack_from("<I", data, at + 8)
        event = data[at + 12:at + 12 + size]
        assert checksum(data[at:at + 8]) == of_size and checksum(event) == struct.unpack_from("<I", data, at + 12 + size)[0]
        at += size + 16
        event = fields(event)
        if 5 in event:
            value = fields(fields(event[5])[1])
            found.setdefault(value[1].decode(), []).append((event[2], value))
        elif 7 in event:
            assert fields(event[7]) == {1: 1}, "no START"
            for told in found.values():
                told[:] = [(step, value) for step, value in told if step < event[2]]
        else:
            assert event[3] == b"brain.Event:2"


def scalars(out):
    return {tag: [(step, value[2]) for step, value in told] for tag, told in values(out).items() if 2 in told[0][1]}


Histogram = collections.namedtuple("Histogram", "min max num sum sum_squares limits counts")


def histograms(out):
    """{tag: {step: Histogram}}"""
    def read(value):
        h = fields(value[5])
        limits, counts = ([x for x, in struct.iter_unpack("<d", h[i])] for i in (6, 7))
        return Histogram(*(h[i] for i in range(1, 6)), limits, counts)
    return {tag: {step: read(value) for step, value in told} for tag, told in values(out).items() if 5 in told[0][1]}


def weights(path):
    """{name: numbers} of a safetensors file of floats."""
    data = content(path)
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[8 + size:][slice(*t["data_offsets"])])
            for name, t in header.items()}


def run(*more):
    out = folder("tensorboard")
    stargrad(*NETWORK, "--epochs", 2, "--tensorboard", *more, "--out", out)
    return out


def test_tensorboard():
    out = run()
    found = scalars(out)
    for name, key in (("train/loss", "loss"), ("train/learning_rate", "lr")):
        told = [(e["step"], e[key]) for e in events(out)]
        assert [step for step, _ in found[name]] == [step for step, _ in told]
        assert all(abs(a[1] - b[1]) <= 1e-6 * abs(b[1]) for a, b in zip(found[name], told)), name
    assert [step for step, _ in found["test/top1"]] == [10, 20]
    assert all(0 <= share <= 1.01 for _, share in found["busy/cpu0"]) and any(share > 0.1 for _, share in found["busy/cpu0"])


def test_tensorboard_of_a_run_that_goes_on():
    """Each step once, whatever a killed run had told of steps that come again; twice within a second, too."""
    out = folder("tensorboard")
    stargrad(*NETWORK, "--steps", 25, "--checkpoint-every", "10s", "--tensorboard", "--out", out)
    for name in ("checkpoint-25.safetensors", "model.safetensors"):
        os.remove(f"{out}/{name}")
    for _ in range(2):
        stargrad("train", "--out", out, "--resume")
        os.remove(f"{out}/checkpoint-25.safetensors")
    found = scalars(out)
    assert [step for step, _ in found["train/loss"]] == list(range(1, 26)), found["train/loss"]
    assert [step for step, _ in found["test/top1"]] == [10, 20, 25], found["test/top1"]


def test_workers_of_all_ranks():
    alone, out = folder("alone"), folder("together")
    words = (*NETWORK, "--steps", 8, "--deterministic", "--out")
    ranks(2, *words, alone)
    ranks(2, *words, out, "--tensorboard")
    found = scalars(out)
    assert sorted(name for name in found if name.startswith("busy/")) == ["busy/rank0/cpu0", "busy/rank1/cpu0"]
    for name in ("busy/rank0/cpu0", "busy/rank1/cpu0"):
        assert [step for step, _ in found[name]] == list(range(1, 9))
        assert all(0 <= share <= 1.01 for _, share in found[name]) and any(share > 0.1 for _, share in found[name]), found[name]
    assert losses(out) == losses(alone)


def close(a, b, scale):
    return abs(a - b) <= 1e-6 * scale


def test_histograms():
    alone, out = folder("alone"), folder("histograms")
    words = (*NETWORK, "--epochs", 2, "--deterministic", "--out")
    stargrad(*words, alone)
    stargrad(*words, out, "--tensorboard", "--histograms", 5)
    assert losses(out) == losses(alone) and content(out) == content(alone)
    found, numbers = histograms(out), weights(out)
    assert sorted(found) == sorted(f"{kind}/{name}" for kind in ("gradients", "weights") for name in numbers)
    assert all(list(h) == [5, 10, 15, 20] for h in found.values())
    for name, x in numbers.items():
        h = found[f"weights/{name}"][20]        # of the last step: what the run leaves
        assert h.num == len(x) and h.min == min(x) and h.max == max(x)
        assert close(h.sum, math.fsum(x), h.num) and close(h.sum_squares, math.fsum(w * w for w in x), h.num)
        counts = [0] * len(h.limits)
        for w in x:
            counts[bisect.bisect_right(h.limits, w)] += 1
        assert h.counts == counts and len([c for c in counts if c]) > 1, name


def test_histograms_of_gradients():
    """Without momentum and decay, a step is the gradient times the rate."""
    start, out = folder("start"), folder("gradients")
    plain = ("--steps", 1, "--momentum", 0, "--weight-decay", 0, "--lr", 0.5, "--deterministic")
    stargrad(*NETWORK, *plain, "--out", start)
    stargrad(*NETWORK, *plain, "--init", f"{start}/model.safetensors", "--tensorboard", "--histograms", 1, "--out", out)
    before, after, found = weights(start), weights(out), histograms(out)
    for name in before:
        gradient = [(b - a) / 0.5 for b, a in zip(before[name], after[name])]
        h = found[f"gradients/{name}"][1]
        assert h.num == len(gradient) and close(h.min, min(gradient), 1) and close(h.max, max(gradient), 1), name
        assert close(h.sum, math.fsum(gradient), h.num) and h.sum_squares > 0, name


def test_histograms_of_ranks():
    """Two ranks sum to what one has, to the bit, and rank 0 tells it."""
    one, two = folder("one"), folder("two")
    words = (*NETWORK, "--steps", 6, "--clip-norm", 1, "--deterministic", "--tensorboard", "--histograms", 3, "--out")
    stargrad(*words, one)
    ranks(2, *words, two)
    assert histograms(one) == histograms(two) and len(histograms(two)) == 20


def test_histograms_refused():
    for words, why in ((("--histograms", 5), "--tensorboard"), (("--histograms", 5, "--tensorboard", "--strategy", "ps"), "ps")):
        said = stargrad(*NETWORK, *words, "--out", folder("refused"), status=2)
        assert "--histograms" in said and why in said and said.count("\n") == 1, said


def test_tensorboards_own_reader():
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError:
        raise Skip("there is no tensorboard") from None
    out = run("--histograms", 10)
    file, = glob.glob(f"{out}/tensorboard/events.out.tfevents.*")
    reader = EventAccumulator(file, size_guidance={"histograms": 0})
    reader.Reload()
    assert [e.step for e in reader.Scalars("train/loss")] == [e["step"] for e in events(out)]
    for tag, told in histograms(out).items():
        assert [(e.step, e.histogram_value.num, list(e.histogram_value.bucket)) for e in reader.Histograms(tag)] == \
            [(step, h.num, h.counts) for step, h in told.items()]
    shown = [v for e in EventFileLoader(file).Load() for v in e.summary.value if v.metadata.plugin_data.plugin_name == "histograms"]
    assert len(shown) == 40 and all(make_ndarray(v.tensor)[:, 2].sum() > 0 for v in shown)      # as its page draws them


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, process):
    """What /metrics says, as soon as a step has ended."""
    said = {}

    def answers():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if not line.startswith("#")]
        said.update((name, float(value)) for name, value in lines)
        return said

    wait_until(answers, process)
    assert said, f"the run ended before it answered: {process.communicate()[1]}"
    return said


def test_prometheus():
    port = free_port()
    words = command(*NETWORK, "--epochs", 1000, "--prometheus", port, "--out", folder("prometheus"))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        values = ask(port, process)
        assert 0 < values["stargrad_train_loss"] < 10 and abs(values["stargrad_train_learning_rate"] - 0.1) < 1e-6
        assert 0 <= values["stargrad_busy_cpu0"] <= 1.01
        said = stargrad(*NETWORK, "--prometheus", port, "--out", folder("second"), status=1)
        assert f"127.0.0.1:{port}: Address already in use" in said and said.count("\n") == 1, said
    finally:
        process.terminate()
        process.communicate()


def environment(path):
    return json.loads(content(path, "config.json"))["environment"]


def test_environment():
    one, other = folder("environment"), folder("other")
    private = {"STARPU_HOME": folder("home"), "STARPU_HOSTNAME": "xyzzy", "SECRET": "xyzzy"}
    stargrad(*NETWORK, "--steps", 2, "--out", one, env={"STARPU_SCHED": "prio", "OMP_NUM_THREADS": "3", **private})
    stargrad(*NETWORK, "--steps", 2, "--out", other, env=private)
    told = environment(one)
    assert told["STARPU_SCHED"] == "prio" and told["OMP_NUM_THREADS"] == "3" and told["STARPU_SILENT"] == "1", told
    assert all(name.startswith(("STARPU_", "OMPI_MCA_", "MPIR_CVAR_", "OMP_NUM_THREADS", "ONEDNN_")) for name in told), told
    assert "STARPU_HOME" not in told and "xyzzy" not in content(one, "config.json").decode()
    report = json.loads(stargrad("report", one, other, "--json"))
    assert report["set otherwise"]["STARPU_SCHED"] == ["prio", environment(other).get("STARPU_SCHED")]
    assert '"prio"' in stargrad("report", one, other)
    stargrad(*NETWORK, "--steps", 4, "--out", one, "--resume", env={"STARPU_SCHED": "eager"})
    assert environment(one)["STARPU_SCHED"] == "prio"
    assert json.loads(content(one, "config.json"))["continued"][0]["environment"]["STARPU_SCHED"] == "eager"


def test_hosts_and_job():
    """A job of Slurm, and the ranks of each host; each continuation has its own."""
    out = folder("job")
    stargrad(*NETWORK, "--steps", 2, "--out", out, env={"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2"})
    mpirun(2, command(*NETWORK, "--steps", 4, "--cpus", 1, "--resume", "--out", out), env={"SLURM_JOB_ID": "18", "SLURM_RESTART_COUNT": "3"})
    stargrad(*NETWORK, "--steps", 6, "--resume", "--out", out)
    config = json.loads(content(out, "config.json"))
    first, second, third = config, *config["continued"]
    assert list(first["hosts"].values()) == list(third["hosts"].values()) == [[0]] and list(second["hosts"].values()) == [[0, 1]], config
    assert first["job"] == {"id": "17", "array": "15_2", "restarts": 0} and second["job"] == {"id": "18", "restarts": 3} and "job" not in third


def test_environment_of_ranks():
    out = folder("ranks")
    words = command(*NETWORK, "--steps", 2, "--cpus", 1, "--out", out)
    mpirun(2, by_rank(*(["env", f"STARPU_SCHED={name}", *words] for name in ("prio", "eager"))))
    told = environment(out)
    assert told["STARPU_SCHED"] == "prio" and told["STARPU_MPI_NDETACHED_SEND"] == "2", told
    assert ("OMPI_MCA_btl_tcp_eager_limit" in told) == has_open_mpi(), told
    assert not any(name.startswith(("OMPI_MCA_orte", "OMPI_MCA_ess")) for name in told)


if __name__ == "__main__":
    main(globals())
