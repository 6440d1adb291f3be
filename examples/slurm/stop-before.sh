#!/bin/bash
# stop-before.sh: trains on one rank per node, and ends with a checkpoint two minutes before the job's end, without a signal. The
# arguments are options of stargrad train:
#
#     sbatch examples/slurm/stop-before.sh --model resnet44 --data cifar10:DIR --out runs/r44
#
# Slurm 22.05 does not set SLURM_JOB_END_TIME, so the script does.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --open-mode=append

if [ -z "${SLURM_JOB_END_TIME:-}" ]; then
	SLURM_JOB_END_TIME=$(date -d "$(scontrol show job "$SLURM_JOB_ID" | grep -oP ' EndTime=\K\S+')" +%s)
	export SLURM_JOB_END_TIME
fi
exec srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 stargrad train --resume auto --stop-before slurm-2min "$@"
