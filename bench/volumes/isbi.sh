#!/bin/sh
# unet2d on ISBI 2012, and the same network for as long in PyTorch (isbi_torch.py): Rand, VOI, IoU of the val slices, whole.
#
#     isbi.sh STARGRAD PYTHON ISBI2012-DIR OUT SECONDS      as: build/stargrad python3 /data/isbi2012 runs/isbi 1500
#
# ISBI2012-DIR has train-volume-idx3-ubyte.gz and train-labels-idx3-ubyte.gz; PYTHON has torch and numpy. Both train side by side, each
# on a core of its own with one thread, and SECONDS are those of the processor, user and system, so that what else the machine does is
# no matter: Stargrad goes through as many epochs as two of a trial say, PyTorch takes as many steps as it can. Both are judged by
# stargrad eval; OUT keeps what each had by the way.
set -eu
stargrad=$1 python=$2 data=$3 out=$4 seconds=$5
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
train() { # OUT EPOCHS OPTION…; then the processor's seconds, as times has them
	to=$1 epochs=$2
	shift 2
	sh -c '"$@"; times' train taskset -c 0 "$stargrad" train --model unet2d --data "volume:$data,1x256x256" --batch 4 --epochs "$epochs" \
		--optimizer adam --lr 0.001 --schedule cosine --evaluate-last --cpus 1 --gpus 0 --out "$to" "$@"
}
used() { # of what train left in a file: its last line is the children's user and system time, 1m2.5s 0m0.25s
	tail -n 1 "$1" | tr 'ms' '  ' | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
}
train "$out/trial" 2 > "$out/trial.txt"
epochs=$(awk -v all="$seconds" -v two="$(used "$out/trial.txt")" 'BEGIN { print int(2 * all / two) }')
OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_TOP_PAD_=268435456 \
	taskset -c 1 "$python" "$here/isbi_torch.py" "$data" "$out" "$seconds" &
peer=$!
train "$out/stargrad" "$epochs" --keep 1000 --checkpoint-every 5 > "$out/stargrad.txt"
echo "Stargrad: $epochs epochs of 24 steps in $(used "$out/stargrad.txt") s of the processor"
wait "$peer"
for name in stargrad torch; do
	echo "$name:"
	"$stargrad" eval --weights "$out/$name/model.safetensors" --model unet2d --data "volume:$data,1x512x512"
done
