package config

import (
	"slices"

	"github.com/docker/go-units"
)

// Chosen is the effective value of a setting, and the files that it comes from.
type Chosen struct {
	Setting
	Files []*File `json:"-"`
}

// Merge returns the effective settings of several files; earlier files win. A later file never
// loosens a restriction: deny has the hosts of all files, and strict, isolation, paths and
// limits.egress-out have the tightest value.
func Merge(files []*File) (out []Chosen) {
	for _, key := range Keys() {
		var c Chosen
		for _, file := range files {
			if s, ok := file.setting(key.Key); ok {
				c.add(file, s)
			}
			if names(file, key.Key) {
				break
			}
		}
		if len(c.Files) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func (c *Chosen) add(file *File, s Setting) {
	switch {
	case len(c.Files) == 0, tighter(s, c.Setting):
		c.Setting, c.Files = s, []*File{file}
	case s.Key == "deny":
		c.Values, c.Files = slices.Concat(c.Values, s.Values), append(c.Files, file)
	}
}

// names reports whether a file chooses the image by the other key, so that later files don't.
func names(file *File, key string) bool {
	other := map[string]string{"image": "containerfile", "containerfile": "image"}[key]
	_, ok := file.setting(other)
	return ok
}

func tighter(s, than Setting) bool {
	if s.Key == "limits.egress-out" {
		return bytesOf(s) < bytesOf(than)
	}
	tight := map[string]string{"strict": "true", "isolation": "gvisor", "paths": "ascii"}[s.Key]
	return tight != "" && s.Values[0] == tight && than.Values[0] != tight
}

// bytesOf returns a size. An invalid size counts as the smallest, so that it is used and refused
// instead of giving way to a larger one.
func bytesOf(s Setting) int64 {
	n, err := units.RAMInBytes(s.Values[0])
	if err != nil {
		return 0
	}
	return n
}

// Source returns the files and the key.
func (c *Chosen) Source() string { return c.From() + ": " + c.Key }

// From returns the files.
func (c *Chosen) From() string {
	paths := ""
	for i, f := range c.Files {
		if i > 0 {
			paths += ", "
		}
		paths += f.Path
	}
	return paths
}
