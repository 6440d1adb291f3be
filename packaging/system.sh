# system.sh: bare Debian systems in folders, for scripts that build or test in one. They must run as root, with debootstrap and
# unshare. The archive and the proxies are those of this machine's apt.
# shellcheck shell=bash
#
# Environment: MIRROR=URL    another archive
#              JOBS=N        number of concurrent compilers (default: one per core)

[ "$(id -u)" = 0 ] || { echo "$0: must be run as root, to create systems" >&2 && exit 1; }
for tool in debootstrap git unshare; do
	command -v "$tool" >/dev/null || { echo "$0: $tool is not installed; install debootstrap, git and util-linux" >&2 && exit 1; }
done
# shellcheck disable=SC2016 # a word of apt
[ -n "${MIRROR:-}" ] || MIRROR=$(apt-get indextargets --format '$(SITE)' 'Origin: Debian' 'Label: Debian' 2>/dev/null | head -n 1)
# debootstrap's own way to the archive
[ -n "${http_proxy:-}" ] || eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
export http_proxy=${http_proxy:-}

# create ROOT SUITE OPTION…: creates a bare system in folder ROOT. The options are those of debootstrap.
create() {
	debootstrap --variant=minbase "${@:3}" "$2" "$1" ${MIRROR:+"$MIRROR"} || return
	apt-config dump | grep -E '^Acquire::(https?|ftp|Check|Force|Retries)' >"$1/etc/apt/apt.conf.d/99host"
	# The system need not survive a crash of the machine.
	echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/99host"
}

# inside ROOT FOLDER WORD…: runs a command in FOLDER of the system, without the environment of this machine. The arrays `mounts`
# (HOST-FOLDER FOLDER, …) and `settings` (NAME=VALUE, …) add folders and variables. The mounts end with the command.
mounts=() settings=()
inside() {
	# shellcheck disable=SC2016 # words of the inner shells
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 http_proxy="$http_proxy" ${JOBS:+JOBS="$JOBS"} "${settings[@]}" \
		unshare --mount bash -c '
			root=$1 folder=$2 count=$3
			shift 3
			mount --bind "$root" "$root" || exit
			for d in proc sys dev; do mount --rbind "/$d" "$root/$d" || exit; done
			for ((; count; count--)); do
				mkdir -p "$root$2" && mount --bind "$1" "$root$2" || exit
				shift 2
			done
			exec chroot "$root" sh -c '\''cd "$0" && exec "$@"'\'' "$folder" "$@"' bash "$1" "$2" $((${#mounts[@]} / 2)) "${mounts[@]}" "${@:3}"
}

# step NAME COMMAND…: runs a step of a recipe. Its output goes to $out/log/NAME, and its wall time is added to $times. The caller sets
# $out, a folder that contains log/.
times=
step() {
	local start=$SECONDS
	# shellcheck disable=SC2154 # out
	if ! "${@:2}" >"$out/log/$1" 2>&1; then
		tail -n 30 "$out/log/$1" >&2
		echo "$0: $1 failed; the complete output is in $out/log/$1" >&2
		exit 1
	fi
	times="$times, $1 $((SECONDS - start)) s"
}

# starpu_source FOLDER: the source of StarPU, downloaded once, in FOLDER/starpu.tar.xz.
starpu_source() {
	local archive source
	[ ! -e "$1/starpu.tar.xz" ] || return 0
	source=$(mktemp -d "$1/starpu.XXXXXX") && archive=$(build-aux/starpu/fetch "$1/starpu") && mkdir "$source/starpu" &&
		tar -xf "$archive" -C "$source/starpu" --strip-components=1 &&
		tar -C "$source" --sort=name --owner=0 --group=0 --numeric-owner -cJf "$1/starpu.tar.xz.new" starpu &&
		mv "$1/starpu.tar.xz.new" "$1/starpu.tar.xz" && rm -r "$source"
}
