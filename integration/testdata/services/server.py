"""A service that does what its variable MODE says, and tells who asks what it is."""
import os, socket, sys, time

MODE, PORT = os.environ.get("MODE", "serve"), int(os.environ.get("PORT", "8000"))
print("service", MODE, flush=True)
if MODE == "ends":
    sys.exit("it has no such table")
if MODE == "breaks off":
    sys.stdout.write("no such table: t")
    sys.exit(1)
if MODE == "eats":
    held = [bytearray(b"x" * (1 << 20)) for _ in range(200)]
if MODE == "floods":
    for i in range(40):
        sys.stdout.write("y" * 99_999 + "\n")
if MODE == "silent":
    time.sleep(3600)


def tries(what):
    try:
        return what() or "yes"
    except OSError as e:
        return e.strerror


def writes(path):
    return tries(lambda: open(path, "w").close())


def facts():
    status = dict(l.rstrip("\n").split(":\t", 1) for l in open("/proc/self/status") if ":\t" in l)
    yield "seccomp " + status["Seccomp"] + " nnp " + status["NoNewPrivs"]
    yield "caps " + status["CapBnd"].lstrip("0")
    yield "devices " + ",".join(n for _, n in socket.if_nameindex())
    yield "root " + writes("/etc/x") + ", tmp " + writes("/tmp/x") + ", data " + writes("/data/x") + ", kernel " + writes("/proc/sys/net/ipv4/ip_forward")
    yield "workspace " + str(os.listdir("/workspace") if os.path.isdir("/workspace") else None) + " " + str(os.path.exists("/.wisbox-agent"))
    yield "out " + tries(lambda: socket.create_connection(("93.184.216.34", 80), 2).close())
    yield "mount " + tries(lambda: os.mknod("/tmp/dev", 0o600 | 0o060000, os.makedev(8, 0)))
    yield "processes " + str(len([p for p in os.listdir("/proc") if p.isdigit()]))
    yield "localhost " + socket.gethostbyname("localhost")


count = 0
listener = socket.create_server(("127.0.0.1", PORT))
while True:
    conn, _ = listener.accept()
    asked = conn.recv(100).decode().strip()
    if asked:  # not the look whether it listens
        count += 1
        if MODE == "counts":
            for i in range(100_000):
                print("line", (count - 1) * 100_000 + i)
        conn.sendall(("\n".join(facts()) if asked == "facts" else f"{asked} {count}").encode() + b"\n")
        print("asked", asked, flush=True)
    conn.close()
