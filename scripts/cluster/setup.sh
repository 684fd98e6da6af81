#!/bin/bash
# Fetches and builds what cluster.sh runs into DIR, as far as it is missing: DIR/bin, DIR/deb, DIR/pause.tar.
# The packages of the machine stay as they are, but for those of `make setup`, xz-utils and openssl.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
BASE=${1:?DIR}
KV=1.34.4
mkdir -p "$BASE"/{bin,deb}

"$REPO/scripts/setup.sh" runc:runc xz-utils:xz openssl:openssl gcc:gcc python3:python3

# containerd and the loopback plugin, beside the system's
if [ ! -x "$BASE/deb/root/usr/bin/containerd" ]; then
    (cd "$BASE/deb" && apt-get -qq -o APT::Sandbox::User=root download containerd containernetworking-plugins &&
        for d in *.deb; do dpkg -x "$d" root; done)
fi
if [ ! -e "$BASE/pause.tar" ]; then
    gcc -Os -static -s -o "$BASE/pause" "$HERE/assets/pause.c"
    python3 "$HERE/assets/mkpause.py" "$BASE/pause" "$BASE/pause.tar" localhost/wisbox-pause:1
fi

# Every program of Kubernetes is in one binary. A binary that is there is taken; else it is built, which
# takes 12 minutes of processor time and 3 GB of build cache.
hyper() {
    local f=$REPO/../shared/cluster/hyper-$KV-linux-$(dpkg --print-architecture).xz
    if [ -n "${WISBOX_K8S_HYPER:-}" ]; then
        take "$WISBOX_K8S_HYPER"
    elif [ -e "$f" ]; then
        take "$f"
    else
        build
    fi
}

take() { # FILE, compressed or not
    case $1 in
    *.xz) xz -dc "$1" >"$BASE/bin/hyper.new" ;;
    *) cp "$1" "$BASE/bin/hyper.new" ;;
    esac
    chmod 755 "$BASE/bin/hyper.new"
    mv "$BASE/bin/hyper.new" "$BASE/bin/hyper"
}

build() {
    local p=k8s.io/component-base/version
    cd "$HERE/hyper"
    GOFLAGS=-mod=readonly CGO_ENABLED=0 go build -trimpath -o "$BASE/bin/hyper" \
        -ldflags "-s -w -X $p.gitVersion=v$KV -X $p.gitMajor=1 -X $p.gitMinor=34 -X $p.gitTreeState=archive -X $p.gitCommit=local" .
}

[ -x "$BASE/bin/hyper" ] || hyper
for n in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do ln -sf hyper "$BASE/bin/$n"; done
