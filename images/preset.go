package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Preset is a set of additional packages for the default image.
type Preset struct {
	Name   string
	What   string   // short description
	Debian []string // packages of Debian
	Python []string // packages from an index, for the image's own Python
	// DebianPython lists packages of Debian for its own Python, if the image has that.
	DebianPython []string
}

// Presets lists all presets.
var Presets = []Preset{
	{Name: "build", What: "a C and C++ compiler, make, CMake, pkg-config", Debian: []string{"build-essential", "cmake", "pkg-config"}},
	{Name: "data", What: "NumPy, pandas, Matplotlib", Python: []string{"numpy", "pandas", "matplotlib"}, DebianPython: []string{"python3-numpy", "python3-pandas", "python3-matplotlib"}},
	{Name: "node", What: "Node.js and npm", Debian: []string{"nodejs", "npm"}},
}

// DebianPython is the preset with Debian's Python and its packages in place of the image's own, for machines that reach
// no index of Python packages.
const DebianPython = "debian-python"

// debianPython has its own flag, so Presets doesn't list it.
var debianPython = Preset{Name: DebianPython, Debian: []string{"python3", "python3-pip", "python3-venv", "python-is-python3"}}

//go:embed with
var presetFiles embed.FS

// PresetOptions of [BuildPreset].
type PresetOptions struct {
	// With lists the presets' names as returned by ParseWith, which may include DebianPython.
	With []string
	// Tag is the image's name; default PresetName.
	Tag string
	// Base and Mirror are as in Options, if the default image has to be built.
	Base   Base
	Mirror string
	// Rebuild installs the packages again, in their newest versions.
	Rebuild bool
	// Wheels is a folder with wheels for Python 3.12: Python's packages come from there, and only from there unless
	// Index is set.
	Wheels string
	// Index is the URL of an index of Python packages. Default: pip's own.
	Index string
	// Progress gets one line for each step.
	Progress func(line string)
}

// ParseWith parses a list such as node,build, and returns the known names, each once, in order.
func ParseWith(list string) ([]string, error) {
	var found []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name != DebianPython && !slices.ContainsFunc(Presets, func(p Preset) bool { return p.Name == name }) {
			return nil, tool.Errorf(tool.Invalid, "with is %q: unknown preset %q; the presets are %s", list, name, strings.Join(PresetNames(), ", ")).In("with")
		}
		found = append(found, name)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// PresetNames returns the names of Presets.
func PresetNames() []string {
	var all []string
	for _, p := range Presets {
		all = append(all, p.Name)
	}
	return all
}

// PresetName returns the image name of presets. It ends in a hash of all inputs of the image, including this version's
// default image.
func PresetName(with []string) string {
	return "localhost/wisbox-with:" + strings.Join(with, "-") + "-" + presetInputs(with)[:12]
}

func presetInputs(with []string) string {
	h := sha256.New()
	_, _ = io.WriteString(h, inputs())
	_, _ = io.Copy(h, bytes.NewReader(presetTar(with, nil)))
	return hex.EncodeToString(h.Sum(nil))
}

// presetTar returns the build context of presets: the same bytes every time.
func presetTar(with []string, more map[string][]byte) []byte {
	var debian, python []string
	for _, p := range append(slices.Clip(Presets), debianPython) {
		if !slices.Contains(with, p.Name) {
			continue
		}
		debian = append(debian, p.Debian...)
		if slices.Contains(with, DebianPython) {
			debian = append(debian, p.DebianPython...)
		} else {
			python = append(python, p.Python...)
		}
	}
	files := map[string][]byte{"packages.txt": lines(debian), "python.txt": lines(python), "pip.conf": nil}
	for _, name := range []string{"Containerfile", "install.sh"} {
		data, err := presetFiles.ReadFile("with/" + name)
		mustNil(err)
		files[name] = data
	}
	maps.Copy(files, more)
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		addFile(tw, name, files[name])
	}
	mustNil(tw.Close())
	return buf.Bytes()
}

func lines(words []string) []byte {
	if len(words) == 0 {
		return nil
	}
	return []byte(strings.Join(words, "\n") + "\n")
}

// BuildPreset builds the image of presets unless the store has it, and first the default image if that is missing. Its
// errors are [*tool.Error]s, or the Builder's.
func BuildPreset(ctx context.Context, b Builder, opts *PresetOptions) (Report, error) {
	start := time.Now()
	with, err := ParseWith(strings.Join(opts.With, ","))
	if err != nil {
		return Report{}, err
	}
	tag := PresetName(with)
	if opts.Tag != "" {
		if tag, err = FullName(opts.Tag); err != nil {
			return Report{}, err
		}
	}
	more, err := opts.python(with)
	if err != nil {
		return Report{}, err
	}
	under, err := Build(ctx, b, &Options{Base: opts.Base, Mirror: opts.Mirror, Progress: opts.Progress})
	if err != nil {
		return Report{}, err
	}
	report := Report{Image: tag, Base: under.Base, With: with}
	before, err := b.ImageInfo(ctx, tag)
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return Report{}, err
	}
	say := opts.Progress
	if say == nil {
		say = func(string) {}
	}
	if before.Labels[labelPreset] == presetInputs(with) && !opts.Rebuild {
		say("image " + tag + " is there already")
		report.Cached = true
	} else if err := installPreset(ctx, b, tag, with, more, say); err != nil {
		return Report{}, err
	}
	info, err := b.ImageInfo(ctx, tag)
	if err != nil {
		return Report{}, err
	}
	if err := prepare(ctx, b, tag); err != nil {
		return Report{}, err
	}
	removeReplaced(ctx, b, before, info.ID, say)
	report.ID, report.Size, report.Duration = info.ID, info.Size, time.Since(start)
	return report, nil
}

func installPreset(ctx context.Context, b Builder, tag string, with []string, more map[string][]byte, say func(string)) error {
	labels := map[string]string{labelWith: strings.Join(with, ","), labelPreset: presetInputs(with)}
	if tag != PresetName(with) {
		labels[labelBuilt] = tag // a user chose the name, so it is the user's image
	}
	err := b.BuildImage(ctx, bytes.NewReader(presetTar(with, more)), sandbox.ImageBuild{
		Tag: tag, Args: map[string]string{"BASE": Default}, Labels: labels, Explain: true, Progress: say,
	})
	names := strings.Join(with, ",")
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "exit status 71"):
		return tool.Errorf(tool.Unavailable, "with %s: Debian's packages could not be installed, see the lines above; check the connection to a Debian mirror", names).Because(err)
	case strings.Contains(err.Error(), "exit status 72"):
		return tool.Errorf(tool.Unavailable, "with %s: pip could not install Python's packages, see the lines above; name an index that this machine reaches with --pip-index, or a folder of wheels for Python 3.12 with --wheels", names).Because(err)
	}
	return err
}

// Bounds of a folder of wheels.
const (
	maxWheels     = 500
	maxWheelBytes = 512 << 20
)

// python returns pip's configuration and wheels.
func (o *PresetOptions) python(with []string) (map[string][]byte, error) {
	more := map[string][]byte{}
	if o.Wheels == "" && o.Index == "" {
		return more, nil
	}
	if slices.Contains(with, DebianPython) || !slices.ContainsFunc(Presets, func(p Preset) bool { return len(p.Python) > 0 && slices.Contains(with, p.Name) }) {
		return nil, tool.Errorf(tool.Invalid, "%s is for presets that pip installs, and pip installs nothing for %s; leave it out", map[bool]string{true: "wheels", false: "pip_index"}[o.Wheels != ""], strings.Join(with, ",")).In("with")
	}
	conf := "[global]\n"
	switch {
	case strings.ContainsAny(o.Index, "\r\n"):
		return nil, tool.Errorf(tool.Invalid, "pip_index has more than one line; write one URL").In("pip_index")
	case o.Index != "":
		conf += "index-url = " + strings.ReplaceAll(o.Index, "%", "%%") + "\n"
	default:
		conf += "no-index = true\n"
	}
	if o.Wheels != "" {
		conf += "find-links = /context/wheels\n"
		if err := readWheels(o.Wheels, more); err != nil {
			return nil, err
		}
	}
	more["pip.conf"] = []byte(conf)
	return more, nil
}

func readWheels(dir string, into map[string][]byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return tool.Errorf(tool.NotFound, "wheels is %s, which is not a folder that can be read; name one with wheels for Python 3.12", dir).In("wheels").Because(err)
	}
	var total int64
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || filepath.Ext(e.Name()) != ".whl" {
			continue
		}
		if total += info.Size(); total > maxWheelBytes || len(into) == maxWheels {
			return tool.Errorf(tool.TooLarge, "wheels is %s, which has more than %d wheels or 512 MiB; keep only those that the presets need", dir, maxWheels).In("wheels")
		}
		if into["wheels/"+e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return tool.Errorf(tool.Permission, "wheels has %s, which can't be read; check its mode", e.Name()).In("wheels").Because(err)
		}
	}
	if len(into) == 0 {
		return tool.Errorf(tool.NotFound, "wheels is %s, which has no file that ends in .whl; name a folder with wheels for Python 3.12", dir).In("wheels")
	}
	return nil
}

// presetPrograms are programs that the default image lacks, by the preset that has them.
var presetPrograms = map[string][]string{
	"node":  {"node", "nodejs", "npm", "npx"},
	"build": {"cc", "c++", "gcc", "g++", "cmake", "pkg-config"},
}

// PresetOf returns the preset that has a program which the default image lacks, or "".
func PresetOf(program string) string {
	for preset, programs := range presetPrograms {
		if slices.Contains(programs, program) {
			return preset
		}
	}
	return ""
}

var tagged = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9][A-Za-z0-9._-]*$`)
})

// IsTagged reports whether a word looks like an image with a tag, as python:3.
func IsTagged(word string) bool { return tagged().MatchString(word) }
