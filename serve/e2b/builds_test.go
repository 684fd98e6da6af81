package e2b

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/builds"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/tool"
)

// mason builds nothing: its templates exist once the test says so.
type mason struct {
	shelf *shelf
	begun chan *Build
	ends  chan error // how each ends
}

func (m *mason) Build(ctx context.Context, b *Build) error {
	m.begun <- b
	select {
	case err := <-m.ends:
		if err == nil {
			m.shelf.mu.Lock()
			defer m.shelf.mu.Unlock()
			m.shelf.all = append(m.shelf.all, templates.Template{ID: b.ID, Name: b.Name, Owner: b.Owner, Built: true, Tags: b.Tags, Disk: 2 << 20})
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *mason) edit(id string, change func(*templates.Template)) []string {
	m.shelf.mu.Lock()
	defer m.shelf.mu.Unlock()
	for i := range m.shelf.all {
		if t := &m.shelf.all[i]; t.ID == id {
			change(t)
			return t.Tags
		}
	}
	return nil
}

func (m *mason) Tag(_ context.Context, id string, tags []string) ([]string, error) {
	return m.edit(id, func(t *templates.Template) { t.Tags = append(slices.Clone(t.Tags), tags...) }), nil
}

func (m *mason) Untag(_ context.Context, id string, tags []string) error {
	m.edit(id, func(t *templates.Template) {
		t.Tags = slices.DeleteFunc(slices.Clone(t.Tags), func(tag string) bool { return slices.Contains(tags, tag) })
	})
	return nil
}

// site is a world in which templates are built.
type site struct {
	*world
	m   *mason
	dir string
}

func newSite(t *testing.T, keys func(string) (apikeys.Key, bool)) *site {
	t.Helper()
	s := &site{m: &mason{shelf: &shelf{}, begun: make(chan *Build, 8), ends: make(chan error)}, dir: t.TempDir()}
	s.world = newWorld(t, nil, func(o *Options) {
		o.Templates, o.Builder, o.BuildDir = s.m.shelf, s.m, s.dir
		if keys != nil {
			o.Keys = keys
		}
	})
	t.Cleanup(func() { s.server.Stop(hangGuard) })
	return s
}

func (s *site) request(key, body string) (a buildAnswer) {
	s.t.Helper()
	require.Equal(s.t, 202, s.ask(key, "POST", "/v3/templates", body, &a).StatusCode)
	return a
}

func (a buildAnswer) path() string { return "/v2/templates/" + a.TemplateID + "/builds/" + a.BuildID }

// until waits for a state of a build.
func (s *site) until(key string, a buildAnswer, status string) (st statusAnswer) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		st = statusAnswer{}
		s.ask(key, "GET", "/templates/"+a.TemplateID+"/builds/"+a.BuildID+"/status", "", &st)
		return st.Status == status
	}, hangGuard, time.Millisecond)
	return st
}

func TestABuildBecomesATemplate(t *testing.T) {
	s := newSite(t, nil)
	a := s.request(keyA, `{"name":"app:v1","tags":["x"],"cpuCount":2}`)
	assert.Equal(t, []string{"v1", "x"}, a.Tags)
	assert.Equal(t, []string{"app"}, a.Names)
	assert.Equal(t, 202, s.ask(keyA, "POST", a.path(), `{"fromImage":"e2bdev/base","startCmd":"run","readyCmd":"true","steps":[{"type":"RUN","args":["id"],"force":false}],"force":false}`, nil).StatusCode)
	b := <-s.m.begun
	assert.Equal(t, "", b.Image+b.Template)
	assert.Equal(t, []builds.Step{{Kind: "RUN", Args: []string{"id"}}}, b.Recipe.Steps)
	assert.Equal(t, "run true", b.Start+" "+b.Ready)
	for i := range logPage + 2 {
		b.Log(1, fmt.Sprint("line ", i))
	}
	st := s.until(keyA, a, buildRunning)
	assert.Len(t, st.Entries, logPage)
	var rest statusAnswer
	s.ask(keyA, "GET", "/templates/"+a.TemplateID+"/builds/"+a.BuildID+"/status?logsOffset=101", "", &rest)
	assert.Equal(t, []string{"line 101"}, rest.Logs)
	assert.Equal(t, "1", rest.Entries[0].Step)
	s.refused(400, keyA, "GET", "/templates/"+a.TemplateID+"/builds/"+a.BuildID+"/status?logsOffset=-1", "")
	s.refused(409, keyA, "POST", a.path(), `{}`)
	s.m.ends <- nil
	s.until(keyA, a, buildReady)
	assert.Equal(t, a.TemplateID, s.create(keyA, fmt.Sprintf(`{"templateID":%q}`, a.TemplateID)).TemplateID)
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	assert.Empty(t, left)

	var tagged struct{ Tags []string }
	assert.Equal(t, 201, s.ask(keyA, "POST", "/templates/tags", `{"target":"`+a.TemplateID+`","tags":["y"]}`, &tagged).StatusCode)
	assert.Equal(t, []string{"v1", "x", "y"}, tagged.Tags)
	assert.Equal(t, 204, s.ask(keyA, "DELETE", "/templates/tags", `{"name":"app","tags":["x"]}`, nil).StatusCode)
	var all []tagAnswer
	assert.Equal(t, 200, s.ask(keyA, "GET", "/templates/app/tags", "", &all).StatusCode)
	assert.Len(t, all, 2)
	for _, ask := range [][2]string{{"GET", "/templates/app/tags"}, {"GET", "/templates/" + a.TemplateID + "/builds/" + a.BuildID + "/status"}, {"DELETE", "/templates/" + a.TemplateID}} {
		s.refused(404, keyB, ask[0], ask[1], "")
	}
	s.refused(404, keyB, "POST", "/templates/tags", `{"target":"`+a.TemplateID+`","tags":["y"]}`)
	s.refused(404, keyB, "DELETE", "/templates/tags", `{"name":"app","tags":["v1"]}`)
	s.refused(400, keyA, "POST", "/templates/tags", `{"target":"app:v1","tags":["a b"]}`)
	s.refused(400, keyA, "POST", "/templates/tags", `{"target":"app:v1","tags":[]}`)
	s.refused(404, keyA, "GET", "/templates/app/other", "")
}

func TestABuildThatFailsSaysWhichStep(t *testing.T) {
	s := newSite(t, nil)
	for step, want := range map[int]string{0: "base", 1: "1", 2: "finalize"} {
		a := s.request(keyA, `{"name":"app"}`)
		s.ask(keyA, "POST", a.path(), `{"steps":[{"type":"RUN","args":["id"]}]}`, nil)
		<-s.m.begun
		s.m.ends <- &builds.StepError{Step: step, Err: tool.Errorf(tool.Invalid, "it failed")}
		st := s.until(keyA, a, buildFailed)
		assert.Equal(t, reason{"it failed", want, []logEntry{}}, *st.Reason)
		assert.Equal(t, "error", st.Entries[0].Level)
	}
	a := s.request(keyA, `{"name":"app"}`)
	s.ask(keyA, "POST", a.path(), `{}`, nil)
	<-s.m.begun
	s.m.ends <- errors.New("open /var/lib/secret: broken")
	assert.NotContains(t, s.until(keyA, a, buildFailed).Reason.Message, "/var")
}

func TestWhatABuildMayNotBe(t *testing.T) {
	s := newSite(t, nil)
	for _, body := range []string{`{}`, `{"name":"../x"}`, `{"name":"base"}`, `{"name":"a:b:c"}`, `{"name":"a","tags":["x y"]}`, `{"name":"abcdefghijklmnopqrst"}`, `{"name":1}`} {
		s.refused(400, keyA, "POST", "/v3/templates", body)
	}
	a := s.request(keyA, `{"name":"app"}`)
	for body, code := range map[string]int{
		`{"steps":[{"type":"ARG","args":["x"]}]}`: 400, `{"steps":[{"type":"COPY","args":["a","b","",""],"filesHash":"../x"}]}`: 400,
		`{"steps":[{"type":"COPY","args":["a","b","",""],"filesHash":"` + strings.Repeat("a", 64) + `"}]}`: 400, `{"steps":[{"type":"ENV","args":["A","b\nRUN x"]}]}`: 400,
		`{"fromImageRegistry":{"type":"registry"}}`: 400, `{"fromTemplate":"nobody"}`: 404, `{"startCmd":"a\u0000"}`: 400,
	} {
		s.refused(code, keyA, "POST", a.path(), body)
	}
	s.refused(404, keyB, "POST", a.path(), `{}`)
	s.refused(404, keyA, "POST", "/v2/templates/zzzzzzzzzzzzzzzzzzzz/builds/zzzzzzzzzzzzzzzzzzzz", `{}`)
	box := s.create(keyA, `{}`).SandboxID
	s.snapshot(keyA, box, `{"name":"ready"}`)
	s.refused(400, keyA, "POST", a.path(), `{"fromTemplate":"ready"}`)
	s.refused(404, keyA, "POST", "/templates/tags", `{"target":"ready","tags":["x"]}`)
}

// TestAClientThatGaveUpBlocksNobody: a new build replaces the oldest that was never begun.
func TestAClientThatGaveUpBlocksNobody(t *testing.T) {
	s := newSite(t, nil)
	var all []buildAnswer
	for range buildsOfOwner + 1 {
		all = append(all, s.request(keyA, `{"name":"app"}`))
	}
	s.refused(404, keyA, "POST", all[0].path(), `{}`)
	for _, a := range all[1:] {
		assert.Equal(t, 202, s.ask(keyA, "POST", a.path(), `{}`, nil).StatusCode)
	}
	s.refused(429, keyA, "POST", "/v3/templates", `{"name":"app"}`)
}

// TestARefusedBuildReplacesNone that waits for its client.
func TestARefusedBuildReplacesNone(t *testing.T) {
	s := newSite(t, nil)
	var all []buildAnswer
	for range buildsOfOwner {
		all = append(all, s.request(keyA, `{"name":"app"}`))
	}
	for range 100 {
		s.m.shelf.all = append(s.m.shelf.all, templates.Template{Owner: "a"})
	}
	s.refused(429, keyA, "POST", "/v3/templates", `{"name":"app"}`)
	for _, a := range all {
		s.until(keyA, a, buildWaiting)
	}
}

func (s *site) send(url string, text []byte) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPut, url, bytes.NewReader(text))
	require.NoError(s.t, err)
	return s.do(r, nil).StatusCode
}

// archiveOf returns an archive with a file of this size.
func archiveOf(t *testing.T, size int) []byte {
	t.Helper()
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "f", Size: int64(size)}))
	_, err := w.Write(make([]byte, size))
	require.NoError(t, errors.Join(err, w.Close()))
	return files.Bytes()
}

func TestFilesOfABuild(t *testing.T) {
	s := newSite(t, nil)
	a, b := s.request(keyA, `{"name":"a"}`), s.request(keyB, `{"name":"b"}`)
	hash := strings.Repeat("0f", 32)
	var link struct {
		Present bool
		URL     string
	}
	assert.Equal(t, 201, s.ask(keyA, "GET", "/templates/"+a.TemplateID+"/files/"+hash, "", &link).StatusCode)
	assert.False(t, link.Present)
	s.refused(404, keyB, "GET", "/templates/"+a.TemplateID+"/files/"+hash, "")
	s.refused(400, keyA, "GET", "/templates/"+a.TemplateID+"/files/..%2fx", "")
	files := archiveOf(t, 1)
	assert.Equal(t, 401, s.send(link.URL+"x", files))
	assert.Equal(t, 401, s.send(strings.Replace(link.URL, a.TemplateID, b.TemplateID, 1), files))
	assert.Equal(t, 400, s.send(strings.Replace(link.URL, hash, "x", 1), files))
	assert.Equal(t, 400, s.send(link.URL, []byte("no archive")))
	assert.Equal(t, 201, s.send(link.URL, files))
	assert.Equal(t, 201, s.ask(keyA, "GET", "/templates/"+a.TemplateID+"/files/"+hash, "", &link).StatusCode)
	assert.True(t, link.Present)
	kept, err := os.ReadDir(filepath.Join(s.dir, a.TemplateID))
	require.NoError(t, err)
	assert.Len(t, kept, 1, "what was refused isn't kept")
	assert.Equal(t, 202, s.ask(keyA, "POST", a.path(), `{"steps":[{"type":"COPY","args":["f","/f","",""],"filesHash":"`+hash+`"}]}`, nil).StatusCode)
	<-s.m.begun
	assert.Equal(t, 409, s.send(link.URL, files), "the build has begun")
	assert.Equal(t, 204, s.ask(keyA, "DELETE", "/templates/"+a.TemplateID, "", nil).StatusCode)
	require.Eventually(t, func() bool { _, err := os.Stat(filepath.Join(s.dir, a.TemplateID)); return os.IsNotExist(err) }, hangGuard, time.Millisecond)
	assert.Equal(t, 401, s.send(link.URL, files))
}

func TestBuildsAreBounded(t *testing.T) {
	s := newSite(t, nil)
	var first buildAnswer
	for i := range buildsOfOwner {
		a := s.request(keyA, `{"name":"app"}`)
		if i == 0 {
			first = a
		}
		assert.Equal(t, 202, s.ask(keyA, "POST", a.path(), `{}`, nil).StatusCode)
	}
	s.refused(429, keyA, "POST", "/v3/templates", `{"name":"app"}`)
	s.request(keyB, `{"name":"app"}`)
	running := <-s.m.begun
	select {
	case <-s.m.begun:
		t.Error("two build at once")
	default:
	}
	s.m.ends <- nil
	next := <-s.m.begun
	assert.NotEqual(t, running.ID, next.ID)
	s.request(keyA, `{"name":"app"}`)
	assert.Equal(t, 204, s.ask(keyA, "DELETE", "/templates/"+first.TemplateID, "", nil).StatusCode)
	s.server.Stop(hangGuard)
	left, err := os.ReadDir(s.dir)
	require.NoError(t, err)
	assert.Empty(t, left, "all end with the server")
	s.refused(503, keyA, "POST", "/v3/templates", `{"name":"app"}`)
}

func TestALogIsBounded(t *testing.T) {
	b := &build{}
	for range 3 * maxLog / maxLogLine {
		b.log(1, strings.Repeat("é", maxLogLine))
	}
	total := 0
	for _, line := range b.lines {
		total += len(line.Message)
	}
	assert.LessOrEqual(t, total, maxLog+maxLogLine)
	assert.Equal(t, "warn", b.lines[len(b.lines)-1].Level)
}

func TestATemplateThatDoesntFitGoes(t *testing.T) {
	s := newSite(t, func(text string) (apikeys.Key, bool) {
		key, ok := keys(text)
		key.Disk = 3 << 20
		return key, ok
	})
	for i, want := range []string{buildReady, buildFailed} {
		a := s.request(keyA, fmt.Sprintf(`{"name":"app%d"}`, i))
		s.ask(keyA, "POST", a.path(), `{}`, nil)
		<-s.m.begun
		s.m.ends <- nil
		s.until(keyA, a, want)
	}
	all, _ := s.m.shelf.List()
	assert.Len(t, all, 1)
}

// TestBuildsTakeTurns: a key's second build waits for the first of another key.
func TestBuildsTakeTurns(t *testing.T) {
	s := newSite(t, nil)
	begin := func(key string) string {
		a := s.request(key, `{"name":"app"}`)
		assert.Equal(t, 202, s.ask(key, "POST", a.path(), `{}`, nil).StatusCode)
		return a.TemplateID
	}
	begin(keyA)
	first := <-s.m.begun
	begin(keyA)
	begin(keyA)
	other := begin(keyB)
	yard := s.server.yard
	b, ok := yard.all[other]
	require.True(t, ok)
	require.Eventually(t, func() bool { return len(yard.lane(b.Owner)) == 1 }, hangGuard, time.Millisecond)
	s.m.ends <- nil
	assert.NotEqual(t, first.Owner, (<-s.m.begun).Owner)
}

// TestABuildTakesNoRoomOfASnapshot that the same key makes meanwhile.
func TestABuildTakesNoRoomOfASnapshot(t *testing.T) {
	s := newSite(t, func(text string) (apikeys.Key, bool) {
		key, ok := keys(text)
		key.Disk = 3 << 20
		return key, ok
	})
	key, _ := keys(keyA)
	room, err := s.reg.ReserveDisk(t.Context(), key.Owner, 2<<20, registry.Quota{Disk: 3 << 20})
	require.NoError(t, err)
	defer room.Release()
	a := s.request(keyA, `{"name":"app"}`)
	s.ask(keyA, "POST", a.path(), `{}`, nil)
	<-s.m.begun
	s.m.ends <- nil
	assert.Contains(t, s.until(keyA, a, buildFailed).Reason.Message, "its limit of disk")
	all, _ := s.m.shelf.List()
	assert.Empty(t, all)
}

// TestUploadsCountForTheirKey: before they are stored, until the build's end.
func TestUploadsCountForTheirKey(t *testing.T) {
	s := newSite(t, func(text string) (apikeys.Key, bool) {
		key, ok := keys(text)
		key.Disk = 5 << 20
		return key, ok
	})
	put := func(a buildAnswer, size int) int {
		var link struct{ URL string }
		s.ask(keyA, "GET", "/templates/"+a.TemplateID+"/files/"+strings.Repeat("0f", 32), "", &link)
		return s.send(link.URL, archiveOf(t, size))
	}
	first, second := s.request(keyA, `{"name":"a"}`), s.request(keyA, `{"name":"b"}`)
	assert.Equal(t, 429, put(first, 6<<20))
	assert.Equal(t, 201, put(first, 2<<20))
	assert.Equal(t, 201, put(first, 2<<20), "replaces the other one")
	assert.Equal(t, 429, put(second, 4<<20))
	assert.Equal(t, 201, put(second, 2<<20))
	assert.Equal(t, 429, put(second, 2<<20), "both are there for a moment")
	assert.Equal(t, 204, s.ask(keyA, "DELETE", "/templates/"+first.TemplateID, "", nil).StatusCode)
	assert.Equal(t, 201, put(second, 2<<20))
}

// TestAnUploadEndsWithItsBuild, whether its client sends anything or not; and no build
// begins while its files may change.
func TestAnUploadEndsWithItsBuild(t *testing.T) {
	s := newSite(t, nil)
	a := s.request(keyA, `{"name":"app"}`)
	var link struct{ URL string }
	s.ask(keyA, "GET", "/templates/"+a.TemplateID+"/files/"+strings.Repeat("0f", 32), "", &link)
	body, sent := io.Pipe()
	defer sent.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, link.URL, body)
	require.NoError(t, err)
	go func() {
		if resp, err := s.client.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}()
	_, err = sent.Write([]byte("x"))
	require.NoError(t, err)
	b, ok := s.server.yard.find(a.TemplateID, "a")
	require.True(t, ok)
	require.Eventually(t, func() bool { return len(b.upload) == 1 }, hangGuard, time.Millisecond)
	s.refused(409, keyA, "POST", a.path(), `{}`)
	assert.Equal(t, 204, s.ask(keyA, "DELETE", "/templates/"+a.TemplateID, "", nil).StatusCode)
	require.Eventually(t, func() bool { return len(b.upload) == 0 }, hangGuard, time.Millisecond)
}
