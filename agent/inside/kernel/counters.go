package kernel

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// Counts are counters of the control groups: processes killed by the out-of-memory killer, and forks refused.
type Counts struct{ OOM, PIDs int64 }

// Events reads [Counts]. It must be used from one goroutine.
type Events struct {
	files []eventFile
	// Last is the result of the last Read.
	Last Counts
}

type eventFile struct {
	file *os.File
	key  string
	pids bool
}

// NewEvents opens the counters that this kernel has.
func NewEvents() *Events {
	e := &Events{}
	for _, f := range []struct {
		path, key string
		pids      bool
	}{
		{"memory.events", "oom_kill", false}, {"pids.events", "max", true},
		{"memory/memory.oom_control", "oom_kill", false}, {"pids/pids.events", "max", true},
	} {
		if file, err := os.Open("/sys/fs/cgroup/" + f.path); err == nil {
			e.files = append(e.files, eventFile{file, f.key, f.pids})
		}
	}
	e.Read()
	return e
}

// Read reads the counters now.
func (e *Events) Read() Counts {
	var now Counts
	var buf [4096]byte
	for _, f := range e.files {
		n, _ := f.file.ReadAt(buf[:], 0)
		count := counted(buf[:n], f.key)
		if f.pids {
			now.PIDs += count
		} else {
			now.OOM += count
		}
	}
	e.Last = now
	return now
}

func counted(text []byte, key string) int64 {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(name) == key {
			n, _ := strconv.ParseInt(string(value), 10, 64)
			return n
		}
	}
	return 0
}

const table = 1 << 20 // maximum bytes to read from /proc/net/netlink: more sockets than any program needs

// Unread returns the bytes of unread answers in netlink sockets, which count against no memory limit.
func Unread() int64 {
	f, err := os.Open("/proc/net/netlink")
	if err != nil {
		return 0
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, table))
	if err != nil {
		return 0
	}
	if len(text) == table {
		return table << 10
	}
	var total int64
	for i, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); i > 0 && len(fields) > 4 {
			n, _ := strconv.ParseInt(fields[4], 10, 64)
			total += n
		}
	}
	return total
}

// limitFiles maps each limit to its files in cgroup version 2 and version 1.
var limitFiles = map[string][2]string{
	"memory": {"memory.max", "memory/memory.limit_in_bytes"},
	"swap":   {"memory.swap.max", "memory/memory.memsw.limit_in_bytes"},
	"pids":   {"pids.max", "pids/pids.max"},
	"cpu":    {"cpu.max", "cpu/cpu.cfs_quota_us"}, "cpu_period": {"", "cpu/cpu.cfs_period_us"},
	"oom_group": {"memory.oom.group", ""},
	"tcp":       {"", "memory/memory.kmem.tcp.limit_in_bytes"},
}

// Limits reads the control groups' limits, and the bounds on resources that sessions share: those of our user
// namespace, and terminals.
func Limits() map[string]string {
	found := map[string]string{}
	read := func(name, path string) {
		if text, err := os.ReadFile(path); err == nil {
			found[name] = strings.TrimSpace(string(text))
		}
	}
	for _, name := range []string{"max_inotify_instances", "max_inotify_watches"} {
		read("user."+name, "/proc/sys/user/"+name)
	}
	for name, paths := range limitFiles {
		for _, path := range paths {
			if path != "" {
				read(name, "/sys/fs/cgroup/"+path)
			}
		}
	}
	if max, ok := terminals(); ok {
		found["ptys"] = max
	}
	var tmp unix.Statfs_t
	if unix.Statfs("/tmp", &tmp) == nil {
		found["tmp"] = strconv.FormatUint(tmp.Blocks*uint64(tmp.Bsize), 10)
	}
	return found
}

func terminals() (max string, ok bool) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(mounts)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[1] != "/dev/pts" {
			continue
		}
		ok = true
		for option := range strings.SplitSeq(words[3], ",") {
			if value, found := strings.CutPrefix(option, "max="); found {
				max = value
			}
		}
	}
	return max, ok
}

var rlimits = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO, "rttime": unix.RLIMIT_RTTIME,
	"sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

// Hello describes this process and its environment. bounding is the programs' bounding set as a monitor has read it,
// path the PATH for finding programs.
func Hello(gaps []string, bounding, path string) wire.Hello {
	status := Status()
	hello := wire.Hello{
		Version: wire.Version, UID: os.Getuid(), PID: os.Getpid(), Caps: status["CapPrm"], Bounding: bounding,
		Seccomp: status["Seccomp"] == "2", NoNewPrivs: status["NoNewPrivs"] == "1", CgroupVersion: 1, Limits: Limits(), Rlimits: map[string][2]int64{}, Gaps: gaps,
		Has: has(path), Interfaces: interfaces(),
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		hello.CgroupVersion = 2
	}
	for name, number := range rlimits {
		var l unix.Rlimit
		if unix.Getrlimit(number, &l) == nil {
			hello.Rlimits[name] = [2]int64{int64(l.Cur), int64(l.Max)}
		}
	}
	return hello
}

// Identity returns the device and inode numbers of a file, or zeros if it can't be examined.
func Identity(path string) [2]uint64 {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return [2]uint64{}
	}
	return [2]uint64{uint64(stat.Dev), stat.Ino}
}

func has(path string) map[string]bool {
	found := map[string]bool{}
	for _, name := range wire.Looked {
		at := path
		if name == "python3" { // the agent itself starts it, with its own PATH
			at = DefaultPath
		}
		found[name] = len(Candidates(name, at)) > 0
	}
	return found
}

// DefaultPath is the default search path for programs.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Candidates returns the files to which a name may refer, in search order.
func Candidates(name, search string) (paths []string) {
	if name == "" {
		return nil
	}
	if strings.Contains(name, "/") {
		return []string{name}
	}
	for dir := range strings.SplitSeq(search, ":") {
		path := dir + "/" + name
		var stat unix.Stat_t
		if dir != "" && unix.Stat(path, &stat) == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

// interfaces returns the names of the network interfaces, or nil if the kernel doesn't list them.
func interfaces() (names []string) {
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok { // the two header lines have no colon
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
