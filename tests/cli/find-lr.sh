#!/bin/bash
# stargrad find-lr: learning rates grow evenly, on any number of ranks; the test ends if the loss diverges; the suggested rate
# trains; it writes a plot and figures, and no run.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"
unset STARGRAD_PICTURES

network=(--model convnet --data digits --batch 64 --bn-group global --deterministic --cpus 1)
passes find-lr "${network[@]}" --to 1e4 --out rates
says '^suggested  --lr [0-9.e+-]*: a tenth of the rate with the lowest loss$'
says '^diverged '
rate=$(sed -n 's/^suggested  --lr \([^:]*\):.*/\1/p' out)
for file in rates/find-lr.svg rates/find-lr.png; do [ -s "$file" ] || wrong "$file is not there"; done
[ "$(ls rates)" = "$(printf 'find-lr.%s\n' csv png svg)" ] || wrong "it leaves $(ls rates)"
refuses 2 'rates: contains no run to continue' train "${network[@]}" --out rates --resume

passes find-lr "${network[@]}" --to 1e4 --json
[ -z "$(ls -d runs 2>/dev/null)" ] || wrong 'it made a folder'
python3 - rates/find-lr.csv <<'END' || wrong 'its figures do not fit each other'
import csv, json, sys
told = json.load(open("out"))
points = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(open(sys.argv[1]))]
near = lambda a, b: abs(a - b) <= 1e-5 * abs(b)
assert told["diverged"] and 20 < len(points) < 100 and len(points) == len(told["points"])
for i, (a, b) in enumerate(zip(points, told["points"])):
    assert near(a["lr"], 1e-6 * 1e10 ** (i / 100)) and all(near(a[k], b[k]) for k in a), (i, a, b)
least = min(points, key=lambda p: p["smoothed"])
assert near(told["least"], least["lr"]) and near(told["suggested"], 0.1 * least["lr"]), (told["least"], least)
assert told["steepest"] < told["least"]
END
cp out one

if command -v mpirun >/dev/null; then
	mpirun -n 2 "$STARGRAD" find-lr "${network[@]}" --to 1e4 --json >out 2>err || wrong 'two ranks fail'
	cmp -s one out || wrong 'two ranks see other losses than one'
fi

passes train "${network[@]}" --lr "$rate" --epochs 3 --out suggested
says 'test accuracy 9[0-9]'

warns 2 'find-lr: --epochs has no effect on a range test' find-lr "${network[@]}" --epochs 3 --steps 3
warns 2 'find-lr: no learning rate can be suggested' find-lr "${network[@]}" --keep 3 --steps 3
refuses 1 'one/rates: cannot be created: Not a directory' find-lr "${network[@]}" --out one/rates
refuses 2 "unknown model 'convnets'; did you mean" find-lr --model convnets --data digits --out none
[ ! -e none ] || wrong 'a wrong command line leaves a folder behind'
refuses 2 'find-lr: --from 1 must be below --to 0.1' find-lr "${network[@]}" --from 1 --to .1
refuses 2 'find-lr: --model NAME is missing' find-lr --data digits
refuses 2 'find-lr cannot be combined with --strategy async: ranks must take their steps together' \
	find-lr --model convnet --data digits --strategy async
