#!/bin/sh
# Installs the packages of presets: Debian's in packages.txt, Python's in python.txt.
# Exit code 71: Debian's packages can't be had; 72: Python's can't.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
cd /context

debian() {
    apt-get -qq -o Acquire::Retries=3 -o APT::Update::Error-Mode=any update || return
    # shellcheck disable=SC2046 # a list of names
    apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io \
        -o Dpkg::Options::='--path-exclude=/usr/share/doc/*' -o Dpkg::Options::='--path-include=/usr/share/doc/*/copyright' \
        -o Dpkg::Options::='--path-exclude=/usr/share/man/*' -o Dpkg::Options::='--path-exclude=/usr/share/info/*' \
        -o Dpkg::Options::='--path-exclude=/usr/share/locale/*' \
        install -y --no-install-recommends $(cat packages.txt) >/dev/null
}

python() { PIP_CONFIG_FILE=pip.conf python3 -m pip install --root-user-action=ignore --only-binary=:all: --progress-bar=off -q -r python.txt; }

if [ -s packages.txt ]; then
    echo "with: Debian's $(tr '\n' ' ' <packages.txt)"
    debian || exit 71
fi
if grep -qx python3 packages.txt; then # in place of the image's own, which stays python3.12
    rm -f /usr/local/bin/python /usr/local/bin/python3 /usr/local/bin/pip /usr/local/bin/pip3 /usr/lib/python3*/EXTERNALLY-MANAGED
fi
if [ -s python.txt ]; then
    echo "with: Python's $(tr '\n' ' ' <python.txt)"
    python || exit 72
fi
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/* /tmp/* /root/.cache /root/.npm
find / -xdev -perm /6000 ! -type l -exec chmod ug-s {} +
