package doctor_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/doctor"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// host is a machine with given properties.
type host struct {
	service    doctor.Service
	noPodman   error
	noImage    error
	noSession  error
	sessions   int32 // the number that can be created; 0 for any
	made       atomic.Int32
	noProgram  error
	noEgress   error
	noPause    error
	says       map[string]string         // a word of a program's source -> its output
	ends       map[string]sandbox.Status // the status of its end
	unenforced bool
	left       int
	old        int
	repaired   []string
	open       atomic.Int32
}

// well returns a machine without problems.
func well() *host {
	return &host{
		service: doctor.Service{From: "a test", Version: "5.4.2", Runtime: "runc 1.4.3", Kernel: "6.12.0", CgroupVersion: "v2", CgroupManager: "systemd", StorageDriver: "overlay"},
		says: map[string]string{
			"children_user": "0.51", "signal.pause": "59",
			`"/tmp/doctor"`: "full: No space left on device after 8192 KiB", "os.dup": "253", "socket.if_nameindex": "closed", "CapBnd": "closed", "child.terminate": "delivered",
			"ptrace": "closed", "sys/kernel/hostname": "closed", `"doctor" + str(n)`: "full: No space left after 990 files", `open("doctor"`: "full: No space left after 32768 KiB",
			"own/tool.txt": "fine", "inotify_init": "closed 16", "socket.SO_RCVBUF": "15",
			"host.wisbox": "loopback proxy proxyless",
		},
		ends: map[string]sandbox.Status{"bytearray": sandbox.StatusOOMKilled},
	}
}

func (h *host) Service(context.Context) (doctor.Service, error) { return h.service, h.noPodman }
func (h *host) Image(context.Context) (string, error)           { return "localhost/wisbox:x", h.noImage }
func (h *host) OldImages(context.Context) (int, error)          { return h.old, nil }
func (h *host) Leftovers(context.Context) (int, error)          { return h.left, nil }

func (h *host) BuildImage(context.Context) error {
	h.repaired, h.noImage = append(h.repaired, "image"), nil
	return nil
}

func (h *host) Prune(context.Context) error {
	h.repaired, h.left = append(h.repaired, "leftovers"), 0
	return nil
}

func (h *host) Open(_ context.Context, _ sandbox.Limits, allow ...string) (doctor.Session, error) {
	if len(allow) > 0 && h.noEgress != nil {
		return nil, h.noEgress
	}
	if h.noSession != nil {
		return nil, h.noSession
	}
	if n := h.made.Add(1); h.sessions > 0 && n > h.sessions {
		return nil, errors.New("no room")
	}
	h.open.Add(1)
	return session{h}, nil
}

type session struct{ *host }

func (s session) Run(_ context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	source := cmd.Argv[len(cmd.Argv)-1]
	res := sandbox.Result{Status: sandbox.StatusExited}
	longest := ""
	for word := range s.says {
		if strings.Contains(source, word) && len(word) > len(longest) {
			longest = word
		}
	}
	if len(cmd.Argv) > 2 && strings.Contains(cmd.Argv[len(cmd.Argv)-3], "host.wisbox") {
		longest = "host.wisbox"
	}
	_, err := io.WriteString(cmd.Stdout, s.says[longest]+"\n")
	for word, status := range s.ends {
		if strings.Contains(source, word) {
			res.Status = status
		}
	}
	return res, errors.Join(err, s.noProgram)
}

func (s session) Limits(context.Context) ([]sandbox.LimitState, error) {
	var out []sandbox.LimitState
	for _, name := range []string{"cpus", "memory", "pids", "tmp", "nofile", "disk", "inodes"} {
		out = append(out, sandbox.LimitState{Name: name, Enforced: !s.unenforced, By: "a test"})
	}
	return out, nil
}

func (s session) Write(context.Context, string, string) error  { return nil }
func (s session) Read(context.Context, string) (string, error) { return "program", nil }
func (s session) Remove(context.Context, string) error         { return nil }
func (s session) Close(context.Context) error                  { s.open.Add(-1); return nil }
func (s session) Pause(context.Context) error                  { return s.noPause }
func (s session) Resume(context.Context) error                 { return nil }

func lines(r *doctor.Report, st doctor.Status) (names []string) {
	for _, l := range r.Lines {
		if l.Status == st {
			names = append(names, l.Name)
		}
	}
	return names
}

// machine returns a root directory with everything that Podman needs.
func machine(t *testing.T) *doctor.Options {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"newuidmap", "newgidmap"} {
		path := filepath.Join(root, "usr/bin", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o755))
	}
	return &doctor.Options{Root: root}
}

func TestAWellMachineIsWell(t *testing.T) {
	h := well()
	seen := 0
	opts := machine(t)
	opts.Line = func(doctor.Line) { seen++ }
	r := doctor.Examine(t.Context(), h, opts)
	if os.Geteuid() == 0 { // another test has the lines of a user without rights
		assert.Empty(t, lines(r, doctor.Broken), "%+v", r.Lines)
		assert.Empty(t, lines(r, doctor.NotEnforced), "%+v", r.Lines)
		assert.False(t, r.Broken())
	}
	assert.Equal(t, len(r.Lines), seen)
	assert.Zero(t, h.open.Load(), "sessions are closed")
	for _, name := range []string{"podman", "image", "first program", "memory", "cpus", "pids", "tmp", "nofile", "network", "rights", "signals", "seccomp", "root", "ownership", "disk", "inodes", "pause", "egress"} {
		assert.Contains(t, lines(r, doctor.OK), name)
	}
}

func TestEachFaultHasItsLineAndAFix(t *testing.T) {
	fault := errors.New("it is not there")
	for _, c := range []struct {
		name   string
		line   string
		status doctor.Status
		spoil  func(*host)
	}{
		{"no podman", "podman", doctor.Broken, func(h *host) { h.noPodman = fault }},
		{"an old podman", "podman", doctor.Broken, func(h *host) { h.service.Version = "3.4.4" }},
		{"no image", "image", doctor.Broken, func(h *host) { h.noImage = fault }},
		{"what killed processes left", "leftovers", doctor.NotEnforced, func(h *host) { h.left = 2 }},
		{"no session", "session", doctor.Broken, func(h *host) { h.noSession = fault }},
		{"no program", "first program", doctor.Broken, func(h *host) { h.noProgram = fault }},
		{"vfs", "storage", doctor.NotEnforced, func(h *host) { h.service.StorageDriver = "vfs" }},
		{"cgroup v1", "cgroup", doctor.NotEnforced, func(h *host) { h.service.Rootless, h.service.CgroupVersion = true, "v1" }},
		{"a runtime that changes /dev/null", "devices", doctor.NotEnforced, func(h *host) { h.service.ChangesDevices = true }},
		{"an old runc", "runtime", doctor.NotEnforced, func(h *host) { h.service.Runtime = "runc 1.1.5" }},
		{"an old crun", "runtime", doctor.NotEnforced, func(h *host) { h.service.Runtime = "crun version 1.8.1" }},
		{"an old kernel", "kernel", doctor.NotEnforced, func(h *host) { h.service.Kernel = "5.4.0-1" }},
		{"Dirty Pipe", "kernel", doctor.NotEnforced, func(h *host) { h.service.Kernel = "5.15.10" }},
		{"no memory limit", "memory", doctor.NotEnforced, func(h *host) { h.ends = nil }},
		{"no cpu limit", "cpus", doctor.NotEnforced, func(h *host) { h.says["children_user"] = "1.98" }},
		{"cpus held by a busy machine only", "cpus", doctor.NotEnforced, func(h *host) { h.unenforced = true }},
		{"no limit of processes", "pids", doctor.NotEnforced, func(h *host) { h.says["signal.pause"] = "84" }},
		{"no limit of /tmp", "tmp", doctor.NotEnforced, func(h *host) { h.says[`"/tmp/doctor"`] = "all of it after 12288 KiB" }},
		{"no disk limit", "disk", doctor.NotEnforced, func(h *host) { h.says[`open("doctor"`] = "all of it after 65536 KiB" }},
		{"no limit of files", "inodes", doctor.NotEnforced, func(h *host) { h.says[`"doctor" + str(n)`] = "all of it after 1999 files" }},
		{"a network", "network", doctor.Broken, func(h *host) { h.says["socket.if_nameindex"] = "eth0 1.1.1.1" }},
		{"a capability", "rights", doctor.Broken, func(h *host) { h.says["CapBnd"] = "CapEff=0000000000000001" }},
		{"no signals", "signals", doctor.Broken, func(h *host) { h.says["child.terminate"] = "forbidden" }},
		{"no filter", "seccomp", doctor.Broken, func(h *host) { h.says["ptrace"] = "no filter" }},
		{"another ABI", "seccomp", doctor.Broken, func(h *host) { h.says["ptrace"] = "int 0x80" }},
		{"counters of all", "counters", doctor.NotEnforced, func(h *host) { h.says["inotify_init"] = "inotify instances" }},
		{"counters of a user", "counters", doctor.NotEnforced, func(h *host) { h.service.Rootless = true }},
		{"memory in sockets", "sockets", doctor.NotEnforced, func(h *host) { h.says["socket.SO_RCVBUF"] = "900" }},
		{"a root that can be written", "root", doctor.Broken, func(h *host) { h.says["sys/kernel/hostname"] = "/x" }},
		{"no way to trace", "egress", doctor.NotEnforced, func(h *host) { h.noEgress = fault }},
		{"no loopback", "egress", doctor.NotEnforced, func(h *host) { h.says["host.wisbox"] = "" }},
		{"no listener", "egress", doctor.NotEnforced, func(h *host) { h.says["host.wisbox"] = "loopback" }},
		{"no port 53", "egress", doctor.NotEnforced, func(h *host) { h.says["host.wisbox"] = "loopback proxy" }},
		{"a proxy that denies nothing", "egress", doctor.Broken, func(h *host) {
			h.says["host.wisbox"] = "loopback proxy proxyless reached:http://10.88.0.1/"
		}},
		{"no freezer", "pause", doctor.NotEnforced, func(h *host) {
			h.service.Rootless, h.service.CgroupVersion, h.noPause = true, "v1", tool.Errorf(tool.Unsupported, "not here")
		}},
		{"no pause", "pause", doctor.NotEnforced, func(h *host) { h.noPause = fault }},
		{"no program, and so no egress", "egress", doctor.Skipped, func(h *host) { h.noProgram = fault }},
		{"files that the program can't change", "ownership", doctor.Broken, func(h *host) { h.says["own/tool.txt"] = "permission denied" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := well()
			c.spoil(h)
			r := doctor.Examine(t.Context(), h, machine(t))
			assert.Contains(t, lines(r, c.status), c.line, "%+v", r.Lines)
			for _, l := range r.Lines {
				if l.Name == c.line && c.status != doctor.Skipped {
					assert.NotEmpty(t, l.Fix)
				}
			}
			if c.status == doctor.Broken {
				assert.True(t, r.Broken())
			}
			assert.Zero(t, h.open.Load(), "sessions are closed")
		})
	}
}

func TestSELinuxIsAskedWhyNoProgramRuns(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		h := well()
		h.noProgram, h.service.SELinux = errors.New("the container is stopped"), enabled
		for _, l := range doctor.Examine(t.Context(), h, machine(t)).Lines {
			if l.Name == "first program" {
				assert.Equal(t, enabled, strings.Contains(l.Fix, "ausearch"), l.Fix)
			}
		}
	}
}

// A session that can't be created doesn't hide lines: its checks are skipped, and its failure is
// reported even if the others succeed.
func TestWhatCouldNotBeTriedIsSkipped(t *testing.T) {
	for _, c := range []struct {
		name, line string
		spoil      func(*host)
	}{
		{"one session of three is not made", "session", func(h *host) { h.sessions = 2 }},
		{"none is made", "session", func(h *host) { h.noSession = errors.New("no room") }},
		{"no program runs", "first program", func(h *host) { h.noProgram = errors.New("no room") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := well()
			names := make([]string, 0)
			for _, l := range doctor.Examine(t.Context(), well(), machine(t)).Lines {
				names = append(names, l.Name)
			}
			c.spoil(h)
			r := doctor.Examine(t.Context(), h, machine(t))
			assert.Contains(t, lines(r, doctor.Broken), c.line)
			assert.NotEmpty(t, lines(r, doctor.Skipped))
			for _, name := range names {
				if name != "first program" {
					assert.True(t, slices.ContainsFunc(r.Lines, func(l doctor.Line) bool { return l.Name == name }), "%s: %+v", name, r.Lines)
				}
			}
		})
	}
}

func TestImagesOfOtherVersionsAreTold(t *testing.T) {
	h := well()
	h.old = 2
	for _, l := range doctor.Examine(t.Context(), h, machine(t)).Lines {
		if l.Name == "image" {
			assert.Equal(t, doctor.OK, l.Status)
			assert.Equal(t, "localhost/wisbox:x; 2 of other versions exist too: wisbox image prune removes unused ones", l.Detail)
		}
	}
}

func TestWhatCanBeRepairedIsRepairedWhenAsked(t *testing.T) {
	h := well()
	h.noImage, h.left = errors.New("it is not there"), 3
	opts := machine(t)
	opts.Fix = true
	r := doctor.Examine(t.Context(), h, opts)
	assert.Equal(t, []string{"leftovers", "image"}, h.repaired)
	assert.Contains(t, lines(r, doctor.OK), "image")
	assert.Contains(t, lines(r, doctor.OK), "leftovers")
	assert.Contains(t, lines(r, doctor.OK), "first program", "what needed it is tried then")
}

func TestACancelledExaminationFindsNothingBroken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := well()
	h.noProgram = context.Canceled
	opts := machine(t)
	opts.Line = func(l doctor.Line) {
		if l.Name == "podman" {
			cancel()
		}
	}
	r := doctor.Examine(ctx, h, opts)
	assert.Empty(t, lines(r, doctor.Broken))
	assert.Contains(t, lines(r, doctor.Skipped), "memory")
}

func TestAProgramThatEndsOfItsSocketsIsHeld(t *testing.T) {
	h := well()
	h.ends["socket.SO_RCVBUF"], h.says["socket.SO_RCVBUF"] = sandbox.StatusOOMKilled, ""
	for _, l := range doctor.Examine(t.Context(), h, machine(t)).Lines {
		if l.Name == "sockets" {
			assert.Equal(t, doctor.Line{Name: "sockets", Status: doctor.OK, Detail: "a program that left over 128 MiB in sockets was ended"}, l)
		}
	}
}
