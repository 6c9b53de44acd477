# shellcheck shell=bash
# What deploy/setup, deploy/quickstart and tests/run have in common: where things are, where caches lie, how a step is
# run, timed and reported. Sourced; leaves the shell in the repository's root.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
venv=$root/.venv
python=$venv/bin/python
logs=$root/build/logs
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/arraybridge

# Caches lie outside the checkout, so that a fresh clone is quick too. Without base directory and with the build folder
# hashed, ccache would miss between presets and checkouts.
export UV_CACHE_DIR=${UV_CACHE_DIR:-$cache/uv}
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONNOUSERSITE=1
unset PYTHONPATH PYTHONHOME
mkdir -p "$logs"

microseconds() { echo "${EPOCHREALTIME/[.,]/}"; }

# seconds_since <microseconds>: with one decimal.
seconds_since() {
  local tenths=$((($(microseconds) - $1) / 100000))
  echo "$((tenths / 10)).$((tenths % 10))"
}

# step <log name> <what> <command...>: runs it with its output in build/logs/, prints how long it took. On failure it
# prints the end of the output and returns the command's status.
step() {
  local log=$logs/$1.log what=$2 begun status=0
  shift 2
  begun=$(microseconds)
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if ((status != 0)); then
    tail -n 60 "$log" >&2
    printf '   FAILED  %-54s %7s s   (all of it: %s)\n' "$what" "$(seconds_since "$begun")" "${log#"$root"/}" >&2
    return "$status"
  fi
  printf '   %-62s %7s s\n' "$what" "$(seconds_since "$begun")"
}

# The package as an editable install: Python files are read from the tree; extension, daemon and tool are built in
# build/python (kept, so that a second run compiles only what changed) and copied into .venv.
install_package() {
  step package "arraybridge in .venv" "$python" -m pip install --no-build-isolation --no-deps --no-index \
    --config-settings=editable.mode=redirect --config-settings=build-dir=build/python -e .
}
