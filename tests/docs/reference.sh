#!/bin/bash
# make html builds the reference of the public headers without a warning. It contains their functions and overviews.
set -u
builddir=$(cd "${builddir:-build}" && pwd) || exit 99
command -v doxygen >/dev/null || { echo 'skipped: doxygen is not installed' && exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*" >&2 && exit 1; }

unset "${!MAKE@}" MFLAGS
make -C "$builddir" html >"$work/log" 2>&1 || { cat "$work/log" && fail 'make html'; }
! grep -i warning "$work/log" || fail 'warnings'
html=$builddir/docs/html
grep -q 'sgrad_train_defaults' "$html/train_8h.html" || fail 'train.h has no functions'
grep -q 'Detailed Description' "$html/datasets_8h.html" || fail 'datasets.h has no overview'
