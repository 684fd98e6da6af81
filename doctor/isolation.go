package doctor

import (
	"context"
	"fmt"
	"strings"
)

// expect returns the line of a check: source prints "closed" if it finds nothing, otherwise its
// findings.
func (t *trial) expect(ctx context.Context, name, ok, source string) Line {
	_, out, broken := t.python(ctx, name, source)
	if broken != nil {
		return *broken
	}
	if out == "closed" {
		return Line{name, OK, ok, ""}
	}
	return Line{name, Broken, "a program found: " + firstLine(out), "don't run anything you don't trust here, and report it: see SECURITY.md"}
}

func (t *trial) network(ctx context.Context) Line {
	return t.expect(ctx, "network", "closed: no interface but loopback, no address, no name can be reached", `
import os, socket
found = [i for _, i in socket.if_nameindex() if i != "lo"]
for host, port in (("1.1.1.1", 53), ("169.254.169.254", 80), ("10.88.0.1", 53), ("2606:4700:4700::1111", 53)):
    try:
        socket.create_connection((host, port), 1).close(); found.append(host)
    except OSError: pass
for name in ("example.com", "host.containers.internal"):
    try:
        socket.getaddrinfo(name, 80); found.append(name)
    except OSError: pass
print(" ".join(found) or "closed")`)
}

func (t *trial) rights(ctx context.Context) Line {
	return t.expect(ctx, "rights", "uid 1000, no capability, no new privileges", `
import os
status = dict(l.rstrip("\n").split(":\t", 1) for l in open("/proc/self/status") if ":\t" in l)
found = [k + "=" + status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb") if int(status[k], 16)]
if status["NoNewPrivs"] != "1": found.append("new privileges")
if os.getuid() != 1000 or os.geteuid() != 1000: found.append("uid %d" % os.getuid())
try:
    os.setuid(0); found.append("setuid(0)")
except OSError: pass
print(" ".join(found) or "closed")`)
}

// signals lets a program end another, which a security module may forbid.
func (t *trial) signals(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "signals", `
import signal, subprocess
child = subprocess.Popen(["sleep", "100"])
try:
    child.terminate()
    print("delivered" if child.wait(10) == -signal.SIGTERM else "lost")
except PermissionError:
    print("forbidden")`)
	switch {
	case broken != nil:
		return *broken
	case out == "delivered":
		return Line{"signals", OK, "programs can end each other", ""}
	}
	return Line{"signals", Broken, "a program can't end another one that it started: " + firstLine(out), "a security module forbids it: look for DENIED operation=\"signal\" in the kernel's log (AppArmor: aa-status), and report it with the profile's name"}
}

// filter tries system calls that wisbox's profile forbids and Podman's own allows, and an ordinary
// one through the other ABIs of an x86-64 kernel.
func (t *trial) filter(ctx context.Context) Line {
	return t.expect(ctx, "seccomp", "on: no user namespace, no ptrace, no vsock, no lease can be made, and no call by another ABI", `
import ctypes, fcntl, os, platform, socket
found = []
def another(name, way):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if way() == os.getpid() else 1)
    if os.waitpid(pid, 0)[1] == 0: found.append(name)
def int80():
    mmap = ctypes.CDLL(None).mmap
    mmap.restype = ctypes.c_void_p
    at = mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
    code = bytes.fromhex("b814000000cd80c3")
    ctypes.memmove(at, code, len(code))
    return ctypes.CFUNCTYPE(ctypes.c_int)(at)()
if platform.machine() == "x86_64":
    another("int 0x80", int80)
    another("x32", lambda: ctypes.CDLL(None).syscall(ctypes.c_long(0x40000000 | 39)))
for command in (1024, 1 << 32 | 1024):
    lease = open("/tmp/lease", "w")
    if ctypes.CDLL(None).fcntl(lease.fileno(), ctypes.c_long(command), ctypes.c_long(1)) == 0: found.append("lease")
    lease.close()
status = dict(l.rstrip("\n").split(":\t", 1) for l in open("/proc/self/status") if ":\t" in l)
if status["Seccomp"] != "2": found.append("no filter")
try:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x10000000) == 0: found.append("unshare")
    if libc.ptrace(0, 0, 0, 0) == 0: found.append("ptrace")
except OSError: pass
try:
    socket.socket(40, socket.SOCK_STREAM).close(); found.append("vsock")
except OSError: pass
print(" ".join(found) or "closed")`)
}

func (t *trial) readOnly(ctx context.Context) Line {
	return t.expect(ctx, "root", "read-only; /workspace and /tmp are not", `
found = []
for path in ("/x", "/etc/x", "/usr/bin/x", "/dev/x", "/proc/sys/kernel/hostname"):
    try:
        open(path, "w").close(); found.append(path)
    except OSError: pass
for path in ("/workspace/doctor", "/tmp/doctor"):
    open(path, "w").close()
print(" ".join(found) or "closed")`)
}

const ownershipFix = "remove the session directory's odd file system or mount options (idmapped, squashed or noacl mounts): set WISBOX_CACHE to a local disk"

// ownership lets each side change and delete files of the other.
func (t *trial) ownership(ctx context.Context) Line {
	if problem := t.bothWays(ctx); problem != "" {
		return Line{"ownership", Broken, problem, ownershipFix}
	}
	return Line{"ownership", OK, "programs and tools change each other's files", ""}
}

func (t *trial) bothWays(ctx context.Context) string {
	if err := t.s.Write(ctx, "own/tool.txt", "tool"); err != nil {
		return "the tools can't write: " + text(err)
	}
	_, out, err := t.run(ctx, "sh", "-c", "umask 077; printf +program >> own/tool.txt && mkdir closed && printf program > closed/f && rm -r own && echo fine")
	if err != nil || !strings.HasSuffix(out, "fine") {
		return "a program can't change what the tools wrote: " + firstLine(out)
	}
	if got, err := t.s.Read(ctx, "closed/f"); err != nil || got != "program" {
		return fmt.Sprintf("the tools can't read what a program wrote (%v)", err)
	}
	if err := t.s.Remove(ctx, "closed"); err != nil {
		return "the tools can't delete what a program made: " + text(err)
	}
	return ""
}
