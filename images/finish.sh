#!/bin/sh
# Makes wisbox's image of a Debian that has CPython 3.12 as python3. Runs once, as
# root, while the image is built; needs the network only for what the base lacks.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
here=/usr/local/share/wisbox

say() { echo "finish: $*"; }

install_packages() {
    missing=
    for package in $(cat "$here/packages.txt"); do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing$missing"
    apt-get -qq -o Acquire::Retries=3 update
    # Before Debian 13 the older names of time zones are in tzdata itself.
    apt-cache show tzdata-legacy >/dev/null 2>&1 || missing=$(echo "$missing" | sed 's/ tzdata-legacy//')
    # shellcheck disable=SC2086 # a list of names
    apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io \
        -o Dpkg::Options::='--path-exclude=/usr/share/doc/*' -o Dpkg::Options::='--path-include=/usr/share/doc/*/copyright' \
        -o Dpkg::Options::='--path-exclude=/usr/share/man/*' -o Dpkg::Options::='--path-exclude=/usr/share/info/*' \
        -o Dpkg::Options::='--path-exclude=/usr/share/locale/*' -o Dpkg::Options::='--path-exclude=/usr/lib/*/perl/*/CORE/*' \
        install -y --no-install-recommends $missing >/dev/null
}

complete_python() {
    python3 -c 'import os; os.memfd_create' 2>/dev/null && return 0
    site=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    mkdir -p "$site"
    cp "$here/sitecustomize.py" "$site/"
}

# pip, venv and ensurepip: a base from a registry has them.
install_pip() {
    lib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    cp "$here/_distutils_system_mod.py" "$lib/"
    python3 -c 'import ensurepip' 2>/dev/null || cp "$here/ensurepip.py" "$lib/"
    python3 -c 'import pip' 2>/dev/null || python3 -m ensurepip --default-pip >/dev/null
    cp "$here/pip.conf" /etc/pip.conf
    pip --version >/dev/null
}

# The root is read-only in a session: what is not compiled now is compiled at each start.
compile_python() {
    lib=$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    find "$lib" -name __pycache__ -prune -exec rm -rf {} +
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -x '/(test|tests|lib2to3|config-3)' "$lib"
}

# The core of evaluate-lisp; its name is that of its driver. Without the file Lisp
# only starts slower.
save_lisp_core() {
    driver=$here/lisp-driver.lisp
    [ -r "$driver" ] || return 0
    mkdir -p /usr/local/lib/wisbox
    sbcl --noinform --no-sysinit --no-userinit --non-interactive \
        --eval "(load (compile-file \"$driver\" :output-file \"/tmp/lisp-driver.fasl\"))" \
        --eval "(wisbox.driver:save \"/usr/local/lib/wisbox/lisp-$(sha256sum "$driver" | cut -c 1-12).core\")" >/dev/null
}

add_user() {
    echo 'wisbox:*:1000:' >>/etc/group
    echo 'wisbox:*:1000:1000::/var/home/wisbox:/bin/bash' >>/etc/passwd
    install -d -o 1000 -g 1000 /workspace
}

tidy() {
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/* /tmp/* /root/.cache
    find / -xdev -perm /6000 ! -type l -exec chmod ug-s {} +
    rm -rf "$here"
}

python3 -c 'import sys; assert sys.version_info[:2] == (3, 12), sys.version'
install_packages
complete_python
install_pip
compile_python
cp "$here/gitconfig" /etc/gitconfig
install -m 644 "$here/profile" /etc/profile
cp "$here/apt.conf" /etc/apt/apt.conf.d/90wisbox
save_lisp_core
add_user
tidy
say "python $(python3 -c 'import platform; print(platform.python_version())'), $(pip --version | cut -d ' ' -f 1,2), $(git --version), $(rg --version | head -n 1), $(sbcl --version)"
