#!/usr/bin/env bash
# Makes sure that the queues that `make bench-machine` compares with are there. Debian and its kin install them by apt;
# elsewhere it says what is missing.
set -euo pipefail

programs=(cc tsp nq parallel munged slurmctld slurmd sbatch)
PATH="$PATH:/usr/sbin"
missing() { for program in "${programs[@]}"; do command -v "$program" >/dev/null || return 0; done; return 1; }

missing || exit 0
if ! command -v apt-get >/dev/null; then
    echo "these have to be on the PATH: ${programs[*]}; install them, then run this again" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
echo "installing task-spooler, nq, GNU parallel, Slurm and a C compiler"
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" apt-get install -qq -y --no-install-recommends
    task-spooler nq parallel slurmctld slurmd slurm-client munge gcc libc6-dev)
"${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null; }
! missing
