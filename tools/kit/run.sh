#!/usr/bin/env bash
# Proves this machine with what the kit carries, without a network, in nine minutes:  bash run.sh
#
#   PYTHON=python3.12   the Python that has torch (default: python3)
#   OUT=folder          for the records and logs, at most eight files (default: ./out)
#   WORK=folder         for what is unpacked, some 200 MB (default: ./work)
#   NCCL=folder         the folder with the slices of NCCL's wheel (default: nccl/ beside this file)
#   MINUTES=9           how long all runs may take together
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
