#!/bin/bash
# The output of `stargrad train --print` for several runs equals the copies in tests/graphs/golden/.
#
#   bash tests/graphs/golden.sh            shows the differences
#   bash tests/graphs/golden.sh --update   updates the copies: check `git diff` before you commit them
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/../cli/expect.sh"

update=${1:-}
golden=$srcdir/tests/graphs/golden
differ=0

# compares NAME WHAT: `out`, the print of WHAT, is NAME.txt, but for the lines about this machine.
compares() {
	local copy=$golden/$1.txt
	sed -i '/^devices \|^memory /d' out
	if [ "$update" = --update ]; then
		cp out "$copy"
	else
		diff -u --label "$copy" --label "$2" "$copy" out || differ=1
	fi
}

# prints NAME ARGUMENT…: of that run.
prints() {
	passes train --print --cpus 2 "${@:2}"
	compares "$1" "stargrad train --print ${*:2}"
}

prints convnet --model convnet --data digits --batch 64 --micro-batch 16
prints resnet20 --model resnet20 --data synthetic:32x32x3,10,256 --augment crop:4,flip --batch 64 --micro-batch 8 --bn-group 32 --clip-norm 1 --optimizer adam --lr 0.001

# Ranks that gather their weights for each use. The network between them decides neither the messages of two ranks nor the buckets.
if command -v mpirun >/dev/null; then
	mpirun -n 2 "$STARGRAD" train --print --cpus 1 --model convnet --data digits --batch 64 --micro-batch 16 --shard parameters \
		--bucket 0.04 --deterministic 2>err >out || wrong 'weights that are gathered are not printed'
	sed -i '/^network /d' out
	compares parameters 'mpirun -n 2 stargrad train --shard parameters'
fi

# A network that is split over two ranks: what moves between them are messages and tasks of the program.
split=${STARGRAD%/*}/tests/graphs/train/split
echo '{"latency": 1e-5, "bandwidth": 1e9}' >network.json
if [ -x "$split" ] && command -v mpirun >/dev/null; then
	mpirun -n 2 "$split" scattered tensor=2 unused print network.json 2>err >out || wrong 'split does not print'
	compares split 'mpirun -n 2 split scattered tensor=2'
else
	echo 'skipped: a network that is split: there is no mpirun, or no cmocka'
fi

: >out
[ $differ = 0 ] || wrong 'a print is not its golden copy; where that is right: bash tests/graphs/golden.sh --update'
