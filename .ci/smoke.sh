#!/usr/bin/env bash
# A quick run from a fixed seed: it must come to its end and find nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./harness/cmd/shatter run --seqs 14 --seed 1 </dev/null
