#!/bin/bash
# stargrad plan: every machine file is read, figures add up, published rows are reproduced, errors are clear.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
unset STARGRAD_PICTURES

machines=$srcdir/machines
small=(--model resnet20 --data synthetic:32x32x3,10,50000)
for file in "$machines"/*.json; do
	passes plan --model mlp --data digits --machine "$file" --nodes 2
	says '^ *2 '
done

# A machine is found by its name; a file of that name is not needed, and a path is still a path.
passes list machines
for file in "$machines"/*.json; do
	name=$(basename "$file" .json)
	says "^$name  *[^ ]"
	"$STARGRAD" plan --model mlp --data digits --machine "$name" --nodes 2 >named 2>err || wrong "plan does not know $name"
	"$STARGRAD" plan --model mlp --data digits --machine "$file" --nodes 2 >by_path 2>err
	cmp -s named by_path || wrong "plan --machine $name is not that of $file"
done
cp "$machines/titan.json" mine
passes plan --model mlp --data digits --machine mine --nodes 2
cp mine titan
sed -i 's/"summary": "/&not /' titan
passes plan --model mlp --data digits --machine ./titan --nodes 2
refuses 2 "unknown machine 'titn'; did you mean 'titan'? The known ones are h100-8, .*, titan, xeon-amx" plan --model mlp --data digits --machine titn
refuses 2 "unknown machine 'summit'; give one of h100-8, .*, or the path" plan --model mlp --data digits --machine summit
echo '{"name": "mine", "summary": "s", "device": {"kind": "cpu", "count": 1}}' >few.json
refuses 1 'few.json: missing: device.name, device.memory, .*, network.bandwidth; device.count: is not a figure; .*plan --help' \
	plan --model mlp --data digits --machine few.json

# Whatever rate a file has, of a network with what options are told, plans of that network know; those of another do not.
python3 -c '
import json, sys
for file in sys.argv[1:]:
    for rate in json.load(open(file)).get("measured", []):
        print(file, rate["model"], rate.get("precision", "f32"))' "$machines"/*.json >rates
[ "$(wc -l <rates)" -ge 12 ] || wrong 'the files of machines have no rates'
while read -r file model precision; do
	passes plan --model "$model" --precision "$precision" --data synthetic:224x224x3,10,50000 --machine "$file" --nodes 1
	says '^calibrated: '
done <rates
sed 's/"resnet50"/"resnet50:smal=1"/' "$machines/minsky-p100.json" >misspelt.json
refuses 1 'misspelt.json: measured\[0\].model: .*unknown option .smal.; did you mean small' plan --model mlp --data digits --machine misspelt.json
passes plan --model resnet50:small=1 --data synthetic:224x224x3,10,50000 --machine "$machines/minsky-p100.json" --nodes 1
says '^not calibrated: '

# Weak scaling, then strong, and what does not overlap.
passes plan "${small[@]}" --machine "$machines/iris-v100.json" --nodes 1-6 --json
mv out weak
passes plan "${small[@]}" --machine "$machines/iris-v100.json" --nodes 1-6 --json --batch 1536 --overlap none --efficiency 0.8
python3 - <<'END' || wrong 'plan: its figures do not add up'
import json
weak, strong = json.load(open("weak")), json.load(open("out"))
assert [p["nodes"] for p in weak["points"]] == [1, 2, 4, 6] and weak["overlap"] == "full" and strong["overlap"] == "none"
for p in weak["points"] + strong["points"]:
    assert p["gpus"] == 4 * p["nodes"] and p["method"] == "formula" and p["fits"] is True
    assert abs(p["samples_per_second"] * p["step_seconds"] / p["batch"] - 1) < 1e-6
    assert abs(p["speedup"] / p["gpus"] / p["efficiency"] - 1) < 1e-6 and 0 < p["efficiency"] <= 1.0001
    assert p["exposed_seconds"] >= -1e-12 and p["memory_bytes"] > 1e6
assert [p["batch"] for p in weak["points"]] == [512, 1024, 2048, 3072]
assert [p["batch"] for p in strong["points"]] == [1536] * 4
assert strong["points"][3]["efficiency"] < weak["points"][3]["efficiency"]
assert strong["gpus"] >= 1 and strong["lemma_gpus"] >= 1
END

# What train refuses is not estimated: a batch that nodes cannot share, and more nodes than the highest switch has room for.
refuses 2 '--batch 100 cannot be divided among 3 nodes' plan "${small[@]}" --machine "$machines/iris-v100.json" --batch 100 --nodes 3
warns 1 '--batch 96 cannot be divided among 64 nodes, so these are left out' plan "${small[@]}" --machine "$machines/iris-v100.json" --batch 96 --nodes 1-64
says '^ *32 '
python3 - "$machines/iris-v100.json" <<'END'
import json, sys
machine = json.load(open(sys.argv[1]))
one = {"name": "only", "nodes": {"value": 2, "source": "a test"}}
below = {"name": "leaf", "nodes": {"value": 2, "source": "a test"}, "uplink": {"value": 1e10, "source": "a test"}, "above": "only"}
for name, switches in (("two", [one]), ("leaves", [below, {**one, "nodes": {"value": 6, "source": "a test"}}]), ("less", [below, one])):
    machine["network"].pop("torus", None)
    machine["network"]["switches"] = switches
    json.dump(machine, open(name + ".json", "w"))
END
refuses 2 'two.json: the highest switch supports 2 nodes, not 4' plan "${small[@]}" --machine two.json --nodes 4
refuses 2 'leaves.json: the highest switch supports 6 nodes' plan "${small[@]}" --machine leaves.json --nodes 1-8
refuses 2 'two.json: the highest switch' plan "${small[@]}" --machine two.json --nodes 1-3 --mesh auto --batch 24
refuses 1 'less.json: network.switches.1..nodes: is 2, but must be larger' plan "${small[@]}" --machine less.json --nodes 1
passes plan "${small[@]}" --machine leaves.json --nodes 6
passes plan "${small[@]}" --machine two.json
says '^ *2 '

# Meshes are priced with the optimizers that train each parameter, and with slow weights. LAMB and slow weights need whole parameters.
meshed=(plan --model gpt:layers=2,heads=2,width=32,context=16,vocabulary=256 --data "text:$srcdir/tests/reference/text.txt,16" --batch 8
	--machine "$machines/iris-v100.json" --nodes 1 --json)
passes "${meshed[@]}" --mesh tensor=1d:2
mv out tensor
passes "${meshed[@]}" --mesh tensor=1d:2 --optimizer-of 'transformer.h.*=adam'
mv out adam
passes "${meshed[@]}" --mesh tensor=1d:2 --optimizer-of 'transformer.h.*=lamb'
mv out lamb
passes "${meshed[@]}" --mesh tensor=1d:2 --lookahead 5
mv out slow_tensor
passes "${meshed[@]}" --mesh pipe=2
mv out pipe
passes "${meshed[@]}" --mesh pipe=2 --lookahead 5
mv out slow_pipe
python3 - <<'END' || wrong 'plan: meshes are priced without --lookahead or --optimizer-of'
import json
kinds = {name: json.load(open(name))["points"][-1]["kinds"] for name in ("tensor", "adam", "lamb", "slow_tensor", "pipe", "slow_pipe")}
assert kinds["tensor"][0]["memory_bytes"] < kinds["adam"][0]["memory_bytes"], kinds
assert kinds["pipe"][0]["memory_bytes"] < kinds["slow_pipe"][0]["memory_bytes"], kinds
assert not kinds["lamb"] and not kinds["slow_tensor"], kinds
END

# FireCaffe: Iandola et al. 2016, 128 GPUs: 39 times as fast as one.
passes plan --model nin_imagenet --data synthetic:224x224x3,1000,1281167 --machine "$machines/titan.json" --batch 1024 \
	--nodes 32-128 --allreduce tree --overlap none --json
python3 - <<'END' || wrong 'plan: FireCaffe had 23 and 39'
import json
got = {p["nodes"]: p["speedup"] for p in json.load(open("out"))["points"]}
assert abs(got[32] / 23 - 1) < .1 and abs(got[128] / 39 - 1) < .1, got
END

# Second order: several devices share decompositions out, and with lw what gradients are multiplied with; weights wait for all
# gradients, as they do where these are clipped.
iris=(--machine "$machines/iris-v100.json" --micro-batch 8)
passes plan "${small[@]}" "${iris[@]}" --nodes 1-8 --json --optimizer kfac --kfac-variant lw
mv out second
passes plan "${small[@]}" "${iris[@]}" --nodes 8 --json
mv out first
passes plan "${small[@]}" "${iris[@]}" --nodes 8 --json --clip-norm 1
python3 - <<'END' || wrong 'plan: second order, or clipping, does not add up'
import json
second, first, clipped = (json.load(open(name))["points"] for name in ("second", "first", "out"))
assert first[0]["compute_seconds"] < second[-1]["compute_seconds"] < second[0]["compute_seconds"], (first, second)
assert second[-1]["communication_seconds"] > first[0]["communication_seconds"]
assert clipped[0]["step_seconds"] > first[0]["step_seconds"]
END

# One mesh, and all of them.
head -c 4096 /dev/zero >text
gpt=(--model gpt:layers=1,heads=4,width=32,context=16 --data text:text,16 --batch 16 --machine "$machines/iris-v100.json" --nodes 1)
passes plan "${gpt[@]}" --mesh tensor=2d:2 --json
cp out one
passes plan "${gpt[@]}" --mesh auto --json
python3 - <<'END' || wrong 'plan --mesh: not the mesh that was asked for'
import json
one, all_ = (json.load(open(name))["points"][0]["kinds"] for name in ("one", "out"))
assert [k["mesh"] for k in one] == ["tensor=2d:2"], one
assert one[0]["step_seconds"] in [k["step_seconds"] for k in all_ if k["mesh"] == "tensor=2d:2"], (one, all_)
END

passes plan --model lenet --data synthetic:28x28x1,10,1000 --machine "$machines/titan.json" --mini-batch 1-4 --workspace 64
says '^ *4 .* [1-9][0-9]* [a-z]'
if command -v gnuplot >/dev/null; then
	passes plan "${small[@]}" --machine "$machines/titan.json" --nodes 1-8 --out pictures
	[ -s pictures/plan.svg ] && [ -s pictures/plan.png ] || wrong 'plan: no picture'
fi

# The same trainer on simulated machines: within a tenth of the formulas where tasks are long, on one node, and with messages.
simulated=${STARGRAD_SIMULATED:-$(dirname "$STARGRAD")/simulate/stargrad}
if [ -r "$simulated" ] && command -v smpirun >/dev/null; then
	STARGRAD_MAX_ISA=avx2 passes plan --simulate --model resnet20 --data synthetic:32x32x3,10,50000 --machine "$machines/titan.json" --nodes 1-2 --json
	python3 - <<'END' || wrong 'plan --simulate: not what the formulas say'
import json
points = json.load(open("out"))["points"]
assert [p["method"] for p in points] == ["simulated"] * 2
for p in points:
    assert abs(p["step_seconds"] / p["formula_step_seconds"] - 1) < .1, p
    assert abs(p["samples_per_second"] * p["step_seconds"] / p["batch"] - 1) < 1e-6
assert points[1]["step_seconds"] > points[0]["step_seconds"]
END
	# Where all nodes do alike, two stand for all: a step takes as long as with every node.
	four=(--simulate --model resnet20 --data synthetic:32x32x3,10,50000 --machine "$machines/titan.json" --nodes 4 --json)
	passes plan "${four[@]}"
	cp out two.json
	passes plan "${four[@]}" --every-node
	cp out every.json
	python3 - <<'END' || wrong 'plan --simulate: two nodes do not stand for all'
import json
two, every = (json.load(open(f"{name}.json"))["points"][0]["step_seconds"] for name in ("two", "every"))
assert abs(two / every - 1) < .02, (two, every)
END
	# Servers, too; where they answer whoever comes first, one is busier than four.
	served=(--simulate --model lenet --data synthetic:28x28x1,10,60000 --machine "$machines/titan.json" --nodes 4 --json)
	passes plan "${served[@]}" --strategy ps --servers 2
	passes plan "${served[@]}" --strategy async --servers 4
	cp out four.json
	passes plan "${served[@]}" --strategy async --servers 1
	python3 - <<'END' || wrong "plan --simulate --strategy async: one server is as good as four"
import json
four, one = (json.load(open(name))["points"][0] for name in ("four.json", "out"))
assert four["method"] == one["method"] == "simulated" and 0 < four["step_seconds"] < one["step_seconds"], (four, one)
END
	# What the rank beside the server pushes does not cross the network, which the other's has for itself.
	python3 - "$machines/titan.json" <<'END' >slow.json
import json, sys
machine = json.load(open(sys.argv[1]))
machine["network"] = {"latency": {"value": 1e-5, "source": "a test"}, "bandwidth": {"value": 1e5, "source": "a test"}}
json.dump(machine, sys.stdout)
END
	passes plan --simulate --model lenet --data synthetic:28x28x1,10,60000 --machine slow.json --nodes 2 --json --strategy async --servers 1
	python3 - <<'END' || wrong "plan --simulate --strategy async: a rank's own server is across the network"
import json
point = json.load(open("out"))["points"][0]
assert 0 < point["step_seconds"] < .6 * point["communication_seconds"], point
END
	# Whoever sends and receives 0.5 MB a step, at 0.1 us a byte, has 49 ms of work more.
	for carrying in 0 1e-7; do
		python3 - "$machines/xeon-amx.json" $carrying <<'END' >carrying.json
import json, sys
machine = json.load(open(sys.argv[1]))
machine["device"]["workers"]["value"] = 1
machine["network"]["carrying"] = {"value": float(sys.argv[2]), "source": "a test"}
json.dump(machine, sys.stdout)
END
		for strategy in sync async; do
			passes plan --simulate --model lenet --data synthetic:28x28x1,10,60000 --machine carrying.json --nodes 2 --json \
				--strategy "$strategy"
			cp out "carried-$strategy-$carrying.json"
		done
	done
	python3 - <<'END' || wrong 'plan --simulate: what workers do about messages takes no time, or too much'
import json
for strategy in "sync", "async":
    light, heavy = (json.load(open(f"carried-{strategy}-{seconds}.json"))["points"][0]["step_seconds"] for seconds in ("0", "1e-7"))
    assert .8 * .0494 < heavy - light < 1.2 * .0494, (strategy, light, heavy)
END
	if "$STARGRAD" plan "${small[@]}" --simulate --machine "$machines/titan.json" --nodes 2 --trace --out traced >out 2>err; then
		[ -s traced/nodes-2/trace/paje.trace ] || wrong 'plan --simulate --trace: no trace for ViTE'
		passes report traced/nodes-2 --json
		python3 - <<'END' || wrong 'report: not of the simulated run'
import json
trace = json.load(open("out"))["trace"]
assert trace["tasks"] > 100 and trace["messages"] > 0 and len(trace["ranks"]) == 2, trace
END
	elif grep -q 'this build has no FxT' err; then
		echo 'no traces of simulated runs: their StarPU was built without FxT'
	else
		wrong "plan --simulate --trace: $(cat err)"
	fi
else
	echo "not simulated: $simulated is not there (./quickstart simulate builds it)"
fi
STARGRAD_SIMULATED=none refuses 1 'none: the simulated trainer cannot be read' plan --simulate "${small[@]}" --machine "$machines/titan.json"
refuses 2 'plan: --simulate does not support --mesh' plan --simulate "${small[@]}" --machine "$machines/titan.json" --mesh data=2
refuses 2 'plan: --simulate cannot be combined with --overlap none' plan --simulate "${small[@]}" --machine "$machines/titan.json" --overlap none

# Memory: the choices that fit into a limit, with a disk that is fast or slow, and the picture of a step. The memory of the process
# depends on its libraries.
few=(--model resnet20 --data synthetic:32x32x3,10,512)
passes plan "${few[@]}" --batch 128 --memory 1G --machine "$machines/xeon-amx.json" --json
limit=$(python3 -c 'import json; print(int(json.load(open("out"))["choices"][0]["memory_bytes"] / 2**20) - 110)')M
for speed in 1e12 2e7; do
	python3 -c '
import json, sys
machine = json.load(open(sys.argv[1]))
machine["disk"] = {way: {"value": float(sys.argv[2]), "source": "test"} for way in ("write", "read")}
json.dump(machine, open("disk-%s.json" % sys.argv[2], "w"))' "$machines/xeon-amx.json" "$speed"
	passes plan "${few[@]}" --batch 128 --memory "$limit" --machine "disk-$speed.json" --json --out "disk-$speed"
	mv out "memory-$speed"
	! command -v gnuplot >/dev/null 2>&1 || [ -s "disk-$speed/memory.svg" ] || wrong 'plan --memory: no picture'
done
passes plan "${small[@]}" --batch 128 --memory 1G --machine "$machines/xeon-amx.json" --nodes 2
says '^disk: none; .*'
says ' yes .*fastest'
python3 - <<'END' || wrong 'plan --memory: its figures do not add up'
import json
fast, slow = (json.load(open(f"memory-{speed}")) for speed in ("1e12", "2e7"))
for plan in (fast, slow):
    for c in plan["choices"]:
        assert c["fits"] or c["memory_bytes"] > plan["limit_bytes"], c
        assert not c["fits"] or c["spills"] == (c["written_bytes"] > 0) and 0 <= c["waiting_seconds"] < c["step_seconds"], c
one, other = (plan["choices"][0] for plan in (fast, slow))
assert one["spills"] and one["written_bytes"] > 5e7 and one["waiting_seconds"] < 0.01 * one["step_seconds"], one
moved = (other["written_bytes"] + other["read_bytes"]) / 2e7
assert 0.9 * moved < other["step_seconds"] < moved + 2 * one["step_seconds"] and other["waiting_seconds"] > 0.9 * (moved - one["step_seconds"]), other
END
# Within the limit on a simulated machine: a step takes as long as the plan predicts, or as its moves take on a slow disk. Layers are
# recomputed then, as many as the size of the process allows: more or fewer than in the plan. The folder of --spill need not exist.
if [ -r "$simulated" ] && command -v smpirun >/dev/null; then
	within=(--batch 128 --nodes 1 --simulate --memory "$limit" --spill nowhere)
	passes plan "${few[@]}" "${within[@]}" --machine disk-2e7.json
	says '^limit: [0-9.]* MB on each rank$'
	says '^1 node: a step writes [0-9.]* MB of a rank to its disk and reads [0-9.]* (.*); it waits [0-9.]* of [0-9.]* s for moves$'
	for speed in 1e12 2e7; do
		passes plan "${few[@]}" "${within[@]}" --machine "disk-$speed.json" --json
		mv out "moved-$speed"
	done
	[ ! -e nowhere ] || wrong 'plan --simulate --spill: creates the folder'
	if "$STARGRAD" plan "${few[@]}" "${within[@]}" --machine disk-2e7.json --trace --out moves >out 2>err; then
		[ ! -s err ] || wrong 'plan --simulate --trace: complains'
		passes report moves/nodes-1 --json
		python3 - <<'END' || wrong 'report: a simulated trace without moves'
import json
moves, page = json.load(open("out"))["moves"], open("moves/nodes-1/report.html").read()
assert moves["written_mb"] > 5 and moves["waiting_seconds"] > .8 * moves["step_seconds"] and "finding" in moves, moves
assert '"rank 0 disk"' in page and page.count('"store","store ') > 2 and page.count('"fetch","fetch ') > 2
END
	elif grep -q 'this build has no FxT' err; then
		echo 'no traces of simulated runs: their StarPU was built without FxT'
	else
		wrong "plan --simulate --trace: $(cat err)"
	fi
	passes plan "${few[@]}" --nodes 2 --simulate --memory 2G --machine "$machines/xeon-amx.json"
	says '^2 nodes: all buffers stay in memory$'
	refuses 1 '--memory 20M is too little: a rank requires [0-9]*M with --spill, .*; give --memory [0-9]*M, or a smaller' plan "${few[@]}" \
		--batch 128 --nodes 2 --simulate --memory 20M --spill nowhere --machine disk-2e7.json
	python3 - <<'END' || wrong 'plan --simulate --memory: the step is not that of the plan'
import json
fast, slow = (json.load(open(f"moved-{speed}"))["points"][0] for speed in ("1e12", "2e7"))
for point in fast, slow:
    assert point["method"] == "simulated" and point["read_bytes"] >= point["written_bytes"] > 5e6, point
moved = (slow["written_bytes"] + slow["read_bytes"]) / 2e7
assert fast["waiting_seconds"] < .01 * fast["step_seconds"], fast
assert abs(fast["step_seconds"] / fast["formula_step_seconds"] - 1) < .1, fast
assert .9 * moved < slow["step_seconds"] < moved + 2 * fast["step_seconds"] and slow["waiting_seconds"] > .8 * moved, slow
END
else
	echo "not simulated: $simulated is not there (./quickstart simulate builds it)"
fi
refuses 2 "$machines/xeon-amx.json: has no disk.write and disk.read, which --simulate requires for --spill nowhere" plan "${few[@]}" \
	--simulate --memory 1G --spill nowhere --machine "$machines/xeon-amx.json"
refuses 2 'plan: --memory limits ranks without GPUs' plan "${small[@]}" --simulate --memory 1G --machine titan
refuses 2 'plan: --memory limits ranks without GPUs' plan "${small[@]}" --batch 128 --memory 1G --machine titan
refuses 2 'plan: --memory cannot be combined with --mesh' plan "${small[@]}" --memory 1G --machine xeon-amx --mesh auto
refuses 2 'plan: --spill /tmp requires --memory SIZE' plan "${small[@]}" --spill /tmp --machine xeon-amx
refuses 1 '--spill /nowhere: cannot be opened' plan "${small[@]}" --memory 100M --spill /nowhere --machine xeon-amx

refuses 2 'plan: --machine NAME|FILE is missing' plan "${small[@]}"
refuses 1 'weak/pictures: cannot be created: Not a directory' plan "${small[@]}" --machine "$machines/titan.json" --out weak/pictures
refuses 2 "plan: --nodes 4-2 must be N or A-B" plan "${small[@]}" --machine "$machines/titan.json" --nodes 4-2
refuses 2 "$machines/titan.json: device.flops has no bf16" plan "${small[@]}" --machine "$machines/titan.json" --precision bf16
refuses 1 'none.json: ' plan "${small[@]}" --machine none.json
refuses 2 "unknown model 'resnet21'" plan --model resnet21 --data digits --machine "$machines/titan.json"
sed 's/"value": 3950000000000.0/"value": 0/' "$machines/titan.json" >still.json
refuses 1 'still.json: device.flops.f32: is 0, but must be above 0' plan "${small[@]}" --machine still.json
