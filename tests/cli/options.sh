#!/bin/bash
# Help, version, and everything that can be wrong with a command line.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

passes --version
says '^stargrad [0-9]*\.[0-9]*\.[0-9]*$'
passes --help
for command in train launch eval bench report list doctor; do
	says "^  $command "
	passes $command --help
	says "^Usage: stargrad $command"
	passes --help
done

refuses 2 'which command' # none at all
refuses 2 "no command 'trian'; did you mean train?" trian
refuses 2 "no command 'zzzzzzzzzz'; see stargrad --help" zzzzzzzzzz
refuses 2 "no option '--versoin'; did you mean --version?" --versoin
refuses 2 'train: --model NAME is missing' train
refuses 2 'train: --data KIND\[:PATH\] is missing' train --model convnet
refuses 2 'eval: --weights FILE is missing' eval --model convnet --data digits
refuses 2 'report: RUN-DIR is missing' report
refuses 1 'a/config.json' report a b
refuses 2 'list: .* is missing' list
refuses 2 "doctor: 'x' is no option" doctor x
refuses 2 'launch: --ranks N is missing' launch -- train
refuses 2 'launch: -n takes a value: N' launch -n
refuses 2 'launch: -- train ... is missing' launch -n 2
refuses 2 "launch: it starts train, not 'eval'" launch -n 2 -- eval

train=(train --model convnet --data digits)
refuses 2 'launch: --retries needs --out' launch -n 2 --retries 1 -- "${train[@]}"
refuses 2 'launch: --host or --hostfile' launch -n 2 --host a --hostfile b -- "${train[@]}"
refuses 2 "train: no option '--bacth'" launch -n 2 -- "${train[@]}" --bacth 3
refuses 1 'nonexistent: No such file' launch -n 2 --hostfile nonexistent -- "${train[@]}"
refuses 2 "train: no option '--bacth'; did you mean --batch?" "${train[@]}" --bacth 3
refuses 2 "train: no option '--zzzzzzzzzz'; see" "${train[@]}" --zzzzzzzzzz
refuses 2 "train: no option '-q'; see" "${train[@]}" -q
refuses 2 "train: 'resnet20' is no option" "${train[@]}" resnet20
refuses 2 'train: --m is short for several' "${train[@]}" --m 3
refuses 2 'train: --batch takes a value: N' "${train[@]}" --batch
refuses 2 'train: --print takes no value' "${train[@]}" --print=3

# Numbers: 0, below, above, overflowing, none. One option of each kind takes them all, the others one.
whole() { refuses 2 "train: --$1: '$2' is not a whole number from $3 to " "${train[@]}" "--$1" "$2"; }
real() { refuses 2 "train: --$1: '$2' is not a number from " "${train[@]}" "--$1" "$2"; }
for value in 0 -1 99999999999 99999999999999999999 1.5 1e3 '' ' 1' x 1x nan; do whole batch "$value" 1; done
for option in steps lr-scale-base micro-batch window keep image-size; do whole $option 0 1; done
for option in seed cpus gpus checkpoint-every; do whole $option -1 0; done
for value in -1 1e999 nan inf x '' ' 1' 1x; do real lr "$value"; done
for option in epochs warmup momentum weight-decay beta1 beta2 eps trust label-smoothing clip-norm; do real $option -1; done
refuses 2 "train: --epochs: '0' is not" "${train[@]}" --epochs 0
refuses 2 "train: --momentum: '1.1' is not" "${train[@]}" --momentum 1.1
refuses 2 "train: --bn-group: 'micor' is not rank, micro, global or a whole number from 1" "${train[@]}" --bn-group micor
refuses 2 "train: --bn-group: '0' is not" "${train[@]}" --bn-group 0
refuses 2 "train: --checkpoint-every: 's' is not" "${train[@]}" --checkpoint-every s
refuses 2 "train: --checkpoint-every: '3e' is not" "${train[@]}" --checkpoint-every 3e
refuses 2 "train: --precision: 'f16' is not f32, tf32 or bf16" "${train[@]}" --precision f16
refuses 2 "train: --data-placement: 'spread' is not replicate or partition" "${train[@]}" --data-placement spread
refuses 2 "train: --data-placement: 'replicat' is not" "${train[@]}" --data-placement replicat
for list in flip, pad: pad:0 pad:2/8 mirror none,flip; do
	refuses 2 "augmentation '$list': is neither none nor" "${train[@]}" --augment "$list"
done
refuses 2 'augmentation .pad:8.: images of 8x8 are padded by 7 pixels at most' "${train[@]}" --augment pad:8
refuses 2 "train: --trace: '5-2' is not a step or a range" "${train[@]}" --trace 5-2
refuses 2 "train: --trace: '0' is not a step or a range" "${train[@]}" --trace=0
refuses 2 "train: --model: '' is not a value" train --model '' --data digits
for schedule in '' stp step step:3 step:3,2:0.1 step:x:0.1 poly poly:-1 cosine:3; do
	refuses 2 ".*schedule" "${train[@]}" --schedule "$schedule"
done

# Names that are looked up.
refuses 2 ".*'resnet21'.*did you mean .*resnet20" train --model resnet21 --data digits
refuses 2 ".*'adm'.*did you mean .*adam" "${train[@]}" --optimizer adm
refuses 2 ".*'SGD'.*did you mean 'sgd'" "${train[@]}" --optimizer SGD
refuses 2 ".*'rnig'.*did you mean .*ring" "${train[@]}" --allreduce rnig
refuses 2 "no dataset is called 'digit': did you mean 'digits'?" train --model convnet --data digit
refuses 2 '.*cifar10: its argument is missing' train --model convnet --data cifar10
refuses 1 'data set cifar10:/nonexistent: No such file' train --model convnet --data cifar10:/nonexistent
refuses 1 '/nonexistent' "${train[@]}" --init /nonexistent

# Sizes that do not fit each other.
for command in 'train --print' bench "eval --weights none"; do
	# shellcheck disable=SC2086
	refuses 1 'model lenet: takes images of 16x16 or more, those of digits have 8x8: another model (stargrad list models)' \
		$command --model lenet --data digits
done
refuses 1 'model vgg11: takes images of 32x32 or more, those of synthetic:40x31x3,2,128 have 40x31' \
	train --model vgg11 --data synthetic:40x31x3,2,128
refuses 2 '.*micro-batch 100 .*128 does' "${train[@]}" --micro-batch 100
refuses 2 '.*bn-group 100 .*128 does' "${train[@]}" --bn-group 100
refuses 2 '.*batch 100000 .*1437' "${train[@]}" --batch 100000
refuses 2 '.*trace begins with step 10, the run ends with step 5' "${train[@]}" --trace --steps 5 --out wrong
[ ! -e wrong ] || wrong 'a wrong command line leaves a folder behind'

# Results that cannot be written are no success.
if [ -w /dev/full ]; then
	"$STARGRAD" list ops >/dev/full 2>err
	[ $? = 1 ] || wrong 'a full disk goes unnoticed'
fi
exit 0
