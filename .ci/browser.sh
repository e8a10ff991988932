#!/usr/bin/env bash
# The HTML pages in a real headless browser: no messages, no network, legible, and they do what they should. Installs Debian's
# chromium where no browser is there and apt-get is.
set -euo pipefail
cd "$(dirname "$0")/browser"

found() { command -v chromium || command -v chromium-browser || command -v google-chrome || command -v google-chrome-stable; }
if ! found >/dev/null && command -v apt-get >/dev/null; then
	sudo=
	if [ "$(id -u)" -ne 0 ]; then sudo=sudo; fi
	DEBIAN_FRONTEND=noninteractive $sudo apt-get update -qq
	DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
fi
go vet ./...
go test -count=1 ./... </dev/null
