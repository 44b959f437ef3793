# Runs on the device in dash, bash or BusyBox ash. No single quote may appear here: the script is passed
# as one quoted argument. $1 is yes if the node runs through sudo, the others are MACHINE:SHA256:LEN.
umask 077
set -f
LC_ALL=C
export LC_ALL
sudo=$1
shift
machine=$(uname -m)
hash=none
len=
for known in "$@"; do
  case $known in "$machine":*) known=${known#*:}; hash=${known%:*}; len=${known#*:};; esac
done
uid=$(id -u)
cache=${XDG_CACHE_HOME:-${HOME:-/dev/null}/.cache}
set -- "$cache/dwell" "${TMPDIR:-/tmp}/dwell-$uid" "/var/tmp/dwell-$uid" "/dev/shm/dwell-$uid"
# Limits the time of a command, where the device can.
within=
if timeout 5 true 2>/dev/null; then within="timeout 600"; fi

# Sets why if $1 cannot hold and run programs.
try() {
  why="no absolute path"
  case $1 in /*) ;; *) return 1;; esac
  parent=
  [ -d "${1%/*}" ] || parent=made
  why=$(mkdir -p "$1" 2>&1) || { why=${why##*: }; return 1; }
  why="belongs to another user"
  if [ -L "$1" ] || [ ! -O "$1" ]; then return 1; fi
  why=$(chmod 700 "$1" 2>&1) || { why=${why##*: }; return 1; }
  probe=$1/.probe-$$
  if why=$( { printf "#!/bin/sh\nexit 0\n" | cat > "$probe" && chmod 700 "$probe"; } 2>&1 ); then
    "$probe" 2>/dev/null || why="programs cannot be executed there (noexec)"
  else
    why=${why##*: }
  fi
  rm -f "$probe" 2>/dev/null
  if [ -z "$why" ] && [ -n "$parent" ]; then : > "$1/.made-parent"; fi
  if [ -z "$why" ]; then return 0; fi
  rmdir "$1" 2>/dev/null
  if [ -n "$parent" ]; then rmdir "${1%/*}" 2>/dev/null; fi
  return 1
}

# Prints the lease of the run that uses the folder $1. Fails if no run uses it.
busy() {
  [ -e "$1/lease" ] && command -v flock >/dev/null || return 1
  if flock -n "$1/lease" true 2>/dev/null; then return 1; fi
  printf "busy %s\n" "$(cat "$1/lease")"
}

dir=
refused=
for candidate in "$@"; do
  if try "$candidate"; then dir=$candidate; break; fi
  refused="$refused$candidate: $why; "
done
file=$dir/dwell-node-$hash
have=no
# A power failure may have truncated the file.
if [ -n "$dir" ] && [ -x "$file" ] && [ "$(($(wc -c < "$file")))" -eq "$len" ]; then have=yes; fi
printf "dwell-bootstrap 1\nmachine=%s\nkernel=%s\nuid=%s\naddress=%s\ndir=%s\nrefused=%s\nhave=%s\nend\n" \
  "$machine" "$(uname -r)" "$uid" "$(set -- $SSH_CONNECTION; echo "$3")" "$dir" "$refused" "$have"

while line=$($within head -n 1) && [ -n "$line" ]; do
  word=${line%% *}
  rest=${line#* }
  if [ -z "$dir" ] && [ "$word" != clean ]; then exit 1; fi
  case $word in
  put)
    if busy "$dir"; then exit 1; fi
    part=$dir/.part-$$
    trap "rm -f \"$part\"" EXIT
    trap "exit 1" HUP INT PIPE TERM
    echo ready
    got=0
    : > "$part"
    # head may read more than it prints, so the next piece is sent only after this one has arrived.
    while [ "$got" -lt "$rest" ]; do
      piece=$((rest - got))
      if [ "$piece" -gt 262144 ]; then piece=262144; fi
      why=$( { $within head -c "$piece" >> "$part"; } 2>&1 ) || { echo "failed ${why##*: }"; exit 1; }
      got=$((got + piece))
      if [ "$(($(wc -c < "$part")))" -ne "$got" ]; then echo "failed it is incomplete"; exit 1; fi
      echo got
    done
    # The name must not outlive the contents in a power failure. An older sync takes no file.
    sync "$part" 2>/dev/null || sync
    why=$(chmod 700 "$part" 2>&1 && mv -f "$part" "$file" 2>&1) || { echo "failed ${why##*: }"; exit 1; }
    set +f
    for old in "$dir"/dwell-node-*; do
      if [ "$old" != "$file" ]; then rm -f "$old"; fi
    done
    # Parts of transfers whose connection was lost.
    for old in "$dir"/.part-*; do
      if [ ! -d "/proc/${old##*-}" ]; then rm -f "$old"; fi
    done
    set -f
    echo stored
    ;;
  run)
    # A check must not disturb a run. A worker takes the lease itself.
    case $rest in doctor*) if busy "$dir"; then exit 1; fi;; esac
    trap - EXIT HUP INT PIPE TERM
    if [ "$sudo" = yes ]; then
      why=$(sudo -n "$file" --version 2>&1 < /dev/null) || { echo "refused $why"; exit 1; }
      echo running
      exec sudo -n "$file" $rest
    fi
    echo running
    exec "$file" $rest
    ;;
  clean)
    for old in "$@"; do
      if [ -d "$old" ] && [ ! -L "$old" ] && [ -O "$old" ]; then
        if busy "$old"; then exit 1; fi
        made=
        if [ -e "$old/.made-parent" ]; then made=${old%/*}; fi
        why=$(rm -rf "$old" 2>&1) || { echo "failed ${why##*: }"; exit 1; }
        if [ -n "$made" ]; then rmdir "$made" 2>/dev/null; fi
      fi
    done
    echo removed
    exit 0
    ;;
  *) exit 1 ;;
  esac
done
