#!/bin/sh
# Installs what the build needs from the distribution's packages; elsewhere names what is missing and stops.
set -u
PYTHON=${PYTHON:-python3}
missing="" pkgs=""
need() { missing="$missing $1"; pkgs="$pkgs $2"; }
command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || need "a C compiler" gcc
command -v cmake >/dev/null 2>&1 || need cmake cmake
command -v make >/dev/null 2>&1 || need make make
headers() { # true when $PYTHON has its C headers
    inc=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null) && [ -f "$inc/Python.h" ]
}
command -v "$PYTHON" >/dev/null 2>&1 || need python3 python3
known() { # stops where $PYTHON is a version Taper does not know
    v=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || return 0
    if [ "$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("Py_GIL_DISABLED") or 0)')" = 1 ]; then
        echo "$(command -v "$PYTHON") is a free-threaded build of Python, and Taper relies on the global interpreter lock. Choose an ordinary build with PYTHON=/path/to/python3.13." >&2
        exit 1
    fi
    case $v in 3.11 | 3.12 | 3.13 | 3.14) ;; *)
        echo "$(command -v "$PYTHON") is Python $v; Taper runs on CPython 3.11, 3.12, 3.13 and 3.14. Choose one with PYTHON=/path/to/python3.13." >&2
        exit 1 ;;
    esac
}
known
recent() { # stops where cmake is too old
    v=$(cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -z "$v" ] && return 0
    set -- $v
    [ "$1" -gt 3 ] || { [ "$1" = 3 ] && [ "$2" -ge 18 ]; } || {
        echo "$(command -v cmake) is version $1.$2; Taper needs CMake 3.18 or later. Choose one with PATH or CMAKE." >&2
        exit 1
    }
}
recent
headers || need "the headers of $PYTHON" python3-dev
[ -n "$(ls /usr/include/stdio.h 2>/dev/null)" ] || need "the C library headers" libc6-dev
found=no
for d in /usr/lib /usr/lib64 /usr/local/lib /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu; do
    [ -e "$d/libopenblas.so" ] && found=yes
done
[ $found = yes ] || need "OpenBLAS" libopenblas-dev
[ -z "$missing" ] && exit 0
command -v ninja >/dev/null 2>&1 || pkgs="$pkgs ninja-build"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "Taper needs:$missing. Install them with this system's package manager, then run this again." >&2
    exit 1
fi
SUDO=""
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 || { echo "Taper needs:$missing. As root: apt-get install$pkgs" >&2; exit 1; }
    SUDO=sudo
fi
echo "Installing:$pkgs"
$SUDO apt-get update -qq && DEBIAN_FRONTEND=noninteractive $SUDO apt-get install -y -qq $pkgs >/dev/null ||
    { echo "Could not install:$pkgs" >&2; exit 1; }
known
headers || {
    echo "$(command -v "$PYTHON" || echo "$PYTHON") has no C headers (Python.h), and the distribution's python3-dev is not for it: install that Python with its headers, or choose another with PYTHON=/usr/bin/python3." >&2
    exit 1
}
