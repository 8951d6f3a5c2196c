#!/usr/bin/env bash
# Gets Apache Kafka (its jars, by Maven) into the user's cache and prints their folder. With a command it starts one broker in a folder
# (KRaft, loopback, free ports, small heap) and prints its address once it answers. What stands in TIDEWIRE_KAFKA_PROPERTIES is added to
# its properties when the folder is new. One of several brokers (`ports` gives free ports): TIDEWIRE_KAFKA_NODE is its number,
# TIDEWIRE_KAFKA_PORTS its port and the controller's, TIDEWIRE_KAFKA_VOTERS all controllers; they are started at once.
#   testbed/kafka.sh
#   testbed/kafka.sh start FOLDER    it runs until  testbed/kafka.sh stop FOLDER
#   testbed/kafka.sh ports COUNT
#   testbed/kafka.sh run FOLDER      until standard input ends: then the folder goes, too. A line `stop` or `kill` keeps it
set -euo pipefail
version=${TIDEWIRE_KAFKA_VERSION:-4.4.0}
TIDEWIRE_KAFKA_PROPERTIES=${TIDEWIRE_KAFKA_PROPERTIES:-}
libs=$HOME/.cache/tidewire/kafka-$version
formatted=$libs/formatted mapped=$libs/classes.jsa
quiet=(-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xlog:disable -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info)

get() {
  [ -e "$libs/.whole" ] && return
  for program in java mvn; do
    command -v "$program" >/dev/null || { echo "Kafka needs Java 17 and Maven: run testbed/install.sh" >&2; exit 3; }
  done
  # Two tests may come here at once.
  mkdir -p "$(dirname "$libs")"
  exec 9>"$libs.lock"
  flock 9
  [ -e "$libs/.whole" ] && return
  echo "getting Apache Kafka $version" >&2
  local pom
  pom=$(mktemp -d)
  dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }
  cat > "$pom/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tidewire</groupId>
<artifactId>testbed</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>$(dependency org.apache.kafka kafka_2.13 "$version")$(dependency org.apache.kafka kafka-tools "$version")
$(dependency org.slf4j slf4j-simple 1.7.36)</dependencies></project>
POM
  rm -rf "$libs"
  mvn -q -B -f "$pom/pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$libs" >&2
  rm -rf "$pom"
  touch "$libs/.whole"
  exec 9>&-
}

# What makes a start short, once for all: a folder that is formatted, and the classes of a broker in a form that Java maps.
prepare() {
  [ -e "$libs/.ready" ] && return
  exec 9>"$libs.lock"
  flock 9
  [ -e "$libs/.ready" ] && return
  local folder
  folder=$(mktemp -d)
  rm -rf "$formatted" "$mapped"
  unset TIDEWIRE_KAFKA_NODE TIDEWIRE_KAFKA_PORTS TIDEWIRE_KAFKA_VOTERS TIDEWIRE_KAFKA_SCRAM
  TIDEWIRE_KAFKA_PROPERTIES='' configure "$folder"
  cp -r "$folder/log" "$formatted"
  start "$folder" "-XX:ArchiveClassesAtExit=$mapped" > /dev/null
  end TERM "$folder"
  rm -rf "$folder"
  touch "$libs/.ready"
}

free_ports() { # how many
  python3 - "$1" <<'PY'
import random, socket, sys
held = []
while len(held) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randint(20000, 31999)))
        held.append(s)
    except OSError:
        pass
print(*(s.getsockname()[1] for s in held))
PY
}

configure() { # folder
  local port controller node=${TIDEWIRE_KAFKA_NODE:-1}
  mkdir -p "$1"
  read -r port controller < <([ -n "${TIDEWIRE_KAFKA_PORTS:-}" ] && echo "$TIDEWIRE_KAFKA_PORTS" || free_ports 2)
  cat > "$1/server.properties" <<CONF
process.roles=broker,controller
node.id=$node
controller.quorum.voters=${TIDEWIRE_KAFKA_VOTERS:-1@127.0.0.1:$controller}
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$1/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
group.min.session.timeout.ms=500
auto.create.topics.enable=false
${TIDEWIRE_KAFKA_PROPERTIES//PORT/$port}
CONF
  echo "127.0.0.1:$port" > "$1/address"
  if [ -e "$formatted" ] && [ -z "${TIDEWIRE_KAFKA_SCRAM:-}" ] && [[ $TIDEWIRE_KAFKA_PROPERTIES != *log.dirs* ]]; then
    cp -r "$formatted" "$1/log"
    sed -i "s/^node.id=.*/node.id=$node/; s/^directory.id=.*/directory.id=$(head -c 16 /dev/urandom | base64 | tr -- +/ -_ | cut -c-22)/" "$1/log/meta.properties"
    return
  fi
  java "${quiet[@]}" -cp "$libs/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "$1/server.properties" \
    ${TIDEWIRE_KAFKA_SCRAM:+--add-scram "$TIDEWIRE_KAFKA_SCRAM"} > "$1/format.log" 2>&1 || { cat "$1/format.log" >&2; exit 3; }
}

start() { # folder, further words for Java
  [ -e "$1/server.properties" ] || configure "$1"
  [ -e "$mapped" ] && quiet+=("-XX:SharedArchiveFile=$mapped")
  java -Xmx256m "${quiet[@]}" "${@:2}" -cp "$libs/*" kafka.Kafka "$1/server.properties" > "$1/server.log" 2>&1 < /dev/null &
  echo $! > "$1/pid"
  disown
  for _ in $(seq 1200); do
    if grep -q "Kafka Server started" "$1/server.log"; then
      cat "$1/address"
      return
    fi
    kill -0 "$(cat "$1/pid")" 2>/dev/null || break
    sleep 0.05
  done
  echo "the broker did not start:" >&2
  tail -20 "$1/server.log" >&2
  exit 3
}

end() { # signal, folder
  local pid
  pid=$(cat "$2/pid")
  kill "-$1" "$pid" 2>/dev/null || return 0
  while kill -0 "$pid" 2>/dev/null; do sleep 0.02; done
}

run() { # folder
  start "$1"
  local word=
  read -r word || true
  case "$word" in
    stop) end TERM "$1" ;;
    kill) end KILL "$1" ;;
    *) end KILL "$1"; rm -rf "$1" ;;
  esac
}

case "${1:-}" in
  "") get; (prepare); echo "$libs" ;;
  start) get; (prepare); start "$(realpath -m "${2:?a folder}")" ;;
  stop) end TERM "${2:?a folder}" ;;
  ports) free_ports "${2:?a number}" ;;
  run) get; (prepare); run "$(realpath -m "${2:?a folder}")" ;;
  *) echo "usage: testbed/kafka.sh [start FOLDER | stop FOLDER | run FOLDER | ports COUNT]" >&2; exit 2 ;;
esac
