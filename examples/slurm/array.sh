#!/bin/bash
# array.sh: an array of jobs. Each job is a run of one process, with its own seed. The arguments are options of stargrad train,
# without --seed and --out:
#
#     sbatch --array=0-7 examples/slurm/array.sh --model resnet20 --data cifar10:DIR
#
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=USR1@120

seed=$SLURM_ARRAY_TASK_ID
exec srun --cpus-per-task="$SLURM_CPUS_PER_TASK" stargrad train --resume auto "$@" --seed "$seed" --out "runs/seed-$seed"
