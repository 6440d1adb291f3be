#!/bin/sh
# Train unet2d on ISBI 2012 for the same processor time in Stargrad and in PyTorch (isbi_torch.py). Prints Rand, VOI and IoU of
# the whole val slices.
#
#     isbi.sh STARGRAD PYTHON ISBI2012-DIR OUT SECONDS
#     example: isbi.sh build/stargrad python3 /data/isbi2012 runs/isbi 1500
#
# ISBI2012-DIR must contain train-volume-idx3-ubyte.gz and train-labels-idx3-ubyte.gz. PYTHON must have torch and numpy.
#
# Both train concurrently, each with one thread on a separate core. SECONDS is processor time, user and system, so other load on
# the machine does not matter. A trial of two epochs determines the number of epochs for Stargrad. PyTorch trains until the time
# is over. stargrad eval evaluates both. OUT contains the intermediate weights of both.
set -eu
stargrad=$1 python=$2 data=$3 out=$4 seconds=$5
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
train() { # OUT EPOCHS OPTION…: trains, then prints the processor time in the format of times
	to=$1 epochs=$2
	shift 2
	sh -c '"$@"; times' train taskset -c 0 "$stargrad" train --model unet2d --data "volume:$data,1x256x256" --batch 4 --epochs "$epochs" \
		--optimizer adam --lr 0.001 --schedule cosine --evaluate-last --cpus 1 --gpus 0 --out "$to" "$@"
}
used() { # FILE: prints the seconds in the output of train; its last line is user and system time of children, 1m2.5s 0m0.25s
	tail -n 1 "$1" | tr 'ms' '  ' | awk '{ print $1 * 60 + $2 + $3 * 60 + $4 }'
}
train "$out/trial" 2 > "$out/trial.txt"
epochs=$(awk -v all="$seconds" -v two="$(used "$out/trial.txt")" 'BEGIN { print int(2 * all / two) }')
OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_TOP_PAD_=268435456 \
	taskset -c 1 "$python" "$here/isbi_torch.py" "$data" "$out" "$seconds" &
peer=$!
train "$out/stargrad" "$epochs" --keep 1000 --checkpoint-every 5 > "$out/stargrad.txt"
echo "Stargrad: $epochs epochs of 24 steps in $(used "$out/stargrad.txt") s of processor time"
wait "$peer"
for name in stargrad torch; do
	echo "$name:"
	"$stargrad" eval --weights "$out/$name/model.safetensors" --model unet2d --data "volume:$data,1x512x512"
done
