#!/bin/sh
# Checks a GPU with what lies beside this script: run.sh [OUTPUT_FOLDER]. It needs neither Go nor a network, and takes less than
# eight minutes. Health comes first: a sick or busy card ends it with code 3, which is no finding.
#
# Exit: 0 clean, 1 findings, 3 the card or its driver cannot be used. SHATTER_LIBCUDA names a driver library that is not found by
# itself; GPU picks a card (0).
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$PWD/gpu-report}
gpu=${GPU:-0}
mkdir -p "$out" || exit 3
health=$out/health.txt
: >"$health"
note() { echo "$*" | tee -a "$health"; }
unfit() {
	echo "shatter: $*" >&2
	echo "free the card or take another one (GPU=N), then run this again" >&2
	exit 3
}

# Some systems keep the driver where the loader does not look.
for dir in /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
	[ -d "$dir" ] && LD_LIBRARY_PATH=$dir:${LD_LIBRARY_PATH:-} && export LD_LIBRARY_PATH
done

note "kernel: $(uname -sr)"
if [ -n "${SHATTER_LIBCUDA:-}" ]; then
	note "driver library: $SHATTER_LIBCUDA (named in SHATTER_LIBCUDA; the card's own health was not looked at)"
elif command -v nvidia-smi >/dev/null 2>&1; then
	query() { nvidia-smi -i "$gpu" --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | head -n1; }
	smi=$(query index) || unfit "nvidia-smi does not answer for GPU $gpu"
	[ -n "$smi" ] || unfit "nvidia-smi does not answer for GPU $gpu"
	note "card: $(query name), driver $(query driver_version), $(query memory.used) of $(query memory.total) MiB used"
	mig=$(query mig.mode.current)
	note "MIG: ${mig:-unknown}"
	[ "$mig" = Enabled ] && note "with MIG on, the instance that the driver shows is what is checked"
	ecc=$(query ecc.errors.uncorrected.volatile.total)
	note "uncorrected ECC errors since the driver was loaded: ${ecc:-unknown}"
	case $ecc in '' | *[!0-9]* | 0) ;; *) unfit "GPU $gpu has $ecc uncorrected ECC errors" ;; esac
	apps=$(nvidia-smi -i "$gpu" --query-compute-apps=pid,used_memory --format=csv,noheader 2>/dev/null | grep -c '[0-9]')
	note "other processes that compute on the card: $apps"
	[ "$apps" -eq 0 ] || unfit "$apps other processes use GPU $gpu"
	if xid=$(dmesg 2>/dev/null | grep -c 'NVRM: Xid'); then
		note "Xid errors in the kernel's log: $xid"
		[ "$xid" -eq 0 ] || unfit "the kernel's log has $xid Xid errors; see dmesg"
	else
		note "Xid errors: the kernel's log shows none, or cannot be read here"
	fi
else
	note "nvidia-smi is not here: ECC errors, MIG and other processes were not looked at"
fi

echo "== device rules, as tests"
SHATTER_REQUIRE_GPU=1 "$here/cudadev.test" -test.timeout 3m >"$out/cudadev.txt" 2>&1
tests=$?
tail -n 5 "$out/cudadev.txt"
if grep -q '^FAIL: SHATTER_REQUIRE_GPU=1' "$out/cudadev.txt"; then
	unfit "$(grep '^FAIL: SHATTER_REQUIRE_GPU=1' "$out/cudadev.txt")"
fi

echo "== traces, sequences, latencies"
"$here/shatter" gpu --gpu "$gpu" --out "$out" --health "$health" --time 4m "$here/traces"
code=$?

if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
	echo "== the caching allocator of the PyTorch that is installed here"
	for trace in "$here"/traces/*.trace; do
		timeout 60 python3 "$here/record_torch.py" "$trace" --out "$out" || echo "record_torch.py: code $? on $trace" | tee -a "$out/torch.txt"
	done
else
	echo "PyTorch with CUDA is not here: its allocator was not recorded" | tee "$out/torch.txt"
fi

[ "$code" -ne 0 ] && exit "$code"
[ "$tests" -ne 0 ] && { echo "shatter: the device tests failed, see $out/cudadev.txt" >&2; exit 1; }
echo "clean; the report is in $out"
