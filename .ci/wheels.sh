#!/usr/bin/env bash
# The allocators of two PyTorch wheels, the recorded version and the newest that was checked, against what is expected of them:
# the first makes every committed decision log, the second decides as the model does but for explained differences, the
# tests that need a PyTorch run with the first, and the faults that README.md names are still in the second. The wheels come
# from PyPI; what is needed of them is kept as torch-matrix.sh says.
# Without a network the step is skipped, and fails if SHATTER_REQUIRE_TOOLS=1.
set -euo pipefail
cd "$(dirname "$0")/.."
recorded=2.6.0 newest=2.15.0
export CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shatter/torch}

if ! VERSIONS="$recorded $newest" FETCH_LIMIT=${FETCH_LIMIT:-120} .ci/torch-matrix.sh fetch; then
	echo "the PyTorch wheels $recorded and $newest could not be fetched from PyPI"
	[ "${SHATTER_REQUIRE_TOOLS:-}" = 1 ] && exit 1
	echo skipped
	exit 0
fi
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/shatter" ./harness/cmd/shatter
"$bin/shatter" conform --alloc "torch:$CACHE/$recorded" harness/conform/testdata/decisions
"$bin/shatter" versions --capacities=false --shrink-time 0 classic@x_rules:2.13 "torch:$CACHE/$newest"
SHATTER_TEST_TORCH="$CACHE/$recorded" go test -count=1 -run Torch ./allocators/external
SHATTER_TEST_TORCH="$CACHE/$newest" go test -count=1 -run TorchFaults ./allocators/external
