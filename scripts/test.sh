#!/usr/bin/env bash
# Install agentmem with all that its tests need into .venv-test, then check and test it.
# Needs Python 3.11 or later and pip's configured package index. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/find_python.sh

# Tests choose keys and names of their own: those of the caller would change what they see.
for name in $(compgen -e); do
    case $name in AGENTMEM_* | PYTHONUNBUFFERED | PYTHONPATH | PYTHONHOME | PYTEST_ADDOPTS) unset "$name" ;; esac
done

environment=.venv-test
"$python" -m venv --clear "$environment"
bin=$environment/bin
# pip knows --group from 25.1 on.
"$bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
"$bin/python" -m pip install --quiet --disable-pip-version-check --group dev '.[all]'

"$bin/ruff" check
"$bin/ruff" format --check
"$bin/mypy"
"$bin/lint-imports"
# A test that hangs is to fail, not to stop the rest.
"$bin/python" -m pytest --timeout=300 "$@"
