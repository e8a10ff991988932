#!/usr/bin/env bash
# Runs every native fuzz target of every package, one after the other, for FUZZTIME each (30s), and prints a line for each
# with its inputs per second and in total. Fails if there is no target, or if one finds something; what it found then lies
# in testdata/fuzz/<target> of its package.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-30s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# `go test -list` names the targets of a package above the package's own line.
targets=$(go test -vet=off -list '^Fuzz' ./... |
	awk '/^Fuzz/ { names[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }')
if [ -z "$targets" ]; then
	echo "fuzz: no fuzz target found" >&2
	exit 1
fi

# Minimisation is off: it starves short runs, and any failure passes for the one that is minimised.
fuzz() {
	go test "$1" -vet=off -run='^$' -fuzz="^$2\$" -fuzztime="$fuzztime" -fuzzminimizetime=0x -parallel 2 </dev/null >"$log" 2>&1
}

while read -r package target; do
	name="${package#github.com/shatter-gpu/shatter/} $target"
	if ! fuzz "$package" "$target"; then
		# Go's fuzzer at times reports its own deadline as a failure (golang/go#75804); that is no finding.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			echo "$name: the fuzzer missed its own deadline, once more"
			fuzz "$package" "$target" || { cat "$log"; echo "fuzz: $name failed" >&2; exit 1; }
		else
			cat "$log"
			echo "fuzz: $name failed" >&2
			exit 1
		fi
	fi
	# The last line with figures: fuzz: elapsed: 1m3s, execs: 12436 (4138/sec), new interesting: 586 (total: 636)
	awk -v name="$name" '
		/^fuzz: elapsed:/ && / execs: / {
			elapsed = $3; sub(/,$/, "", elapsed)
			total = $5; seconds = 0
			while (match(elapsed, /^[0-9]+[hms]/)) {
				n = substr(elapsed, 1, RLENGTH - 1); unit = substr(elapsed, RLENGTH, 1)
				seconds += n * (unit == "h" ? 3600 : unit == "m" ? 60 : 1)
				elapsed = substr(elapsed, RLENGTH + 1)
			}
		}
		END { printf "%-40s %8d inputs/s  %9d inputs in %d s\n", name, seconds ? total / seconds : 0, total, seconds }' "$log"
done <<<"$targets"
