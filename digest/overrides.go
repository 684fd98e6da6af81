package digest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/tool"
)

// Dir is an override store in a directory, with one JSON file for each key and tag. Files are replaced by rename, so
// that several processes may share it.
type Dir struct{ Root *os.Root }

var nameRule = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,63}$`) })

// CheckTag reports whether a text can be a tag of [Dir]. The error is invalid.
func CheckTag(tag string) error {
	if nameRule().MatchString(tag) {
		return nil
	}
	return tool.Errorf(tool.Invalid, "tag %q must be 1 to 64 lower-case letters, digits, dots, dashes and underscores, and begin with a letter or digit", tag).In("tag")
}

func fileOf(key, tag string) (string, error) {
	if err := CheckTag(tag); err != nil {
		return "", err
	}
	if !nameRule().MatchString(key) {
		return "", tool.Errorf(tool.Invalid, "a key of a digest has up to 64 lower-case letters, digits, dots and dashes").In("key")
	}
	return key + "@" + tag + ".json", nil
}

// Get reads the digest of a key and tag.
func (d Dir) Get(_ context.Context, key, tag string) (text Text, err error) {
	name, err := fileOf(key, tag)
	if err != nil {
		return text, err
	}
	info, err := d.Root.Stat(name)
	if err != nil {
		return text, err
	}
	if info.Size() > 1<<20 {
		return text, fs.ErrInvalid
	}
	b, err := d.Root.ReadFile(name)
	if err != nil {
		return text, err
	}
	return text, json.Unmarshal(b, &text)
}

// Put replaces the digest of a key and tag.
func (d Dir) Put(_ context.Context, key, tag string, text Text) error {
	name, err := fileOf(key, tag)
	if err != nil {
		return err
	}
	b, err := json.Marshal(text)
	if err != nil {
		return err
	}
	temp := "tmp-" + strings.ToLower(ulid.Make().String())
	err = d.Root.WriteFile(temp, b, 0o600)
	if err == nil {
		err = d.Root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, d.Root.Remove(temp))
	}
	return nil
}

// Delete deletes the digest of a key and tag.
func (d Dir) Delete(_ context.Context, key, tag string) error {
	name, err := fileOf(key, tag)
	if err != nil {
		return err
	}
	if err := d.Root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
