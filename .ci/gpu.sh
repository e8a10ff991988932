#!/usr/bin/env bash
# Builds the package that checks a GPU elsewhere: bin/gpu and bin/shatter-gpu.tar.gz. It needs Go and a C compiler, and neither
# a GPU nor a toolkit. What is built needs libc alone; it prints the newest version of it that a symbol asks for.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/cudaenv.sh
out=bin/gpu
rm -rf "$out"
mkdir -p "$out/traces"
go build -trimpath -tags cuda -ldflags '-s -w' -o "$out/shatter" ./harness/cmd/shatter
go test -c -trimpath -tags cuda -ldflags '-s -w' -o "$out/cudadev.test" ./allocators/device/cudadev
cp reports/gpu/run.sh corpus/record/record_torch.py "$out/"
cp corpus/accepted/46-article-*.trace "$out/traces/"
tar -C bin -czf bin/shatter-gpu.tar.gz gpu

newest=0.0
for program in "$out/shatter" "$out/cudadev.test"; do
	needed=$(ldd "$program" | awk '{ print $1 }' | grep -Ev '^(linux-vdso|libc|/lib.*/ld-linux)' || true)
	if [ -n "$needed" ]; then
		echo "gpu: $program needs $needed" >&2
		exit 1
	fi
	newest=$(printf '%s\n%s\n' "$newest" "$(objdump -T "$program" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -Vu | tail -n1)" | sort -V | tail -n1)
done
if [ "$(printf '%s\n2.35\n' "$newest" | sort -V | tail -n1)" != 2.35 ]; then
	echo "gpu: the package needs GLIBC $newest, at most 2.35 is allowed" >&2
	exit 1
fi
echo "bin/shatter-gpu.tar.gz: $(stat -c %s bin/shatter-gpu.tar.gz) bytes, needs GLIBC $newest; unpack it on the machine with the GPU and run gpu/run.sh"
