#!/bin/bash
# stargrad doctor ends, prints findings, and detects problems.
# shellcheck source=tests/cli/expect.sh
. "$(dirname "$0")/expect.sh"

passes doctor
for about in versions CPU memory GPU StarPU MPI; do
	says "^[a-z]*  *$about "
done
says '^Training can run here.$'

passes doctor --json
python3 - <<'END' || wrong 'the JSON is not what it should be'
import json
result = json.load(open("out"))
assert result["can_train"] is True
assert all(f["status"] in ("ok", "note", "warning", "error") and f["about"] and f["text"] for f in result["findings"])
END

passes doctor --limits --model convnet --data digits --batch 64
for about in arithmetic kernels memory submission tasks; do
	says "^ok  *$about "
done
says '^[a-z]*  *limit *convnet, batch 64: [0-9.]* ms a step; the largest limit is [0-9]* % of it: '
"$STARGRAD" doctor --limits --model convnot >out 2>err
[ $? = 1 ] || wrong 'limits of a network that is none are fine'
grep -q "unknown model 'convnot'" err || wrong 'doctor --limits does not say what it lacks'

DNNL_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=7 passes doctor
says '^warning .*DNNL_MAX_CPU_ISA=SSE41'
says '^note .*OMP_NUM_THREADS=7'
says '^note .*STARPU_NCPU=2'

# A node with more cores than StarPU was built for; hwloc describes it.
most=$(sed -n 's/^ok *StarPU *built for at most \([0-9]*\) CPUs.*/\1/p' out)
HWLOC_SYNTHETIC="core:$((most + 8)) pu:1" HWLOC_THISSYSTEM=0 passes doctor
says '^warning .*StarPU .*8 cores stay idle, because StarPU is built for fewer$'
says "-> build StarPU for them: MAXCPUS=$((most + 8)) "

# No worker at all: training cannot run.
STARPU_NCPU=0 STARPU_NCUDA=0 "$STARGRAD" doctor >out 2>err
[ $? = 1 ] || wrong 'a machine without workers is fine'
says '^error .*StarPU'
says '^Training cannot run here.$'

# A machine's file of two ranks that exchange has one rank's share of the batch, and what sums of both ranks' gradients take.
if command -v mpirun >/dev/null; then
	mpirun -n 2 "$STARGRAD" doctor --machine here.json --model convnet --data digits --batch 64 >out 2>err || wrong 'two ranks do not measure'
	python3 - <<'END' || wrong 'doctor --machine: not what one of two ranks does'
import json
machine = json.load(open("here.json"))
rate, = machine["measured"]
assert rate["batch"] == 32 and "each of 2 ranks" in rate["samples_per_second"]["source"], rate
assert "sum" in {call["kernel"] for call in machine["calls"]}, machine["calls"]
assert 0 < machine["device"]["launch"]["value"] < 1e-3 and 0 <= machine["network"]["cpu_seconds_per_byte"]["value"] < 1e-6, machine
END
	passes plan --machine here.json --model convnet --data digits --nodes 2
	mpirun -n 2 "$STARGRAD" doctor --machine here.json --model mlp --data digits --batch 64 --strategy ps >out 2>err || wrong 'no servers'
	grep -q 'on each of 2 ranks with --strategy ps' here.json || wrong 'the file does not say how ranks exchanged'
	! "$STARGRAD" doctor --machine here.json --model mlp --data digits --strategy pss >out 2>err || wrong 'pss is a strategy'
	grep -q 'pss.*ps' err || wrong 'pss is not set right'
else
	echo 'no machine of two ranks: mpirun is not installed'
fi

# An MPI that gives one thread level less than is asked for: what training refuses, the doctor warns of.
CC=${CC:-cc}
if ! command -v "${CC%% *}" >/dev/null || ! command -v mpirun >/dev/null; then
	echo 'skipped: no compiler, or no mpirun, for an MPI of a lower thread level'
	exit 0
fi
cat >lower.c <<'END'
int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    int error = PMPI_Init_thread(argc, argv, required, provided);
    --*provided;
    return error;
}
END
$CC -shared -fPIC -o lower.so lower.c || wrong 'lower.c does not compile'
LD_PRELOAD=./lower.so passes doctor        # of this folder, whose name may have a space
says '^warning .*MPI  *thread level serialized$'
train=(train --model mlp --data digits --cpus 1 --print)
! mpirun -n 2 env LD_PRELOAD=./lower.so "$STARGRAD" "${train[@]}" >out 2>err || wrong 'ranks train all the same'
grep -q 'stargrad: several ranks require MPI_THREAD_MULTIPLE' err || wrong 'training does not say why'
exit 0
