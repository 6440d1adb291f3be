#!/bin/bash
# ThreadSanitizer: the operations, and a short run on two workers.
#
# StarPU is not instrumented. It passes tasks to workers under mutexes that ThreadSanitizer sees, so it knows the order of our
# kernels' accesses. It does not see the spin locks with which StarPU protects its own copies and frees, so only accesses of
# instrumented code count. (called_from_lib:libstarpu would also hide the mutexes.)
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

export TSAN_OPTIONS=ignore_noninstrumented_modules=1
# An MPI with UCX (Debian 13's) starts a thread as soon as it is loaded, for a file system with UCX's state, and never joins it.
export UCX_VFS_ENABLE=n
runs_with thread
operations=tests/codelets/operations
[ -x "$builddir/$operations" ] || skip "$operations is not built: cmocka is not installed"
builds thread stargrad "$operations"
"${under[@]}" "./$operations" >"$work/out" 2>&1 || { cat "$work/out" && wrong "$operations"; }
steps=8 # a race is seen when tasks meet
trains "${under[@]}" ./stargrad
