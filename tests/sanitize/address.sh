#!/bin/bash
# Under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer: every test program, the fuzzers' corpus, a short run.
# No suppression is needed: what is reported is ours.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
runs_with address,undefined
builds address,undefined stargrad check-programs
for program in tests/*/*; do
	if [ ! -f "$program" ] || [ ! -x "$program" ]; then continue; fi
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
trains "${under[@]}" ./stargrad
