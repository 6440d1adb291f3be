#!/bin/bash
# What `stargrad train --print` says of some runs, against the copies in tests/graphs/golden/.
#
#   bash tests/graphs/golden.sh            shows where they differ
#   bash tests/graphs/golden.sh --update   writes the copies anew: look at `git diff` before they are committed
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/../cli/expect.sh"

update=${1:-}
golden=$srcdir/tests/graphs/golden
differ=0

# prints NAME ARGUMENT…: the print of that run is NAME.txt, but for the line about this machine.
prints() {
	local copy=$golden/$1.txt
	shift
	passes train --print --cpus 2 "$@"
	sed -i '/^devices /d' out
	if [ "$update" = --update ]; then
		cp out "$copy"
	else
		diff -u --label "$copy" --label "stargrad train --print $*" "$copy" out || differ=1
	fi
}

prints convnet --model convnet --data digits --batch 64 --micro-batch 16
prints resnet20 --model resnet20 --data synthetic:32x32x3,10,256 --augment crop:4,flip --batch 64 --micro-batch 8 --bn-group 32 --clip-norm 1 --optimizer adam --lr 0.001

: >out
[ $differ = 0 ] || wrong 'a print is not its golden copy; where that is right: bash tests/graphs/golden.sh --update'
