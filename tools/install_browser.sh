#!/usr/bin/env bash
# Makes sure that Chromium and its driver are there, for the tests of the DevTools page. Debian and its kin install
# them by apt; elsewhere it says what is missing.
set -euo pipefail

there() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

if there && command -v chromedriver >/dev/null; then
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "the browser tests need Chromium and chromedriver on the PATH: install them, then run this again" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo -n)
fi
echo "installing Chromium for the browser tests"
export DEBIAN_FRONTEND=noninteractive
install=("${as_root[@]}" apt-get install -qq -y --no-install-recommends chromium chromium-driver)
"${install[@]}" >/dev/null 2>&1 || { "${as_root[@]}" apt-get update -qq && "${install[@]}" >/dev/null; }
there && command -v chromedriver >/dev/null
