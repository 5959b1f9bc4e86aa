#!/usr/bin/env bash
# Install agentmem with everything its tests need into .venv-test, then check and test it.
# Needs Python 3.11 or later with venv, and pip's configured package index. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

# Tests choose their own keys: a key of the caller's would change what they see.
unset AGENTMEM_KEY AGENTMEM_KEY_FILE AGENTMEM_DB AGENTMEM_PROJECT PYTHONPATH PYTHONHOME

suitable() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=""
for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if suitable "$candidate"; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 or later with the modules venv and ensurepip is needed; set PYTHON to it." >&2
    exit 1
fi

environment=.venv-test
"$python" -m venv --clear "$environment"
bin=$environment/bin
# --group is known to pip from 25.1 on.
"$bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
"$bin/python" -m pip install --quiet --disable-pip-version-check --group dev '.[all]'

"$bin/ruff" check
"$bin/ruff" format --check
"$bin/mypy"
"$bin/lint-imports"
"$bin/python" -m pytest "$@"
