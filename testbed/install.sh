#!/usr/bin/env bash
# Gets what the build and the tests need and this machine lacks: a C compiler, PostgreSQL with its extensions, Python, Rust.
# Debian and Ubuntu only; does nothing when all is there.
set -euo pipefail

missing=()
want() { command -v "$1" >/dev/null 2>&1 || missing+=("${@:2}"); }
package() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || missing+=("$1"); }

want cc build-essential
want make make
if command -v dpkg-query >/dev/null; then
  package python3-venv
  package ca-certificates
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

if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "missing: ${missing[*]} — install them with your system's package tool, then try again" >&2
    exit 2
  fi
  root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "missing: ${missing[*]} — run as root: apt-get install ${missing[*]}" >&2; exit 2; }
    root=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if ! command -v cargo >/dev/null; then
  if [ -x "$HOME/.cargo/bin/cargo" ]; then
    echo "Rust is in ~/.cargo/bin but not on PATH: run  . ~/.cargo/env  and try again" >&2
    exit 2
  fi
  if ! command -v rustup >/dev/null && apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'; then
    if [ "$(id -u)" -eq 0 ]; then apt-get install -y -qq rustup >/dev/null; else sudo apt-get install -y -qq rustup >/dev/null; fi
  fi
  if ! command -v rustup >/dev/null; then
    echo "Rust is missing. Install it with rustup (see rust-lang.org, 'Install'), version 1.85 or later, then try again." >&2
    exit 2
  fi
  rustup toolchain install stable --profile minimal -c rustfmt -c clippy
fi
have=$(cargo --version | sed -E 's/cargo ([0-9]+)\.([0-9]+).*/\1 \2/')
read -r major minor <<<"$have"
if [ "$major" -eq 1 ] && [ "$minor" -lt 85 ]; then
  echo "Rust 1.85 or later is needed, this is $(cargo --version): run  rustup update stable" >&2
  exit 2
fi
