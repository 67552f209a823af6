#!/usr/bin/env bash
# maven.sh: see to it that there is Maven, which fetches the broker and the connectors of the cluster tests, unless a
# Docker engine runs. Where it cannot be installed, nothing is said: the tests skip themselves with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
. .ci/packages.sh

if command -v mvn >/dev/null || docker info >/dev/null 2>&1 || ! may_install; then exit; fi
if command -v apt-get >/dev/null; then
    as_root apt-get update -qq >&2 || true
    first_that_installs as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -- maven
elif command -v dnf >/dev/null; then
    first_that_installs as_root dnf install -y -q -- maven
elif command -v apk >/dev/null; then
    first_that_installs as_root apk add -q -- maven
fi || true
