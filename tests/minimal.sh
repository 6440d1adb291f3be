#!/bin/bash
# A build with none of the optional libraries (configure --disable-optional), and with other folders than the default ones: it links no
# optional library, what needs one fails with the library, its package and its option, and the tests pass: those of check-quick; with STARGRAD_LONG=all, those of check. The build is in a
# separate folder.
set -u
srcdir=$(cd "${srcdir:-$(dirname "$0")/..}" && pwd) || exit 99
builddir=$(cd "${builddir:-$srcdir/build}" && pwd) || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
unset "${!MAKE@}" MFLAGS "${!STARPU_@}"
export STARPU_HOME=$work STARPU_NCPU=2

wrong() {
	[ -z "${2:-}" ] || tail -n 40 "$2" >&2
	echo "FAIL: $1" >&2
	exit 1
}

[ ! -e "$srcdir/config.status" ] || { echo 'SKIP: configured inside the source tree, so no second build can be' && exit 77; }
[ -e "$builddir/config.status" ] || wrong "$builddir is not configured: ./quickstart build"
mkdir -p "$builddir/minimal" && cd "$builddir/minimal" || exit 99
eval "arguments=($("$builddir/config.status" --config))"
# shellcheck disable=SC2016 # make's words
folders=(--prefix=/nowhere --libdir='${prefix}/lib64/deep' --datadir='${prefix}/data')
if [ ! Makefile -nt "$builddir/config.status" ] || ! ./config.status --config | grep -q nowhere; then
	"$srcdir/configure" "${arguments[@]}" --srcdir="$srcdir" --with-cuda=no --disable-optional "${folders[@]}" >configure.out 2>&1 ||
		wrong configure configure.out
fi
# Not at once: "all" is another make, which would write the same files.
for target in all check-programs; do
	make -j"$(nproc)" $target >make.out 2>&1 || wrong "make $target" make.out
done

# ---- the libraries

mapfile -t libraries < <(sed -n 's/^SGRAD_LIBRARY(\[\([a-z0-9-]*\)\].*/\1/p' "$srcdir/configure.ac")
[ ${#libraries[@]} -ge 14 ] || wrong "configure.ac has only: ${libraries[*]}"
./stargrad --version >"$work/version"
! grep '^with:' "$work/version" || wrong 'the program has an optional library'
[ "$(sed -n 's/^without: //p' "$work/version" | tr , '\n' | grep -c .)" = ${#libraries[@]} ] || wrong "not every library is missing" "$work/version"
readelf -d .libs/libstargrad.so >"$work/needs" || wrong readelf
! grep -E 'lib(blosc|gif|glpk|hdf5|highs|jpeg|microhttpd|png|protobuf-c|tiff|webp|zip|zstd)' "$work/needs" ||
	wrong 'libstargrad.so needs an optional library'
./stargrad doctor >"$work/doctor" || wrong doctor "$work/doctor"
for library in "${libraries[@]}"; do
	grep -q -e "configure --with-$library=yes" "$work/doctor" || wrong "doctor does not name --with-$library" "$work/doctor"
done

# ---- the data files, in other folders than PREFIX/share and relative to PREFIX/lib: the program and the library find them, also after
# the installation is moved

make install DESTDIR="$work/stage" >"$work/install" 2>&1 || wrong 'make install' "$work/install"
"$work/stage/nowhere/bin/stargrad" list machines >"$work/machines" || wrong 'list machines'
grep -q '^titan ' "$work/machines" || wrong 'the program does not find its machine files' "$work/machines"
python3 - "$work/stage/nowhere" <<'END' || wrong 'the library does not find its machine files'
import ctypes
import sys
library, path = ctypes.CDLL(sys.argv[1] + "/lib64/deep/libstargrad.so"), ctypes.c_char_p()
assert library.sgrad_machine_find(b"titan", ctypes.byref(path)) == 0
assert path.value.decode() == sys.argv[1] + "/data/stargrad/machines/titan.json", path.value
END
make uninstall DESTDIR="$work/stage" >"$work/install" 2>&1 || wrong 'make uninstall' "$work/install"
[ -z "$(find "$work/stage" -type f -o -type l)" ] || wrong "uninstall leaves: $(find "$work/stage" -type f -o -type l)"

# ---- what needs one

cd "$work" || exit 99
lacks() { # LIBRARY ARGUMENT…
	local library=$1
	shift
	! "$builddir/minimal/stargrad" "$@" >out 2>err || wrong "stargrad $* works without $library"
	[ "$(wc -l <err)" = 1 ] && grep -q "^stargrad: cannot .*this build has no .*install .*configure --with-$library=yes" err ||
		wrong "stargrad $* does not name --with-$library" err
}
digits=(train --model mlp --data digits --steps 1 --cpus 1 --out run)
lacks fxt "${digits[@]}" --trace=1
lacks png "${digits[@]}" --show-batch batch.png
lacks libmicrohttpd "${digits[@]}" --prometheus 9100
lacks protobuf-c train --model onnx:x.onnx --data digits
for library in hdf5:h5 tiff:tif; do
	ending=${library#*:}
	mkdir -p "$ending"/{train,val}
	touch "$ending"/{train,val}/{image,label}".$ending"
	lacks "${library%:*}" train --model unet3d --data "volume:$ending"
done
echo PK >samples.npz
touch samples.tar
lacks libarchive train --model resnet20 --data tar:samples.tar,32 --split 0.1
lacks libzip train --model mlp --data npy:samples.npz
! "$builddir/minimal/stargrad" plan --machine "$srcdir/machines/titan.json" --model convnet --data digits --mini-batch 8 >out 2>err ||
	wrong 'plan --mini-batch works without a solver'
grep -q 'neither HiGHS nor GLPK; install libhighs-dev or libglpk-dev' err || wrong 'plan --mini-batch does not name the solvers' err

# ---- an option that cannot be met, and one that is no option

cd "$work" || exit 99
eval "arguments=($("$builddir/config.status" --config))"
refuses() { # PATTERN OPTION…
	! "$srcdir/configure" "${arguments[@]}" --srcdir="$srcdir" --with-cuda=no "${@:2}" >out 2>&1 || wrong "configure accepts ${*:2}"
	grep -q -e "$1" out || wrong "configure ${*:2} does not print: $1" out
}
refuses '--with-gif=yes, but giflib was not found: install libgif-dev' --with-gif=yes ac_cv_header_gif_lib_h=no
refuses '--with-gif=perhaps: must be yes, no or auto' --with-gif=perhaps
refuses '--with-dnnl=/nowhere: must be a folder that contains include' --with-dnnl=/nowhere
refuses 'pkg-config not found: install pkg-config' PKG_CONFIG=/nowhere

# ---- the tests

cd "$builddir/minimal" || exit 99
target=check-quick
[ "${STARGRAD_LONG:-}" != all ] || target=check
touch begun
make "$target" VERBOSE=1 >check.out 2>&1
status=$?
bash "$srcdir/tests/summary.sh" . "$PWD/begun" $status
