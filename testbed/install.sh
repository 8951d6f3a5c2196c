#!/usr/bin/env bash
# Gets what the build and the tests need and this machine lacks: a C compiler, PostgreSQL with its extensions, Python, Java and Maven
# (for Kafka), Rust. With arguments these programs, too, by their packages' names. Debian and Ubuntu only; does nothing when all is there.
set -euo pipefail

missing=()
want() { command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}"); }
package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || missing+=("$1"); }

want cc build-essential
want make make
want pgrep procps
for program in "$@"; do want "$program" "$program"; done
if command -v dpkg-query >/dev/null; then
  package python3-venv
  package ca-certificates
  # The Kafka client is built from C and takes these from the system.
  package pkg-config
  package libssl-dev
  package zlib1g-dev
  # Tests run a real Kafka.
  want java openjdk-17-jre-headless
  want mvn maven
  if [ -z "${TIDEWIRE_PG_BIN:-}" ]; then
    server=$(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -V | tail -1 || true)
    if [ -z "$server" ]; then
      missing+=(postgresql postgresql-contrib)
      server=/usr/lib/postgresql/$(apt-cache depends postgresql 2>/dev/null | sed -nE 's/.*Depends: postgresql-([0-9]+).*/\1/p' | head -1)/bin
    fi
    version=$(sed -E 's#.*/postgresql/([0-9]*)/.*#\1#' <<<"$server")
    # Values of PostGIS are among the test cases.
    if [ -n "$version" ]; then package "postgresql-$version-postgis-3"; else missing+=(postgis postgresql-postgis); fi
  fi
fi

need_rust=
if ! command -v cargo >/dev/null; then
  if [ -x "$HOME/.cargo/bin/cargo" ]; then
    echo "Rust is in ~/.cargo/bin but not on PATH: run  . ~/.cargo/env  and try again" >&2
    exit 2
  fi
  need_rust=yes
fi

root=()
if [ ${#missing[@]} -gt 0 ] || [ -n "$need_rust" ]; then
  wanted=("${missing[@]}" ${need_rust:+"Rust 1.90 or later"})
  if ! command -v apt-get >/dev/null; then
    printf -v list '%s, ' "${wanted[@]}"
    echo "missing: ${list%, } — install them with your system's package tool, then try again" >&2
    exit 2
  fi
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing, and neither root nor sudo to install it: run as root  $(realpath "$0")" >&2
      exit 2
    fi
    root=(sudo)
  fi
  "${root[@]}" apt-get update -qq
fi

install() {
  echo "installing: $*"
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi

# The version that apt would install, as `major minor`; nothing when it has none.
candidate() { apt-cache policy "$1" 2>/dev/null | sed -nE 's/^ *Candidate: ([0-9]+:)?([0-9]+)\.([0-9]+).*/\2 \3/p'; }
is_recent() { # major minor
  [ "${1:-0}" -gt 1 ] || { [ "${1:-0}" -eq 1 ] && [ "${2:-0}" -ge 90 ]; }
}

if [ -n "$need_rust" ]; then
  # Debian 12 has a current Rust beside its old one; Ubuntu and later Debians have rustup.
  # shellcheck disable=SC2046 # two numbers
  if is_recent $(candidate rustc); then
    install cargo rustfmt rust-clippy
  elif is_recent $(candidate rustc-web); then
    install cargo-web rustc-web rustfmt-web rust-web-clippy
  elif [ -n "$(candidate rustup)" ]; then
    install rustup
    rustup toolchain install stable --profile minimal -c rustfmt -c clippy
  else
    echo "Rust is missing. Install it with rustup (see rust-lang.org, 'Install'), version 1.90 or later, then try again." >&2
    exit 2
  fi
fi
read -r major minor < <(cargo --version | sed -E 's/cargo ([0-9]+)\.([0-9]+).*/\1 \2/')
if ! is_recent "$major" "$minor"; then
  echo "Rust 1.90 or later is needed, this is $(cargo --version): run  rustup update stable" >&2
  exit 2
fi
