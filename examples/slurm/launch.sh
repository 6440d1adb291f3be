#!/bin/bash
# launch.sh: trains on one rank per node. stargrad launch starts the ranks, and starts them again if one fails. The arguments are
# options of stargrad train:
#
#     sbatch examples/slurm/launch.sh --model resnet44 --data cifar10:DIR --out runs/r44
#
# Slurm sends SIGUSR1 to this process two minutes before the time limit ("B:"). exec makes it the process of launch. The run ends
# with a checkpoint. The same command continues it.
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append

exec stargrad launch -n "$SLURM_NTASKS" --retries 3 -- train --resume auto "$@"
