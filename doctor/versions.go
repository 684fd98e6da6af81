package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// version is major, minor, patch; all zero if the text has no version.
type version [3]int

var versionText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(\d+)\.(\d+)(?:\.(\d+))?`) })

func parseVersion(text string) (v version) {
	m := versionText().FindStringSubmatch(text)
	for i := 1; i < len(m); i++ {
		v[i-1], _ = strconv.Atoi(m[i]) // digits, or nothing
	}
	return v
}

func (v version) known() bool { return v != version{} }

func (v version) before(major, minor, patch int) bool {
	for i, n := range []int{major, minor, patch} {
		if v[i] != n {
			return v[i] < n
		}
	}
	return false
}

// hole is a vulnerability of some versions of a program that lets a container escape.
type hole struct {
	cves []string
	when string // the condition for using it; "" for always
	in   string // the feature of a build that has it, such as +LIBKRUN; "" for all
	open func(version) bool
	fix  string
}

// runcHoles has the worst first. Each release branch has its own fix.
var runcHoles = []hole{
	{[]string{"CVE-2019-5736", "CVE-2021-30465"}, "", "", func(v version) bool { return v.before(1, 0, 0) }, "update runc to 1.2.8, 1.3.3 or later"},
	{[]string{"CVE-2024-21626"}, "", "", func(v version) bool { return v.before(1, 1, 12) }, "update runc to 1.2.8, 1.3.3 or later"},
	{[]string{"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"}, "", "", func(v version) bool {
		return v.before(1, 2, 8) || !v.before(1, 3, 0) && v.before(1, 3, 3)
	}, "update runc to 1.2.8, 1.3.3 or later"},
	{[]string{"CVE-2026-41579"}, "", "", func(v version) bool { return v.before(1, 3, 6) || !v.before(1, 4, 0) && v.before(1, 4, 3) }, "update runc to 1.3.6, 1.4.3 or later"},
}

var crunHoles = []hole{
	{[]string{"CVE-2019-18837"}, "", "", func(v version) bool { return v.before(0, 10, 5) }, "update crun to 1.20 or later"},
	{[]string{"CVE-2022-27650"}, "", "", func(v version) bool { return v.before(1, 4, 4) }, "update crun to 1.20 or later"},
	{[]string{"CVE-2025-24965"}, " (with its krun handler)", "+LIBKRUN", func(v version) bool { return v.before(1, 20, 0) }, "update crun to 1.20 or later"},
}

var kernelHoles = []hole{
	{[]string{"CVE-2022-0847"}, " (Dirty Pipe)", "", func(v version) bool {
		return !v.before(5, 8, 0) && v.before(5, 16, 11) && (v[1] != 10 || v[2] < 102) && (v[1] != 15 || v[2] < 25)
	}, "update the kernel and boot it"},
	{[]string{"CVE-2023-3269"}, " (StackRot)", "", func(v version) bool {
		return !v.before(6, 1, 0) && v.before(6, 4, 1) && (v[1] != 1 || v[2] < 37) && (v[1] != 3 || v[2] < 11)
	}, "update the kernel and boot it"},
}

// judge looks for known holes of a version. Holes that the package's changelog names are fixed in
// that package, whatever its version number; log may be nil.
func judge(name, text string, v version, holes []hole, log *changelog) Line {
	l := Line{name, OK, text, ""}
	if !v.known() {
		l.Detail += ": its version is unknown"
		return l
	}
	var open []string
	for _, h := range holes {
		if left := log.without(h.cves); h.open(v) && len(left) > 0 {
			open = append(open, strings.Join(left, ", ")+h.when)
			l.Fix = log.fix(h.fix)
		}
	}
	if len(open) > 0 {
		l.Status = NotEnforced
		l.Detail = fmt.Sprintf("%s has a known way out of containers, %s; %s", text, strings.Join(open, ", "), log.says())
	}
	return l
}

func (e *examination) runtime() Line {
	text := e.service.Runtime
	var holes []hole
	switch {
	case strings.HasPrefix(text, "runc"):
		holes = runcHoles
	case strings.HasPrefix(text, "crun"):
		holes = crunHoles
	default:
		return Line{"runtime", OK, text, ""}
	}
	return judge("runtime", text, parseVersion(text), among(holes, e.service.RuntimeFeatures), e.changelog())
}

// devices checks whether device nodes of the host stay as they are without wisbox' help.
func (e *examination) devices() Line {
	if e.service.ChangesDevices {
		return Line{
			"devices", NotEnforced,
			e.service.Runtime + " may give a device node of this machine, such as /dev/null, to a container's user; wisbox puts that back after each start, and --strict refuses this runtime",
			"update crun to 1.24 or later; or install runc 1.1.5 or later, as in Debian 12 and 13, and write runtime = \"runc\" below [engine] in /etc/containers/containers.conf",
		}
	}
	return Line{"devices", OK, "containers leave this machine's device nodes alone", ""}
}

// among leaves out the holes of what a build doesn't have, if its features are known.
func among(holes []hole, features []string) []hole {
	return slices.DeleteFunc(slices.Clone(holes), func(h hole) bool {
		return h.in != "" && len(features) > 0 && !slices.Contains(features, h.in)
	})
}

// kernel checks for openat2, which makes the file tools fast and safe, and which came with 5.6.
func (e *examination) kernel() Line {
	text, v := e.kernelVersion()
	if v.known() && v.before(5, 6, 0) {
		return Line{"kernel", NotEnforced, text + " has no openat2: the file tools go the slower way", "boot a kernel of 5.6 or later"}
	}
	if redHat().MatchString(text) {
		return Line{"kernel", OK, text + ": its distribution repairs it without changing this number; install its updates", ""}
	}
	return judge("kernel", text, v, kernelHoles, nil)
}

var (
	debian = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`Debian (\d+\.\d+\.\d+\S*)`) })
	ubuntu = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^Ubuntu \S+ (\d+\.\d+\.\d+)\s*$`) })
	redHat = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\.el\d+`) })
)

// kernelVersion returns the kernel's name and the version of its source. The kernels of Debian and Ubuntu keep the name
// of the release's first one, such as 6.1.0-56-amd64, and have the version of the source elsewhere.
func (e *examination) kernelVersion() (text string, v version) {
	text = e.service.Kernel
	if strings.TrimSpace(e.readText("proc/sys/kernel/osrelease")) != text { // Podman runs on another machine
		return text, parseVersion(text)
	}
	if m := debian().FindStringSubmatch(e.readText("proc/sys/kernel/version")); m != nil {
		return text + " (Debian " + m[1] + ")", parseVersion(m[1])
	}
	if m := ubuntu().FindStringSubmatch(e.readText("proc/version_signature")); m != nil {
		return text + " (Ubuntu's of " + m[1] + ")", parseVersion(m[1])
	}
	return text, parseVersion(text)
}

func (e *examination) readText(path string) string {
	text, _ := os.ReadFile(filepath.Join(e.opts.Root, path))
	return string(text)
}
