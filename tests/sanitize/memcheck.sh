#!/bin/bash
# Under Valgrind's memcheck: a short run of the program as it is built: it sees, as no sanitizer does, values that were never set,
# whichever library they pass through.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

command -v valgrind >/dev/null || skip 'valgrind is not installed'
valgrind --error-exitcode=9 true 2>err || skip "valgrind does not run here: $(tail -n 1 err)"
! grep -q '^DEBUG_CFLAGS = .*-fsanitize' "$builddir/Makefile" || skip 'this build has a sanitizer of its own'
STARGRAD=${STARGRAD:-$builddir/stargrad}
trains valgrind --quiet --fair-sched=yes --error-exitcode=9 --suppressions="$srcdir/tests/sanitize/memcheck.supp" \
	--leak-check=full --show-leak-kinds=definite,possible --errors-for-leak-kinds=definite,possible "$STARGRAD"
