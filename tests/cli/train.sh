#!/bin/bash
# A run from the command line: its folder, its results, its report, its weights.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

train=(train --model convnet --data digits --steps 3 --batch 64)

passes "${train[@]}" --out first
says '^first: test accuracy [0-9.]* %$'
for file in config.json metrics.jsonl model.safetensors; do
	[ -s "first/$file" ] || wrong "no $file"
done
if command -v gnuplot >/dev/null; then
	says '^learning curve: first/curve.png$'
	[ "$(head -c 4 first/curve.png | tail -c 3)" = PNG ] || wrong 'curve.png is no PNG'
	grep -q '</svg>' first/curve.svg || wrong 'curve.svg is no whole SVG'
fi

# One JSON object and nothing else; the same command gives the same run.
"$STARGRAD" "${train[@]}" --out second --json >out 2>err || wrong 'train --json fails'
python3 - <<'END' || wrong 'the JSON is not what it should be'
import json
result = json.load(open("out"))
assert result["folder"] == "second" and result["steps"] == 3 and 0 <= result["test_top1"] <= 1, result
losses = [[json.loads(line)["loss"] for line in open(d + "/metrics.jsonl") if '"step",' in line] for d in ("first", "second")]
assert len(losses[0]) == 3 and losses[0][0] == losses[1][0], losses
END

# A folder that holds files is refused; so is one that cannot be made.
refuses 2 '.*first' "${train[@]}" --out first
refuses 1 '.*/dev/null/run' "${train[@]}" --out /dev/null/run
refuses 2 '.*resume.*--out' "${train[@]}" --resume

passes report first
says '^convnet on digits$'
says '^3 steps'
passes report --json second
python3 -c 'import json; assert json.load(open("out"))["steps"] == 3' || wrong 'report --json'

passes eval --weights first/model.safetensors --model convnet --data digits
says '^test accuracy [0-9.]* %, loss [0-9.]*$'
passes eval --weights first/model.safetensors --model convnet --data digits --json
python3 - <<'END' || wrong 'eval does not find what train found'
import json
found = json.load(open("out"))["test_top1"]
last = [json.loads(line) for line in open("first/metrics.jsonl")][-1]
assert last["event"] == "epoch" and abs(last["test_top1"] - found) < 1e-6, (last, found)
END
refuses 1 '.*first/model.safetensors' eval --weights first/model.safetensors --model resnet20 --data digits
refuses 1 '/nonexistent' eval --weights /nonexistent --model convnet --data digits

# --print shows network and tasks, and leaves nothing behind.
passes "${train[@]}" --out third --print
says 'conv1'
says 'backward'
[ ! -e third ] || wrong '--print makes a folder'

# Without gnuplot there is one line more, and no harm.
mkdir bin
for tool in sh uname; do ln -s "$(command -v $tool)" bin/; done
PATH=$work/bin "$STARGRAD" "${train[@]}" --out fourth >out 2>err || wrong 'a run without gnuplot fails'
grep -q 'gnuplot is not installed' err || wrong 'nothing says that gnuplot is missing'
exit 0
