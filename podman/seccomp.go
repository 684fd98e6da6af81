package podman

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/sandbox"
)

//go:generate sh -c "go run ./internal/mkseccomp /usr/share/containers/seccomp.json >seccomp.json"

// seccompProfile lists the system calls that the processes of a sandbox may make.
//
//go:embed seccomp.json
var seccompProfile []byte

// SeccompProfile returns wisbox's own profile as JSON, a good base for another one.
func SeccompProfile() []byte { return bytes.Clone(seccompProfile) }

// hostFiles are the files that a new container needs; the service reads them by path.
type hostFiles struct {
	seccomp string // the profile
	empty   string // mounted over resolv.conf
	hosts   string // mounted over hosts
	agent   string // mounted at resident.Path
	passwd  string // mounted over the image's if the user has a home
	group   string // likewise
}

// defaultName is the host name of a sandbox to which nobody gave a name, or that has no files of its own.
const defaultName = "wisbox"

func hostName(spec sandbox.Spec) string {
	if _, err := ulid.ParseStrict(strings.ToUpper(spec.ID)); err == nil || spec.Own == "" {
		return defaultName
	}
	return spec.ID
}

// hosts returns an /etc/hosts, which has no names and addresses of the host.
func hosts(names ...string) []byte {
	return []byte("127.0.0.1\tlocalhost " + strings.Join(names, " ") + "\n::1\tlocalhost ip6-localhost ip6-loopback\n")
}

// writeHostFiles writes them to the runtime directory and the state directory, named by content: no file changes under
// an existing container.
func (b *Backend) writeHostFiles(spec sandbox.Spec) (hostFiles, error) {
	var out hostFiles
	profile, err := profileOf(spec)
	if err != nil {
		return out, err
	}
	err = rundir.Private(b.opts.RuntimeDir)
	if err == nil {
		sum := sha256.Sum256(profile)
		out.seccomp, err = keepFile(b.opts.RuntimeDir, "seccomp-"+hex.EncodeToString(sum[:6])+".json", profile)
	}
	if err == nil {
		out.empty, err = keepFile(b.opts.RuntimeDir, "empty", nil)
	}
	if err == nil {
		out.hosts, err = keepFile(cmp.Or(spec.Own, b.opts.RuntimeDir), "hosts", hosts(hostName(spec)))
	}
	if err == nil && spec.UserHome {
		out.passwd, err = keepFile(b.opts.RuntimeDir, "passwd", []byte(sandbox.UserPasswd))
	}
	if err == nil && spec.UserHome {
		out.group, err = keepFile(b.opts.RuntimeDir, "group", []byte(sandbox.UserGroup))
	}
	if err != nil {
		return out, fail(sandbox.ErrUnavailable, err, "the runtime directory can't be written")
	}
	out.agent, err = b.installAgent()
	return out, err
}

// installAgent writes the agent's program to the state directory.
func (b *Backend) installAgent() (string, error) {
	b.agent.Lock()
	defer b.agent.Unlock()
	if b.agent.isThere() {
		return b.agent.path, nil
	}
	err := os.MkdirAll(b.opts.StateDir, 0o700)
	if err == nil {
		err = b.agent.install(b.opts.StateDir)
	}
	switch {
	case errors.Is(err, native.ErrNoExec):
		return "", fail(sandbox.ErrUnavailable, err, "the state directory is on a file system that is mounted noexec, from which no container can run the agent; "+
			"mount it with exec, or set WISBOX_CACHE to a directory on another one")
	case errors.Is(err, native.ErrArch):
		return "", fail(sandbox.ErrUnavailable, err, "%v", native.ErrArch)
	case err != nil:
		return "", fail(sandbox.ErrUnavailable, err, "the state directory can't be written; it holds the agent's program: free space there, and check its owner")
	}
	return b.agent.path, nil
}

// agentFile is the agent's program, after this process has installed and verified it.
type agentFile struct {
	sync.Mutex

	path  string
	found fs.FileInfo // at that time
}

func (f *agentFile) install(dir string) (err error) {
	if f.path, err = native.Install(dir); err == nil {
		f.found, err = os.Lstat(f.path)
	}
	return err
}

// isThere reports whether the file is still the same. Nobody may write to it, so a change shows in its inode, mode or
// time.
func (f *agentFile) isThere() bool {
	if f.found == nil {
		return false
	}
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.found) && now.Mode() == f.found.Mode() && now.Size() == f.found.Size() && now.ModTime().Equal(f.found.ModTime())
}

// profileOf returns a sandbox's profile.
func profileOf(spec sandbox.Spec) ([]byte, error) {
	if spec.Seccomp == "" {
		return seccompProfile, nil
	}
	profile, err := readProfile(spec.Seccomp)
	if err != nil {
		return nil, err
	}
	_, err = CompareSeccomp(profile)
	return profile, err
}

// CheckSeccomp checks a host file for use as [sandbox.Spec.Seccomp]. gap is a sentence with the calls that it allows
// beyond wisbox's own profile, "" if there are none.
func CheckSeccomp(path string) (gap string, err error) {
	profile, err := readProfile(path)
	if err != nil {
		return "", err
	}
	more, err := CompareSeccomp(profile)
	if err != nil || len(more) == 0 {
		return "", err
	}
	return "the given seccomp profile allows calls that wisbox's own forbids: " + someOf(more), nil
}

// maxProfile is a profile's maximum size in bytes: Podman's own has 25 KiB.
const maxProfile = 1 << 20

func readProfile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxProfile {
		return nil, fail(sandbox.ErrInvalid, nil, "the seccomp profile has %d bytes; the maximum is %d", info.Size(), maxProfile)
	}
	if err == nil && !info.Mode().IsRegular() {
		return nil, fail(sandbox.ErrInvalid, nil, "the seccomp profile is not a regular file")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fail(sandbox.ErrInvalid, err, "the seccomp profile can't be read; name a JSON file that this user can read")
	}
	return data, nil
}
