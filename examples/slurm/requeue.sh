#!/bin/bash
# requeue.sh: trains until the run is complete, however many time limits that takes. The arguments are options of stargrad train:
#
#     sbatch examples/slurm/requeue.sh --model resnet44 --data cifar10:DIR --out runs/r44
#
#     SIGUSR1, two minutes before the limit ──> this shell ──> srun ──> ranks: a checkpoint ──> the job waits in the queue again
#
# Slurm also requeues the job if a node fails. The run then continues from its newest checkpoint: --checkpoint-every limits the
# loss.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

limit=
trap 'limit=yes; kill -USR1 "$train"' USR1
srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 stargrad train --resume auto --checkpoint-every 10min "$@" &
train=$!
while :; do
	wait "$train"
	status=$?
	kill -0 "$train" 2>/dev/null || break # otherwise the signal has interrupted wait
done
if [ "$limit" ] && [ "$status" != 0 ]; then
	scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
