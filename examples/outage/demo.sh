#!/bin/sh
# `make demo`: asks which of four services failed first, on a stack of its own that is gone afterwards. $1: folder of fleet.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$1" && pwd)
work="$PWD/.demo/outage"
export FLEET_HOME="$PWD/.demo/home"
trap '"$bin/fleet" down >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

mkdir -p "$work" && cd "$work"
"$bin/python" "$here/generate.py" logs
echo
echo "\$ fleet ask --attach logs \"$(cat "$here/question.txt")\""
"$bin/fleet" ask --attach logs "$(cat "$here/question.txt")"

cat <<END

Nothing of it is lost. To look again:
  export FLEET_HOME=$FLEET_HOME PATH=$bin:\$PATH
  fleet up && fleet show last --cells
END
