// Package config reads the default settings of new sessions: a project's wisbox.toml, which applies
// only after a person has trusted exactly its content, and the user's own file.
//
// Until then a project's file is treated as a stranger's. It is read once, at most 16 KiB of a
// regular file, so the trusted bytes are the bytes that are used. It can't name secrets, services
// or proxies, and its mounts are inside the project, even if links change later.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Name is the name of a project's file.
const Name = "wisbox.toml"

const maxSize = 16 << 10 // bytes of a file: the parser's time grows with the square of a key's length

// keys are the keys of a file. The tag flag names the equivalent flag.
type keys struct {
	Image  *string  `toml:"image" flag:"image"`
	Build  *string  `toml:"containerfile" flag:"containerfile"`
	Pull   *string  `toml:"pull" flag:"pull"`
	Mounts []string `toml:"mounts" flag:"mount"`
	Allow  []string `toml:"allow" flag:"allow"`
	Deny   []string `toml:"deny" flag:"deny"`
	Tools  []string `toml:"tools" flag:"tools"`

	Isolation       *string `toml:"isolation" flag:"isolation"`
	Strict          *bool   `toml:"strict" flag:"strict"`
	AutoSnapshot    *bool   `toml:"auto-snapshot" flag:"auto-snapshot"`
	ReadBeforeWrite *bool   `toml:"read-before-write" flag:"read-before-write"`
	Paths           *string `toml:"paths" flag:"paths"`
	DigestTag       *string `toml:"digest-tag" flag:"tag"`
	TTL             *string `toml:"ttl" flag:"ttl"`
	Idle            *string `toml:"idle" flag:"idle"`

	Limits struct {
		CPUs   *float64 `toml:"cpus" flag:"cpus"`
		Memory *string  `toml:"memory" flag:"memory"`
		PIDs   *int64   `toml:"pids" flag:"pids"`
		Tmp    *string  `toml:"tmp" flag:"tmp"`
		Shm    *string  `toml:"shm-size" flag:"shm-size"`
		Disk   *string  `toml:"disk" flag:"disk"`
		Inodes *int64   `toml:"inodes" flag:"inodes"`
		Out    *string  `toml:"egress-out" flag:"egress-out"`

		MaxTimeout  *string `toml:"max-timeout" flag:"max-timeout"`
		EvalTimeout *string `toml:"eval-timeout" flag:"eval-timeout"`
		MaxCode     *int64  `toml:"max-code" flag:"max-code"`
		MaxOutput   *int64  `toml:"max-output" flag:"max-output"`
	} `toml:"limits"`
}

// Setting is one value of a file.
type Setting struct {
	Key    string   `json:"key"`    // as in the file, e.g. limits.memory
	Flag   string   `json:"-"`      // without --
	Values []string `json:"values"` // one value unless it is a list
	List   bool     `json:"-"`
}

// Keys returns all keys of a file, without values, in the order of the documentation.
func Keys() []Setting { return settings(reflect.ValueOf(keys{}), "", true) }

func settings(v reflect.Value, prefix string, all bool) (out []Setting) {
	for i := range v.NumField() {
		tag, field := v.Type().Field(i).Tag, v.Field(i)
		key := prefix + tag.Get("toml")
		s := Setting{Key: key, Flag: tag.Get("flag"), List: field.Kind() == reflect.Slice}
		switch {
		case field.Kind() == reflect.Struct:
			out = append(out, settings(field, key+".", all)...)
			continue
		case !field.IsNil() && s.List:
			s.Values = field.Interface().([]string)
		case !field.IsNil():
			s.Values = []string{text(field.Elem())}
		case !all:
			continue
		}
		out = append(out, s)
	}
	return out
}

func text(v reflect.Value) string {
	if v.Kind() == reflect.Float64 {
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// File is a configuration file that was read.
type File struct {
	Path     string
	Settings []Setting
	Raw      []byte // the bytes of the file
	// Containerfile is the content of the file that the key containerfile names; nil without the
	// key.
	Containerfile []byte
}

func (f *File) setting(key string) (Setting, bool) {
	i := slices.IndexFunc(f.Settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return f.Settings[i], true
}

// Dir returns the file's directory, to which its paths are relative.
func (f *File) Dir() string { return filepath.Dir(f.Path) }

// read reads a whole file, once. If there is none, the error is fs.ErrNotExist.
func read(path string) ([]byte, *unix.Stat_t, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, nil, refuse(path, "it is a symbolic link; put the file itself there")
	}
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &st, refuse(path, "it is not a regular file")
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(raw) > maxSize {
		err = refuse(path, "it has more than 16 KiB")
	}
	return raw, &st, err
}

func refuse(path, why string) error {
	return tool.Errorf(tool.Invalid, "%s can't be used: %s", path, why)
}

// parse parses the settings of a file.
func parse(path string, raw []byte) (*File, error) {
	var k keys
	err := toml.NewDecoder(bytes.NewReader(raw)).DisallowUnknownFields().Decode(&k)
	var unknown *toml.StrictMissingError
	var wrong *toml.DecodeError
	switch {
	case errors.As(err, &unknown) && len(unknown.Errors) > 0:
		first := unknown.Errors[0]
		line, _ := first.Position()
		return nil, tool.Errorf(tool.Invalid, "%s, line %d: unknown key %q; wisbox config lists the keys", path, line, joined(first.Key()))
	case errors.As(err, &wrong):
		line, _ := wrong.Position()
		return nil, tool.Errorf(tool.Invalid, "%s, line %d: %s", path, line, problem(wrong))
	case err != nil:
		return nil, tool.Errorf(tool.Invalid, "%s can't be read: it is not valid TOML", path).Because(err)
	}
	f := &File{Path: path, Settings: settings(reflect.ValueOf(k), "", false), Raw: raw}
	return f, f.readContainerfile()
}

// problem describes an error on a line without naming wisbox's types.
func problem(err *toml.DecodeError) string {
	words := strings.TrimPrefix(err.Error(), "toml: ")
	key := err.Key()
	if len(key) == 0 {
		return "it is not valid TOML: " + words
	}
	known, want := wanted(reflect.TypeFor[keys](), key)
	switch {
	case strings.Contains(words, "already"):
		return joined(key) + " is repeated; remove one of the two"
	case want == "":
		return fmt.Sprintf("unknown key %q; wisbox config lists the keys", joined(key))
	}
	return joined(known) + " must be " + want
}

// wanted returns the known part of a key and a description of its value; "" for an unknown key.
func wanted(t reflect.Type, key toml.Key) (known toml.Key, want string) {
	for f := range t.Fields() {
		if f.Tag.Get("toml") != key[0] {
			continue
		}
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct && len(key) > 1 {
			known, want = wanted(of, key[1:])
			return append(toml.Key{key[0]}, known...), want
		}
		return key[:1], map[reflect.Kind]string{
			reflect.String: "text in quotes", reflect.Slice: `a list of texts in quotes, as ["a", "b"]`, reflect.Bool: "true or false",
			reflect.Float64: "a number, as 1.5", reflect.Int64: "a whole number that fits in 64 bits", reflect.Struct: "a table: write [" + key[0] + "], and its keys below",
		}[of.Kind()]
	}
	return nil, ""
}

func joined(key toml.Key) string { return clip.Text(strings.Join(key, ".")) }

// copies matches the instructions that copy files of the context into a build. A word may continue
// on the next line, with comments in between. An instruction that isn't found gets no context.
var (
	copies    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?im)^\s*(onbuild\s+)?(copy|add)\b|--mount`) })
	continued = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("[\\\\`][ \\t\\r]*\\n([ \\t]*(#[^\\n]*)?\\n)*[ \\t]*")
	})
)

// CopiesFiles reports whether a build of the Containerfile may copy files of its context.
func (f *File) CopiesFiles() bool {
	return copies().Match(f.Containerfile) || copies().Match(continued().ReplaceAll(f.Containerfile, nil))
}

const maxContainerfile = 64 << 10 // bytes; a person reads them

// readContainerfile reads the Containerfile, once: it is part of the trusted content.
func (f *File) readContainerfile() error {
	s, named := f.setting("containerfile")
	if !named {
		return nil
	}
	name := s.Values[0]
	if _, both := f.setting("image"); both {
		return tool.Errorf(tool.Invalid, "%s: image and containerfile exclude each other; leave one of them out", f.Path)
	}
	if !filepath.IsLocal(name) {
		return tool.Errorf(tool.Permission, "%s: containerfile: %q doesn't lie in the same directory or below; give it with --containerfile", f.Path, name)
	}
	content, err := readBelow(f.Dir(), name)
	switch {
	case err != nil:
		return tool.Errorf(tool.Invalid, "%s: containerfile: %q is not a regular file of this directory that can be read; check the name", f.Path, name).Because(err)
	case len(content) > maxContainerfile:
		return tool.Errorf(tool.TooLarge, "%s: containerfile: %q has more than 64 KiB, the maximum; check that it is a Containerfile", f.Path, name)
	}
	f.Containerfile = content
	return nil
}

// readBelow reads a regular file below a directory, up to one byte more than the maximum.
func readBelow(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, maxContainerfile+1))
}

// checkProject refuses keys that a project's file may not have, even if it is trusted.
func (f *File) checkProject() error {
	if _, builds := f.setting("containerfile"); builds && isTop(f.Dir()) {
		return tool.Errorf(tool.Permission, "%s: containerfile would have your home directory or the root as its context; write it into a project's own %s", f.Path, Name)
	}
	mounts, ok := f.setting("mounts")
	if !ok {
		return nil
	}
	if isTop(f.Dir()) {
		return tool.Errorf(tool.Permission, "%s: mounts would be copied from your home directory or the root into the sessions of every project below; write them into a project's own %s", f.Path, Name)
	}
	for _, spec := range mounts.Values {
		m, err := hostmount.Parse(spec)
		if err != nil {
			return tool.Errorf(tool.Invalid, "%s: mounts: %q: %s", f.Path, spec, tool.AsError(err).Message)
		}
		if !filepath.IsLocal(m.HostPath) {
			return tool.Errorf(tool.Permission, "%s: mounts: %q doesn't lie in the project; give it with --mount, or in your own configuration", f.Path, spec)
		}
	}
	return nil
}
