#!/bin/sh
# Builds the fake driver: build.sh OUTPUT_FOLDER. It needs gcc alone.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
"${CC:-gcc}" -O2 -Wall -Wextra -Werror -fPIC -shared -I"$here/../include" -Wl,-soname,libcuda.so.1 -o "$1/libcuda.so.1" \
	"$here/memory.c" "$here/device.c" -lpthread
