#!/bin/bash
# Under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: the test programs of readers, and the fuzzers' corpus; in
# `make check-long` (STARGRAD_LONG) every test program, and a short run. No suppression is needed: what is reported is ours.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
runs_with address,undefined
some='^tests/((datasets|volumes)/|runtime/(file|safetensors)$|fuzz/(cifar10|csv|history|idx|npy|png|safetensors|tokens|zarr|zip)$)'
[ -z "${STARGRAD_LONG:-}" ] || some=.
mapfile -t programs < <(cd "$builddir" && find tests -mindepth 2 -maxdepth 2 -type f -perm -u+x | grep -E "$some" | sort)
[ ${#programs[@]} -gt 0 ] || skip 'no test program is built: cmocka is not installed'
builds address,undefined ${STARGRAD_LONG:+stargrad} "${programs[@]}"
for program in "${programs[@]}"; do
	case $program in
	tests/codelets/kronecker | tests/codelets/tiles) limit=$most ;;
	*) limit=$STARGRAD_MAX_ISA ;;
	esac
	STARGRAD_MAX_ISA=$limit "${under[@]}" "./$program" >"$work/out" 2>&1
	case $? in
	0) ;;
	77) echo "skipped  $program: $(tail -n 1 "$work/out")" ;;
	*) cat "$work/out" && wrong "$program" ;;
	esac
done
[ -z "${STARGRAD_LONG:-}" ] || trains "${under[@]}" ./stargrad
