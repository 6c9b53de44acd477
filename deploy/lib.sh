# shellcheck shell=bash
# Common functions of deploy/setup, deploy/quickstart and tests/run: paths, caches, and steps that are timed and
# reported. Sourced; changes to the repository's root.
# SPDX-License-Identifier: Apache-2.0
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
venv=$root/.venv
python=$venv/bin/python
logs=$root/build/logs
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/arraybridge

# Caches lie outside the checkout, so that a fresh clone is fast, too. Without a base directory, or with the build
# folder in the hash, ccache would miss between presets and checkouts, and with -Werror between dev and the package.
export UV_CACHE_DIR=${UV_CACHE_DIR:-$cache/uv}
export CCACHE_DIR=${CCACHE_DIR:-$cache/ccache}
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_IGNOREOPTIONS=-Werror
# The name that CMake takes by itself: under the one that Python was built with, ccache would not know the same compiler.
if [[ -z ${CXX:-} ]] && command -v c++ >/dev/null; then export CXX=c++; fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PYTHONNOUSERSITE=1
# Where an image sets the last one, each process compiles all that it imports: torch takes twice as long, and Ray thrice.
unset PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE
mkdir -p "$logs"

microseconds() { echo "${EPOCHREALTIME/[.,]/}"; }

# The version's one place is CMakeLists.txt.
project_version() { sed -nE 's/^project\(arraybridge VERSION ([0-9.]+).*/\1/p' CMakeLists.txt; }

# seconds_since <microseconds>: seconds with one decimal.
seconds_since() {
  local tenths=$((($(microseconds) - $1) / 100000))
  echo "$((tenths / 10)).$((tenths % 10))"
}

# step <log name> <what> <command...>: runs the command with its output in build/logs/ and prints its duration; while it
# runs, how far it is. On failure it prints the end of the output and returns the command's status.
step() {
  local log=$logs/$1.log what=$2 begun status=0 watcher
  shift 2
  begun=$(microseconds)
  : >"$log"
  show_progress "$log" "$what" "$begun" "$BASHPID" &
  watcher=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$watcher" 2>/dev/null
  wait "$watcher" 2>/dev/null || true
  if [[ -t 1 ]]; then printf '\r\e[K'; fi
  if ((status != 0)); then
    tail -n 60 "$log" >&2
    printf '   FAILED  %-54s %7s s   (all of it: %s)\n' "$what" "$(seconds_since "$begun")" "${log#"$root"/}" >&2
    return "$status"
  fi
  printf '   %-62s %7s s\n' "$what" "$(seconds_since "$begun")"
}

# show_progress <log> <what> <since> <shell>: until it is killed, or the shell has ended. A terminal has one line that
# changes each second; elsewhere a line is added each minute. Ninja writes "[57/142] Building ...".
show_progress() {
  local log=$1 what=$2 begun=$3 next=$((SECONDS + 60)) of
  trap 'exit 0' TERM
  while sleep 1 >/dev/null 2>&1 && kill -0 "$4" 2>/dev/null; do
    of=$(tail -c 4000 "$log" 2>/dev/null | grep -oE '\[[0-9]+/[0-9]+\]' | tail -n 1) || true
    if [[ -t 1 ]]; then
      printf '\r   %s %s … %s s\e[K' "$what" "$of" "$(seconds_since "$begun")"
    elif ((SECONDS >= next)); then
      next=$((SECONDS + 60))
      printf '   … %s %s after %s s\n' "$what" "$of" "$(seconds_since "$begun")"
    fi
  done
}

# twice <command...>: a download that fails is tried once more.
twice() { "$@" || { sleep 5 && "$@"; }; }

# apt_get <arguments...>: waits up to ten minutes for another apt, and reports it once on descriptor 3, or on standard
# error. apt itself waits for the lock of dpkg alone, and not for the one of the package lists.
become_root=() # the words before a command of root: (sudo -n), or none
apt_get() {
  local until=$((SECONDS + 600)) tried status told='' reason
  tried=$(mktemp)
  while true; do
    status=0
    "${become_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
      apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=5 "$@" 2>&1 | tee "$tried" || status=$?
    reason=$(grep -Eom1 "(Could not get lock|Unable to acquire the dpkg [a-z]* lock).*" "$tried") || true
    if ((status == 0 || SECONDS >= until)) || ! grep -Eq '^E: (Could not get lock|Unable to acquire the dpkg)' "$tried"; then break; fi
    if [[ -z $told ]]; then
      told="   waiting for another apt, 10 min at most: $reason"
      { echo "$told" >&3; } 2>/dev/null || echo "$told" >&2
    fi
    sleep "${APT_PAUSE_S:-3}"
  done
  rm -f "$tried"
  return "$status"
}

# locked <name> <command...>: not while another process of this checkout has this lock.
locked() {
  local lock=$logs/$1.lock status=0
  shift
  {
    flock 9
    "$@" 9>&- || status=$?
  } 9>"$lock"
  return "$status"
}

# build <preset> <what> [target...]: one at a time, because a build has all cores, and later ones have less to do.
build() { locked build configure_and_build "$@"; }

configure_and_build() {
  local preset=$1 what=$2
  shift 2
  step "configure-$preset" "$preset: configure" cmake --preset "$preset" -DPython_EXECUTABLE="$python" || return
  step "build-$preset" "$preset: build $what" ninja -C "build/$preset" -j "$(nproc)" "$@"
}

# uv does not read pip's settings, so an index, a folder of wheels or a certificate bundle in them is passed on.
hand_on_pip_settings() {
  local setting value
  while IFS='=' read -r setting value; do
    value=${value#\'} value=${value%\'}
    case $setting in
      *.index-url) export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$value} ;;
      *.extra-index-url) export UV_INDEX=${UV_INDEX:-$value} ;;
      *.find-links) if [[ -d $value || $value == *://* ]]; then export UV_FIND_LINKS=${UV_FIND_LINKS:-$value}; fi ;;
      *.cert) export SSL_CERT_FILE=${SSL_CERT_FILE:-$value} ;;
    esac
  done < <("$python" -m pip config list 2>/dev/null || true)
}

# make_environment <folder> <what> <override> <requirements...>: a virtual environment with only these packages, from
# uv's cache if possible. Keeps an environment whose requirements have not changed. Unavailable packages are a failure.
make_environment() { locked "environment-${1##*/}" make_environment_alone "$@"; }

make_environment_alone() {
  local folder=$1 what=$2 override=$3 wanted requirements
  shift 3
  wanted=$(cat "$override" "$@" | sha256sum)
  if [[ -f $folder/wanted && $(<"$folder/wanted") == "$wanted" ]]; then return; fi
  local -a arguments=()
  for requirements in "$@"; do arguments+=(-r "$requirements"); done
  step "environment-${folder##*/}" "$what" fill_environment "$folder" --override "$override" "${arguments[@]}" || return
  echo "$wanted" >"$folder/wanted"
}

fill_environment() {
  local folder=$1 uv
  shift
  uv=$(command -v "$venv/bin/uv" uv | head -n 1)
  hand_on_pip_settings
  rm -rf "$folder"
  "$uv" venv --python "$(readlink -f "$python" || command -v python3)" "$folder" || return
  twice "$uv" pip install --python "$folder/bin/python" "$@"
}

# Installs the package as editable: Python files are read from the tree; extension, daemon and tool are built in
# build/python (kept, so that a second run compiles only changes) and copied into .venv.
install_package() {
  step package "arraybridge in .venv" "$python" -m pip install -v --no-build-isolation --no-deps --no-index \
    --config-settings=editable.mode=redirect --config-settings=build-dir=build/python -e .
}
