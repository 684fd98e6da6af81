package evaltool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// memory is a workspace of files without directories.
type memory map[string]string

func (m memory) Stat(_ context.Context, path string) (vfs.Info, error) {
	if _, there := m[path]; !there {
		return vfs.Info{}, tool.Errorf(tool.NotFound, "%s does not exist", path)
	}
	return vfs.Info{Version: 1}, nil
}

func (m memory) ReadWhole(ctx context.Context, path string, max int64) ([]byte, vfs.Info, error) {
	info, err := m.Stat(ctx, path)
	if err != nil {
		return nil, info, err
	}
	if int64(len(m[path])) > max {
		return nil, info, tool.Errorf(tool.TooLarge, "%s is over %d bytes", path, max)
	}
	return []byte(m[path]), vfs.Info{Version: 3}, nil
}

func (m memory) Apply(ctx context.Context, writes []vfs.Write) ([]vfs.Written, error) {
	for _, w := range writes {
		if _, err := m.Stat(ctx, w.Path); (err == nil) == (w.Mode == "create") {
			return nil, tool.Errorf(tool.Exists, "%s: wrong mode", w.Path)
		}
	}
	var done []vfs.Written
	for _, w := range writes {
		if w.Mode != "append" {
			m[w.Path] = ""
		}
		m[w.Path] += string(w.Content)
		done = append(done, vfs.Written{Path: w.Path, SizeBytes: int64(len(m[w.Path])), Version: 1})
	}
	return done, nil
}

// ChangedSince finds what the puppet has put there.
func (m memory) ChangedSince(_ *budget.Budget, _ time.Time, most int) (vfs.Touched, error) {
	var found vfs.Touched
	for path := range m {
		if strings.HasPrefix(path, "by-code") {
			found.Paths = append(found.Paths, path)
		}
	}
	slices.Sort(found.Paths)
	if len(found.Paths) > most {
		found.Paths, found.More = found.Paths[:most], int64(len(found.Paths)-most)
	}
	return found, nil
}

// puppet is an engine that answers what a test sets.
type puppet struct {
	got  *evaltool.Request
	resp evaltool.Response
	err  error
}

func (p *puppet) Evaluate(_ context.Context, req evaltool.Request) (evaltool.Response, error) {
	p.got = &req
	return p.resp, p.err
}

func (p *puppet) Guidance() string { return "- sandbox puppet" }

type stage struct {
	*evaltool.Evaluator
	engine *puppet
	files  memory
	log    *bytes.Buffer
}

func newStage(t *testing.T, files memory) *stage {
	t.Helper()
	if files == nil {
		files = memory{}
	}
	s := &stage{engine: &puppet{resp: evaltool.Response{Status: evaltool.StatusExited}}, files: files, log: &bytes.Buffer{}}
	e, err := evaltool.New(&evaltool.Options{
		Files: s.files, Container: s.engine, MaxTimeout: 10 * time.Second,
		Logger: slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	require.NoError(t, err)
	s.Evaluator = e
	return s
}

func (s *stage) call(t *testing.T, args string) (*tool.Result, error) {
	t.Helper()
	return tool.NewSet(s.Tools()...).Call(context.Background(), "evaluate_python", json.RawMessage(args))
}

func TestBadArgumentsAreRefusedByNameBeforeAnythingRuns(t *testing.T) {
	long := strings.Repeat
	for _, c := range []struct {
		name, args string
		kind       tool.Kind
		field      string
		says       string
	}{
		{"no code", `{}`, tool.Invalid, "code", "required"},
		{"code too long", `{"code":"` + long("é", 2001) + `"}`, tool.Invalid, "code", "2001 characters; the maximum is 2000"},
		{"escape", `{"code":"print('\u001b')"}`, tool.Invalid, "code", "U+001B at character 8"},
		{"carriage return", `{"code":"1\r\n2"}`, tool.Invalid, "code", "U+000D"},
		{"NUL", `{"code":"\u0000"}`, tool.Invalid, "code", "U+0000"},
		{"DEL", `{"code":"\u007f"}`, tool.Invalid, "code", "U+007F"},
		{"C1", `{"code":"\u0085"}`, tool.Invalid, "code", "U+0085"},
		{"unknown", `{"code":"1","restricted":true}`, tool.Invalid, "restricted", "unknown parameter"},
		{"state", `{"code":"1","state":"warm"}`, tool.Invalid, "state", "fresh, kept"},
		{"sandbox", `{"code":"1","sandbox":"none"}`, tool.Invalid, "sandbox", "container, restricted, wasm"},
		{"no wasm here", `{"code":"1","sandbox":"wasm"}`, tool.Unsupported, "sandbox", "container, restricted"},
		{"fuel elsewhere", `{"code":"1","fuel":5}`, tool.Invalid, "fuel", "wasm only"},
		{"memory elsewhere", `{"code":"1","memory":5}`, tool.Invalid, "memory", "wasm only"},
		{"no fuel", `{"code":"1","sandbox":"wasm","fuel":0}`, tool.Invalid, "fuel", "at least 1"},
		{"global no JSON", `{"code":"1","globals":{"bad":"not json"}}`, tool.Invalid, "globals.bad", "bad is not JSON"},
		{"global NaN", `{"code":"1","globals":{"bad":"NaN"}}`, tool.Invalid, "globals.bad", "is not JSON"},
		{"global too deep", `{"code":"1","globals":{"bad":"` + long("[", 201) + long("]", 201) + `"}}`, tool.Invalid, "globals.bad", "200 levels"},
		{"global too large", `{"code":"1","globals":{"bad":"[1e400]"}}`, tool.Invalid, "globals.bad", "bad has a number that is too large"},
		{"global too long", `{"code":"1","globals":{"bad":"-` + long("1", 4301) + `"}}`, tool.Invalid, "globals.bad", "too large"},
		{"global name", `{"code":"1","globals":{"not valid":"1"}}`, tool.Invalid, "globals.not valid", "not valid"},
		{"global empty", `{"code":"1","globals":{"":"1"}}`, tool.Invalid, "globals.", "identifier"},
		{"global digit", `{"code":"1","globals":{"1a":"1"}}`, tool.Invalid, "globals.1a", "1a"},
		{"global keyword", `{"code":"1","globals":{"class":"1"}}`, tool.Invalid, "globals.class", "class"},
		{"global builtins", `{"code":"1","globals":{"__builtins__":"1"}}`, tool.Invalid, "globals.__builtins__", "__builtins__"},
		{"global reads", `{"code":"1","globals":{"reads":"1"}}`, tool.Invalid, "globals.reads", "reads"},
		{"read path", `{"code":"1","reads":[{"path":"../x"}]}`, tool.Invalid, "reads[0].path", "../x"},
		{"read root", `{"code":"1","reads":[{"path":"/"}]}`, tool.Invalid, "reads[0].path", "the workspace itself"},
		{"read missing", `{"code":"1","reads":[{"path":"nothere"}]}`, tool.NotFound, "reads[0].path", "nothere"},
		{"read twice", `{"code":"1","reads":[{"path":"a"},{"path":"/a"}]}`, tool.Invalid, "reads[1].path", "a is read twice"},
		{"read binary", `{"code":"1","reads":[{"path":"bin"}]}`, tool.NotText, "reads[0].path", "bin is not UTF-8"},
		{"read named reads", `{"code":"1","reads":[{"path":"reads"}]}`, tool.Invalid, "reads[0].path", "name of a global"},
		{"read over a global", `{"code":"1","reads":[{"path":"a"}],"globals":{"a":"1"}}`, tool.Invalid, "reads[0].path", "name of a global"},
		{"too many reads", `{"code":"1","reads":[` + long(`{"path":"a"},`, 64) + `{"path":"a"}]}`, tool.Invalid, "reads", "64 files"},
		{"read and written", `{"code":"1","reads":[{"path":"a"}],"writes":[{"path":"/workspace/a","content":"x"}]}`, tool.Invalid, "reads[0].path", "a is also in writes"},
		{"written twice", `{"code":"1","writes":[{"path":"o","content":"x"},{"path":"/o","content":"y"}]}`, tool.Invalid, "writes[1].path", "o is written twice"},
		{"write path", `{"code":"1","writes":[{"path":"../o","content":"x"}]}`, tool.Invalid, "writes[0].path", "../o"},
		{"write mode", `{"code":"1","writes":[{"path":"o","content":"x","mode":"w"}]}`, tool.Invalid, "writes[0].mode", "create, overwrite, append"},
		{"write too long", `{"code":"1","writes":[{"path":"o","content":"` + long("x", 48_001) + `"}]}`, tool.TooLarge, "writes[0].content", "o has 48001"},
		{"create of an existing file", `{"code":"1","writes":[{"path":"a","content":"x"}]}`, tool.Exists, "writes[0].path", "a exists"},
		{"template attribute", `{"code":"x=1","writes":[{"path":"o","content":"{x.__class__}"}]}`, tool.Invalid, "writes[0].content", "{x.__class__}"},
		{"template attribute of an item", `{"code":"x=1","writes":[{"path":"o","content":"{x[0].real}"}]}`, tool.Invalid, "writes[0].content", "attribute"},
		{"template attribute in a format", `{"code":"x=1","writes":[{"path":"o","content":"{x:{x.real}}"}]}`, tool.Invalid, "writes[0].content", "attribute"},
		{"template conversion", `{"code":"x=1","writes":[{"path":"o","content":"{x!z}"}]}`, tool.Invalid, "writes[0].content", "!r, !s and !a"},
		{"template index", `{"code":"x=1","writes":[{"path":"o","content":"{x[]}"}]}`, tool.Invalid, "writes[0].content", "{x[]}"},
		{"template open", `{"code":"x=1","writes":[{"path":"o","content":"a {x"}]}`, tool.Invalid, "writes[0].content", "not closed"},
		{"template close", `{"code":"x=1","writes":[{"path":"o","content":"a } x"}]}`, tool.Invalid, "writes[0].content", "single }"},
		{"template empty", `{"code":"x=1","writes":[{"path":"o","content":"{}"}]}`, tool.Invalid, "writes[0].content", "plain name"},
		{"template inner name", `{"code":"x=1","writes":[{"path":"o","content":"{__builtins__}"}]}`, tool.Invalid, "writes[0].content", "plain name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, memory{"a": "x", "bin": "\xff"})
			_, err := s.call(t, c.args)
			var e *tool.Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.kind, e.Kind)
			assert.Equal(t, c.field, e.Field)
			assert.Contains(t, e.Message, c.says)
			assert.Nil(t, s.engine.got, "nothing runs")
			assert.Equal(t, memory{"a": "x", "bin": "\xff"}, s.files)
		})
	}
}

func TestReadsTogetherAreBounded(t *testing.T) {
	half := strings.Repeat("x", 40<<20)
	s := newStage(t, memory{"a": half, "b": half})
	_, err := s.call(t, `{"code":"1","reads":[{"path":"a"},{"path":"b"}]}`)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
}

func TestTheRequestHoldsWhatTheCallSays(t *testing.T) {
	s := newStage(t, memory{"d/in": "text"})
	_, err := s.call(t, `{"code":"1","globals":{"x":"[1]"},"reads":[{"path":"/d//in"}],"writes":[{"path":"o","content":"{x} {{{y}}} {x}"}],"state":"kept","sandbox":"restricted"}`)
	require.Equal(t, tool.Invalid, tool.KindOf(err), "the puppet leaves no global y")
	assert.Equal(t, &evaltool.Request{MaxOutput: evaltool.StreamChars,
		Code: "1", Globals: map[string]string{"x": "[1]"}, Reads: []evaltool.File{{Path: "d/in", Text: "text"}}, Fields: []string{"x", "y"},
		Timeout: 5 * time.Second, Sandbox: "restricted", Kept: true,
	}, s.engine.got)
}

func TestTimeoutsAreClampedAndItIsSaid(t *testing.T) {
	for _, c := range []struct {
		args string
		want time.Duration
		said bool
	}{
		{`{"code":"1"}`, 5 * time.Second, false},
		{`{"code":"1","timeout":2.5}`, 2500 * time.Millisecond, false},
		{`{"code":"1","timeout":10}`, 10 * time.Second, false},
		{`{"code":"1","timeout":1e300}`, 10 * time.Second, true},
		{`{"code":"1","timeout":-3}`, 100 * time.Millisecond, true},
	} {
		s := newStage(t, nil)
		res, err := s.call(t, c.args)
		require.NoError(t, err)
		assert.Equal(t, c.want, s.engine.got.Timeout)
		assert.Equal(t, c.said, strings.Contains(res.Text, "timeout"), res.Text)
	}
	nan := math.NaN()
	_, err := newStage(t, nil).Evaluate(context.Background(), evaltool.Params{Code: "1", Timeout: &nan})
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestAllWritesHappenTogetherAfterSuccess(t *testing.T) {
	s := newStage(t, memory{"log": "old\n"})
	s.engine.resp.Fields = map[string]string{"n": "42"}
	s.engine.resp.Writes = []evaltool.Queued{{Path: "q", Mode: "overwrite", Content: "{n}"}, {Path: "log", Mode: "append", Content: "new\n"}}
	res, err := s.call(t, `{"code":"n = 6 * 7","writes":[{"path":"o.txt","content":"answer {n} {{n}}\n"}]}`)
	require.NoError(t, err)
	assert.Equal(t, memory{"o.txt": "answer 42 {n}\n", "q": "{n}", "log": "old\nnew\n"}, s.files)
	assert.Equal(t, []evaltool.WriteDone{
		{Path: "o.txt", Mode: "create", SizeBytes: 14, Version: 1, Content: "answer 42 {n}\n"},
		{Path: "q", Mode: "create", SizeBytes: 3, Version: 1, Content: "{n}"},
		{Path: "log", Mode: "append", SizeBytes: 8, Version: 1, Content: "new\n"},
	}, res.Value.(evaltool.Result).Writes)
}

func TestAFailureTellsWhatTheCodeHasChanged(t *testing.T) {
	s := newStage(t, memory{"by-code": "", "other": ""})
	changed := func(args string) []string {
		res, err := s.call(t, args)
		require.NoError(t, err)
		paths := res.Value.(evaltool.Result).Changed
		assert.Equal(t, len(paths) > 0, strings.Contains(res.Text, "changed in the workspace while the code ran: by-code"), res.Text)
		return paths
	}
	assert.Empty(t, changed(`{"code":"1"}`), "nothing failed")
	for _, status := range []string{evaltool.StatusException, evaltool.StatusTimedOut, evaltool.StatusCancelled, "signaled"} {
		s.engine.resp.Status = status
		assert.Equal(t, []string{"by-code"}, changed(`{"code":"1"}`), status)
	}
	for i := range 99 {
		s.files[fmt.Sprintf("by-code-%02d-%s", i, strings.Repeat("x", 200))] = ""
	}
	res, err := s.call(t, `{"code":"1"}`)
	require.NoError(t, err)
	assert.Less(t, len(fmt.Sprint(res.Value.(evaltool.Result).Changed)), 9000)
	assert.Contains(t, res.Text, "92 more")

	s = newStage(t, memory{"by-code": "", "o": ""})
	s.engine.resp.Writes = []evaltool.Queued{{Path: "o", Mode: "create"}}
	_, err = s.call(t, `{"code":"1"}`)
	assert.ErrorContains(t, err, "nothing was written; discarded: o (create, 0 bytes); changed in the workspace while the code ran: by-code")
	s.engine.err = tool.Errorf(tool.Unavailable, "the container is gone")
	_, err = s.call(t, `{"code":"1"}`)
	assert.ErrorContains(t, err, "the container is gone; changed in the workspace while the code ran: by-code")
}

func TestTheContentOfWritesIsBounded(t *testing.T) {
	s := newStage(t, nil)
	for i := range 12 {
		s.engine.resp.Writes = append(s.engine.resp.Writes, evaltool.Queued{Path: fmt.Sprintf("f%02d", i), Mode: "create", Content: strings.Repeat("é", 5000)})
	}
	res, err := s.call(t, `{"code":"1"}`)
	require.NoError(t, err)
	total := 0
	for i, w := range res.Value.(evaltool.Result).Writes {
		assert.Equal(t, int64(10_000), w.SizeBytes)
		assert.LessOrEqual(t, len([]rune(w.Content)), 4096)
		assert.True(t, i >= 8 || strings.HasSuffix(w.Content, "é..."), w.Path)
		total += len([]rune(w.Content))
	}
	assert.LessOrEqual(t, total, 32<<10)
}

func TestWhatIsDiscardedIsToldWithItsPathAndSize(t *testing.T) {
	size := func(n int64) *int64 { return &n }
	s := newStage(t, memory{"taken": ""})
	s.engine.resp = evaltool.Response{
		Status: evaltool.StatusException, Fields: map[string]string{"n": "é"}, Globals: map[string]string{"n": `"é"`},
		Writes: []evaltool.Queued{{Path: "/workspace/q", Mode: "append", Content: "abc"}, {Path: "../x", Mode: "create"}, {Path: "o", Mode: "create"}},
	}
	const args = `{"code":"1","writes":[{"path":"o","content":"{n}!"},{"path":"later","content":"{m}","mode":"overwrite"}]}`
	res, err := s.call(t, args)
	require.NoError(t, err)
	r := res.Value.(evaltool.Result)
	assert.Equal(t, []evaltool.Discarded{{"o", "create", size(3)}, {"later", "overwrite", nil}, {"q", "append", size(3)}}, r.Discarded)
	assert.Contains(t, res.Text, "because the code raised an exception; discarded: o (create, 3 bytes), later (overwrite), q (append, 3 bytes)\n")
	assert.Equal(t, map[string]string{"n": `"é"`}, r.Globals, "what was set before the exception")
	assert.Empty(t, r.Writes)

	s.engine.resp = evaltool.Response{Status: evaltool.StatusExited, Fields: map[string]string{"n": "é"}, Writes: []evaltool.Queued{{Path: "taken", Mode: "create", Content: "abc"}}}
	_, err = s.call(t, `{"code":"1","writes":[{"path":"o","content":"{n}!"}]}`)
	assert.ErrorContains(t, err, "wrong mode; nothing was written; discarded: o (create, 3 bytes), taken (create, 3 bytes)")

	said, before := "printed", s.engine.resp
	s.engine.resp = evaltool.Response{Status: evaltool.StatusExited, Value: &said, Stdout: "out\n", Stderr: "err", Faults: map[string]string{"n:d": "ValueError: no"}}
	_, err = s.call(t, `{"code":"1","writes":[{"path":"o","content":"{n:d}!"}]}`)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.ErrorContains(t, err, "the content of o has {n:d}, which fails: ValueError: no; nothing was written; discarded: o (create); the code's value: printed; the code's stdout: out; the code's stderr: err")
	s.engine.resp = before

	for i := range 40 {
		s.engine.resp.Writes = append(s.engine.resp.Writes, evaltool.Queued{Path: fmt.Sprintf("many/%d", i), Mode: "create"})
	}
	_, err = s.call(t, `{"code":"1"}`)
	assert.ErrorContains(t, err, "many/6 (create, 0 bytes), 33 more")
}

func TestARefusedWriteWritesNothing(t *testing.T) {
	const args = `{"code":"1","writes":[{"path":"o1","content":"{x}"},{"path":"o2","content":"{y}"}]}`
	queued := func(q ...evaltool.Queued) evaltool.Response {
		return evaltool.Response{Status: evaltool.StatusExited, Fields: map[string]string{"x": "1", "y": "2"}, Writes: q}
	}
	for _, c := range []struct {
		name string
		resp evaltool.Response
		kind tool.Kind
		says string
	}{
		{"unknown name", evaltool.Response{Status: evaltool.StatusExited, Fields: map[string]string{"x": "1"}}, tool.Invalid, "{y}"},
		{"too long when filled", evaltool.Response{Status: evaltool.StatusExited, Fields: map[string]string{"x": "1", "y": strings.Repeat("x", 48_001)}}, tool.TooLarge, "o2"},
		{"written by both", queued(evaltool.Queued{Path: "/o1", Mode: "overwrite"}), tool.Invalid, "o1 is written twice"},
		{"queued outside", queued(evaltool.Queued{Path: "../x", Mode: "create"}), tool.Invalid, "../x"},
		{"queued too long", queued(evaltool.Queued{Path: "q", Mode: "create", Content: strings.Repeat("x", 48_001)}), tool.TooLarge, "q"},
		{"queued over an existing file", queued(evaltool.Queued{Path: "a", Mode: "create"}), tool.Exists, "nothing was written"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, memory{"a": "x"})
			s.engine.resp = c.resp
			_, err := s.call(t, args)
			require.Equal(t, c.kind, tool.KindOf(err), "%v", err)
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, memory{"a": "x"}, s.files)
		})
	}
}

func TestAFailedEvaluationWritesNothingAndSaysSo(t *testing.T) {
	for _, resp := range []evaltool.Response{
		{Status: evaltool.StatusException, Stderr: "ZeroDivisionError"},
		{Status: evaltool.StatusTimedOut, Stderr: evaltool.TimeoutText},
		{Status: evaltool.StatusExited, Ended: true},
		{Status: "oom_killed"},
	} {
		s := newStage(t, nil)
		s.engine.resp = resp
		s.engine.resp.Writes = []evaltool.Queued{{Path: "q", Mode: "create"}}
		res, err := s.call(t, `{"code":"1/0","writes":[{"path":"o","content":"x"}]}`)
		require.NoError(t, err)
		assert.True(t, res.Failed)
		assert.Empty(t, s.files)
		assert.Contains(t, res.Value.(evaltool.Result).Message, "nothing was written")
		assert.Contains(t, res.Text, "status: "+resp.Status)
	}
}

func TestWhatWasNotWrittenIsSaidOnlyToWhoAskedForIt(t *testing.T) {
	for args, said := range map[string]bool{
		`{"code":"1/0"}`: false, `{"code":"write_text('a','b')\n1/0"}`: true, `{"code":"1/0","writes":[{"path":"o","content":""}]}`: true,
	} {
		s := newStage(t, nil)
		s.engine.resp.Status = evaltool.StatusException
		res, err := s.call(t, args)
		require.NoError(t, err)
		assert.Equal(t, said, strings.Contains(res.Text, "nothing was written"), res.Text)
	}
}

func TestWhatAnEngineAnswersIsHeldToTheLimits(t *testing.T) {
	s := newStage(t, nil)
	long := strings.Repeat("é", 10_000)
	s.engine.resp = evaltool.Response{
		Status: evaltool.StatusExited, Value: &long, Stdout: long, Stderr: long, Dropped: 1,
		Globals: map[string]string{"a": `"x"`, "b": long},
	}
	res, err := s.call(t, `{"code":"1"}`)
	require.NoError(t, err)
	r := res.Value.(evaltool.Result)
	for _, text := range []string{*r.ValueRepr, r.Stdout, r.Stderr} {
		assert.Len(t, []rune(text), evaltool.StreamChars)
		assert.True(t, strings.HasSuffix(text, "..."))
	}
	assert.Equal(t, map[string]string{"a": `"x"`}, r.Globals)
	assert.Equal(t, 2, r.GlobalsDropped)
	assert.Equal(t, "left out, because globals have room for 32 KiB: b, 1 more", r.Message)
}

func TestResultsHaveEveryFieldOfTheContract(t *testing.T) {
	s := newStage(t, nil)
	res, err := s.call(t, `{"code":"x = 1"}`)
	require.NoError(t, err)
	raw, err := json.Marshal(res.Value)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	delete(fields, "duration_ms")
	assert.Equal(t, map[string]any{
		"value_repr": nil, "stdout": "", "stderr": "", "globals": map[string]any{}, "globals_dropped": 0.0,
		"reads": []any{}, "writes": []any{}, "status": "exited",
	}, fields)
	assert.NotEmpty(t, res.Text)
	assert.Empty(t, res.Blobs)
}

func TestPicturesAreBlobs(t *testing.T) {
	s := newStage(t, nil)
	s.engine.resp.Display = []evaltool.Display{
		{MIME: "image/png", Data: "iVBORw0KGgo="}, {MIME: "image/svg+xml", Data: "<svg/>"}, {MIME: "text/html", Data: "<b/>"},
	}
	res, err := s.call(t, `{"code":"1"}`)
	require.NoError(t, err)
	assert.Equal(t, []tool.Blob{{MIME: "image/png", Data: []byte("\x89PNG\r\n\x1a\n")}}, res.Blobs)
}

func TestEveryRunIsOneLineInTheLog(t *testing.T) {
	s := newStage(t, nil)
	s.engine.resp.Stdout = "hi\n"
	_, err := s.call(t, `{"code":"`+strings.Repeat("é", 300)+`"}`)
	require.NoError(t, err)
	var line map[string]any
	require.NoError(t, json.Unmarshal(s.log.Bytes(), &line))
	assert.Equal(t, "DEBUG", line["level"])
	for field, want := range map[string]any{
		"msg": "asteval.run", "event": "asteval.run", "engine": "container", "stdout_len": 3.0, "stderr_len": 0.0, "write_count": 0.0, "status": "exited",
		"code": strings.Repeat("é", 200),
	} {
		assert.Equal(t, want, line[field], field)
	}
	assert.Contains(t, line, "duration_ms")
}

func TestGuidanceNamesLimitsHelpersAndRunnableExamples(t *testing.T) {
	s := newStage(t, memory{"log.txt": "a\n"})
	text := s.Guidance()
	for _, word := range []string{"2000 characters", "10 seconds", "read_text", "write_text", "list_files", "sandbox puppet", "re, json, math, collections, itertools", "slower than the file tools"} {
		assert.Contains(t, text, word)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "{") {
			var p evaltool.Params
			assert.NoError(t, tool.Decode(json.RawMessage(line), &p), line)
		}
	}
}

// TestRestrictedNeedsNoContainer: without one it runs in WebAssembly and says so.
func TestRestrictedNeedsNoContainer(t *testing.T) {
	unreachable := tool.Errorf(tool.Unavailable, "podman can't be reached")
	value := "2"
	for _, c := range []struct {
		name, sandbox, state string
		container, wasm      error
		ran                  bool
		kind                 tool.Kind
	}{
		{"unreachable", "restricted", "fresh", unreachable, nil, true, ""},
		{"kept names", "restricted", "kept", unreachable, nil, false, tool.Unavailable},
		{"all of Python", "container", "fresh", unreachable, nil, false, tool.Unavailable},
		{"another problem", "restricted", "fresh", tool.Errorf(tool.Invalid, "wrong"), nil, false, tool.Invalid},
		{"nothing installed", "restricted", "fresh", unreachable, tool.Errorf(tool.Unsupported, "it is not installed: run `wisbox lab wasm install`"), true, tool.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := memory{}
			wasm := &puppet{resp: evaltool.Response{Status: evaltool.StatusExited, Value: &value, Fields: map[string]string{"n": "5"}}, err: c.wasm}
			e, err := evaltool.New(&evaltool.Options{Files: files, Container: &puppet{err: c.container}, Wasm: wasm})
			require.NoError(t, err)
			res, err := e.Evaluate(context.Background(), evaltool.Params{
				Code: "n = 5\n2", Sandbox: c.sandbox, State: c.state, Writes: []evaltool.Write{{Path: "f", Content: "{n}"}},
			})
			assert.Equal(t, c.kind, tool.KindOf(err), "%v", err)
			assert.Equal(t, c.ran, wasm.got != nil)
			if c.ran && c.wasm != nil {
				assert.ErrorContains(t, err, "wisbox lab wasm install")
				assert.ErrorContains(t, err, "podman can't be reached")
			}
			if c.ran && c.wasm == nil {
				assert.Equal(t, evaltool.SandboxRestricted, wasm.got.Sandbox)
				assert.Contains(t, res.Message, "WebAssembly")
				assert.Equal(t, "5", files["f"])
			}
		})
	}
}
