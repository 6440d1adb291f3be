#!/bin/bash
# mpirun.sh: trains on one rank per node, which Open MPI's mpirun starts. The arguments are options of stargrad train:
#
#     sbatch examples/slurm/mpirun.sh --model resnet44 --data cifar10:DIR --out runs/r44
#
# Slurm sends SIGUSR1 to this process two minutes before the time limit ("B:"). exec makes it the process of mpirun, which
# forwards the signal to the ranks. The run ends with a checkpoint. The same command continues it.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append

exec mpirun --map-by ppr:1:node --bind-to none stargrad train --resume auto "$@"
