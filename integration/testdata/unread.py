"""Lets as much as it can wait unread in sockets of one kind, far more than the memory
limit, and prints how many MiB of it the kernel took."""
import fcntl, os, socket, struct, sys, time

UNIX = {"stream": socket.SOCK_STREAM, "dgram": socket.SOCK_DGRAM, "seqpacket": socket.SOCK_SEQPACKET}
ENOUGH = 900 << 20
HELD = []


def wide(s):
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        s.setsockopt(socket.SOL_SOCKET, option, 64 << 20)
    s.setblocking(False)
    HELD.append(s)
    return s


def send(s, size):
    took = 0
    try:
        while took < ENOUGH:
            took += s.send(b"x" * size)
    except OSError:
        return took
    return took


def unix(kind):
    return sum(send(wide(s), 60000) for s in socket.socketpair(socket.AF_UNIX, UNIX[kind]))


def tcp():
    server = socket.create_server(("127.0.0.1", 0))
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    a = socket.create_connection(server.getsockname())
    b, _ = server.accept()
    server.close()
    return send(wide(a), 1 << 20) + send(wide(b), 1 << 20)


def udp():
    b = wide(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    b.bind(("127.0.0.1", 0))
    a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    a.setblocking(False)
    a.connect(b.getsockname())
    for _ in range(300):                         # what has no room is thrown away
        try:
            a.send(b"x" * 60000)
        except OSError:
            break
    a.close()
    return 8 << 20


def netlink():
    """Asks for the loopback interface again and again."""
    s = wide(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    s.bind((0, 0))
    question = struct.pack("IHHIIBBHiII", 32, 18, 1, 1, 0, 0, 0, 1, 1, 0, 0)
    for _ in range(12000):
        try:
            s.send(question)
        except OSError:
            break
    return 8 << 20


def pipe():
    r, w = os.pipe()
    HELD.append((r, w))
    os.set_blocking(w, False)
    try:
        fcntl.fcntl(w, 1031, 1 << 20)
    except OSError:
        pass
    took = 0
    try:
        while True:
            took += os.write(w, b"x" * 65536)
    except BlockingIOError:
        return took


def main():
    kind, took = sys.argv[1], 0
    one = {"tcp": tcp, "udp": udp, "pipe": pipe, "netlink": netlink}.get(kind, lambda: unix(kind))
    try:
        for _ in range(1000):
            if took >= ENOUGH:
                break
            took += one()
    except OSError:
        pass
    if kind == "udp":
        time.sleep(0.1)
        took = sum(int(line.split()[4].split(":")[1], 16) for line in open("/proc/net/udp").readlines()[1:])
    if kind == "netlink":
        took = sum(int(line.split()[4]) for line in open("/proc/net/netlink").readlines()[1:])
    print(took >> 20)


main()
