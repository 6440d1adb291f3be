#!/bin/bash
# Under ThreadSanitizer: the operations, and a short run on two workers.
#
# StarPU is not instrumented, but hands tasks over under locks that ThreadSanitizer sees, so our kernels' accesses are ordered for
# it as they are in truth. No suppression is needed; called_from_lib:libstarpu would hide those locks, and races would be seen
# everywhere.
# shellcheck source=tests/sanitize/common.sh
. "$(dirname "$0")/common.sh"

# Where the kernel scatters memory further than ThreadSanitizer knows: without scattering.
under=
setarch -R true 2>/dev/null && under='setarch -R'
runs_with thread
builds thread stargrad tests/codelets/operations
$under ./tests/codelets/operations >"$work/out" 2>&1 || { cat "$work/out" && wrong 'tests/codelets/operations'; }
# shellcheck disable=SC2086 # words
trains $under ./stargrad
