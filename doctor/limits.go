package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

// verdict returns the line of a limit, by experiment rather than by the host's claim.
func (t *trial) verdict(name string, held bool, seen string) Line {
	said := t.limits[name]
	switch {
	case held && said.Enforced:
		return Line{name, OK, seen + ", by " + said.By, ""}
	case held:
		return Line{name, OK, seen, ""}
	}
	return Line{name, NotEnforced, seen, t.fix(name)}
}

func (t *trial) fix(name string) string {
	s := t.e.service
	switch {
	case name == "disk" || name == "inodes":
		return "put the state root (WISBOX_CACHE) on ext4 or xfs with project quotas, or run as root, where wisbox uses a mounted image"
	case name == "tmp" || name == "nofile":
		return "use a Podman of 4.3 or later with runc or crun"
	case s.Rootless && s.CgroupVersion == "v1":
		return cgroupV1Fix
	case t.e.withoutBus():
		return busFix
	case s.Rootless:
		return delegateFix
	}
	return "check that the cgroup controllers cpu, memory and pids exist (/proc/cgroups) and that Podman may use them"
}

// memory uses one and a half times the limit, page by page.
func (t *trial) memory(ctx context.Context) Line {
	res, out, broken := t.python(ctx, "memory", fmt.Sprintf(`
keep = []
for _ in range(%d):
    keep.append(bytearray(b"x" * (1 << 20)))
print(len(keep))`, small.Memory*3/2>>20))
	if broken != nil {
		return *broken
	}
	if res.Status == sandbox.StatusOOMKilled {
		return t.verdict("memory", true, "a program over 128 MiB was ended")
	}
	return t.verdict("memory", false, fmt.Sprintf("a program with a limit of 128 MiB ended as %s (%s)", res.Status, firstLine(out)))
}

// cpus runs two busy loops under half a processor.
func (t *trial) cpus(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "cpus", `
import os, time
began = time.monotonic()
kids = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() - began < 1.2: pass
        os._exit(0)
    kids.append(pid)
for pid in kids: os.waitpid(pid, 0)
spent = os.times()
print((spent.children_user + spent.children_system) / (time.monotonic() - began))`)
	if broken != nil {
		return *broken
	}
	share, err := strconv.ParseFloat(out, 64)
	if err != nil {
		return Line{"cpus", Broken, "two busy loops said: " + firstLine(out), "see: wisbox --debug doctor"}
	}
	held := share < 0.75 && (t.limits["cpus"].Enforced || len(t.limits) == 0) // on a busy machine the share may be low without a limit
	return t.verdict("cpus", held, fmt.Sprintf("two busy loops took %.2f processors with a limit of 0.5", share))
}

func (t *trial) processes(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "pids", fmt.Sprintf(`
import os, signal
kids = []
try:
    for _ in range(%d):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        kids.append(pid)
except OSError: pass
for pid in kids: os.kill(pid, 9)
print(len(kids))`, small.PIDs+20))
	if broken != nil {
		return *broken
	}
	n, err := strconv.ParseInt(out, 10, 64)
	return t.verdict("pids", err == nil && n <= small.PIDs, fmt.Sprintf("%s processes could be started with a limit of %d", firstLine(out), small.PIDs))
}

func (t *trial) tmp(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "tmp", fill("/tmp/doctor", small.Tmp*3/2, 1, false))
	if broken != nil {
		return *broken
	}
	return t.verdict("tmp", strings.Contains(out, "full"), fmt.Sprintf("/tmp with a limit of 8 MiB took %s", firstLine(out)))
}

func (t *trial) descriptors(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "nofile", fmt.Sprintf(`
import os
n = 0
try:
    for n in range(%d): os.dup(0)
except OSError: pass
print(n)`, 2*small.NoFile))
	if broken != nil {
		return *broken
	}
	n, err := strconv.ParseInt(out, 10, 64)
	return t.verdict("nofile", err == nil && n <= small.NoFile, fmt.Sprintf("%s files could be opened with a limit of %d", firstLine(out), small.NoFile))
}

// The maximum of a session for counters that the kernel shares between all of them.
const (
	mostInstances = 128
	mostPTYs      = 64
	mostSignals   = 1024
	mostQueues    = 98_304
)

const rootlessFix = "sessions of one person need nothing; where people who don't trust each other share a machine, or for --strict, run wisbox as root, which gives each session its own user IDs"

const countersFix = "install util-linux (nsenter) where the manager runs, use a Podman of 4.3 or later, and raise fs.inotify.max_user_instances to 1024 or more where many sessions run at once"

// counters uses up counters that sessions share with the host.
func (t *trial) counters(ctx context.Context) Line {
	_, out, broken := t.python(ctx, "counters", fmt.Sprintf(`
import ctypes, os, platform, resource
libc, found = ctypes.CDLL(None), []
def take(most, one):
    held, n = [], 0
    try:
        while n <= most:
            held += one()
            n += 1
    except OSError: pass
    for fd in held: os.close(fd)
    return n
def instance():
    fd = libc.inotify_init()
    if fd < 0: raise OSError
    return [fd]
most = %d
watchers = take(most, instance)
if watchers > most: found.append("inotify instances")
most = %d
if take(most, lambda: list(os.openpty())) > most: found.append("terminals")
if not 0 <= resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] <= %d: found.append("pending signals")
if not 0 <= resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1] <= %d: found.append("message queues")
number = {"x86_64": 206, "aarch64": 0}.get(platform.machine())
if number is not None and libc.syscall(ctypes.c_long(number), 1, ctypes.byref(ctypes.c_ulong())) == 0: found.append("aio contexts")
print(", ".join(found) or "closed %%d" %% watchers)`, mostInstances, mostPTYs, mostSignals, mostQueues))
	if broken != nil {
		return *broken
	}
	watchers, closed := strings.CutPrefix(out, "closed ")
	switch {
	case closed && t.e.service.Rootless:
		return Line{"counters", NotEnforced, "sessions share pipes, descriptors that are sent and files that are polled with each other and with this user's other programs: " +
			"the kernel counts them by user, and without root all sessions have yours. --strict refuses sessions for that; the other counters are bounded", rootlessFix}
	case closed:
		return Line{"counters", OK, "a session leaves others inotify, terminals, signals, message queues and aio; it may have " + firstLine(watchers) +
			" programs that watch files, an eighth of this machine's fs.inotify.max_user_instances and at most 128", ""}
	}
	return Line{"counters", NotEnforced, "one session can take, for all: " + firstLine(out), countersFix}
}

// sockets leaves more unread bytes in sockets than the memory limit.
func (t *trial) sockets(ctx context.Context) Line {
	res, out, broken := t.python(ctx, "sockets", `
import os, socket
def fill():
    held = []
    try:
        for _ in range(100):
            b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
            b.bind(("127.0.0.1", 0))
            a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            a.setblocking(False)
            a.connect(b.getsockname())
            held.append(b)
            for _ in range(200): a.send(b"x" * 60000)
            a.close()
    except OSError: pass
    return held
gates = []
for _ in range(4):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        held = fill()
        os.write(w, b"x")
        os.read(0, 1)
        import signal
        signal.pause()
    os.read(r, 1)
    gates.append(pid)
waits = sum(int(l.split()[4].split(":")[1], 16) for l in open("/proc/net/udp").readlines()[1:])
for pid in gates: os.kill(pid, 9)
print(waits >> 20)`)
	if broken != nil {
		return *broken
	}
	if res.Status == sandbox.StatusOOMKilled {
		return t.hold("memory", "sockets", true, "a program that left over 128 MiB in sockets was ended")
	}
	n, err := strconv.ParseInt(out, 10, 64)
	return t.hold("memory", "sockets", err == nil && n <= small.Memory>>20, fmt.Sprintf("%s MiB could wait in sockets with a memory limit of 128 MiB", firstLine(out)))
}

// hold returns a line that isn't a limit of its own but has the same fix as one.
func (t *trial) hold(limit, name string, held bool, seen string) Line {
	if held {
		return Line{name, OK, seen, ""}
	}
	return Line{name, NotEnforced, seen, t.fix(limit)}
}

// fill writes files until total bytes or an error, reports which, and deletes them. A watcher needs
// a moment to enforce the limit; wait gives it time.
func fill(name string, total int64, files int, wait bool) string {
	pause := 0
	if wait {
		pause = 4
	}
	return fmt.Sprintf(`
import os, time
done, what, block = 0, "all of it", b"x" * 65536
try:
    for i in range(%d):
        with open(%q + str(i), "wb", buffering=0) as f:
            for _ in range(%d):
                done += f.write(block)
    time.sleep(%d)
except OSError as e: what = "full: " + e.strerror
for i in range(%d):
    try: os.unlink(%q + str(i))
    except OSError: pass
print(what, "after %%d KiB" %% (done >> 10))`, files, name, total/int64(files)/65536, pause, files, name)
}

// disk writes twice the limit, in files that are smaller than it.
func (t *trial) disk(ctx context.Context) Line {
	res, out, broken := t.python(ctx, "disk", fill("doctor", 2*small.Disk, 8, true))
	if broken != nil {
		return *broken
	}
	return t.workspaceLimit("disk", res, out, "a workspace with a limit of 32 MiB")
}

func (t *trial) files(ctx context.Context) Line {
	res, out, broken := t.python(ctx, "inodes", fmt.Sprintf(`
import time
what, n = "all of it", 0
try:
    for n in range(%d): open("doctor" + str(n), "w").close()
    time.sleep(4)
except OSError as e: what = "full: " + e.strerror
print(what, "after", n, "files")`, 2*small.Inodes))
	if broken != nil {
		return *broken
	}
	return t.workspaceLimit("inodes", res, out, "a workspace with a limit of 1,000 files")
}

func (t *trial) workspaceLimit(name string, res sandbox.Result, out, what string) Line {
	if res.Status == sandbox.StatusDiskLimit {
		return t.verdict(name, true, what+" had its program ended")
	}
	return t.verdict(name, strings.Contains(out, "full"), what+" took "+firstLine(out))
}

// rounds is the number of runs of `true` for a median.
const rounds = 15

func (t *trial) speed(ctx context.Context) Line {
	took := make([]time.Duration, 0, rounds)
	for range rounds {
		began := time.Now()
		if _, _, err := t.run(ctx, "true"); err != nil {
			return Line{"speed", Broken, text(err), "see: wisbox --debug doctor"}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return Line{"speed", OK, fmt.Sprintf("`true` takes %s once the container runs", round(took[rounds/2])), ""}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line[:min(len(line), 200)]
}
