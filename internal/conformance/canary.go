package conformance

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const canaryBytes = 4242

// canary is a directory outside the workspace that must stay unchanged and unseen.
type canary struct {
	token string // at the beginning of each of its files
	dir   string
	was   map[string]string
	seeks [][]byte
}

func newCanary(base string) (*canary, error) {
	c := &canary{token: "WISBOX-CANARY-" + rand.Text(), dir: filepath.Join(base, "canary")}
	c.seeks = append([][]byte{[]byte(c.token)}, base64Forms(c.token)...)
	var err error
	c.was, err = c.plant(c.dir)
	return c, err
}

// plant fills a directory with files that must not be found, and returns its portrait. Everybody
// may read them, so only the tools' own care keeps them out of answers.
func (c *canary) plant(dir string) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	content := []byte(c.token + "\n")
	content = append(content, bytes.Repeat([]byte("."), canaryBytes-len(content))...)
	for _, name := range []string{"canary.txt", "leak.txt", "only-outside-WISBOX"} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	return portrait(dir)
}

func (c *canary) file() string { return filepath.Join(c.dir, "canary.txt") }

// seen reports whether an answer contains the token, plainly or in base64.
func (c *canary) seen(answer []byte) bool {
	return slices.ContainsFunc(c.seeks, func(form []byte) bool { return bytes.Contains(answer, form) })
}

// base64Forms returns the token's inner characters in base64, for each of the three offsets that
// the token may have in the encoded text.
func base64Forms(token string) [][]byte {
	forms := make([][]byte, 3)
	for shift := range forms {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + token))
		forms[shift] = []byte(encoded[4 : len(encoded)-4])
	}
	return forms
}

func changedSince(dir string, was map[string]string) error {
	now, err := portrait(dir)
	if err == nil && !maps.Equal(was, now) {
		err = fmt.Errorf("%s has changed: %v, before %v", filepath.Base(dir), now, was)
	}
	return err
}

// portrait describes all entries below dir, with everything that a change would affect.
func portrait(dir string) (map[string]string, error) {
	seen := map[string]string{}
	return seen, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		what := fmt.Sprintf("%v %d %v", info.Mode(), info.Size(), info.ModTime())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += fmt.Sprintf(" %x", sha256.Sum256(content))
		}
		seen[path] = what
		return nil
	})
}
