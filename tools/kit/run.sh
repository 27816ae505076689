#!/usr/bin/env bash
# Proves this machine with what the kit carries, without a network:  bash part-1/run.sh
#
#   PYTHON=python3.12   the Python that has torch (default: python3)
#   OUT=folder          for the records and logs (default: ./out)
#   WORK=folder         for what is unpacked, some 200 MB (default: ./work)
#   RANKS="1 2 4"       the world sizes, one run each     MINUTES=10   how long a run may take
#
# Further arguments go to `allranks verify`.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "There is no $python here; name the Python that has torch: PYTHON=/path/to/python3 bash $0" >&2
    exit 2
fi
exec "$python" "$here/carry.py" "$@"
