#!/usr/bin/env bash
# Builds with the tag cuda and tests on the fake driver, plainly and under the race detector; then without any driver: the same
# tests skip, fail if a GPU is required, and `shatter list devices` says why.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/cudaenv.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
allocators/device/cudadev/fakecuda/build.sh "$dir"
fake=$dir/libcuda.so.1

go vet -tags cuda ./allocators/device/... ./harness/cmd/shatter
# The tests' cache does not know of the driver, hence -count=1.
SHATTER_LIBCUDA=$fake go test -count=1 -tags cuda ./allocators/device/... ./allocators/catalog
SHATTER_LIBCUDA=$fake go test -count=1 -race -tags cuda ./allocators/device/cudadev/...
go build -tags cuda -o "$dir/shatter" ./harness/cmd/shatter
SHATTER_LIBCUDA=$fake FAKECUDA_CAPACITY=4G "$dir/shatter" run --device cuda:0:1GiB --seqs 7 --ops 200 | sed -n 1,2p

SHATTER_LIBCUDA=$dir/none go test -count=1 -tags cuda ./allocators/device/cudadev
if SHATTER_LIBCUDA=$dir/none SHATTER_REQUIRE_GPU=1 go test -count=1 -tags cuda ./allocators/device/cudadev >"$dir/log"; then
	echo "cuda: the tests passed although a GPU was required and there is no driver" >&2
	exit 1
fi
SHATTER_LIBCUDA=$dir/none "$dir/shatter" list devices | grep 'not here: no NVIDIA driver'
SHATTER_LIBCUDA=$fake FAKECUDA_DEVICES=0 "$dir/shatter" list devices | grep 'not here: the NVIDIA driver answers CUDA error 100'
