#!/bin/bash
# Every kernel with the instructions of older processors (STARGRAD_MAX_ISA). The other tests use all instructions of the
# processor.
set -u
cd "${builddir:-.}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
status=0

# Would a run that may use all of LEVEL's instructions use less than the next better level's, on this machine?
uses() { STARGRAD_MAX_ISA=$1 ./stargrad doctor 2>&1 | sed -n 's/.*kernels use \(.*\)/\1/p'; }

best=$(./stargrad doctor 2>&1 | sed -n 's/.*kernels use \(.*\)/\1/p')
[ -n "$best" ] || { echo "doctor does not say which instructions kernels use" >&2 && exit 1; }
last=
for level in baseline avx2 avx512 avx512_bf16; do
	[ "$level" != "${STARGRAD_MAX_ISA:-}" ] || break # the caller's limit
	used=$(uses $level)
	if [ "$used" = "$best" ] || [ "$used" = "$last" ]; then
		echo "skipped  $level: the other tests run with $best"
		continue
	fi
	last=$used
	for test in codelets/{kernels,operations,packed,reference,winograd} duplicates/hashes; do
		if [ $test = codelets/winograd ] && [ $level = baseline ]; then
			echo "skipped  winograd, $level: has no vectors for it"
			continue
		fi
		if STARGRAD_MAX_ISA=$level tests/$test >"$work/out" 2>&1; then
			echo "ok       $test, $level ($used)"
		else
			cat "$work/out" && echo "FAIL     $test, $level ($used)" && status=1
		fi
	done
done

# ---- what is none of them is refused, by name

said=$(STARGRAD_MAX_ISA=sse9 ./stargrad train --model lenet --data synthetic:28x28x1,10,640 --steps 1 --out "$work/run" 2>&1)
[ $? -ne 0 ] && [[ $said == *"STARGRAD_MAX_ISA=sse9 is unknown; it must be baseline, avx2, avx512, avx512_bf16 or amx"* ]] ||
	{ echo "STARGRAD_MAX_ISA=sse9: $said" >&2 && status=1; }
exit $status
