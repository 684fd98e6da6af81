package doctor

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// changelog is that of a Debian package that is installed here. Distributions
// repair a program without giving it the number of the release that did so.
type changelog struct {
	version string   // of the package
	cves    []string // that it names
}

// maxChangelog bounds what is read of one, in bytes: the newest comes first.
const maxChangelog = 1 << 20

var cve = regexp.MustCompile(`CVE-\d{4}-\d{4,}`)

// changelog is that of the runtime's package; nil where Podman can't tell the
// package, or another version of it is installed here than Podman runs.
func (e *examination) changelog() *changelog {
	name, rest, _ := strings.Cut(e.service.RuntimePackage, "_")
	version, _, _ := strings.Cut(rest, "_")
	if version == "" || name != filepath.Base(name) {
		return nil
	}
	f, err := os.Open(filepath.Join(e.opts.Root, "usr/share/doc", name, "changelog.Debian.gz"))
	if err != nil {
		return nil
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(unpacked, maxChangelog))
	if err != nil || !strings.HasPrefix(string(text), name+" ("+version+")") {
		return nil
	}
	return &changelog{version, cve.FindAllString(string(text), -1)}
}

// without leaves out what the package has repaired.
func (c *changelog) without(cves []string) []string {
	if c == nil {
		return cves
	}
	return slices.DeleteFunc(slices.Clone(cves), func(name string) bool { return slices.Contains(c.cves, name) })
}

func (c *changelog) says() string {
	if c == nil {
		return "your distribution may have repaired that without changing the number"
	}
	return "nor does its package " + c.version + " say that it repairs that"
}
