#!/usr/bin/env bash
# Gets the independent readers that check the copies, and a client of schema registries, into a virtual environment, ~/.cache/tidewire/venv. With `all` ClickHouse and Spark,
# too, and Delta's jars for Spark into ~/.cache/tidewire/spark-jars. With `azure` a server of Azure's protocol into ~/.cache/tidewire/azurite.
set -euo pipefail
venv=${TIDEWIRE_VENV:-$HOME/.cache/tidewire/venv}
jars=$HOME/.cache/tidewire/spark-jars

# get NAME PACKAGES: installs them unless they are there already.
get() {
  local stamp="$venv/.$1" wanted=$2
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  echo "installing into $venv: $wanted"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  # shellcheck disable=SC2086 # a list
  "$venv/bin/pip" install --quiet --disable-pip-version-check $wanted
  echo "$wanted" > "$stamp"
}

get wanted "duckdb==1.5.5 duckdb-extension-delta==1.5.5 duckdb-extension-httpfs==1.5.5 moto[server] polars deltalake pyarrow psycopg2-binary pyyaml pytz"
get registry "confluent-kafka[schemaregistry,avro,json,protobuf]==2.16.1"
if [ "${1:-}" = all ]; then
  get all "chdb==4.4.0 pyspark==3.5.9"
  for jar in delta-spark_2.12:3.3.2 delta-storage:3.3.2; do
    [ -e "$jars/${jar/:/-}.jar" ] || mvn -q -B dependency:copy "-Dartifact=io.delta:$jar" "-DoutputDirectory=$jars"
  done
fi
if [ "${1:-}" = azure ] && [ ! -d "$HOME/.cache/tidewire/azurite/node_modules/azurite" ]; then
  npm install --silent --no-fund --no-audit --prefix "$HOME/.cache/tidewire/azurite" azurite@3.37.0
fi
