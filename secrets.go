package wisbox

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Secret is one value that programs find as a file, /run/secrets/NAME, in a
// tmpfs that programs of the session alone can read. It is in no environment, no
// command line, no session.json, log or snapshot, and its value is covered with
// stars in what tools and programs answer, as it stands and as JSON writes it.
// Exactly one field is set.
type Secret struct {
	// File of the host whose content is the value. Its path stays with a kept
	// session, and it is read again whenever a container is made.
	File string `json:"file,omitempty"`
	// Value is kept in memory only. A kept session's holder keeps it, as long as
	// it lives; afterwards programs are unavailable until [Session.SetSecrets].
	Value []byte `json:"-"`
}

// Bounds of secrets.
const (
	maxSecrets    = 64
	maxSecretSize = 64 << 10 // bytes of one value
)

var secretName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$`)

func checkSecrets(all map[string]Secret) error {
	if len(all) > maxSecrets {
		return tool.Errorf(tool.Invalid, "there are %d secrets; at most %d are taken", len(all), maxSecrets).In("secrets")
	}
	for name, s := range all {
		if !secretName.MatchString(name) {
			return tool.Errorf(tool.Invalid, "secret %q: a name is 1 to 80 letters, digits, underscores, dots and hyphens, and begins with none of the last two", clip(name)).In("secrets")
		}
		value, err := s.read(name)
		if err != nil {
			return err
		}
		if !redact.Findable(value) {
			return tool.Errorf(tool.Invalid, "secret %s has no line of %d bytes or more; a shorter one can't be told from other text, so it could not be kept out of outputs", name, redact.MinLength).In("secrets")
		}
	}
	return nil
}

// read gives the value. Its errors hold no path: agents see them.
func (s Secret) read(name string) ([]byte, error) {
	if s.File == "" {
		if len(s.Value) > maxSecretSize {
			return nil, tooLargeSecret(name)
		}
		return s.Value, nil
	}
	if s.Value != nil {
		return nil, tool.Errorf(tool.Invalid, "secret %s has both a file and a value; give one", name).In("secrets")
	}
	f, err := os.Open(s.File)
	if err != nil {
		return nil, unreadable(name, err)
	}
	defer f.Close()
	value, err := io.ReadAll(io.LimitReader(f, maxSecretSize+1))
	if err != nil {
		return nil, unreadable(name, err)
	}
	if len(value) > maxSecretSize {
		return nil, tooLargeSecret(name)
	}
	return value, nil
}

func unreadable(name string, cause error) error {
	return tool.Errorf(tool.Unavailable, "the file of secret %s can't be read; put it back, or give the secret again", name).In("secrets").Because(cause)
}

func tooLargeSecret(name string) error {
	return tool.Errorf(tool.TooLarge, "secret %s has more than %d bytes", name, maxSecretSize).In("secrets")
}

// vault holds the secrets of a session that works in this process. Its methods
// may be called from many goroutines at once; the nil vault is empty.
type vault struct {
	session string

	mu     sync.RWMutex
	all    map[string]Secret
	redact *redact.Redactor
}

func newVault(session string, all map[string]Secret) *vault {
	v := &vault{session: session, all: map[string]Secret{}}
	v.set(all)
	return v
}

// set adds secrets or replaces those of the same names. What was known before
// goes on being redacted: programs may have it still.
func (v *vault) set(all map[string]Secret) {
	v.mu.Lock()
	maps.Copy(v.all, all)
	v.mu.Unlock()
	_, _ = v.values() // what can't be read is said when a program needs it
}

// values reads them all.
func (v *vault) values() (map[string][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string][]byte, len(v.all))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(v.all)) {
		s := v.all[name]
		value, err := s.read(name)
		if err == nil && s.File == "" && s.Value == nil {
			err = tool.Errorf(tool.Unavailable, "secret %s was only in the memory of a process that has ended; give it again with: wisbox session secret %s %s=FILE", name, v.session, name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[name] = value
	}
	v.redact = v.redact.With(slices.Collect(maps.Values(out))...)
	return out, errors.Join(errs...)
}

func (v *vault) copy() map[string]Secret {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.all)
}

func (v *vault) redactor() *redact.Redactor {
	if v == nil {
		return nil
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.redact
}

// inMemory tells whether a value would be lost with this process.
func (v *vault) inMemory() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.all {
		if s.Value != nil {
			return true
		}
	}
	return false
}

// hand gives a sandbox the secrets, before its first program.
func (v *vault) hand(ctx context.Context, sb sandbox.Sandbox) error {
	values, err := v.values()
	if err != nil || len(values) == 0 {
		return firstOf(err)
	}
	keeper, ok := sb.(sandbox.SecretKeeper)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this backend can't keep secrets")
	}
	return keeper.KeepSecrets(ctx, values)
}

// firstOf is the first of joined errors, for a caller who can do one thing at a time.
func firstOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		return many.Unwrap()[0]
	}
	return err
}

// cleanError is an error without the values in its text or its cause's.
func (v *vault) cleanError(err error) error {
	r := v.redactor()
	if err == nil || r == nil {
		return err
	}
	said := err.Error()
	if cause := errors.Unwrap(err); cause != nil {
		said += " " + cause.Error()
	}
	if !r.In([]byte(said)) {
		return err
	}
	known := tool.AsError(err)
	return tool.Errorf(known.Kind, "%s", r.Text(known.Message)).In(known.Field)
}

// cleanResult is a result without the values.
func (v *vault) cleanResult(res *tool.Result) *tool.Result {
	r := v.redactor()
	if res == nil || r == nil {
		return res
	}
	out := *res
	if read, ok := res.Value.(*vfs.Reading); ok && read.Encoding == "base64" {
		out.Value = cleanBytes(r, read)
		out.Text = out.Value.(*vfs.Reading).Text()
	}
	out.Value, out.Text = r.Value(out.Value), r.Text(out.Text)
	return &out
}

// cleanBytes is what was read as base64 without the values, nor parts of them where it
// was cut.
func cleanBytes(r *redact.Redactor, read *vfs.Reading) *vfs.Reading {
	data, err := base64.StdEncoding.DecodeString(read.Content)
	if err != nil {
		return read
	}
	out := *read
	out.Content = base64.StdEncoding.EncodeToString([]byte(r.Head(string(r.Tail(data)))))
	return &out
}

// named are secrets without their values.
func named(all map[string]Secret) map[string]Secret {
	out := maps.Clone(all)
	for name, s := range out {
		out[name] = Secret{File: s.File}
	}
	return out
}

// SetSecrets adds secrets to the session, or replaces those of the same names:
// programs that begin afterwards find them. A kept session's holder keeps values
// that have no file and stays for them, without clients too.
func (s *Session) SetSecrets(ctx context.Context, all map[string]Secret) error {
	if err := checkSecrets(all); err != nil {
		return err
	}
	_, err := observe(ctx, s, Event{Tool: "secret", Args: map[string]any{"names": strings.Join(slices.Sorted(maps.Keys(all)), " ")}},
		func(ctx context.Context) (struct{}, *tool.Result, error) {
			return struct{}{}, &tool.Result{}, s.host.setSecrets(ctx, all)
		})
	return err
}
