package podman

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/rundir"
)

// serviceEnv lists the variables of our environment that the service gets. It gets no others, so none can reach a
// container.
var serviceEnv = []string{
	"PATH", "HOME", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
	"DBUS_SESSION_BUS_ADDRESS", "STORAGE_DRIVER", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF",
}

func (b *Backend) newService() (*service, error) {
	podman, err := exec.LookPath(b.opts.Podman)
	if err != nil {
		return nil, err
	}
	if err := rundir.Private(b.opts.RuntimeDir); err != nil {
		return nil, err
	}
	s := &service{state: b.opts.StateDir, podman: podman, runtime: b.opts.Runtime, runsc: runtimePath(b.opts.Runsc), idle: b.opts.idle, log: b.log, devices: b.devices}
	if b.isGVisor() {
		if s.runsc == "" {
			return nil, errNoRunsc
		}
		s.runtime, s.flags = runscName, runscFlags()
	}
	s.dir = filepath.Join(b.opts.RuntimeDir, "podman-"+s.key())
	return s, rundir.Private(s.dir)
}

// key distinguishes services with different settings.
func (s *service) key() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n", s.podman, s.runtime, s.runsc, s.flags)
	for _, name := range serviceEnv {
		if name != "PATH" && name != "DBUS_SESSION_BUS_ADDRESS" {
			value, _ := serviceVariable(name)
			fmt.Fprintf(h, "%s=%s\n", name, value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// serviceVariable returns what the service gets of one of serviceEnv. Those of a login are only useful if they are this user's.
func serviceVariable(name string) (string, bool) {
	value, ok := os.LookupEnv(name)
	switch name {
	case "XDG_RUNTIME_DIR":
		value = rundir.Login()
		ok = value != ""
	case "DBUS_SESSION_BUS_ADDRESS":
		ok = ok && rundir.BusAt(value)
	}
	return value, ok
}

// configure writes the files that the service reads and gives its environment.
func (s *service) configure(ctx context.Context) ([]string, error) {
	env := []string{"LANG=C.UTF-8"}
	for _, name := range serviceEnv {
		if v, ok := serviceVariable(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if wantsOverlay() {
		path, err := writeFile(s.dir, "storage.conf", []byte("[storage]\ndriver = \"overlay\"\n"), 0o600)
		if err != nil {
			return nil, err
		}
		env = append(env, "CONTAINERS_STORAGE_CONF="+path)
	}
	runtime := s.runtime
	if runtime == "" {
		runtime = s.chooseRuntime(ctx, env)
	}
	path, err := s.writeConf("containers.conf", runtime)
	return append(env, "CONTAINERS_CONF="+path), err
}

// wantsOverlay reports whether to choose the overlay driver. For a rootless user without a storage configuration old
// versions of Podman choose vfs, which copies the image for every container. An existing vfs store stays.
func wantsOverlay() bool {
	if os.Getuid() == 0 || os.Getenv("CONTAINERS_STORAGE_CONF") != "" || os.Getenv("STORAGE_DRIVER") != "" {
		return false
	}
	home := os.Getenv("HOME")
	for _, path := range []string{
		filepath.Join(xdg("XDG_DATA_HOME", home, ".local/share"), "containers/storage/vfs-images"),
		filepath.Join(xdg("XDG_CONFIG_HOME", home, ".config"), "containers/storage.conf"),
		"/etc/containers/storage.conf",
	} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

func xdg(name, home, below string) string {
	if dir := os.Getenv(name); dir != "" {
		return dir
	}
	return filepath.Join(home, below)
}

// writeConf writes a containers.conf. exit_command_delay is how many seconds
// conmon outlives an API exec that has ended, by default 300: only clients that inspect the exit code need it, and we
// do that at once. A container without its own keyring takes none of the 200 keys of the user that all containers run
// as (keyrings(7)); with keyrings the maximum would be 100 containers. runtime is the OCI runtime (a name or a path; ""
// is Podman's choice).
func (s *service) writeConf(name, runtime string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "[containers]\ndefault_ulimits = [\"nofile=%[1]d:%[1]d\", \"nproc=%[2]d:%[2]d\"]\nhttp_proxy = false\n",
		capped(unix.RLIMIT_NOFILE, 16_384), capped(unix.RLIMIT_NPROC, maxProcs))
	if filepath.Base(runtime) != runscName { // it doesn't know the flag, and takes no keys
		b.WriteString("keyring = false\n")
	}
	fmt.Fprintf(&b, "\n[engine]\ncgroup_manager = %q\nevents_logger = \"file\"\nexit_command_delay = 1\ndetach_keys = \"\"\n", cgroupManager())
	if runtime != "" {
		fmt.Fprintf(&b, "runtime = %q\n", filepath.Base(runtime))
	}
	b.WriteString("\n[engine.runtimes]\n")
	if filepath.IsAbs(runtime) {
		fmt.Fprintf(&b, "%q = [%q]\n", filepath.Base(runtime), runtime)
	}
	if s.runsc != "" && filepath.Base(runtime) != runscName || runtime == runscName {
		fmt.Fprintf(&b, "%q = [%q]\n", runscName, s.runsc) // every service can remove the other's containers
	}
	return writeFile(s.dir, name, []byte(b.String()), 0o600)
}

// cgroupManager returns systemd only if systemd runs and can be reached.
func cgroupManager() string {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return "cgroupfs"
	}
	if os.Getuid() == 0 || rundir.Bus(rundir.Login(), os.Getenv("DBUS_SESSION_BUS_ADDRESS")) {
		return "systemd"
	}
	return "cgroupfs"
}

// capped returns the lower of want and this process's hard limit, which our children can't exceed without
// CAP_SYS_RESOURCE.
func capped(resource int, want int64) int64 {
	var lim unix.Rlimit
	if unix.Getrlimit(resource, &lim) != nil || lim.Max > uint64(want) {
		return want
	}
	return int64(lim.Max)
}
