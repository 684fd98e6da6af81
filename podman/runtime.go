package podman

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
)

// runtimes in order of preference: crun is faster.
var runtimes = []string{"crun", "runc"}

// tryTimeout bounds the trial of a runtime. Tests change it.
var tryTimeout = patience.For(15 * time.Second)

// chooseRuntime returns the first runtime that works on this host: crun, for one,
// refuses a hybrid cgroup layout. The choice is kept until the next boot.
func (s *service) chooseRuntime(ctx context.Context, env []string) string {
	var there []string
	for _, name := range runtimes {
		if runtimePath(name) != "" {
			there = append(there, name)
		}
	}
	if len(there) < 2 {
		return strings.Join(there, "")
	}
	if kept := s.keptRuntime(); kept != "" {
		return kept
	}
	unsure := "" // the first one whose trial took too long: on a busy machine that proves nothing
	for _, name := range there {
		works, known := s.tryRuntime(ctx, env, name)
		switch {
		case works:
			_, _ = writeFile(s.dir, "runtime", []byte(bootID()+" "+name), 0o600)
			return name
		case !known && unsure == "":
			unsure = name
		}
	}
	return unsure
}

func (s *service) keptRuntime() string {
	data, err := os.ReadFile(filepath.Join(s.dir, "runtime"))
	boot, name, ok := strings.Cut(string(data), " ")
	if err != nil || !ok || boot != bootID() {
		return ""
	}
	return name
}

// tryRuntime runs a missing program in an empty root: exit code 127 shows that everything before it worked. known is
// false if the trial didn't end in time.
func (s *service) tryRuntime(ctx context.Context, env []string, name string) (works, known bool) {
	root := filepath.Join(s.dir, "empty")
	conf, err := s.writeConf("try.conf", name)
	if err != nil || os.MkdirAll(root, 0o700) != nil {
		return false, true
	}
	container := "wisbox-try-" + strings.ToLower(rand.Text()[:8])
	podman := func(ctx context.Context, args ...string) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		cmd := exec.CommandContext(ctx, s.podman, args...)
		cmd.Env, cmd.Dir = append(slices.Clip(env), "CONTAINERS_CONF="+conf), s.dir
		return errors.Join(cmd.Run(), ctx.Err())
	}
	err = s.devices.during(func() error {
		return podman(ctx, "run", "--rm", "--network", "none", "--log-driver", "none", "--name", container, "--rootfs", root, "/nothing")
	})
	known = !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	if !known { // it was killed before it could remove its container
		_ = podman(context.WithoutCancel(ctx), "rm", "--force", "--ignore", container)
	}
	var exit *exec.ExitError
	works = known && errors.As(err, &exit) && exit.ExitCode() == 127
	s.log.Info("oci runtime tried", "runtime", name, "works", works, "ended", known)
	return works, known
}

// runtimePath looks where Podman looks, which is more than PATH.
func runtimePath(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/sbin", "/bin", "/usr/lib/cri-o-runc/sbin"} {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}
