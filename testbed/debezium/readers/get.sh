#!/usr/bin/env bash
# Gets Flink's SQL with its own `debezium-json` format, and Debezium's JDBC sink (their jars, by Maven), compiles the programs beside this file and
# prints both class paths, a line each. Needs a JDK from 17 on and Maven. `make debezium-readers` uses it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=$HOME/.cache/tidewire
flink=2.2.1 connector=5.0.0-2.2 jdbc=3.6.0.Final
for program in javac mvn; do
  command -v "$program" >/dev/null || { echo "$program is missing: install openjdk-17-jdk-headless and maven" >&2; exit 2; }
done

dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

fetch() { # folder, dependencies
  [ -e "$1/ready" ] && return
  local pom
  pom=$(mktemp -d)
  echo "getting $1" >&2
  cat > "$pom/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tidewire</groupId>
<artifactId>testbed</artifactId><version>1</version><packaging>pom</packaging><dependencies>$2</dependencies></project>
POM
  rm -rf "$1"
  mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$1/jars" >&2
  rm -rf "$pom"
  touch "$1/ready"
}

compile() { # folder, program, further class path
  mkdir -p "$1/classes"
  if [ "$here/$2.java" -nt "$1/classes/$2.class" ]; then
    javac -cp "$1/jars/*${3:+:$3}" -d "$1/classes" "$here/$2.java" >&2
  fi
  echo "$1/classes:$1/jars/*${3:+:$3}"
}

fetch "$cache/flink-$flink" "$(dependency org.apache.flink flink-clients "$flink")$(dependency org.apache.flink flink-table-api-java-bridge "$flink")\
$(dependency org.apache.flink flink-table-runtime "$flink")$(dependency org.apache.flink flink-table-planner-loader "$flink")\
$(dependency org.apache.flink flink-json "$flink")$(dependency org.apache.flink flink-connector-base "$flink")\
$(dependency org.apache.flink flink-connector-kafka "$connector")$(dependency org.slf4j slf4j-simple 1.7.36)"
sink=$cache/debezium-jdbc-$jdbc
if [ ! -e "$sink/ready" ]; then
  rm -rf "$sink"
  mkdir -p "$sink/archive" "$sink/jars"
  (cd "$sink" && mvn -q -B dependency:copy "-Dartifact=io.debezium:debezium-connector-jdbc:$jdbc:tar.gz:plugin" "-DoutputDirectory=$sink/archive" >&2)
  tar xzf "$sink"/archive/*.tar.gz --strip-components 1 -C "$sink/jars"
  rm -r "$sink/archive"
  touch "$sink/ready"
fi
compile "$cache/flink-$flink" FlinkTable
# Connect itself, and the clients of Kafka.
compile "$sink" JdbcSink "$("$here/../get.sh")"
