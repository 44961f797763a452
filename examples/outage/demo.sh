#!/bin/sh
# `make demo`: asks which of four services failed first, on a stack of its own that is gone afterwards. $1: folder of fleet.
set -eu
here=$(dirname "$0")
bin=$1
export FLEET_HOME="$PWD/.demo/home"
trap '"$bin/fleet" down >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

"$bin/python" "$here/generate.py" .demo/outage/logs
echo
echo "\$ fleet ask --attach .demo/outage/logs \"$(cat "$here/question.txt")\""
"$bin/fleet" ask --attach .demo/outage/logs "$(cat "$here/question.txt")"

cat <<END

Nothing of it is lost. To look again:
  export FLEET_HOME=$FLEET_HOME PATH=$PWD/$bin:\$PATH
  fleet up && fleet sessions && fleet tui
END
