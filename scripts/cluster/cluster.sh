#!/bin/bash
# A Kubernetes of one node for tests: etcd, API server, controller manager, scheduler, a real kubelet
# and containerd, on loopback, in a PID and a mount namespace of its own.
#
#   cluster.sh up [SECONDS]     start it; it stops by itself after SECONDS (default 1800)
#   cluster.sh load FILE...     load images (archives of docker, podman or OCI) into the node
#   cluster.sh kubectl ARG...   talk to it
#   cluster.sh kubeconfig       print the path of its kubeconfig
#   cluster.sh down             stop it; ends only its own processes
#   cluster.sh signal NAME SIG  send a signal to a program; kube-apiserver and kubelet are started again when they end
#   cluster.sh log [NAME]       the end of a program's log
#   cluster.sh setup            fetch and build the programs; up does it where they are missing
#
# See README.md for what it needs and the variables that it reads.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
REPO=$(cd "$HERE/../.." && pwd)
BASE=${WISBOX_K8S:-$REPO/.cache/cluster}
RUN=$BASE/run            # state of a cluster that runs; gone after down
BIN=$BASE/bin
API=${WISBOX_K8S_PORT:-16443}
ETCD=$((API + 1)) ETCDPEER=$((API + 2)) KUBELET=$((API + 3))
NODE=node1
CGROUP=wisbox-k8s-$API   # two clusters share nothing
KV=v1.34.4

say() { echo "cluster: $*" >&2; }
die() { say "$@"; exit 1; }

# ---- certificates, one CA for all

certs() {
    local d=$RUN/pki; mkdir -p "$d"; cd "$d"
    openssl ecparam -name prime256v1 -genkey -noout -out ca.key
    openssl req -x509 -new -key ca.key -subj /CN=wisbox-test-ca -days 2 -out ca.crt
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
    cert apiserver "/CN=kube-apiserver" "subjectAltName=IP:127.0.0.1,DNS:localhost,IP:10.250.0.1"
    cert admin "/O=system:masters/CN=admin"
    cert controller-manager "/CN=system:kube-controller-manager"
    cert scheduler "/CN=system:kube-scheduler"
    cert kubelet "/O=system:nodes/CN=system:node:$NODE" "subjectAltName=IP:127.0.0.1,DNS:$NODE"
    cert kubelet-client "/O=system:masters/CN=kube-apiserver-kubelet-client"
    for u in admin controller-manager scheduler kubelet; do
        cat >"$RUN/$u.conf" <<EOF
{"apiVersion":"v1","kind":"Config","current-context":"c",
 "clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:$API","certificate-authority-data":"$(base64 -w0 ca.crt)"}}],
 "users":[{"name":"u","user":{"client-certificate-data":"$(base64 -w0 $u.crt)","client-key-data":"$(base64 -w0 $u.key)"}}],
 "contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}
EOF
    done
    cd - >/dev/null
}

cert() { # NAME SUBJECT [SAN]
    openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
    openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
    openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out "$1.crt" \
        -extfile <(echo "extendedKeyUsage=serverAuth,clientAuth"; echo "${3:-}") 2>/dev/null
}

# ---- what the node's programs read

configs() {
    mkdir -p "$RUN"/{cni,cnibin,log,etcd,kubelet,containerd,pods,s}; chmod 700 "$RUN/etcd"
    ln -sf "$BASE/deb/root/usr/lib/cni/loopback" "$RUN/cnibin/loopback"
    cp "$HERE/assets/none" "$RUN/cnibin/none"; chmod 755 "$RUN/cnibin/none"
    echo '{"cniVersion":"0.4.0","name":"none","plugins":[{"type":"none"}]}' >"$RUN/cni/10-none.conflist"
    cat >"$RUN/containerd.toml" <<EOF
version = 2
root = "$RUN/containerd"
state = "$RUN/s/state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs","io.containerd.snapshotter.v1.zfs","io.containerd.snapshotter.v1.aufs","io.containerd.snapshotter.v1.devmapper","io.containerd.internal.v1.tracing","io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$RUN/s/c.sock"
[ttrpc]
  address = "$RUN/s/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/wisbox-pause:1"
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$RUN/cnibin"
    conf_dir = "$RUN/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "${RUNTIME:-runc}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "$(command -v runc)"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
      BinaryName = "$(command -v crun)"
      SystemdCgroup = false
EOF
    cat >"$RUN/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: $KUBELET
readOnlyPort: 0
healthzPort: 0
containerRuntimeEndpoint: unix://$RUN/s/c.sock
tlsCertFile: $RUN/pki/kubelet.crt
tlsPrivateKeyFile: $RUN/pki/kubelet.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: false
makeIPTablesUtilChains: false
resolvConf: ""
seccompDefault: true
podPidsLimit: 256
maxPods: 110
serializeImagePulls: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
localStorageCapacityIsolation: true
streamingConnectionIdleTimeout: 4h
syncFrequency: 10s
podLogsDir: $RUN/pods
nodeStatusUpdateFrequency: 5s
featureGates: {KubeletInUserNamespace: true}
EOF
}

# ---- the programs; inside is pid 1 of the cluster's PID namespace: when it ends, all of it ends

program() { # NAME COMMAND…
    local name=$1; shift
    "$@" >"$RUN/log/$name.log" 2>&1 &
    echo "$name $!" >>"$RUN/inside.pids"
}

supervised() { # NAME COMMAND…: started again whenever it ends, as by a node's init
    local name=$1; shift
    (while :; do "$@" >>"$RUN/log/$name.log" 2>&1 || true; sleep 0.2; done) &
    echo "$name $!" >>"$RUN/inside.pids"
}

await() { # WHAT SECONDS COMMAND…
    local what=$1 left=$(($2 * 10)); shift 2
    until "$@" >/dev/null 2>&1; do
        ((left--)) || { say "$what did not come up"; return 1; }
        sleep 0.1
    done
}

kc() { "$BIN/kubectl" --kubeconfig "$RUN/admin.conf" "$@"; }

inside() {
    trap 'exit 0' TERM INT
    mount --make-rprivate /
    mount --bind "$RUN" "$RUN" && mount --make-rshared "$RUN"
    mount -t proc proc /proc
    local d # its own, where programs insist on fixed paths: nothing of the host's is seen, nothing is left there
    for d in /run /var/lib /var/log; do mount -t tmpfs tmpfs $d -o mode=755; done
    mkdir -p /run/netns
    # the node's name is loopback, for the API server's way to the kubelet: a kubelet takes no 127.0.0.1 as its address
    printf '127.0.0.1 localhost %s\n' $NODE >"$RUN/hosts" && mount --bind "$RUN/hosts" /etc/hosts
    program etcd "$BIN/etcd" --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls "http://127.0.0.1:$ETCD" --advertise-client-urls "http://127.0.0.1:$ETCD" \
        --listen-peer-urls "http://127.0.0.1:$ETCDPEER" --initial-advertise-peer-urls "http://127.0.0.1:$ETCDPEER" \
        --initial-cluster "default=http://127.0.0.1:$ETCDPEER"
    supervised kube-apiserver "$BIN/kube-apiserver" --etcd-servers "http://127.0.0.1:$ETCD" \
        --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port $API --endpoint-reconciler-type none \
        --service-cluster-ip-range 10.250.0.0/24 --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
        --client-ca-file "$RUN/pki/ca.crt" --tls-cert-file "$RUN/pki/apiserver.crt" --tls-private-key-file "$RUN/pki/apiserver.key" \
        --kubelet-client-certificate "$RUN/pki/kubelet-client.crt" --kubelet-client-key "$RUN/pki/kubelet-client.key" \
        --kubelet-certificate-authority "$RUN/pki/ca.crt" --kubelet-preferred-address-types Hostname \
        --service-account-key-file "$RUN/pki/sa.pub" --service-account-signing-key-file "$RUN/pki/sa.key" \
        --service-account-issuer https://wisbox.test ${APISERVER_ARGS:-}
    if [ -z "${NO_NODE:-}" ]; then
        program containerd "$BASE/deb/root/usr/bin/containerd" --config "$RUN/containerd.toml"
    fi
    await "the API server" 120 kc get --raw /readyz
    program kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig "$RUN/controller-manager.conf" \
        --leader-elect=false --bind-address 127.0.0.1 --secure-port 0 --use-service-account-credentials \
        --service-account-private-key-file "$RUN/pki/sa.key" --root-ca-file "$RUN/pki/ca.crt" ${CM_ARGS:-}
    program kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$RUN/scheduler.conf" --leader-elect=false \
        --bind-address 127.0.0.1 --secure-port 0 ${SCHEDULER_ARGS:-}
    if [ -z "${NO_NODE:-}" ]; then
        await containerd 30 "$BASE/deb/root/usr/bin/ctr" -a "$RUN/s/c.sock" version
        "$BASE/deb/root/usr/bin/ctr" -a "$RUN/s/c.sock" -n k8s.io images import "$BASE/pause.tar" >"$RUN/log/pause.log" 2>&1
        supervised kubelet "$BIN/kubelet" --config "$RUN/kubelet.yaml" --kubeconfig "$RUN/kubelet.conf" \
            --root-dir "$RUN/kubelet" --cert-dir "$RUN/pki" --hostname-override $NODE ${KUBELET_ARGS:-}
        await "the node" 120 ready
    fi
    : >"$RUN/ready"
    sleep "$1" & wait $! || true
    say "its time is over" >>"$RUN/log/inside.log"
}

ready() { kc get node $NODE -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep -qx True; }

# ---- from outside

cgroups() { find /sys/fs/cgroup -maxdepth 2 -type d -name "$CGROUP" 2>/dev/null; }

make_cgroups() {
    local c
    for c in /sys/fs/cgroup/*/; do
        mountpoint -q "$c" && mkdir -p "$c$CGROUP"
    done
    [ -w /sys/fs/cgroup/cpuset/$CGROUP/cpuset.cpus ] || return 0
    cat /sys/fs/cgroup/cpuset/cpuset.cpus >/sys/fs/cgroup/cpuset/$CGROUP/cpuset.cpus
    cat /sys/fs/cgroup/cpuset/cpuset.mems >/sys/fs/cgroup/cpuset/$CGROUP/cpuset.mems
}

remove_cgroups() {
    local c try
    for try in 1 2 3 4 5 6 7 8 9 10; do
        for c in $(cgroups); do find "$c" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
        [ -z "$(cgroups)" ] && return 0
        sleep 0.3
    done
    say "cgroups stay: $(cgroups | tr '\n' ' ')"
}

# alive PID STARTTIME: the very process, and not another that got its number
alive() { [ -n "$1" ] && [ "$(cut -d' ' -f22 "/proc/$1/stat" 2>/dev/null)" = "$2" ]; }

# signal NAME SIG: to the processes of this cluster's program, and no other's
signal() {
    local dir first found=
    for dir in /proc/[0-9]*; do
        IFS= read -r -d '' first 2>/dev/null <"$dir/cmdline" || continue
        [ "$first" = "$BIN/$1" ] || continue
        kill "-$2" "${dir#/proc/}" && found=yes
    done
    [ "$found" ] || die "$1 doesn't run"
}

up() {
    local seconds=${1:-1800} pid began
    [ "$(id -u)" = 0 ] || die "needs root"
    bash "$HERE/setup.sh" "$BASE"
    if [ -e "$RUN/pid" ]; then down; fi
    rm -rf "$RUN"; mkdir -p "$RUN/log"
    certs; configs; make_cgroups
    # shellcheck disable=SC2016
    setsid unshare --mount --pid --fork --kill-child --propagation private \
        bash "$HERE/$(basename "$0")" __inside "$seconds" </dev/null >"$RUN/log/inside.log" 2>&1 &
    pid=$!
    began=$(cut -d' ' -f22 "/proc/$pid/stat")
    echo "$pid $began" >"$RUN/pid"
    local left=1800
    until [ -e "$RUN/ready" ]; do
        alive "$pid" "$began" || { tail -n 5 "$RUN"/log/*.log >&2; down; die "it ended while starting"; }
        ((left--)) || { down; die "not ready in time"; }
        sleep 0.1
    done
    # when it ends by itself, somebody must clean up after it
    setsid bash -c 'while [ "$(cut -d" " -f22 /proc/$1/stat 2>/dev/null)" = "$2" ]; do sleep 1; done; exec bash "$3" __swept "$1"' \
        _ "$pid" "$began" "$HERE/$(basename "$0")" </dev/null >/dev/null 2>&1 &
    say "ready; KUBECONFIG=$RUN/admin.conf; it stops after $seconds s"
}

down() {
    local pid began left=100
    [ -e "$RUN/pid" ] || { say "none runs"; return 0; }
    read -r pid began <"$RUN/pid"
    if alive "$pid" "$began"; then
        kill -KILL "$pid" 2>/dev/null || true   # unshare: its child, pid 1 inside, dies with it and so does all the rest
        while alive "$pid" "$began" && ((left--)); do sleep 0.1; done
        alive "$pid" "$began" && kill -KILL "$pid" 2>/dev/null || true
    fi
    sweep
}

sweep() { remove_cgroups; rm -rf "$RUN"; }

case ${1:-} in
up) shift; up "$@" ;;
down) down ;;
__inside) inside "$2" ;;
__swept) # the cluster of this pid ended: by down, which sweeps itself, or by its time
    sleep 2
    [ -e "$RUN/pid" ] && read -r pid _ <"$RUN/pid" && [ "$pid" = "$2" ] && sweep ;;
load) shift; for f; do "$BASE/deb/root/usr/bin/ctr" -a "$RUN/s/c.sock" -n k8s.io images import "$f"; done ;;
ctr) shift; exec "$BASE/deb/root/usr/bin/ctr" -a "$RUN/s/c.sock" -n k8s.io "$@" ;;
kubectl) shift; exec "$BIN/kubectl" --kubeconfig "$RUN/admin.conf" "$@" ;;
signal) signal "$2" "$3" ;;
log) tail -n 40 "$RUN/log/${2:-kubelet}.log" ;;
kubeconfig) echo "$RUN/admin.conf" ;;
setup) bash "$HERE/setup.sh" "$BASE" ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
