package far

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Book has the other machines that a person has named. It is stored in a file of that person.
type Book struct {
	// Current is the default machine; "" is this machine.
	Current string            `json:"current,omitempty"`
	Remotes map[string]Remote `json:"remotes"`
}

// Remote is one other machine.
type Remote struct {
	Address string `json:"address"`
	// KeyFile and CAFile are files on this machine for an address that begins with https://: the
	// API key, and the certificates of the server's authorities.
	KeyFile string `json:"key_file,omitempty"`
	CAFile  string `json:"ca_file,omitempty"`
}

// maxKey is the maximum size of a key's file in bytes.
const maxKey = 4 << 10

// Key reads the file of the API key; "" if there is none.
func (r *Remote) Key() (string, error) {
	if r.KeyFile == "" {
		return "", nil
	}
	f, err := os.Open(r.KeyFile)
	if err != nil {
		return "", tool.Errorf(tool.Invalid, "the API key's file %s can't be read; put the key there, or remove the remote and add it with another --key-file", r.KeyFile).Because(err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if key := strings.TrimSpace(string(raw)); err == nil && key != "" && len(raw) <= maxKey {
		return key, nil
	}
	return "", tool.Errorf(tool.Invalid, "the file %s has no API key; put the key there, alone in a line", r.KeyFile).Because(err)
}

var remoteName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`) })

// This is the name of this machine where a remote can be named.
const This = "this"

// Path returns the path of the book: remotes.json in wisbox's directory of the user's
// configuration.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", tool.Errorf(tool.Unavailable, "this user has no directory for configuration; set XDG_CONFIG_HOME or HOME").Because(err)
	}
	return filepath.Join(dir, "wisbox", "remotes.json"), nil
}

// Read reads a book; a missing file means an empty book.
func Read(path string) (*Book, error) {
	b := &Book{Remotes: map[string]Remote{}}
	err := jsonfile.Read(path, b)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, tool.Errorf(tool.Unavailable, "%s can't be read; remove it, then add the remotes again", path).Because(err)
	}
	if b.Remotes == nil {
		b.Remotes = map[string]Remote{}
	}
	return b, nil
}

// Write replaces the file.
func (b *Book) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return jsonfile.Write(path, b)
}

// Add adds a remote.
func (b *Book) Add(name string, r Remote) error {
	if !remoteName().MatchString(name) || name == This {
		return tool.Errorf(tool.Invalid, "name %q must be 1 to 63 lower-case letters, digits and hyphens, not begin with a hyphen, and not be %q, which is this machine", name, This).In("name")
	}
	if err := Check(r.Address); err != nil {
		return err
	}
	if !isWeb(r.Address) && r.KeyFile+r.CAFile != "" {
		return tool.Errorf(tool.Invalid, "--key-file and --ca-file are for addresses that begin with https://; leave them out").In("address")
	}
	if _, ok := b.Remotes[name]; ok {
		return tool.Errorf(tool.Exists, "the remote %s already exists; remove it first: wisbox remote rm %s", name, name).In("name")
	}
	b.Remotes[name] = r
	return nil
}

// Find returns a remote; "" means the current one. It returns nil for this machine.
func (b *Book) Find(name string) (*Remote, error) {
	if name == "" {
		name = b.Current
	}
	if name == "" || name == This {
		return nil, nil
	}
	if strings.Contains(name, "://") || IsKube(name) {
		if err := Check(name); err != nil {
			return nil, err
		}
		return &Remote{Address: name}, nil
	}
	r, ok := b.Remotes[name]
	if !ok {
		return nil, tool.Errorf(tool.NotFound, "remote %q not found; see: wisbox remote list", name).In("remote")
	}
	return &r, nil
}

// Names returns the names of all remotes, sorted.
func (b *Book) Names() []string {
	var all []string
	for name := range b.Remotes {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
