#!/bin/bash
# AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: the test programs of readers, and the corpus of the fuzzers. In
# `make check-long` (STARGRAD_LONG): all test programs, and a short run. There are no suppressions: all reports concern our code.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
runs_with address,undefined
some='^tests/((datasets|volumes)/|runtime/(file|safetensors)$|fuzz/(cifar10|csv|history|idx|npy|png|safetensors|tokens|zarr|zip)$)'
[ -z "${STARGRAD_LONG:-}" ] || some=.
# A build directory may still contain programs whose source is gone.
mapfile -t programs < <(cd "$builddir" && find tests -mindepth 2 -maxdepth 2 -type f -perm -u+x | grep -E "$some" |
	while read -r program; do [ ! -f "$srcdir/$program.c" ] || echo "$program"; done |
	sort | awk '/operations$/ { print; next } { others = others $0 "\n" } END { printf "%s", others }')
[ ${#programs[@]} -gt 0 ] || skip 'no test program is built: cmocka is not installed'
builds address,undefined ${STARGRAD_LONG:+stargrad} "${programs[@]}"

# passes PROGRAM: it passes, or is skipped. Several run at a time; the longest, tests/codelets/operations, begins.
passes() {
	local limit=$STARGRAD_MAX_ISA out=$work/${1//\//-}.out
	case $1 in tests/codelets/kronecker | tests/codelets/tiles) limit=$most ;; esac
	STARGRAD_MAX_ISA=$limit "${under[@]}" "./$1" >"$out" 2>&1
	case $? in
	0) ;;
	77) echo "skipped  $1: $(tail -n 1 "$out")" ;;
	*) cat "$out" && echo "FAIL: $1" >&2 && return 1 ;;
	esac
}
failed=0 running=0
ends() {
	wait -n || failed=1
	running=$((running - 1))
}
for program in "${programs[@]}"; do
	[ $running -lt "$(nproc)" ] || ends
	passes "$program" &
	running=$((running + 1))
done
while [ $running -gt 0 ]; do ends; done
[ $failed = 0 ] || exit 1
[ -z "${STARGRAD_LONG:-}" ] || trains "${under[@]}" ./stargrad
