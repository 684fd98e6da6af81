package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
)

// A Host runs each program under a supervisor: the test binary itself, started
// again under another name. As a child subreaper it inherits every orphan of
// the program, so it can end all of them, in any session. It also enforces the time limit, and ends everything if the
// test process dies.
//
// Descriptors: 0 to 4 are the program's, 5 brings the job and then orders
// (JSON, the end of file means that the test process is gone), 6 takes the verdict.

const (
	supervisorName = "wisbox-sandboxtest-supervisor"
	ordersFD       = 5
	verdictFD      = 6
)

type job struct {
	Argv         []string
	Dir          string
	Env          []string
	TTY, Control bool
	Timeout      time.Duration
}

type order struct {
	Signal int            `json:",omitempty"` // to the program's group
	Kill   sandbox.Status `json:",omitempty"` // kills everything, with this reason
}

type verdict struct {
	Wait    syscall.WaitStatus // of the program
	Killed  sandbox.Status     // reason if it was killed, "" if it ended by itself
	Refused int                // the exit code if it could not be started
	Usage   sandbox.Usage
}

func (v verdict) result(lost bool) sandbox.Result {
	r := sandbox.Result{Status: sandbox.StatusExited, ExitCode: v.Wait.ExitStatus(), Usage: v.Usage}
	switch {
	case lost, v.Killed == sandbox.StatusSandboxLost:
		r.Status, r.ExitCode = sandbox.StatusSandboxLost, -1
	case v.Refused != 0:
		r.ExitCode = v.Refused
	case v.Killed == sandbox.StatusTimedOut:
		r.Status, r.ExitCode = v.Killed, sandbox.ExitTimeout
	case v.Killed == sandbox.StatusCancelled:
		r.Status, r.ExitCode = v.Killed, sandbox.ExitSignalBase+int(unix.SIGKILL)
	case v.Wait.Signaled():
		r.Status, r.ExitCode = sandbox.StatusSignaled, sandbox.ExitSignalBase+int(v.Wait.Signal())
		r.Signal = strings.TrimPrefix(unix.SignalName(v.Wait.Signal()), "SIG")
	}
	return r
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == supervisorName {
		supervise()
		os.Exit(0)
	}
}

type supervisor struct {
	mu     sync.Mutex
	pid    int            // of the program, 0 once it has ended
	ending bool           // everything must be killed
	why    sandbox.Status // set if we ended the program
}

func supervise() {
	// Programs don't inherit descriptors that the test process got from its own parent.
	keepFromPrograms(3)
	orders := json.NewDecoder(os.NewFile(ordersFD, "orders"))
	var j job
	if orders.Decode(&j) != nil || inheritOrphans() != nil {
		return
	}
	var v verdict
	s := &supervisor{}
	if pid, err := j.start(); err != nil {
		v.Refused = refusal(j.Argv[0], err)
	} else {
		s.pid = pid
		v = s.watch(j, orders)
	}
	_ = json.NewEncoder(os.NewFile(verdictFD, "verdict")).Encode(v)
}

func (s *supervisor) watch(j job, orders *json.Decoder) verdict {
	letGo(j)
	if j.Timeout > 0 {
		defer time.AfterFunc(j.Timeout, func() { s.expire(j.Control) }).Stop()
	}
	go s.obey(orders)
	return s.reap()
}

// letGo closes our copies of the program's streams, so that their end is seen. It keeps a terminal until everything is
// gone: otherwise a program that closes it, as cat does before it exits, would get SIGHUP.
func letGo(j job) {
	for fd := range ordersFD {
		if fd > 0 || !j.TTY {
			_ = unix.Close(fd)
		}
	}
}

func (s *supervisor) obey(orders *json.Decoder) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			s.end(sandbox.StatusSandboxLost)
			return
		}
		if o.Kill != "" {
			s.end(o.Kill)
		} else {
			s.signal(syscall.Signal(o.Signal))
		}
	}
}

func (s *supervisor) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 {
		_ = syscall.Kill(-s.pid, sig)
	}
}

// termGrace is the time from SIGTERM to SIGKILL at a time limit.
const termGrace = 2 * time.Second

// expire ends a program at its time limit.
func (s *supervisor) expire(atOnce bool) {
	if atOnce {
		s.end(sandbox.StatusTimedOut)
		return
	}
	s.mu.Lock()
	if s.pid != 0 && s.why == "" {
		s.why = sandbox.StatusTimedOut
		_ = syscall.Kill(-s.pid, syscall.SIGTERM)
	}
	s.mu.Unlock()
	time.AfterFunc(termGrace, func() { s.end(sandbox.StatusTimedOut) }) // this process ends with the program
}

// end kills everything. The reason is recorded only while the program runs.
func (s *supervisor) end(why sandbox.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pid != 0 && s.why == "" {
		s.why = why
	}
	s.ending = true
	killDescendants()
}

// reap waits for every descendant. A process that is forked while its parent is being killed becomes our orphan before
// we see its parent's end, so another look after each end misses none.
func (s *supervisor) reap() verdict {
	var v verdict
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := retry.Interrupted(func() (int, error) { return syscall.Wait4(-1, &status, 0, &usage) })
		if err != nil {
			return v
		}
		s.mu.Lock()
		if pid == s.pid {
			s.pid, s.ending = 0, true
			v = verdict{Wait: status, Killed: s.why, Usage: usageOf(usage)}
		}
		if s.ending {
			killDescendants()
		}
		s.mu.Unlock()
	}
}

func usageOf(u syscall.Rusage) sandbox.Usage {
	return sandbox.Usage{User: time.Duration(u.Utime.Nano()), System: time.Duration(u.Stime.Nano()), MaxRSS: u.Maxrss << 10}
}

func killDescendants() {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		raw, _ := os.ReadFile(name)
		if fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:])); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	todo := children[os.Getpid()]
	for len(todo) > 0 {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (j job) start() (pid int, err error) {
	path, err := j.lookPath()
	if err != nil {
		return 0, err
	}
	attr := &syscall.ProcAttr{Dir: j.Dir, Env: j.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true}}
	if j.Control {
		attr.Files = append(attr.Files, 3, 4)
	}
	if j.TTY {
		attr.Sys.Setctty = true
	}
	return syscall.ForkExec(path, j.Argv, attr)
}

func (j job) lookPath() (string, error) {
	if strings.Contains(j.Argv[0], "/") {
		return j.Argv[0], nil
	}
	return lookPath(j.Argv[0], fixedPath)
}

func lookPath(name, path string) (string, error) {
	err := error(syscall.ENOENT)
	for _, dir := range filepath.SplitList(path) {
		candidate := dir + "/" + name
		info, statErr := os.Stat(candidate)
		switch {
		case name == "" || statErr != nil || info.IsDir():
		case unix.Access(candidate, unix.X_OK) == nil:
			return candidate, nil
		default:
			err = syscall.EACCES
		}
	}
	return "", err
}

// refusal reports on the program's stderr why it could not be started, and returns the shell's exit code for that.
func refusal(name string, err error) int {
	code, why := sandbox.ExitNotExecutable, err.Error()
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) {
		code, why = sandbox.ExitNotFound, "command not found"
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", name, why)
	return code
}
