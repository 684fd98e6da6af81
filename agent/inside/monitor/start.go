package monitor

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

// baseEnv has the variables that the agent itself sets. The host sends others, HOME too, and replaces these.
var baseEnv = []string{"PATH=" + kernel.DefaultPath, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"}

// start is one start of a program. Its descriptors are closed once it has begun, but those of its outputs only after
// its report: otherwise the agent would wake up for the end of each while the kernel is still tearing down the program.
type start struct {
	m            *monitor
	stdio        []int // the program's ends of its pipes
	more         []int // others to close
	files        []uintptr
	tty          bool
	self, notify bool
	code         int // exit code if nothing could be executed
}

// begun closes the descriptors that the program has now.
func (s *start) begun() {
	kernel.CloseAll(append(s.more, s.stdio[0]))
}

func (s *start) close() { kernel.CloseAll(s.stdio[1:]) }

// run returns the program's pid, or 0 if it can't be executed. Then it has reported the reason to the agent or on
// stderr.
func (s *start) run(payload []byte) int {
	req, err := wire.DecodeRequest(payload)
	if err != nil || len(req.Argv) == 0 {
		s.refuse("internal", "a request without arguments")
		return 0
	}
	s.self, s.notify = req.Head.Flags&wire.WithSelf != 0, req.Head.Flags&wire.WithNotify != 0
	env := environment(req)
	var paths []string
	ok := false
	kernel.AsUser(func() {
		if ok = s.prepare(req); ok {
			paths = candidates(req, env)
		}
	})
	if !ok {
		return 0
	}
	return s.execute(paths, req.Argv, env)
}

func (s *start) refuse(kind, text string) {
	_ = kernel.Tell(Socket, []byte("E"+kind+"\x00"+text))
}

// prepare takes the steps that need the program's own rights.
func (s *start) prepare(req *wire.Request) bool {
	if req.Head.Flags&wire.WithAgent != 0 {
		_ = unix.Chdir("/")
	} else if kind, text := enter(s.m.workspace, req.Dir, req.Head.Flags&wire.WithAnyDir != 0); kind != "" {
		s.refuse(kind, text)
		return false
	}
	for _, fd := range s.stdio {
		s.files = append(s.files, uintptr(fd))
	}
	if req.Head.Flags&(wire.WithStdin|wire.WithTTY) == 0 && !s.noInput() {
		return false
	}
	if req.Head.Flags&wire.WithTTY != 0 && !s.terminal(req.Head.TTY) {
		return false
	}
	if req.Head.Flags&wire.WithControl != 0 && !s.control() {
		return false
	}
	return true
}

// noInput gives the program /dev/null as its input: some programs, such as ripgrep, read a pipe even if it is empty.
func (s *start) noInput() bool {
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		s.refuse("internal", "no input can be had")
		return false
	}
	s.more = append(s.more, null)
	s.files[0] = uintptr(null)
	return true
}

// terminal gives the program a terminal in place of its pipes.
func (s *start) terminal(size [2]uint16) bool {
	master, slave, err := kernel.OpenTerminal(size[0], size[1])
	if err != nil {
		s.refuse("internal", "no terminal can be had")
		return false
	}
	_ = kernel.Tell(Socket, []byte("T"), master)
	s.more = append(s.more, master, slave)
	s.files, s.tty = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}, true
	return true
}

// control gives the program two further pipes.
func (s *start) control() bool {
	ours, theirs, err := kernel.Pipes(true, false)
	if err != nil {
		s.refuse("internal", "no pipes can be had")
		return false
	}
	_ = kernel.Tell(Socket, []byte("C"), ours...)
	s.more = append(append(s.more, ours...), theirs...)
	s.files = append(s.files, uintptr(theirs[0]), uintptr(theirs[1]))
	return true
}

// execute starts the program, or reports the error on stderr as a shell does.
func (s *start) execute(paths, argv, env []string) int {
	name, failure, without := argv[0], syscall.ENOENT, ""
	for _, path := range paths {
		pid, errno := s.fork(path, argv, env)
		if pid > 0 {
			return pid
		}
		if errno != syscall.ENOENT && errno != syscall.ENOTDIR {
			failure = errno
		}
		if errno == syscall.ENOENT && without == "" {
			without = missingInterpreter(path)
		}
	}
	missing, text := failure == syscall.ENOENT, strings.ToLower(failure.Error())
	switch {
	case missing && without != "":
		text = without
	case missing && !strings.Contains(name, "/"):
		text = "command not found"
	}
	if name == "" {
		name = "''"
	}
	_, _ = unix.Write(int(s.files[2]), []byte(name+": "+text+"\n"))
	s.code = 126
	if missing {
		s.code = 127
	}
	return 0
}

// missingInterpreter explains why the kernel doesn't find a file that exists: the interpreter that its first line names
// is missing. It returns "" if that isn't the reason.
func missingInterpreter(path string) (why string) {
	kernel.AsUser(func() {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		var head [256]byte // which is all that the kernel reads
		n, _ := unix.Read(fd, head[:])
		line, ok := bytes.CutPrefix(head[:max(n, 0)], []byte("#!"))
		if !ok {
			return
		}
		line, _, _ = bytes.Cut(line, []byte("\n"))
		interpreter, _, _ := strings.Cut(strings.Trim(string(line), " \t"), " ")
		interpreter, _, _ = strings.Cut(interpreter, "\t")
		if unix.Access(interpreter, unix.F_OK) == nil {
			return
		}
		why = "the interpreter " + strconv.Quote(interpreter) + " of its first line was not found"
		if strings.HasSuffix(interpreter, "\r") {
			why += `: its lines end in CRLF; convert them with sed -i 's/\r$//'`
		}
	})
	return why
}

// candidates returns the files to which a name may refer.
func candidates(req *wire.Request, env []string) []string {
	if req.Head.Flags&wire.WithAgent != 0 {
		return []string{"/proc/self/exe"}
	}
	search := kernel.DefaultPath
	for _, pair := range env {
		if value, ok := strings.CutPrefix(pair, "PATH="); ok {
			search = value
		}
	}
	return kernel.Candidates(req.Argv[0], search)
}

// fork starts a program, and waits a while if no process is available.
func (s *start) fork(path string, argv, env []string) (int, syscall.Errno) {
	attr := &syscall.ProcAttr{Env: env, Files: s.files, Sys: &syscall.SysProcAttr{Setsid: true, Setctty: s.tty}}
	if kernel.Root {
		attr.Sys.Credential = &syscall.Credential{Uid: kernel.User, Gid: kernel.Group, NoSetGroups: true}
	}
	var errno syscall.Errno
	for range tries {
		pid, err := syscall.ForkExec(path, argv, attr)
		errno, _ = errors.AsType[syscall.Errno](err)
		if err == nil {
			return pid, 0
		}
		if !lacks(errno) || s.m.isAsked() {
			return 0, errno
		}
		pause(patience / tries)
	}
	_ = kernel.Tell(Socket, []byte("P"))
	return 0, errno
}

const tries = 60 // in that time

// lacks reports whether the error means that no process or no memory was available.
func lacks(errno syscall.Errno) bool { return errno == syscall.EAGAIN || errno == syscall.ENOMEM }

func (m *monitor) isAsked() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// environment returns a program's environment: ours, with the request's additions and changes.
func environment(req *wire.Request) []string {
	env := append([]string(nil), baseEnv...)
	if req.Head.Flags&wire.WithTTY != 0 {
		env = append(env, "TERM=xterm-256color")
	}
	at := map[string]int{}
	for i, pair := range env {
		at[pair[:strings.IndexByte(pair, '=')]] = i
	}
	for _, pair := range req.Env {
		name, _, _ := strings.Cut(pair, "=")
		if i, ok := at[name]; ok {
			env[i] = pair
			continue
		}
		at[name] = len(env)
		env = append(env, pair)
	}
	return env
}

// enter enters a directory with the program's own rights. Afterwards the kernel reports its real path, with all links
// resolved. On failure it returns the kind and text of the error.
func enter(workspace, dir string, anywhere bool) (kind, text string) {
	err := unix.Chdir(workspace)
	if err == nil && dir != "" {
		err = unix.Chdir(dir)
	}
	if err == nil && dir != "" && !anywhere {
		at, lost := unix.Getwd()
		if lost != nil || at != workspace && !strings.HasPrefix(at, strings.TrimSuffix(workspace, "/")+"/") {
			return "escape", "it leads out of the workspace"
		}
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case 0:
		return "", ""
	case syscall.ENOENT:
		return "not_found", "it does not exist"
	case syscall.ENOTDIR:
		return "not_dir", "it is not a directory"
	case syscall.EACCES:
		return "permission", "permission denied"
	}
	return "invalid", strings.ToLower(errno.Error())
}
