#!/bin/bash
# `make dist` of the last commit: the archive has every tracked file, has the same bytes wherever and by whomever it is made, and is
# sufficient to build, test, install and uninstall Stargrad.
set -u
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd) || exit 99
[ -e "$srcdir/.git" ] || { echo 'skipped: the tarball is made from a clone of the repository' && exit 77; }
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
unset DESTDIR MAKEFLAGS MFLAGS SOURCE_DATE_EPOCH "${!STARPU_@}"

# Tracked files that are not in the archive: they serve only a clone.
only_in_clone='^(\.ci/|\.github/|\.gitignore$)'
# Files of the archive that are not tracked: autoreconf writes them.
generated='^(Makefile\.in|aclocal\.m4|config\.h\.in|configure|build-aux/[a-zA-Z.-]+)$'
# The tests that run from the archive. The others run in the clone.
tests='tests/cli/manual.sh tests/cli/options.sh tests/graphs/golden.sh tests/train/quick.py'

wrong() {
	echo "FAIL: $*" >&2
	[ ! -s log ] || tail -n 40 log | sed 's/^/    /' >&2
	exit 1
}
does() {
	"$@" >log 2>&1 || wrong "$* ends with $?"
}

# configured CLONE BUILD: a clone, in which autoreconf has run, and a build folder. The tests do not depend on optimization.
configured() {
	does git clone -q "$srcdir" "$1"
	does env -C "$1" autoreconf -fi
	mkdir "$2" && does env -C "$2" "$work/$1/configure" --with-cuda=no CFLAGS=-O1
}

# Two archives of the commit.
umask 022
configured first first/build
does env TZ=Pacific/Auckland LC_ALL=C make -C first/build dist
umask 077
configured second elsewhere
does env TZ=America/Lima LC_ALL=C.UTF-8 XZ_OPT=-0 make -C elsewhere dist
umask 022
archive=$(cd first/build && echo *.tar.*)
version=$(sed -n 's/^AC_INIT(\[stargrad\], \[\(.*\)\])$/\1/p' "$srcdir/configure.ac")
[ "$archive" = "stargrad-$version.tar.xz" ] || wrong "the archive of version $version is $archive"
grep -qx "version = \"$version\"" "$srcdir/python/pyproject.toml" || wrong "the Python module does not have version $version"
[[ $(head -n 1 "$srcdir/packaging/debian/debian/changelog") == "stargrad ($version-"* ]] ||
	wrong "the Debian packages do not have version $version"
cmp "first/build/$archive" "elsewhere/$archive" >log 2>&1 || wrong 'two archives of one commit differ'

# Its files.
git -C first ls-files | grep -vE "$only_in_clone" | LC_ALL=C sort >tracked
tar -tf "first/build/$archive" | sed "s|^stargrad-$version/||" | grep -v -e '/$' -e '^$' | grep -vE "$generated" | LC_ALL=C sort >packed
diff tracked packed >log || wrong 'the archive lacks tracked files (<), or has others (>)'
tar -tvf "first/build/$archive" --numeric-owner --full-time --utc >list
date=$(TZ=UTC git -C first log -1 --date=format-local:'%Y-%m-%d %H:%M:%S' --format=%cd)
grep -vE "^(drwxr-xr-x|-rw-r--r--|-rwxr-xr-x) 0/0 +[0-9]+ $date " list >log && wrong "files have another mode, owner or time than $date"

# The archive alone: a read-only source folder, a build, tests, installation, and an archive of its own.
rm -rf first
does make -C elsewhere -j"$(nproc)" distcheck check_PROGRAMS= TESTS="$tests"
