#!/usr/bin/env bash
# Gets the independent readers that check the copies into a virtual environment: ~/.cache/tidewire/venv.
set -euo pipefail
venv=${TIDEWIRE_VENV:-$HOME/.cache/tidewire/venv}
wanted="duckdb==1.5.5 duckdb-extension-delta==1.5.5 polars deltalake pyarrow psycopg2-binary pyyaml pytz"
stamp="$venv/.wanted"
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then exit 0; fi
echo "installing into $venv: $wanted"
python3 -m venv "$venv"
# shellcheck disable=SC2086 # a list
"$venv/bin/pip" install --quiet --disable-pip-version-check $wanted
echo "$wanted" > "$stamp"
