#!/bin/bash
# The limit of a network on this machine: the figures of bench add up, and it leaves no files.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

network=(--model convnet --data digits --batch 64 --micro-batch 16 --cpus 2)
passes bench "${network[@]}" --json
python3 - <<'END' || wrong 'bench: its figures do not add up'
import json
b = json.load(open("out"))
kernels = {k["kernel"]: k for k in b["kernels"]}
assert b["batch"] == 64 and b["workers"] == 2
assert 0 < b["limit_ms"] and 0 < b["step_ms"], b
assert abs(b["share"] - b["limit_ms"] / b["step_ms"]) < 1e-6
# Two equal workers share the work; "equal" on a busy machine is meant loosely.
assert 0.25 < b["limit_ms"] / sum(k["ms"] for k in b["kernels"]) < 0.75, b
assert b["memory_gbyte"] > 0 and b["memory_ms"] > 0, b
assert abs(b["gflop"] - sum(k["gflop"] for k in b["kernels"])) < 1e-9 and b["arithmetic_ms"] > 0, b
# Without its work a step is what the tasks themselves take.
assert b["tasks"] > 4 and 0 < b["submission_ms"] and 0 < b["tasks_ms"] < b["step_ms"], b
assert [k["ms"] for k in b["kernels"]] == sorted((k["ms"] for k in b["kernels"]), reverse=True)
for name in "conv2d forward", "conv2d backward-weight", "batchnorm stats", "sgd":
    assert kernels[name]["ms"] > 0 and kernels[name]["gbyte"] > 0, name
assert kernels["conv2d forward"]["calls"] % 4 == 0      # micro-batches
END
[ -z "$(ls -d runs 2>/dev/null)" ] || wrong 'bench: made a folder'

# Tasks move no more than their operations would, each alone; parts of an update do not count the whole each.
passes bench --model mlp --data synthetic:32x32x3,10,64 --batch 64 --micro-batch 8 --cpus 2 --json
python3 - <<'END' || wrong 'bench: memory is more than all operations move'
import json
b = json.load(open("out"))
assert 0 < b["memory_gbyte"] <= sum(k["gbyte"] for k in b["kernels"]), b
END

passes bench "${network[@]}"
says '^steps .* of the limit$'
says '^memory [0-9.]* GB a step, [0-9.]* ms at '
says '^arithmetic [0-9.]* GFlop a step, [0-9.]* ms at '
says '^submission [0-9]* tasks a step, which one thread submits in [0-9.]* ms'
says '^tasks [0-9.]* ms a step if no task computes, on 2 workers with scheduler '
says '^largest limit: \(arithmetic\|kernels\|memory\|submission\|tasks\)$'
refuses 2 'bench: --model NAME is missing' bench --data digits
refuses 2 "unknown model 'resnet21'" bench --model resnet21 --data digits
