#!/usr/bin/env bash
# Holds the packages to the import rule. Imports run only to the left:
#
#   allocators  <-  harness  <-  properties, corpus, reports  <-  the roofs harness/cmd/shatter and harness/allocatortest
#
# properties, corpus and reports do not import one another, nothing imports a roof, and of the harness only gen and the
# roofs know gopter. Tests may import what they like, except a roof that is not theirs.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$(go list -m)

{
	go list -f '{{$p := .ImportPath}}{{range .Imports}}code {{$p}} {{.}}{{"\n"}}{{end}}' ./...
	go list -f '{{$p := .ImportPath}}{{range .TestImports}}test {{$p}} {{.}}{{"\n"}}{{end}}{{range .XTestImports}}test {{$p}} {{.}}{{"\n"}}{{end}}' ./...
} | awk -v module="$module" '
	# roof names the roof that a package belongs to, if it does.
	function roof(p) {
		if (p ~ /^harness\/cmd\/shatter(\/|$)/) return "harness/cmd/shatter"
		if (p ~ /^harness\/allocatortest(\/|$)/) return "harness/allocatortest"
		return ""
	}
	function top(p) { sub(/\/.*/, "", p); return p }
	function rank(p) {
		if (roof(p) != "") return 4
		if (top(p) == "allocators") return 1
		if (top(p) == "harness") return 2
		return 3
	}
	function complain(why) { print from " imports " to ": " why; bad = 1 }
	NF == 3 {
		lines++
		from = substr($2, length(module) + 2)
		to = $3
		if (index(to, module "/") != 1) {
			if ($1 == "code" && to ~ /^github.com\/leanovate\/gopter(\/|$)/ && from != "harness/gen" && roof(from) == "")
				complain("gopter stays in harness/gen")
			next
		}
		to = substr(to, length(module) + 2)
		if (roof(to) != "" && roof(to) != roof(from)) complain("nothing imports a roof")
		else if ($1 == "test") next
		else if (rank(to) > rank(from)) complain("imports run from " top(from) " to the left only")
		else if (rank(to) == 3 && rank(from) == 3 && top(to) != top(from)) complain("properties, corpus and reports do not import one another")
	}
	END {
		if (!lines) { print "no imports were listed"; bad = 1 }
		exit bad
	}'

# Who tests an allocator of their own gets little along with the harness.
if [ -d harness/allocatortest ]; then
	go list -deps -f '{{if not .Standard}}{{with .Module}}{{.Path}}{{end}}{{end}}' ./harness/allocatortest | sort -u |
		awk -v module="$module" '
			$0 != "" && $0 != module && $0 !~ /^(github.com\/stretchr\/testify|github.com\/leanovate\/gopter|gonum.org\/v1\/gonum)$/ &&
			$0 !~ /^(go.yaml.in\/yaml|github.com\/davecgh\/go-spew|github.com\/pmezard\/go-difflib)(\/|$)/ { # what testify itself needs
				print "harness/allocatortest brings in " $0; bad = 1
			}
			END { exit bad }'
fi
