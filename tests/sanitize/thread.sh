#!/bin/bash
# Under ThreadSanitizer: the operations, and a short run on two workers.
#
# StarPU is not instrumented, but hands tasks over under locks that ThreadSanitizer sees, so our kernels' accesses are ordered for
# it as they are in truth. called_from_lib:libstarpu would hide those locks, and races would be seen everywhere; what StarPU does
# under locks that are not seen is named in thread.supp.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

export TSAN_OPTIONS=suppressions=$srcdir/tests/sanitize/thread.supp
runs_with thread
operations=tests/codelets/operations
[ -x "$builddir/$operations" ] || skip "$operations is not built: cmocka is not installed"
builds thread stargrad "$operations"
"${under[@]}" "./$operations" >"$work/out" 2>&1 || { cat "$work/out" && wrong "$operations"; }
trains "${under[@]}" ./stargrad
