#!/usr/bin/env bash
# Shows what a night does with a clean program and with planted bugs: `make nightly-selftest`.
#
# TIME=15   seconds of each night (180 and more for a real look; 15 is enough to see every bug on two cores)
# KEEP=DIR  keep the nights' folders there
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null
TIME=${TIME:-15}
work=$(mktemp -d)
out=${KEEP:-$work/nights}
mkdir -p "$out"
trap 'rm -rf "$work"' EXIT

fail() {
	echo "nightly: $1" >&2
	[ -z "${2:-}" ] || cat "$2" >&2
	exit 1
}

# night NAME PROGRAM EXIT ARG... runs a night into $out/NAME, which must end so.
night() {
	local name=$1 program=$2 want=$3 code=0 start
	shift 3
	start=$(date +%s%N)
	"$program" nightly --time "${TIME}s" --out "$out/$name" "$@" >"$out/$name.txt" 2>&1 || code=$?
	printf '%s: exit code %d after %d s of %d: %s\n' "$name" "$code" $((($(date +%s%N) - start) / 1000000000)) "$TIME" "$(head -n1 "$out/$name.txt")"
	[ "$code" = "$want" ] || fail "$name: exit code $code, not $want" "$out/$name.txt"
	for f in nightly.json junit.xml summary.md report.txt report.html; do
		[ -s "$out/$name/$f" ] || fail "$name: there is no $f"
	done
}

# shows NAME FILE PATTERN: the file of the night has a line that matches.
shows() {
	grep -Eq -- "$3" "$out/$1/$2" || fail "$1: $2 has no line '$3'" "$out/$1/report.txt"
}

# plant NAME builds the program with a planted bug.
plant() {
	"$work/clean" selftest --name "$1" --overlay "$work/$1" >/dev/null
	go build -overlay "$work/$1/overlay.json" -o "$work/$1/shatter" ./harness/cmd/shatter
}

go build -o "$work/clean" ./harness/cmd/shatter

# Known issues are green.
night clean "$work/clean" 0
shows clean report.txt '^green'
shows clean nightly.json '"findings": \[\]'
shows clean report.txt '^known issue pytorch#'
shows clean report.txt 'against the recorded decisions: [0-9]+ the same, 0 different$'

# A bug is red, named in JUnit, and its trace waits among the pending cases, shrunk.
plant canary
night canary "$work/canary/shatter" 1
shows canary junit.xml '<testcase name="no-overlap\.live\.classic\.alloc" classname="exploration">'
shows canary junit.xml '<failure message="no-overlap/live on '
shows canary report.txt 'shrunk from [0-9]+ to [23] operations$'
trace=$(ls "$out"/canary/pending/no-overlap.live.classic.alloc-*.trace) || fail 'canary: no pending trace'
"$work/clean" replay "$trace" >/dev/null || fail 'canary: the trace fails without the bug'
if "$work/canary/shatter" replay "$trace" >/dev/null; then fail 'canary: the trace passes with the bug'; fi
"$work/clean" corpus list --dir "$out/canary" >/dev/null || fail 'canary: the folder is no corpus'

# A changed line of a split rule: the panel shows the first operation that is decided otherwise, against the record and the last night.
plant remainder-of-512-kept
cp -r "$out/clean" "$out/split"
night split "$work/remainder-of-512-kept/shatter" 1
shows split report.txt '^DIFFERENT from the recorded decisions: .*: operation [0-9]+ \(alloc [0-9]+ [0-9]+.*\): block_size [0-9]+, now [0-9]+'
shows split report.txt '^DIFFERENT from the last night: '
shows split junit.xml '<failure message="operation [0-9]+ \(alloc .*\): block_size differs" type="difference">'
grep -m1 '^DIFFERENT from the recorded' "$out/split/report.txt"

# An allocator that never comes back: the watchdog names the operation, and the night goes on.
mkdir "$work/hang"
sed 's|^	size := a.set.Round(n)$|	for n == 1<<20+1 {\n	}\n&|' allocators/caching/allocator.go >"$work/hang/allocator.go"
printf '{"Replace":{"%s":"%s"}}' "$PWD/allocators/caching/allocator.go" "$work/hang/allocator.go" >"$work/hang/overlay.json"
go build -overlay "$work/hang/overlay.json" -o "$work/hang/shatter" ./harness/cmd/shatter
night hang "$work/hang/shatter" 1 --watchdog 2s
shows hang report.txt '^FINDING survives\.hung\.(classic|expandable)\.process$'
shows hang report.txt 'a worker hung at operation [0-9]+ \(alloc [0-9]+ 1048577( stream=[0-9]+)?\) of '
shows hang junit.xml '<failure message="survives/hung on '
grep -m1 '^LOST a worker hung at operation' "$out/hang/report.txt"
tail -n1 "$(ls "$out"/hang/pending/survives.hung.*.trace | head -n1)" | grep -Eq '^alloc [0-9]+ 1048577' || fail 'hang: the trace does not end where it hung'

# A worker killed, one stopped, and at half time SIGTERM: the night ends complete and says so.
watchdog=$((TIME / 6 > 2 ? TIME / 6 : 2))
"$work/clean" nightly --time "${TIME}s" --out "$out/disturbed" --watchdog "${watchdog}s" --workers 2 >"$out/disturbed.txt" 2>&1 &
pid=$!
sleep $((TIME / 8 + 1))
mapfile -t workers < <(pgrep -P "$pid")
kill -KILL "${workers[0]}"
kill -STOP "${workers[1]}"
sleep $((TIME / 2 - TIME / 8 - 1))
kill -TERM "$pid"
start=$(date +%s%N)
code=0
wait "$pid" || code=$?
took=$((($(date +%s%N) - start) / 1000000))
echo "disturbed: exit code $code, $took ms after SIGTERM: $(head -n1 "$out/disturbed.txt")"
[ "$code" = 130 ] || fail "disturbed: exit code $code, not 130" "$out/disturbed.txt"
[ "$took" -lt 5000 ] || fail "disturbed: it took $took ms to end"
shows disturbed nightly.json '"interrupted": true'
shows disturbed report.txt '^interrupted: .*2 workers lost'
shows disturbed report.txt '^LOST a worker hung at '
shows disturbed report.txt 'signal: killed'
shows disturbed report.txt '^panel: ([0-9]+) of \1 run'
[ "$(grep -c 'its task was done again: passed' "$out/disturbed/report.txt")" = 2 ] || fail 'disturbed: a lost task was not done again' "$out/disturbed.txt"
echo "nightly: all as it must be"
