package podman

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"os"

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

// hostFiles are the small files that a container is made with; the service reads
// them by path.
type hostFiles struct {
	seccomp string // the profile
	empty   string // mounted over resolv.conf
}

// writeHostFiles puts them into the runtime directory, by content: a changed
// profile never changes under a container that exists.
func (b *Backend) writeHostFiles(spec sandbox.Spec) (hostFiles, error) {
	var out hostFiles
	profile, err := profileOf(spec)
	if err != nil {
		return out, err
	}
	err = rundir.Private(b.opts.RuntimeDir)
	if err == nil {
		sum := sha256.Sum256(profile)
		out.seccomp, err = keepFile(b.opts.RuntimeDir, "seccomp-"+hex.EncodeToString(sum[:6])+".json", profile, 0o644)
	}
	if err == nil {
		out.empty, err = keepFile(b.opts.RuntimeDir, "empty", nil, 0o644)
	}
	if err != nil {
		return out, fail(sandbox.ErrUnavailable, err, "the runtime directory can't be written")
	}
	return out, nil
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
