package podman

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/internal/rundir"
	"github.com/wisbox/wisbox/sandbox"
)

//go:generate sh -c "go run ./internal/mkseccomp /usr/share/containers/seccomp.json >seccomp.json"

// seccompProfile is the system calls that any process of a sandbox may make.
//
//go:embed seccomp.json
var seccompProfile []byte

// SeccompProfile is wisbox's own profile, JSON: a good one to begin another from.
func SeccompProfile() []byte { return bytes.Clone(seccompProfile) }

// hostFiles are the files that a container is made with; the service reads them by
// path.
type hostFiles struct {
	seccomp string // the profile
	empty   string // mounted over resolv.conf
	agent   string // mounted at resident.Path
	passwd  string // mounted over the image's with a home of the user's own
	group   string // likewise
}

// Accounts of a sandbox with [sandbox.Spec.UserHome].
const (
	userPasswd = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\nuser:x:1000:1000::" + sandbox.UserHome + ":/bin/bash\n"
	userGroup  = "root:x:0:\ntty:x:5:\nnogroup:x:65534:\nuser:x:1000:\n"
)

// userEnv are a user's variables with [sandbox.Spec.UserHome].
var userEnv = []string{"HOME=" + sandbox.UserHome, "USER=user", "LOGNAME=user"}

// writeHostFiles puts them into the runtime directory and the state directory, by
// content: a changed one never changes under a container that exists.
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
	if err == nil && spec.UserHome {
		out.passwd, err = keepFile(b.opts.RuntimeDir, "passwd", []byte(userPasswd))
	}
	if err == nil && spec.UserHome {
		out.group, err = keepFile(b.opts.RuntimeDir, "group", []byte(userGroup))
	}
	if err != nil {
		return out, fail(sandbox.ErrUnavailable, err, "the runtime directory can't be written")
	}
	out.agent, err = b.installAgent()
	return out, err
}

// installAgent puts the agent's program into the state directory.
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
		return "", fail(sandbox.ErrUnavailable, err, "the state directory can't be written, where the agent's program is kept; give it room and its owner")
	}
	return b.agent.path, nil
}

// agentFile is the agent's program once this process has installed and verified it.
type agentFile struct {
	sync.Mutex

	path  string
	found fs.FileInfo // as it was then
}

func (f *agentFile) install(dir string) (err error) {
	if f.path, err = native.Install(dir); err == nil {
		f.found, err = os.Lstat(f.path)
	}
	return err
}

// isThere reports whether the file is the same as then: it is one that nobody may write
// to, so that a change is another inode, mode or time.
func (f *agentFile) isThere() bool {
	if f.found == nil {
		return false
	}
	now, err := os.Lstat(f.path)
	return err == nil && os.SameFile(now, f.found) && now.Mode() == f.found.Mode() && now.Size() == f.found.Size() && now.ModTime().Equal(f.found.ModTime())
}

// profileOf is the profile that a sandbox gets.
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

// CheckSeccomp looks at a host file that is to be [sandbox.Spec.Seccomp]. gap says
// in a sentence what it allows beyond wisbox's own profile; "" is nothing.
func CheckSeccomp(path string) (gap string, err error) {
	profile, err := readProfile(path)
	if err != nil {
		return "", err
	}
	more, err := CompareSeccomp(profile)
	if err != nil || len(more) == 0 {
		return "", err
	}
	return "the seccomp profile that was given allows what wisbox's own forbids: " + someOf(more), nil
}

// maxProfile bounds a profile, in bytes: Podman's own has 25 KiB.
const maxProfile = 1 << 20

func readProfile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxProfile {
		return nil, fail(sandbox.ErrInvalid, nil, "the seccomp profile has %d bytes; at most %d are taken", info.Size(), maxProfile)
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
