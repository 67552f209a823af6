#!/usr/bin/env bash
# environment.sh FOLDER LOCK: make or refresh the virtual environment FOLDER from requirements/LOCK.lock, and install
# this checkout into it, editable. PYTHON names the interpreter; without it the first that fits is taken.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 lock=$2

fits() { # is there such a Python, and of a version that whenabouts supports?
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null
}

find_python() { # 3.13 and 3.14 last: the versions that Flink shares do not exist for them
    local candidate
    for candidate in ${PYTHON:-python3.12 python3.11 python3 python python3.13 python3.14}; do
        if fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    if [ -n "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON is no Python 3.11 to 3.14 with its venv module." >&2
    else
        echo "No Python 3.11 to 3.14 with its venv module was found: install one (on Debian and Ubuntu:" \
            "apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12 ..." >&2
    fi
    return 1
}

if ! fits "$folder/bin/python"; then
    python=$(find_python)
    echo "Making $folder with $("$python" --version) ..."
    "$python" -m venv --clear "$folder"
fi
python=$folder/bin/python

if [ "$lock" = main ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 13))'; then
    echo "Python 3.13 or later: taking requirements/newest.lock, for main.lock holds back to versions without wheels for it."
    lock=newest
fi

install() { # pip, and a line for each thing that takes time; bytecode comes later, by two processes
    "$python" -m pip --disable-pip-version-check install --no-compile --progress-bar off "$@" |
        sed -nu -e 's/^ *\(Downloading [^ ]* ([0-9.]* MB)\).*/  \1/p' -e 's/^Installing collected packages.*/  Unpacking .../p'
}
echo "[1/4] What builds packages"
install --require-hashes -r requirements/build.lock
echo "[2/4] What requirements/$lock.lock names: a minute or two, pyspark alone is 450 MB"
install --require-hashes --no-build-isolation -r "requirements/$lock.lock"
echo "  Compiling to bytecode ..."
"$python" -m compileall -qq -j 2 -x '[/\\](tests?|lib2to3)[/\\]' "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" || true
for archive in "$folder"/lib/python3*/site-packages/pyspark/python/lib/pyspark.zip; do # as docs/spark-speed.md says
    [ -e "$archive" ] || continue
    new=$(dirname "$archive")/new
    "$python" -m zipfile -e "$archive" "$new"
    "$python" -m compileall -qq -b -j 2 --invalidation-mode unchecked-hash "$new" || true
    "$python" -m zipfile -c "$new.zip" "$new/pyspark"
    mv "$new.zip" "$archive" && rm -r "$new"
done
echo "[3/4] This checkout, editable"
install --no-deps --no-build-isolation --editable .
echo "[4/4] Compiling the kernels, once for each Python, from both ends: a minute or two"
"$python" -c 'from whenabouts.core.hosting.warm_up import KERNELS, load_kernels; load_kernels(modules=KERNELS[::-1])' &
other=$!
trap 'kill "$other" 2>/dev/null || true' EXIT
"$python" - <<'PYTHON'
import sys
from whenabouts.core.hosting.warm_up import KERNELS, load_kernels

step = 1 if sys.stdout.isatty() else 10
end = "\r" if sys.stdout.isatty() else "\n"
load_kernels(lambda done: done % step or print(f"  {done} of {len(KERNELS)} modules", end=end, flush=True))
print()
PYTHON
wait "$other"
echo "$folder is ready after $SECONDS s."
