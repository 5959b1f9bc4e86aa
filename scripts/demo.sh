#!/usr/bin/env bash
# Install agentmem into .venv-demo, import an example folder of logs, and show the way back into the work.
# Store and key are made in .venv-demo too: remove that directory and nothing is left of the demo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/find_python.sh

environment=.venv-demo
"$python" -m venv --clear "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check '.[cli]'

unset AGENTMEM_KEY
export AGENTMEM_KEY_FILE=$environment/demo.key AGENTMEM_DB=$environment/demo.db AGENTMEM_PROJECT=recon
(umask 077 && "$environment/bin/python" -c 'import secrets; print("hex:" + secrets.token_hex(32))' >"$AGENTMEM_KEY_FILE")

set -x
"$environment/bin/agentmem" import docs/examples/recon --entities host --entities endpoint
"$environment/bin/agentmem" resume
{ set +x; } 2>/dev/null

cat <<END

To go on with this store:
  export AGENTMEM_KEY_FILE=$AGENTMEM_KEY_FILE AGENTMEM_DB=$AGENTMEM_DB AGENTMEM_PROJECT=$AGENTMEM_PROJECT
  $environment/bin/agentmem left
  $environment/bin/agentmem --help
END
