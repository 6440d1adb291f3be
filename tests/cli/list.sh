#!/bin/bash
# What the lists say, and that completion offers the same.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

while read -r list name; do
	passes list "$list"
	says "^$name  *[^ ]"
	passes list --json "$list"
	python3 -c 'import json, sys; assert sys.argv[1] in [x["name"] for x in json.load(open("out"))]' "$name" ||
		wrong "list --json $list"
done <<'END'
models convnet
models resnet20
layers conv_bn_relu
ops conv2d
optimizers sgd
optimizers lars
optimizers lamb
datasets digits
allreduce ring
allreduce doubling
allreduce halving
allreduce tree
allreduce multicolor
allreduce hierarchical
allreduce mpi
strategies sync
strategies ps
strategies async
strategies mixed
strategies backup
END
refuses 2 "list: no list 'model'; did you mean models?" list model

# complete WORD…: what Bash would offer for the last of these words, sorted.
. "$srcdir/cli/completion.bash"
complete_words() {
	COMP_WORDS=(stargrad "$@") COMP_CWORD=$# COMPREPLY=()
	_stargrad "$STARGRAD" "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
	printf '%s\n' "${COMPREPLY[@]}" | sort
}
offers() {
	local expected=$1
	shift
	[ "$(complete_words "$@" | xargs)" = "$expected" ] || wrong "completion of stargrad $* offers: $(complete_words "$@" | xargs)"
}
offers 'train' tr
offers 'allreduce collectives datasets layers models ops optimizers strategies' list ''
offers 'resnet101 resnet110 resnet1202 resnet152 resnet18 resnet20 resnet32 resnet34 resnet44 resnet50 resnet56' train --model res
offers 'convnet' train --model = con
offers 'cifar10' train --data c
offers 'adam adamw' train --optimizer ad
offers 'lamb lars' train --optimizer l
offers '--warmup --weight-decay --window' train --w
offers '--weights' eval --w
exit 0
