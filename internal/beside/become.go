package beside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/jsonfile"
)

// environFile is the file with the image's environment, in the socket's directory.
const environFile = "environ.json"

// terminationLog is a file on the node. Without protection, any user of the container could fill
// it.
const terminationLog = "/dev/termination-log"

// Rlimits are the limits that a Pod has no field for.
type Rlimits struct {
	NoFile   int64 // open files per process
	FileSize int64 // bytes per file
}

// Become turns this process, the first of the container of programs, into the agent, which
// listens at socket. It first denies programs access to the socket's directory and to the
// termination log, and records the mounts that nothing counts. It returns only on an error, which it
// also writes to that log.
func Become(socket string, limits Rlimits) error {
	err := become(socket, limits)
	if f, failed := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0); failed == nil {
		_, _ = f.WriteString(err.Error()) // otherwise the cluster reports only the exit code
		_ = f.Close()
	}
	return err
}

func become(socket string, limits Rlimits) error {
	program, err := agentFile() // before the limits: it may exceed the file size limit
	if err != nil {
		return err
	}
	if err := prepare(socket, terminationLog, limits); err != nil {
		return err
	}
	env := resident.ProgramEnv(imageEnv(os.Environ()))
	if err := jsonfile.Write(filepath.Join(filepath.Dir(socket), environFile), env); err != nil {
		return err
	}
	if err := recordMounts(filepath.Dir(socket)); err != nil {
		return err
	}
	argv := resident.ServeArgv(resident.PathOf(env), socket)
	own := []string{"PATH=" + resident.DefaultPath, "HOME=/", "LANG=C.UTF-8"}
	return fmt.Errorf("become the agent: %w", unix.Exec(program, argv, own))
}

func prepare(socket, last string, limits Rlimits) error {
	if err := os.Chmod(filepath.Dir(socket), 0o700); err != nil {
		return fmt.Errorf("close the directory of the socket: %w", err)
	}
	if err := os.Chmod(last, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("close the termination log: %w", err)
	}
	for resource, most := range map[int]int64{
		unix.RLIMIT_NOFILE: limits.NoFile, unix.RLIMIT_FSIZE: limits.FileSize, unix.RLIMIT_CORE: 0,
		unix.RLIMIT_MEMLOCK: 8 << 20, unix.RLIMIT_MSGQUEUE: 98_304, unix.RLIMIT_SIGPENDING: 1024,
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(resource, &now); err != nil {
			return fmt.Errorf("read a limit: %w", err)
		}
		v := min(uint64(most), now.Max) // never above the limit of the container runtime
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	return nil
}

// imageEnv removes the variables that Kubernetes adds: the container's name and the API server's
// addresses.
func imageEnv(env []string) []string {
	return slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "HOSTNAME" || strings.HasPrefix(name, "KUBERNETES_")
	})
}

// agentFile returns a path that executes the embedded agent. It is a file in memory that lives
// as long as the processes that execute it.
func agentFile() (string, error) {
	binary, err := native.Binary()
	if err != nil {
		return "", err
	}
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("wisbox-agent", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all memory files are executable
		fd, err = unix.MemfdCreate("wisbox-agent", flags)
	}
	if err != nil {
		return "", fmt.Errorf("make a file for the agent: %w", err)
	}
	f := os.NewFile(uintptr(fd), "wisbox-agent")
	if _, err := f.Write(binary); err != nil {
		return "", fmt.Errorf("write the agent: %w", err)
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	readOnly, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) // a file that is open for writing can't be executed
	if err != nil {
		return "", fmt.Errorf("open the agent: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL); err != nil {
		return "", fmt.Errorf("seal the agent: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", readOnly), f.Close()
}
