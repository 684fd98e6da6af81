# A host, an Internet behind a cable, and nothing else, in new network and mount
# namespaces: the Internet's program serves all addresses that the host can reach.
# Says when it is there, and stays until its input ends.
set -eu
server=$1 dir=$2
ip link set lo up
mount --bind "$dir/hosts" /etc/hosts
echo nameserver 93.184.216.34 >"$dir/resolv.conf"
mount --bind "$dir/resolv.conf" /etc/resolv.conf
mkfifo "$dir/go"
unshare -n sh -c 'read -r _ <"$1"; exec "$0"' "$server" "$dir/go" </dev/null &
inside=$!
trap 'kill $inside' EXIT
until [ "$(readlink /proc/$inside/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add cable type veth peer name other netns $inside
ip addr add 93.184.216.1/24 dev cable
ip link set cable up
ip route add default dev cable
for address in 93.184.216.34 10.9.9.9 169.254.169.254 198.51.100.7; do
	nsenter -t $inside -n ip addr add $address/24 dev other
done
nsenter -t $inside -n sh -c 'ip link set other up; ip link set lo up'
echo go >"$dir/go"
until curl -s -o /dev/null http://93.184.216.34/; do :; done
echo ready
read -r _ || :
