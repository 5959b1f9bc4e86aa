# Sets `python` to a Python of version 3.11 or later that can make virtual environments. To be sourced.

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
