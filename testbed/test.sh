#!/usr/bin/env bash
# All tests, in the order of what they cost; each part ends with its own count, the last lines sum up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$HOME/.cache/tidewire/target}
export TIDEWIRE_PYTHON=${TIDEWIRE_PYTHON:-$HOME/.cache/tidewire/venv/bin/python}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

passed=0 failed=0 skipped=0 parts_failed=()
part() { # name, command …
  local began=$SECONDS name=$1 code=0
  shift
  "$@" 2>&1 | tee "$log" || code=$?
  # Counts of cargo (`test result: ok. 3 passed; 0 failed; 1 ignored;`) and of our own runners (`3 passed, 0 failed`).
  read -r p f s < <(awk '
    /^test result: / { p += $4; f += $6; s += $8 }
    /^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; if ($6 ~ /skipped/) s += $5 }
    END { print p + 0, f + 0, s + 0 }' "$log")
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  if [ "$code" -ne 0 ]; then
    parts_failed+=("$name")
    if [ "$f" -eq 0 ]; then failed=$((failed + 1)); fi
  fi
  echo "--- $name: $p passed, $f failed, $s skipped, $((SECONDS - began)) s"
}

part cargo "$TIDEWIRE_PYTHON" testbed/tests.py
cargo build --quiet -p tidewire-cli --bins --example redeliver
binary=$CARGO_TARGET_DIR/debug/tidewire
part cases "$TIDEWIRE_PYTHON" testbed/cases.py --binary "$binary"
debezium() { # where a JDK and Debezium's jars are; `make debezium-compare` fetches them
  if command -v javac > /dev/null && [ -e "$HOME/.cache/tidewire/debezium-3.6.3/ready" ]; then
    cargo build --quiet -p tidewire-envelope --example debezium_rows
    "$TIDEWIRE_PYTHON" testbed/debezium/compare.py --binary "$binary" --decoder "$CARGO_TARGET_DIR/debug/examples/debezium_rows"
    "$TIDEWIRE_PYTHON" testbed/debezium/takeover.py --binary "$binary"
    "$TIDEWIRE_PYTHON" testbed/debezium/topics.py --binary "$binary"
  else
    echo "0 passed, 0 failed, 1 skipped"
  fi
}
part debezium debezium
part kill "$TIDEWIRE_PYTHON" testbed/kill.py --binary "$binary" --kills "${TIDEWIRE_KILLS:-8}"

if [ ${#parts_failed[@]} -gt 0 ]; then echo "failed: ${parts_failed[*]}"; fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
