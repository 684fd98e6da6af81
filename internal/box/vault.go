package box

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

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/redact"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Secret is a value that programs find as a file, /run/secrets/NAME, in a tmpfs that only programs of
// the session can read. Exactly one field must be set.
type Secret struct {
	File  string `json:"file,omitempty"`  // of the host whose content is the value; it is read again whenever a container is made
	Value []byte `json:"value,omitempty"` // kept in memory only; it is marshalled for the session's holder and nowhere else
}

// Bounds of secrets.
const (
	maxSecrets    = 64
	maxSecretSize = 64 << 10 // bytes of one value
)

// RootsName is the file in [sandbox.SecretsDir] with the certificates that programs trust, if the
// session has a network. No secret may have a name with OwnPrefix.
const (
	OwnPrefix = "wisbox-"
	RootsName = OwnPrefix + "ca.pem"
)

var secretName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$`) })

// CheckSecrets checks secrets before a session accepts them.
func CheckSecrets(all map[string]Secret) error {
	if len(all) > maxSecrets {
		return tool.Errorf(tool.Invalid, "there are %d secrets; the maximum is %d", len(all), maxSecrets).In("secrets")
	}
	for name, s := range all {
		if !secretName().MatchString(name) {
			return tool.Errorf(tool.Invalid, "secret %q: a name must be 1 to 80 letters, digits, underscores, dots and hyphens, and not begin with a dot or hyphen", clip.Text(name)).In("secrets")
		}
		if strings.HasPrefix(name, OwnPrefix) {
			return tool.Errorf(tool.Invalid, "secret %s: names that begin with %s are for wisbox's own files; choose another one", name, OwnPrefix).In("secrets")
		}
		value, err := s.read(name)
		if err != nil {
			return err
		}
		if !redact.Findable(value) {
			return tool.Errorf(tool.Invalid, "secret %s has no line of %d bytes or more; a shorter one can't be distinguished from other text, so it could not be kept out of outputs", name, redact.MinLength).In("secrets")
		}
	}
	return nil
}

// read returns the value. Its errors have no path, since agents see them.
func (s Secret) read(name string) ([]byte, error) {
	if s.File == "" {
		if len(s.Value) > maxSecretSize {
			return nil, tooLargeSecret(name)
		}
		return s.Value, nil
	}
	if s.Value != nil {
		return nil, tool.Errorf(tool.Invalid, "secret %s has both a file and a value; give only one", name).In("secrets")
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
	return tool.Errorf(tool.Unavailable, "the file of secret %s can't be read; restore it, or give the secret again", name).In("secrets").Because(cause)
}

func tooLargeSecret(name string) error {
	return tool.Errorf(tool.TooLarge, "secret %s is too long; the maximum is %d bytes", name, maxSecretSize).In("secrets")
}

// Vault holds the secrets of a session that works in this process. Its methods
// may be called from many goroutines at once; the nil Vault is empty.
type Vault struct {
	session string

	mu     sync.RWMutex
	all    map[string]Secret
	hidden []string // those without a file
	redact *redact.Redactor
}

// NewVault returns the vault of the session with that name.
func NewVault(session string, all map[string]Secret) *Vault {
	v := &Vault{session: session, all: map[string]Secret{}}
	v.Set(all)
	return v
}

// Set adds secrets or replaces those of the same names. Earlier values are
// still redacted: programs may have them.
func (v *Vault) Set(all map[string]Secret) {
	v.mu.Lock()
	maps.Copy(v.all, all)
	v.mu.Unlock()
	_, _ = v.Values() // an unreadable file is reported when a program needs it
}

// Hide keeps the secrets with those names out of the sandbox: they have no file there, but are
// redacted like all others.
func (v *Vault) Hide(names []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hidden = names
}

func (v *Vault) isHidden(name string) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return slices.Contains(v.hidden, name)
}

// Values returns all values. Its error joins the errors of unreadable ones.
func (v *Vault) Values() (map[string][]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make(map[string][]byte, len(v.all))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(v.all)) {
		s := v.all[name]
		value, err := s.read(name)
		if err == nil && s.File == "" && s.Value == nil {
			err = tool.Errorf(tool.Unavailable, "secret %s was only in the memory of a process that has ended; give it again with: wisbox secret %s %s=FILE", name, v.session, name)
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

// Copy returns the secrets, values included.
func (v *Vault) Copy() map[string]Secret {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return maps.Clone(v.all)
}

// Redactor returns a Redactor for all values that were ever in the vault, or nil if there were none.
func (v *Vault) Redactor() *redact.Redactor {
	if v == nil {
		return nil
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.redact
}

// InMemory reports whether a value would be lost with this process.
func (v *Vault) InMemory() bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for _, s := range v.all {
		if s.Value != nil {
			return true
		}
	}
	return false
}

// Hand passes the secrets to a sandbox, before its first program.
func (v *Vault) Hand(ctx context.Context, sb sandbox.Sandbox) error {
	values, err := v.Values()
	maps.DeleteFunc(values, func(name string, _ []byte) bool { return v.isHidden(name) })
	if err != nil || len(values) == 0 {
		return FirstOf(err)
	}
	keeper, ok := sandbox.As[sandbox.SecretKeeper](sb)
	if !ok {
		return tool.Errorf(tool.Unsupported, "this backend can't keep secrets")
	}
	return keeper.KeepSecrets(ctx, values)
}

// FirstOf returns the first of joined errors, for a caller that can fix one problem at a time.
func FirstOf(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		return many.Unwrap()[0]
	}
	return err
}

// CleanError returns an error without the values in its text or its cause's.
func (v *Vault) CleanError(err error) error {
	r := v.Redactor()
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

// CleanResult returns a result without the values.
func (v *Vault) CleanResult(res *tool.Result) *tool.Result {
	r := v.Redactor()
	if res == nil || r == nil {
		return res
	}
	out := *res
	if read, ok := res.Value.(*vfs.Reading); ok && read.Encoding == "base64" {
		out.Value = cleanBytes(r, read)
		out.Text = out.Value.(*vfs.Reading).Text()
	}
	cleanBlobs(r, &out)
	out.Value, out.Text = r.Value(out.Value), r.Text(out.Text)
	return &out
}

// cleanBlobs covers values in the bytes of pictures, such as comments of PNG, and in their base64 in
// the value and the text.
func cleanBlobs(r *redact.Redactor, res *tool.Result) {
	base64Of := base64.StdEncoding.EncodeToString
	swaps := map[string]string{}
	blobs := slices.Clone(res.Blobs)
	for i, b := range blobs {
		if r.In(b.Data) {
			blobs[i].Data = r.Bytes(b.Data)
			swaps[base64Of(b.Data)] = base64Of(blobs[i].Data)
		}
	}
	if len(swaps) == 0 {
		return
	}
	res.Blobs, res.Value = blobs, redact.Swap(res.Value, swaps)
	for old, text := range swaps {
		res.Text = strings.ReplaceAll(res.Text, old, text)
	}
}

// cleanBytes returns base64 content without the values, and without parts of values at its cuts.
func cleanBytes(r *redact.Redactor, read *vfs.Reading) *vfs.Reading {
	data, err := base64.StdEncoding.DecodeString(read.Content)
	if err != nil {
		return read
	}
	out := *read
	out.Content = base64.StdEncoding.EncodeToString(r.Bytes(data))
	return &out
}
