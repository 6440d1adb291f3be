#!/bin/bash
# The output of stargrad list; completion offers the same names.
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
models gpt
models gpt2
layers conv_bn_relu
ops conv2d
optimizers sgd
optimizers kfac
optimizers lars
optimizers lamb
optimizers muon
optimizers normuon
optimizers schedulefree
optimizers soap
datasets digits
datasets text
datasets tokens
allreduce ring
allreduce doubling
allreduce halving
allreduce tree
allreduce multicolor
allreduce hierarchical
allreduce mpi
allreduce nccl
strategies sync
strategies ps
strategies async
hashes phash
hashes dhash
hashes ahash
hashes whash
strategies mixed
strategies backup
END
passes list models
says '^convnet .*(images of 2x2 or more)$'
says '^lenet .*(images of 16x16 or more)$'
passes list augmentations
says '^rotate .*(rotate\[:DEGREES\])$'
passes list datasets
says '(digits, default --augment none)$'
says '(cifar10:DIR, default --augment crop:4,flip)$'
says '^folder  .*; by default, grey images (often letters or digits, which must not be flipped) are not augmented (folder:DIR\[,SIZE\], default --augment crop:1/8,flip)$'
refuses 2 "list: unknown list 'model'; did you mean models?" list model

# complete WORD…: what Bash would offer for the last of these words, sorted.
unset HOME      # as in a container
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

# offers_list LIST BEGINNING WORD…: all that LIST has that begins so, however long it is.
offers_list() {
	local list=$1 beginning=$2
	shift 2
	passes list "$list"
	says "^$beginning"
	offers "$(sed -n "s/^\($beginning[^ ]*\) .*/\1/p" out | sort | xargs)" "$@" "$beginning"
}
offers 'train' trai
offers 'allreduce augmentations collectives datasets hashes layers machines models ops optimizers strategies' list ''
offers_list models resnet train --model
offers_list models con train --model =
offers_list datasets c train --data
offers_list optimizers ad train --optimizer
offers_list optimizers l train --optimizer
offers '--weight-decay --weight-decay-of' train --weight-
offers '--weights' eval --weigh
exit 0
