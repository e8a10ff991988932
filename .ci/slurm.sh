#!/usr/bin/env bash
# Runs shatter as an array job of a real Slurm and compares the merged result with that of one process: `make slurm`. A short night
# is run in the same way.
#
# Controller and node daemon run on this machine, with their own configuration and state in a temporary folder, on ports that are
# free, without munge and accounting; nothing of a Slurm that is set up here is touched. They are stopped at the end.
# Needs Go and Debian's slurm-wlm, which it installs if it may. Without them it says so and passes; with
# SHATTER_REQUIRE_TOOLS=1 it fails.
#
# SEQS=32   sequences of the run      SHARDS=4   tasks of the array
set -euo pipefail
cd "$(dirname "$0")/.."
SEQS=${SEQS:-32}
SHARDS=${SHARDS:-4}
export PATH="$PATH:/usr/sbin:/sbin"

skip() {
	echo "slurm: skipped: $1" >&2
	[ "${SHATTER_REQUIRE_TOOLS:-}" = 1 ] && exit 1
	exit 0
}

missing() {
	for tool in slurmctld slurmd sbatch sinfo; do
		command -v "$tool" >/dev/null || return 0
	done
	return 1
}

[ "$(uname -s)" = Linux ] || skip 'Slurm runs on Linux'
[ "$(id -u)" = 0 ] || skip 'its daemons need root, to start jobs'
if missing; then
	command -v apt-get >/dev/null || skip 'slurm-wlm is not installed, and there is no apt-get to install it'
	echo 'installing slurm-wlm'
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get install -y --no-install-recommends slurm-wlm || { apt-get update && apt-get install -y --no-install-recommends slurm-wlm; }; } >/dev/null 2>&1 ||
		skip 'slurm-wlm could not be installed'
	missing && skip 'slurm-wlm was installed and has no slurmctld, slurmd, sbatch, sinfo'
fi

work=$(mktemp -d)
stop() {
	status=$?
	for d in slurmd slurmctld; do
		[ -e "$work/$d.pid" ] || continue
		pid=$(cat "$work/$d.pid")
		kill "$pid" 2>/dev/null || continue
		for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null && sleep 0.1 || break; done
		kill -9 "$pid" 2>/dev/null || true
	done
	if [ "$status" -ne 0 ]; then tail -n 20 "$work"/*.log "$work"/*.out 2>/dev/null || true; fi
	rm -rf "$work"
}
trap stop EXIT

port() { # a port that nobody listens on
	local p
	for p in $(shuf -i 20000-40000 -n 50); do
		if ! (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null; then
			echo "$p"
			return
		fi
	done
	return 1
}

host=$(hostname -s)
mkdir "$work/state" "$work/spool"
cat >"$work/slurm.conf" <<CONF
ClusterName=shatter
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(port)
SlurmdPort=$(port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName=shatter NodeHostname=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf"
slurmctld -c >/dev/null 2>"$work/slurmctld.out"
slurmd -N shatter >/dev/null 2>"$work/slurmd.out"
for _ in $(seq 100); do
	state=$(sinfo -h -o %t 2>/dev/null || true)
	[ "$state" = idle ] && break
	sleep 0.2
done
[ "$state" = idle ] || {
	echo "slurm: the node is '$state', not idle" >&2
	exit 1
}
slurmctld -V

go build -o "$work/shatter" ./harness/cmd/shatter
export SHATTER="$work/shatter"
start=$SECONDS
sbatch --wait --array="0-$((SHARDS - 1))" --chdir="$work" --output="$work/task-%a.out" "$PWD/harness/deploy/slurm.sbatch" \
	run --seqs "$SEQS" --seed 7 --ops 400 --out "$work/results"
echo "array of $SHARDS tasks: $((SECONDS - start)) s"
for i in $(seq 0 $((SHARDS - 1))); do
	[ -s "$work/results/shard-$i/summary.json" ] || {
		echo "slurm: task $i left no result" >&2
		exit 1
	}
done
"$SHATTER" report merge "$work"/results/shard-* --out "$work/all" >/dev/null
"$SHATTER" run --seqs "$SEQS" --seed 7 --ops 400 --out "$work/one" >/dev/null

# Everything but the timing, which has a file of its own.
rm -f "$work/all/timing.json" "$work/one/timing.json"
diff -r "$work/one" "$work/all"
files=$(find "$work/all" -type f | wc -l)
echo "$SEQS sequences in $SHARDS shards: the merged result is that of one process, byte for byte ($files files, $(du -bs "$work/all" | cut -f1) bytes; timing.json left out)"

start=$SECONDS
sbatch --wait --array="0-$((SHARDS - 1))" --chdir="$work" --output="$work/night-%a.out" "$PWD/harness/deploy/slurm.sbatch" \
	nightly --time 10s --seed 7 --out "$work/night"
"$SHATTER" report merge "$work"/night/shard-* --out "$work/night/all" >"$work/night.txt"
echo "a night of 10 s in $SHARDS shards: $((SECONDS - start)) s: $(head -n1 "$work/night.txt")"
grep -Eq "merged from $SHARDS shards" "$work/night.txt"
grep -Eq '^panel: ([0-9]+) of \1 run' "$work/night.txt" || {
	cat "$work/night.txt"
	exit 1
}
