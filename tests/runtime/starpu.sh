#!/bin/bash
# StarPU: the number of CPUs for which it is built does not depend on this machine, and the compiler refuses one that is too small.
set -u
cd "${srcdir:-$(dirname "$0")/../..}" || exit 99
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
case $work in
*[[:space:]]*) echo "skipped: make cannot install in a folder with spaces in its name, as TMPDIR has" && exit 77 ;;
esac
status=0
fail() { echo "$*" >&2 && status=1; }

# ---- what build-aux/starpu/build asks of a StarPU that only notes what it was asked

mkdir "$work/starpu-1.4" "$work/bin"
cat >"$work/starpu-1.4/configure" <<'EOF'
#!/bin/sh
for word; do
	case $word in --prefix=*) prefix=${word#*=} ;; esac
done
printf 'all:\ninstall:\n\tmkdir -p $(DESTDIR)%s\n\techo "%s" >$(DESTDIR)%s/asked\n' "$prefix" "$*" "$prefix" >Makefile
EOF
chmod +x "$work/starpu-1.4/configure"
tar -cf "$work/starpu.tar" -C "$work" starpu-1.4
# A machine of many CPUs. The $1 is the stand-in's.
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" = --all ] && echo 700 || echo 1\n' >"$work/bin/nproc"
chmod +x "$work/bin/nproc"

# asked MAXCPUS…: what StarPU is asked for by the last of several calls with these values of MAXCPUS; "": it is not set.
asked() {
	rm -rf "$work/prefix"
	local n
	for n; do
		env -u MAXCPUS ${n:+MAXCPUS=$n} PATH="$work/bin:$PATH" STARPU_TARBALL="$work/starpu.tar" \
			build-aux/starpu/build "$work/prefix" no >"$work/log" 2>&1 ||
			{ cat "$work/log" >&2 && fail "StarPU for $n CPUs does not build"; }
	done
	sed -n 's/.*--enable-maxcpus=\([0-9]*\).*/\1/p' "$work/prefix/asked"
}

[ "$(asked '')" = 256 ] || fail 'by default StarPU is not built for 256 CPUs'
[ "$(asked 512)" = 512 ] || fail 'MAXCPUS=512 has no effect'
[ "$(asked 64)" = 64 ] || fail 'MAXCPUS=64 has no effect'
[ "$(asked 64 '')" = 256 ] || fail 'a StarPU for 64 CPUs is kept without MAXCPUS=64'
[ "$(asked 512 '')" = 512 ] || fail 'a StarPU for 512 CPUs is not kept'

# ---- a StarPU whose limits are not ours does not compile

build=${builddir:-build}
if ! [ -x "$build/config.status" ]; then
	echo "skipped: $build/ is not configured, so nothing tells how to compile"
	exit $((status ? status : 77))
fi
echo "@CC@ -w -I$work/include @STARPU_CFLAGS@ @MPI_CFLAGS@ @DNNL_CFLAGS@ @CUDA_CFLAGS@" >"$work/flags.in"
(cd "$build" && ./config.status -q --file="$work/flags:$work/flags.in") || exit 99
read -ra flags <"$work/flags"
own=$(printf '#include <starpu_config.h>\n' | "${flags[@]}" -E - |
	sed -n 's/^# [0-9]* "\(.*starpu_config.h\)".*/\1/p' | head -n 1)

# compiles FILE [NAME NUMBER]: with a StarPU that differs in this.
compiles() {
	mkdir -p "$work/include"
	sed "s/^#define ${2:-none} .*/#define ${2:-none} ${3:-}/" "$own" >"$work/include/starpu_config.h"
	"${flags[@]}" -std=gnu11 -fsyntax-only -I"$build" -I. "$1" 2>&1
}
compiles runtime/task.c || fail 'runtime/task.c does not compile with this StarPU'
compiles runtime/devices.c || fail 'runtime/devices.c does not compile with this StarPU'
compiles runtime/task.c STARPU_NMAXBUFS 8 | grep -q 'too few buffers per task; configure it with --enable-maxbuffers=16' ||
	fail 'a StarPU of 8 buffers a task is not refused'
compiles runtime/devices.c STARPU_NMAXWORKERS 4096 | grep -q 'more workers than SGRAD_MAX_WORKERS' ||
	fail 'a StarPU of 4096 workers is not refused'
compiles runtime/devices.c STARPU_NMAXWORKERS 300 || fail 'a StarPU of 300 workers is refused'
exit $status
