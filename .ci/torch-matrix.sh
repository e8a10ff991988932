#!/usr/bin/env bash
# Fetches PyTorch wheels from PyPI and compares the allocator in each with the recorded decisions of 2.6.0: `make torch-matrix`.
#
# VERSIONS="2.6.0 2.13.0"  which ones (default: all that README.md names as checked)
# FETCH_LIMIT=SECONDS      how long one wheel may take (default: 600)
# DECISIONS=FOLDER         decision logs (default: the committed ones)
# CACHE=FOLDER             where what is needed of the wheels is kept (default: shatter/torch in the user's cache folder)
#
# Of each wheel only libc10*.so, libgomp*.so and the c10 headers are kept (about 5 MB); the wheel itself, up to 900 MB, is deleted.
# Needs python3 with pip, a C++ compiler, and a Linux that PyTorch has wheels for.
set -euo pipefail
cd "$(dirname "$0")/.."
VERSIONS=${VERSIONS:-2.0.1 2.1.0 2.2.0 2.3.0 2.4.0 2.5.0 2.6.0 2.7.0 2.8.0 2.9.0 2.10.0 2.11.0 2.12.0 2.13.0 2.14.1 2.15.0}
DECISIONS=${DECISIONS:-harness/conform/testdata/decisions}
CACHE=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shatter/torch}

# fetch VERSION
fetch() {
	local to="$CACHE/$1"
	[ -e "$to/torch/version.py" ] && return
	local work
	work=$(mktemp -d)
	echo "fetching torch $1" >&2
	if ! timeout "${FETCH_LIMIT:-600}" python3 -m pip download -q --retries 1 --timeout 20 --no-deps --no-cache-dir --only-binary :all: -d "$work" "torch==$1" >&2; then
		rm -rf "$work"
		return 1
	fi
	mkdir -p "$CACHE"
	python3 - "$work" "$work/out" <<'PY'
import fnmatch, glob, sys, zipfile
wanted = ["torch/lib/libc10.so", "torch/lib/libc10_cuda.so", "torch/lib/libgomp*", "torch/include/c10/*", "torch/include/torch/headeronly/*", "torch/version.py"]
with zipfile.ZipFile(glob.glob(sys.argv[1] + "/torch-*.whl")[0]) as z:
    z.extractall(sys.argv[2], [n for n in z.namelist() if any(fnmatch.fnmatch(n, w) for w in wanted)])
PY
	rm -rf "$to"
	mv "$work/out" "$to"
	rm -rf "$work"
}

[ "${1:-}" = fetch ] && {
	for v in $VERSIONS; do fetch "$v" || exit 1; done
	exit
}

go build -o bin/shatter ./harness/cmd/shatter
printf '%-8s  %-16s  %s\n' version build 'logs of 2.6.0'
status=0
for v in $VERSIONS; do
	if ! fetch "$v"; then
		printf '%-8s  %s\n' "$v" 'could not be fetched'
		status=1
		continue
	fi
	code=0
	out=$(bin/shatter conform --alloc "torch:$CACHE/$v" "$DECISIONS" 2>&1) || code=$?
	label=$(sed -n "s/^__version__ *= *['\"]\(.*\)['\"].*/\1/p" "$CACHE/$v/torch/version.py")
	if [ "$code" -gt 1 ]; then
		printf '%-8s  %-16s  does not run: %s\n' "$v" "$label" "$(head -n1 <<<"$out")"
		status=1
		continue
	fi
	rejected=$(sed -n 's/ of the divergent logs were not run.*//p' <<<"$out")
	printf '%-8s  %-16s  %s%s\n' "$v" "$label" "$(tail -n1 <<<"$out")" "${rejected:+, of which $rejected reject the settings}"
done
exit $status
