#!/usr/bin/env bash
# Gradescope runs this once, as root, when the zip file is uploaded: Python 3.11 or newer, the sandbox's programs, the package.
set -euo pipefail
root="${AUTOGRADER:-/autograder}"
course="$root/source/course"

apt-get update
apt-get install -y bubblewrap libseccomp2
python=""
for name in python3.13 python3.12 python3.11 python3; do
  if command -v "$name" && "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; then
    python="$name"
    break
  fi
done
if [ -z "$python" ]; then
  apt-get install -y python3.11 python3.11-venv
  python=python3.11
fi
"$python" -m venv "$root/venv"
"$root/venv/bin/pip" install --no-cache-dir -c "$course/constraints.txt" \
  --extra-index-url https://download.pytorch.org/whl/cpu "$course[cpu,grading]"
