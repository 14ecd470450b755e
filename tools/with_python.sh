#!/usr/bin/env bash
# Run a command in this folder where another Python is `python3`: tools/with_python.sh 3.14 make test
#
# 3.14 and 3.15 are Debian sid's, in a tree of its own that debootstrap makes on first use (a minute or two). 3.13t and
# 3.14t, the free-threaded builds, are made there from the source of Debian's packages (five minutes). Needs root and a
# Debian system with debootstrap; the tree is kept in ~/.cache/whywait/pythons, the mounts end with the command.
set -euo pipefail

known="3.14, 3.15, 3.13t or 3.14t"
version=${1:?"which Python: $known"}
shift
case $version in
    3.14 | 3.15) python=/usr/bin/python$version ;;
    3.13t | 3.14t) python=/opt/python$version/bin/python$version ;;
    *) echo "Python $version is not known here: use $known" >&2 && exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "a tree of another Debian is made and entered by root only" >&2; exit 2; }
command -v debootstrap >/dev/null || apt-get -o DPkg::Lock::Timeout=120 install --yes -qq debootstrap >/dev/null

tree=${XDG_CACHE_HOME:-$HOME/.cache}/whywait/pythons
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1) # the mirror that this machine uses
here=$PWD

inside() { # run a command in the tree, with this folder, the machine's devices and pip's own folders in their places
    unshare --mount --fork bash -euo pipefail -c '
        tree=$1 here=$2
        shift 2
        for folder in /proc /sys /dev /dev/pts /dev/shm "$here" $PIP_FOLDERS; do
            mkdir -p "$tree$folder"
            mount --rbind "$folder" "$tree$folder"
        done
        exec chroot "$tree" bash -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
    ' bash "$tree" "$here" "$@"
}

# Local folders that the machine's pip is told of hold in the tree as well; an index keeps its files beside `simple`.
PIP_FOLDERS=$(python3 -m pip config list 2>/dev/null | grep -oE "(file://)?/[^ ']+" | sed 's#^file://##; s#/simple$##' | sort -u |
    while read -r folder; do [ ! -d "$folder" ] || echo "$folder"; done | tr '\n' ' ')
export PIP_FOLDERS TERM=xterm

if [ ! -e "$tree/.complete" ]; then
    echo "making a tree of Debian sid in $tree"
    rm -rf "$tree"
    mkdir -p "$tree"
    packages=python3.14-venv,python3.15-venv,python3-minimal,ca-certificates,make,git,procps,util-linux
    debootstrap --variant=minbase --include=$packages sid "$tree" "$site" >"$tree.log" 2>&1 ||
        { tail -n 5 "$tree.log" >&2; exit 1; }
    cp -L /etc/resolv.conf "$tree/etc/resolv.conf"
    for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf" /etc/ssl/certs/ca-certificates.crt; do
        [ ! -f "$file" ] || install -D -m 644 "$file" "$tree$file"
    done
    touch "$tree/.complete"
fi

if [ ! -e "$tree/.compiler" ]; then # which compiles the core, see hatch_build.py
    inside bash -euo pipefail -c '
        apt-get -o Acquire::Check-Valid-Until=false update -qq # a mirror may lag
        apt-get install --yes -qq gcc libc6-dev python3.14-dev python3.15-dev
    ' >"$tree.compiler.log" 2>&1 || { tail -n 5 "$tree.compiler.log" >&2; exit 1; }
    touch "$tree/.compiler"
fi

if [ "${version%t}" != "$version" ] && [ ! -x "$tree$python" ]; then
    echo "building free-threaded Python ${version%t} in $tree"
    inside bash -euo pipefail -c '
        version=$0 site=$1 name=python${0%t}
        apt-get -o Acquire::Check-Valid-Until=false update -qq # a mirror may lag
        apt-get install --yes -qq build-essential pkg-config libssl-dev zlib1g-dev libffi-dev libsqlite3-dev \
            liblzma-dev libbz2-dev libreadline-dev uuid-dev
        rm -rf /usr/src/$name && mkdir -p /usr/src/$name && cd /usr/src/$name
        for patch in {40..0}; do # the newest that the mirror still has: its lists may name one that it has not
            url=$site/pool/main/p/$name/${name}_${version%t}.$patch.orig.tar.xz
            ! /usr/lib/apt/apt-helper -qq download-file "$url" source.tar.xz 2>/dev/null || break
        done
        tar --extract --strip-components=1 --file source.tar.xz
        ./configure --quiet --disable-gil --prefix=/opt/python$version
        make --silent -j"$(nproc)"
        make --silent install
        cd / && rm -rf /usr/src/$name
    ' "$version" "$site" >"$tree.build.log" 2>&1 || { tail -n 20 "$tree.build.log" >&2; exit 1; }
fi

# A folder for each version: a virtual environment keeps the name that it was made by, and has to mean the same for ever.
mkdir -p "$tree/opt/python3-is/$version"
ln -sf "$python" "$tree/opt/python3-is/$version/python3"
PATH=/opt/python3-is/$version:$PATH inside "$@"
