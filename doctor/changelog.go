package doctor

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// changelog is the changelog of an installed Debian package. Distributions fix a program without
// changing its version to that of the release with the fix.
type changelog struct {
	name    string   // the package's
	version string   // the package's version
	cves    []string // the CVEs that it names
}

// maxChangelog bounds the bytes read: the newest entries come first.
const maxChangelog = 1 << 20

var cve = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`CVE-\d{4}-\d{4,}`) })

// changelog returns the changelog of the runtime's package. It is nil if Podman doesn't know the
// package, or if the installed version isn't the one that Podman runs.
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
	return &changelog{name, version, cve().FindAllString(string(text), -1)}
}

// without returns the CVEs that the package hasn't fixed.
func (c *changelog) without(cves []string) []string {
	if c == nil {
		return cves
	}
	return slices.DeleteFunc(slices.Clone(cves), func(name string) bool { return slices.Contains(c.cves, name) })
}

// fix returns what to do about a hole. A distribution whose package is older has no version of the program's own.
func (c *changelog) fix(update string) string {
	if c == nil {
		return update
	}
	return "apt-get install --only-upgrade " + c.name + "; until its distribution has repaired that, use --isolation gvisor, which doesn't need it"
}

func (c *changelog) says() string {
	if c == nil {
		return "your distribution may have repaired that without changing the number"
	}
	return "nor does its package " + c.version + " say that it repairs that"
}
