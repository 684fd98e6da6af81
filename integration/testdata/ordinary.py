"""What ordinary programs do near the bounds of what sessions share."""
import asyncio, ctypes, fcntl, multiprocessing, os, pty, signal, socket, subprocess, sys, tempfile, time


def tried(name):
    def decorate(f):
        try:
            f()
            print("OK", name)
        except BaseException as e:
            print("BROKEN", name, type(e).__name__, e)
    return decorate


@tried("asyncio with 500 sockets")
def _():
    async def main():
        async def echo(reader, writer):
            writer.write(await reader.readexactly(1000))
            await writer.drain()
            writer.close()
        server = await asyncio.start_server(echo, "127.0.0.1", 0, backlog=512)
        port = server.sockets[0].getsockname()[1]
        streams = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(500)))
        for _, writer in streams:
            writer.write(b"x" * 1000)
        answers = await asyncio.gather(*(reader.readexactly(1000) for reader, _ in streams))
        assert all(a == b"x" * 1000 for a in answers)
        for _, writer in streams:
            writer.close()
        server.close()
    asyncio.run(main())


@tried("8 MiB over one connection")
def _():
    a, b = socket.create_server(("127.0.0.1", 0)), None
    pid = os.fork()
    if pid == 0:
        c = socket.create_connection(a.getsockname())
        c.sendall(b"x" * (8 << 20))
        os._exit(0)
    b, _ = a.accept()
    n = 0
    while data := b.recv(1 << 16):
        n += len(data)
    assert n == 8 << 20, n
    os.waitpid(pid, 0)


@tried("watchers of 2,000 files")
def _():
    libc = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as d:
        watchers = [libc.inotify_init1(0o4000) for _ in range(4)]
        assert all(fd >= 0 for fd in watchers), ctypes.get_errno()
        for i in range(2000):
            path = "%s/%d" % (d, i)
            open(path, "w").close()
            assert all(libc.inotify_add_watch(fd, path.encode(), 2) > 0 for fd in watchers), ctypes.get_errno()
        open(d + "/7", "w").write("changed")
        assert all(os.read(fd, 4096) for fd in watchers)
        for fd in watchers:
            os.close(fd)


def square(n):
    return n * n


@tried("multiprocessing: pool, queue, semaphores, locks")
def _():
    context = multiprocessing.get_context("fork")
    with context.Pool(8) as pool:
        assert pool.map(square, range(500)) == [n * n for n in range(500)]
    locks = [context.Lock() for _ in range(200)] + [context.Semaphore(3) for _ in range(100)]
    assert all(lock.acquire() for lock in locks)
    queue = context.Queue()
    child = context.Process(target=queue.put, args=(list(range(10000)),))
    child.start()
    assert len(queue.get(timeout=20)) == 10000
    child.join()


@tried("20 terminals")
def _():
    pairs = [os.openpty() for _ in range(20)]
    for _, slave in pairs:
        assert os.ttyname(slave).startswith("/dev/pts/")
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "tty; stty size"])
    said = b""
    try:
        while data := os.read(master, 1000):
            said += data
    except OSError:
        pass
    os.waitpid(pid, 0)
    assert b"/dev/pts/" in said, said


@tried("200 pipes, a large one, passed descriptors")
def _():
    pipes = [os.pipe() for _ in range(200)]
    fcntl.fcntl(pipes[0][1], 1031, 1 << 20)
    a, b = socket.socketpair()
    socket.send_fds(a, [b"x"], [r for r, _ in pipes[:100]])
    assert len(socket.recv_fds(b, 10, 200)[1]) == 100


@tried("timers and queued signals")
def _():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGRTMIN)
    event = (ctypes.c_int * 16)(0, 0, signal.SIGRTMIN, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(100):
        assert libc.timer_create(1, event, ctypes.byref(ctypes.c_void_p())) == 0, ctypes.get_errno()


@tried("record locks, leases that are only asked for, sizes of pipes, seals")
def _():
    with tempfile.TemporaryFile() as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        assert fcntl.fcntl(f, 1025) == fcntl.F_UNLCK
        fcntl.fcntl(f, fcntl.F_SETFL, fcntl.fcntl(f, fcntl.F_GETFL) | os.O_APPEND)
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    fcntl.fcntl(fd, 1033, 4)                     # F_ADD_SEALS, F_SEAL_GROW


@tried("git")
def _():
    with tempfile.TemporaryDirectory() as d:
        git = ["git", "-C", d, "-c", "user.name=a", "-c", "user.email=a@b"]
        if subprocess.run(["sh", "-c", "command -v git"], stdout=subprocess.DEVNULL).returncode:
            return
        subprocess.run(git + ["init", "-q"], check=True)
        open(d + "/f", "w").write("x")
        subprocess.run(git + ["add", "."], check=True)
        subprocess.run(git + ["commit", "-qm", "x"], check=True)


@tried("node, gcc")
def _():
    if subprocess.run(["sh", "-c", "command -v node"], stdout=subprocess.DEVNULL).returncode == 0:
        source = "const fs=require('fs');fs.watch('/tmp',()=>{}).close();require('os').networkInterfaces();new (require('worker_threads').Worker)('1',{eval:true})"
        subprocess.run(["node", "-e", source], check=True, timeout=60)
    if subprocess.run(["sh", "-c", "command -v gcc"], stdout=subprocess.DEVNULL).returncode == 0:
        with tempfile.TemporaryDirectory() as d:
            subprocess.run(["gcc", "-x", "c", "-o", d + "/a", "-"], input=b"int main(void){return 7;}", check=True)
            assert subprocess.run([d + "/a"]).returncode == 7
