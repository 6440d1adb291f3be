#!/bin/bash
# The doctor ends, finds something, and notices what is wrong.
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

DNNL_MAX_CPU_ISA=SSE41 OMP_NUM_THREADS=7 passes doctor
says '^warning .*DNNL_MAX_CPU_ISA=SSE41'
says '^note .*OMP_NUM_THREADS=7'
says '^note .*STARPU_NCPU=2'

# No worker at all: training cannot run.
STARPU_NCPU=0 STARPU_NCUDA=0 "$STARGRAD" doctor >out 2>err
[ $? = 1 ] || wrong 'a machine without workers is fine'
says '^error .*StarPU'
says '^Training cannot run here.$'
exit 0
