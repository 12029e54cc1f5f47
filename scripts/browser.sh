#!/bin/sh
# Installs the browser that the page's tests drive (Debian and Ubuntu; needs root):
#   scripts/browser.sh && DYNOSWEEP_BROWSER=require go test ./results/page/
set -eu
apt-get update -q
apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core
chromium --version
