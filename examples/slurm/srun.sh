#!/bin/bash
# srun.sh: trains on one rank per node, which srun starts. The arguments are options of stargrad train:
#
#     sbatch examples/slurm/srun.sh --model resnet44 --data cifar10:DIR --out runs/r44
#
# Slurm sends SIGUSR1 two minutes before the time limit, and the run ends with a checkpoint. The same command continues it.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120
#SBATCH --open-mode=append

exec srun --mpi=pmix --cpu-bind=none --kill-on-bad-exit=1 stargrad train --resume auto "$@"
