#!/bin/bash
# Environment variables of StarPU, OpenMP and launchers: settings that would abort StarPU, leave cores idle or train copies are
# corrected or refused.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

train=(train --model mlp --data digits --batch 64 --steps 2 --print)
unset STARPU_NCPU STARPU_HOME XDG_CACHE_HOME "${!SLURM_@}" "${!OMP_@}"
export HOME=$work TMPDIR="$work/a b"
mkdir "$TMPDIR"
touch file

# ---- a home in which StarPU cannot write: its folder is in TMPDIR

kept="StarPU cannot store measured times there and uses $TMPDIR/stargrad-$(id -u) instead; set STARPU_HOME to a writable folder\$"
for home in "HOME=$work/file" "HOME=$work/nowhere" "HOME=/proc" "STARPU_HOME=$work/file" "STARPU_HOME=/proc/x" "XDG_CACHE_HOME=$work/file/x"; do
	# shellcheck disable=SC2163 # a variable and its value
	(export "$home" && warns 1 "$home: [A-Z][a-z ]*: $kept" "${train[@]}") || exit 1
done
(unset HOME && warns 1 "HOME is not set: $kept" "${train[@]}") || exit 1
[ ! -e nowhere ] || wrong 'a home that is not there is made'
[ -d "$TMPDIR/stargrad-$(id -u)/.starpu" ] || wrong 'nothing is kept in TMPDIR'
(export STARPU_HOME=$work/new/one && passes "${train[@]}") || exit 1
(export HOME=$work/file TMPDIR=$work/file && refuses 1 'HOME=.*: StarPU cannot store measured times there or in TMPDIR; set STARPU_HOME' "${train[@]}") || exit 1
(export HOME=$work/file && passes doctor && says '^warning .*HOME=.*: StarPU cannot store measured times there') || exit 1
# What another user has put there is not taken.
rm -r "$TMPDIR/stargrad-$(id -u)" && ln -s "$work" "$TMPDIR/stargrad-$(id -u)"
(export HOME=$work/file && warns 1 "HOME=.*: StarPU cannot store measured times there and uses $TMPDIR/stargrad-[A-Za-z0-9]* instead; set STARPU_HOME" "${train[@]}") || exit 1
[ ! -L "$TMPDIR/stargrad-$(id -u)/.starpu" ] || wrong 'a link is followed'

# ---- numbers that StarPU cannot use

for variable in STARPU_NCPU STARPU_NCPUS STARPU_NCUDA; do
	for value in 4096 99999999999999999999 -3 abc 2x 1.5; do
		(export $variable=$value && refuses 2 "$variable=$value is not a whole number from 0 to [0-9]*, .*; unset it" "${train[@]}") || exit 1
	done
done
(export STARPU_NCPU=64 && warns 1 "STARPU_NCPU=64: 64 workers share the $(nproc) CPUs\\? of this machine" "${train[@]}") || exit 1
for variable in STARPU_MAIN_THREAD_CPUID STARPU_MAIN_THREAD_COREID STARPU_MPI_THREAD_CPUID STARPU_MPI_THREAD_COREID; do
	for value in 4096 x; do
		(export $variable=$value && refuses 2 "$variable=$value is not a [a-zA-Z]* of this machine (0 to " "${train[@]}") || exit 1
	done
done
(export STARPU_MAIN_THREAD_CPUID=0 STARPU_NCPU=1 && passes "${train[@]}") || exit 1

# ---- OpenMP binds a program to one core

passes "${train[@]}" # all the cores
devices=$(grep ^devices out)
for binding in OMP_PROC_BIND=true OMP_PROC_BIND=close OMP_PLACES=cores GOMP_CPU_AFFINITY=0; do
	# shellcheck disable=SC2163
	(export "$binding" && passes "${train[@]}" && [ "$(grep ^devices out)" = "$devices" ]) || wrong "$binding leaves: $(grep ^devices out)"
	(export "${binding?}" && passes doctor && says "^note .*$binding") || exit 1
done
if command -v taskset >/dev/null; then # what a user has bound stays so
	one=$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')
	OMP_PROC_BIND=true taskset -c "$one" "$STARGRAD" "${train[@]}" >out 2>err
	says '^devices    1 CPU core'
fi

# ---- a launcher has started copies that MPI does not know as ranks

copies() { # PATTERN VARIABLE=VALUE…
	local pattern=$1
	shift
	(export "${@?}" && refuses 2 "$pattern" "${train[@]}") || exit 1
}
alone() {
	(export "${@?}" && passes "${train[@]}") || exit 1
}
copies 'srun has started 2 processes (SLURM_STEP_NUM_TASKS), but MPI has 1 rank, so .*--mpi=pmix.*unset SLURM_STEP_NUM_TASKS' \
	SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0
copies 'mpiexec has started 4 processes (PMI_SIZE), but MPI has 1 rank, so each process would train by itself' PMI_SIZE=4
copies 'mpiexec has started 3 processes (PALS_NRANKS), but MPI has 1 rank, so each process would train by itself' PALS_NRANKS=3 PALS_RANKID=0
alone SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_PROCID=0       # a batch script that starts one process
alone SLURM_NTASKS=2 SLURM_STEP_NUM_TASKS=1              # srun -n 1
alone SLURM_STEP_NUM_TASKS=15 OMPI_COMM_WORLD_SIZE=1     # mpirun has started its daemons by srun
SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 "$STARGRAD" "${train[@]}" >out 2>err
[ $? = 2 ] && [ ! -s err ] || wrong 'each copy says the same'
SLURM_STEP_NUM_TASKS=2 "$STARGRAD" train --model mlp --data digits --steps 2 --out claimed >out 2>err
[ $? = 2 ] && [ ! -e claimed ] || wrong 'a copy makes a folder'

# ---- stacks of workers

if [ -x "${builddir:-$srcdir/build}/tests/runtime/stack" ]; then
	(ulimit -s 256 && "${builddir:-$srcdir/build}/tests/runtime/stack") >out 2>&1 || wrong 'a kernel has no stack'
fi
exit 0
