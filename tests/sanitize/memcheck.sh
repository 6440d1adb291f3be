#!/bin/bash
# Valgrind's memcheck: a short run of the program as built. Unlike the sanitizers, memcheck detects uninitialised values in all
# libraries.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

command -v valgrind >/dev/null || skip 'valgrind is not installed'
valgrind --error-exitcode=9 true 2>err || skip "valgrind does not run here: $(tail -n 1 err)"
! grep -q '^DEBUG_CFLAGS = .*-fsanitize' "$builddir/Makefile" || skip 'this build has a sanitizer of its own'
STARGRAD=${STARGRAD:-$builddir/stargrad}
trains valgrind --quiet --fair-sched=yes --error-exitcode=9 --suppressions="$srcdir/tests/sanitize/memcheck.supp" \
	--leak-check=full --show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible "$STARGRAD"
