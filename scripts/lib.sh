# Shared by the scripts in this folder: source it, never run it. Works with macOS's bash 3.2.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=$root/.deps
models=${QUINCE_MODELS:-$deps/models}

say() { printf '== %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Runs a command as root: directly, or through sudo.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    die "needs root for: $* (run it as root, or install sudo)"
  fi
}

sha256_of() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1" | cut -d' ' -f1
  else
    shasum -a 256 "$1" | cut -d' ' -f1
  fi
}

check_sha256() { # FILE EXPECTED
  local have
  have=$(sha256_of "$1")
  [ "$have" = "$2" ] || die "$1: sha256 is $have, want $2 (delete the file and try again; if it stays so, the source has changed)"
}

# linux-x86_64, linux-aarch64, macos-14, macos-15, macos-26: the second column of dependencies.txt.
platform() {
  local major
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) echo linux-x86_64 ;;
    Linux-aarch64) echo linux-aarch64 ;;
    Darwin-arm64)
      major=$(sw_vers -productVersion | cut -d. -f1)
      if [ "$major" -ge 26 ]; then
        echo macos-26
      elif [ "$major" -ge 15 ]; then
        echo macos-15
      elif [ "$major" -ge 14 ]; then
        echo macos-14
      else
        die "macOS $major: MLX needs macOS 14 or later"
      fi
      ;;
    *) die "$(uname -s) on $(uname -m): there is no MLX library for it; Linux (x86_64, aarch64) and macOS (arm64) work" ;;
  esac
}

# Prints one row of dependencies.txt: requirement, tag, file, sha256.
dependency() { # NAME [PLATFORM]
  awk -v name="$1" -v platform="${2:-any}" '
    $1 == name && $2 == platform { print $3, $4, $5, $6; found = 1 }
    END { exit !found }' "$root/scripts/dependencies.txt" ||
    die "scripts/dependencies.txt has no row for $1 on ${2:-any}"
}

# Downloads one pinned package archive into FOLDER, checks it and prints its path. pip does the
# transfer, so a mirror, proxy or offline folder set up for pip is used here too.
fetch_package() { # NAME PLATFORM FOLDER
  local row requirement tag file sha
  row=$(dependency "$1" "$2")
  read -r requirement tag file sha <<<"$row"
  mkdir -p "$3"
  if [ ! -f "$3/$file" ]; then
    say "fetching $requirement"
    case $tag in
      source) set -- "$@" --no-binary "${requirement%%==*}" ;;
      any) set -- "$@" --only-binary :all: ;;
      *) set -- "$@" --only-binary :all: --implementation cp --python-version 3.11 --platform "$tag" ;;
    esac
    python3 -m pip download --quiet --no-deps --dest "$3" "${@:4}" "$requirement" >&2
  fi
  [ -f "$3/$file" ] || die "$requirement: $file is not what the package index served: $(ls "$3")"
  check_sha256 "$3/$file" "$sha"
  printf '%s\n' "$3/$file"
}
