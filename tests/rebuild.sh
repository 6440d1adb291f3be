#!/bin/bash
# A new line in a list rebuilds few files: at most ten objects of the library and the command. The test counts them in the
# dependency files of the last build (.deps/NAME.Plo or .Po). It builds and changes nothing.
set -u
most=10
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd) || exit 99
cd "${builddir:-$srcdir/build}" || exit 99

# Those that the Makefile asks: a file that was renamed may have left an older one.
mapfile -t notes < <(sed -n 's/^include \(.*\)\$(DEPDIR)\(.*\) # am--include-marker$/\1.deps\2/p' Makefile |
	grep -vE '^(\./)?(tests|examples)/')
for note in codelets/*/*_cuda.lo.d; do
	object=${note%.lo.d}
	[ ! -e "$srcdir/$object.cu" ] || [ ! -e "$object.lo" ] || notes+=("$note")
done
[ ${#notes[@]} -gt 0 ] || { echo 'skipped: configured with --disable-dependency-tracking' && exit 77; }

# users FILE…: the notes of the objects that are made anew when one of these changes.
users() {
	local file
	for file; do
		grep -lE "(^|[ /])${file//./\\.}( |:|\$)" "${notes[@]}"
	done | sort -u
}

# reached LIST: those that a new line of it makes anew. One of codelets.def reaches all of them by codelets/operations.h, which is made
# from it; the header of an operation of its own has its users alone (conv2d's has most).
reached() {
	case $1 in
	codelets/codelets.def) users "$1" codelets/operations.h ;;
	*) users "$1" ;;
	esac
}

failed=0
for path in "$srcdir"/{codelets,datasets,graphs/networks,graphs/compiler,cli}/*.def "$srcdir/runtime/collectives.def"; do
	list=${path#"$srcdir"/}
	objects=$(reached "$list")
	count=$(grep -c . <<<"$objects")
	printf '%-32s %3d\n' "$list" "$count"
	[ "$count" -gt 0 ] || { echo "$list: no object was made from it" >&2 && failed=1; }
	[ "$count" -le $most ] || { printf '%s: a line rebuilds more than %d:\n%s\n' "$list" $most "$objects" >&2 && failed=1; }
done
exit $failed
