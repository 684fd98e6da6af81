package images

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// store is a Builder in memory.
type store struct {
	images   map[string]sandbox.ImageInfo
	pullErr  error
	buildErr error
	builtOn  []string
	prepared []string
	context  map[string]string // files of the last build
	build    sandbox.ImageBuild
	tagged   []string
}

func newStore() *store { return &store{images: map[string]sandbox.ImageInfo{}} }

func (s *store) BuildImage(_ context.Context, r io.Reader, b sandbox.ImageBuild) error {
	if s.buildErr != nil {
		return s.buildErr
	}
	s.context, s.build = readTar(r), b
	s.builtOn = append(s.builtOn, b.Args["BASE"])
	if b.Progress != nil {
		b.Progress("STEP 1")
	}
	labels := map[string]string{"wisbox.base": b.Args["BASE_KIND"], "wisbox.inputs": b.Args["INPUTS"]}
	maps.Copy(labels, b.Labels)
	s.images[b.Tag] = sandbox.ImageInfo{ID: "built", Tags: []string{b.Tag}, Size: 42, Labels: labels}
	return nil
}

func (s *store) TagImage(_ context.Context, ref, name string) error {
	s.tagged = append(s.tagged, ref+" "+name)
	s.images[name] = sandbox.ImageInfo{ID: ref}
	return nil
}

func (s *store) ImageInfo(_ context.Context, ref string) (sandbox.ImageInfo, error) {
	info, ok := s.images[ref]
	if !ok {
		return info, sandbox.ErrNotFound
	}
	return info, nil
}

func (s *store) PullImage(_ context.Context, ref string, _ *sandbox.PullOptions) error {
	if s.pullErr == nil {
		s.images[ref] = sandbox.ImageInfo{ID: "pulled"}
	}
	return s.pullErr
}

func (s *store) LoadImage(_ context.Context, r io.Reader) ([]string, error) {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	s.images[debianRef()] = sandbox.ImageInfo{ID: "loaded"}
	return []string{debianRef()}, nil
}

func (s *store) PrepareImage(_ context.Context, ref string) error {
	s.prepared = append(s.prepared, ref)
	return nil
}

func readTar(r io.Reader) map[string]string {
	files := map[string]string{}
	for tr := tar.NewReader(r); ; {
		hdr, err := tr.Next()
		if err != nil {
			return files
		}
		data, _ := io.ReadAll(tr)
		files[hdr.Name] = string(data)
	}
}

// testBuild returns a build without network and mmdebstrap.
func testBuild(s *store, registry error, opts *Options) (*build, *[]string) {
	var lines []string
	o := *opts
	o.Progress = func(line string) { lines = append(lines, line) }
	b := newBuild(s, &o)
	b.probe = func(context.Context) error { return registry }
	b.make = func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "layer")
		return err
	}
	return b, &lines
}

var errNoRegistry = errors.New("no registry answers")

func TestBuildTakesTheRegistrysBaseWhereOneAnswers(t *testing.T) {
	s := newStore()
	b, lines := testBuild(s, nil, &Options{})
	report, err := b.run(t.Context())
	require.NoError(t, err)
	require.Equal(t, Report{Image: Default, ID: "built", Size: 42, Base: BaseRegistry}, report)
	require.Equal(t, []string{registryRef}, s.builtOn)
	require.Equal(t, []string{Default}, s.prepared)
	require.Equal(t, []string{"built " + Latest}, s.tagged, "FROM lines have a stable name")
	require.Contains(t, *lines, "base: "+registryRef)
}

func TestBuildMakesADebianBaseWhereNoRegistryAnswers(t *testing.T) {
	for name, s := range map[string]*store{"silent": newStore(), "pull fails": {images: map[string]sandbox.ImageInfo{}, pullErr: errNoRegistry}} {
		t.Run(name, func(t *testing.T) {
			probe := errNoRegistry
			if s.pullErr != nil {
				probe = nil
			}
			b, lines := testBuild(s, probe, &Options{})
			report, err := b.run(t.Context())
			require.NoError(t, err)
			require.Equal(t, BaseDebian, report.Base)
			require.Equal(t, []string{debianRef()}, s.builtOn)
			require.Contains(t, *lines, "base: Debian trixie with CPython 3.12.3 (no registry answers)")
		})
	}
}

func TestBuildDoesNothingWhereTheImageIsThere(t *testing.T) {
	s := newStore()
	for _, cached := range []bool{false, true, true} {
		b, _ := testBuild(s, errNoRegistry, &Options{})
		report, err := b.run(t.Context())
		require.NoError(t, err)
		require.Equal(t, cached, report.Cached)
		require.Equal(t, BaseDebian, report.Base)
	}
	require.Len(t, s.builtOn, 1)
}

func TestBuildReplacesAnImageOfOtherInputsOrAnotherBase(t *testing.T) {
	other := map[string]sandbox.ImageInfo{
		"other inputs": {Labels: map[string]string{"wisbox.inputs": "old", "wisbox.base": "debian"}},
		"other base":   {Labels: map[string]string{"wisbox.inputs": inputs(), "wisbox.base": "registry"}},
		"a stranger":   {},
	}
	for name, info := range other {
		t.Run(name, func(t *testing.T) {
			s := newStore()
			s.images["mine"] = info
			b, _ := testBuild(s, nil, &Options{Tag: "mine", Base: BaseDebian})
			report, err := b.run(t.Context())
			require.NoError(t, err)
			require.False(t, report.Cached)
			require.Equal(t, BaseDebian, report.Base)
		})
	}
}

func TestRebuildMakesTheBaseAgainToo(t *testing.T) {
	s := newStore()
	made := 0
	for range 2 {
		b, _ := testBuild(s, errNoRegistry, &Options{Rebuild: true})
		b.make = func(context.Context, io.Writer) error { made++; return nil }
		_, err := b.run(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 2, made)
}

func TestAForcedRegistryIsNotReplacedByDebian(t *testing.T) {
	s := newStore()
	b, _ := testBuild(s, errNoRegistry, &Options{Base: BaseRegistry})
	_, err := b.run(t.Context())
	require.ErrorIs(t, err, errNoRegistry)
	require.Empty(t, s.builtOn)
}

func TestAnUnknownBaseIsRefused(t *testing.T) {
	_, err := Build(t.Context(), newStore(), &Options{Base: "alpine"})
	require.ErrorContains(t, err, `unknown base "alpine"`)
}

func TestAFailedStepTagsNothing(t *testing.T) {
	s := newStore()
	s.buildErr = errors.New("no space left")
	b, _ := testBuild(s, nil, &Options{})
	_, err := b.run(t.Context())
	require.ErrorIs(t, err, s.buildErr)
	require.NotContains(t, s.images, Default)
}

func TestACancelledBuildDoesNotGoOnWithDebian(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b, _ := testBuild(newStore(), nil, &Options{})
	b.probe = func(context.Context) error { cancel(); return errNoRegistry }
	_, err := b.run(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheContextHoldsWhatTheContainerfileCopies(t *testing.T) {
	s := newStore()
	b, _ := testBuild(s, nil, &Options{})
	_, err := b.run(t.Context())
	require.NoError(t, err)
	for _, name := range []string{"Containerfile", "finish.sh", "packages.txt", "sitecustomize.py", "ensurepip.py", "_distutils_system_mod.py", "pip.conf", "apt.conf", "gitconfig", "profile"} {
		require.NotEmpty(t, s.context[name], name)
	}
	require.Equal(t, string(Containerfile()), s.context["Containerfile"])
}

func TestDefaultNamesItsInputs(t *testing.T) {
	require.Regexp(t, `^localhost/wisbox:[0-9a-f]{12}$`, Default)
	require.True(t, strings.HasPrefix(inputs(), strings.TrimPrefix(Default, "localhost/wisbox:")))
}
