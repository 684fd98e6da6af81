package envd_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/serve/e2b/envd"
	"github.com/wisbox/wisbox/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "secret-token"

// fake is a session in which nothing runs; its files are in a map.
type fake struct {
	sandbox.FileSystem
	err error // of every operation

	mu      sync.Mutex
	files   map[string]string
	listed  int // entries of every directory
	watched chan sandbox.FileEvent
	ends    bool          // the program ends when an input arrives
	typing  chan struct{} // gets an item for each input; may be nil
	typed   chan struct{} // ends one input
	reading chan struct{} // closed when content arrives; may be nil
	read    chan struct{} // closed at the content's end
}

func (f *fake) Inside() sandbox.FileSystem { return f }

func (f *fake) StartAttached(context.Context, sandbox.Cmd, *wisbox.ProcessOptions, *wisbox.AttachOptions) (*wisbox.ProcessInfo, *wisbox.Attachment, error) {
	return nil, nil, f.err
}

func (f *fake) AttachProcess(context.Context, string, *wisbox.AttachOptions) (*wisbox.Attachment, error) {
	return nil, f.err
}
func (f *fake) Processes(context.Context) ([]wisbox.ProcessInfo, error) {
	if f.ends && f.err != nil {
		return []wisbox.ProcessInfo{{PID: 1, ExitCode: new(int)}}, nil
	}
	return []wisbox.ProcessInfo{{PID: 1}}, f.err
}
func (f *fake) SignalProcess(context.Context, string, string) (*wisbox.ProcessInfo, error) {
	return nil, f.err
}
func (f *fake) WriteProcess(context.Context, string, []byte, bool) error {
	if f.ends {
		f.err = tool.Errorf(tool.Conflict, "the process has ended")
	}
	if f.typing != nil {
		f.typing <- struct{}{}
		<-f.typed
	}
	return f.err
}
func (f *fake) ResizeProcess(context.Context, string, sandbox.WinSize) error { return f.err }
func (f *fake) Mkdir(context.Context, string, sandbox.MkdirOptions) error    { return f.err }
func (f *fake) Remove(context.Context, string, sandbox.RemoveOptions) error  { return f.err }
func (f *fake) Next() (sandbox.FileEvent, error)                             { e, ok := <-f.watched; return e, ended(ok) }
func (f *fake) Close() error                                                 { return nil }
func (f *fake) Watch(ctx context.Context, _ string, _ sandbox.WatchOptions) (sandbox.FileWatch, error) {
	context.AfterFunc(ctx, func() { close(f.watched) })
	return f, f.err
}

func ended(ok bool) error {
	if ok {
		return nil
	}
	return io.EOF
}

func (f *fake) Stat(_ context.Context, path string, _ sandbox.StatOptions) (sandbox.FileInfo, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.files[path]
	if !ok && f.err == nil {
		return sandbox.FileInfo{}, tool.Errorf(tool.NotFound, "there is no %s", path)
	}
	return sandbox.FileInfo{Path: path, Mode: 0o644, Size: int64(len(content))}, f.err
}

func (f *fake) Write(_ context.Context, path string, r io.Reader, opts sandbox.WriteOptions) error {
	if f.reading != nil {
		close(f.reading)
	}
	content, err := io.ReadAll(r)
	if f.read != nil {
		close(f.read)
	}
	if err = errors.Join(err, f.err); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if opts.How == sandbox.WriteSeveral {
		return f.writeSeveral(content)
	}
	f.files[path] = string(content)
	return nil
}

// writeSeveral reads what [sandbox.Several] has written.
func (f *fake) writeSeveral(content []byte) error {
	next := func() string {
		size := binary.BigEndian.Uint32(content)
		block := content[4 : 4+size]
		content = content[4+size:]
		return string(block)
	}
	for path := next(); path != ""; path = next() {
		f.files[path] = ""
		for part := next(); part != ""; part = next() {
			f.files[path] += part
		}
	}
	return nil
}

func (f *fake) Open(_ context.Context, path string, _ sandbox.OpenOptions) (sandbox.FileReader, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.files[path]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return &opened{strings.NewReader(content)}, nil
}

type opened struct{ *strings.Reader }

func (o *opened) Close() error           { return nil }
func (o *opened) Info() sandbox.FileInfo { return sandbox.FileInfo{Size: o.Size()} }

func newFake() *fake {
	return &fake{files: map[string]string{"/home/user/there": "x"}, watched: make(chan sandbox.FileEvent, 8)}
}

// server serves a session.
func server(t *testing.T, session envd.Session, done <-chan struct{}) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(envd.New(envd.Options{Session: session, Token: token, Done: done}))
	t.Cleanup(s.Close)
	return s
}

// ask sends a request with the token.
func ask(t *testing.T, s *httptest.Server, method, path string, body []byte, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Access-Token", token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(answer)
}

func envelope(flags byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text))), text...)
}

// messages returns the envelopes of an answer.
func messages(t *testing.T, answer string) (flags []byte, texts []string) {
	t.Helper()
	for rest := []byte(answer); len(rest) > 0; {
		require.GreaterOrEqual(t, len(rest), 5)
		size := binary.BigEndian.Uint32(rest[1:])
		require.GreaterOrEqual(t, len(rest), 5+int(size))
		flags, texts = append(flags, rest[0]), append(texts, string(rest[5:5+size]))
		rest = rest[5+size:]
	}
	return flags, texts
}

func TestKindsOfErrorsHaveCodes(t *testing.T) {
	f := newFake()
	s := server(t, f, nil)
	for kind, want := range map[tool.Kind]struct {
		status, file int
		code         string
	}{
		tool.Invalid: {400, 400, "invalid_argument"}, tool.NotFound: {404, 404, "not_found"}, tool.Exists: {409, 409, "already_exists"},
		tool.NotDir: {400, 400, "invalid_argument"}, tool.IsDir: {400, 400, "invalid_argument"}, tool.Permission: {403, 403, "permission_denied"},
		tool.NoSpace: {429, 507, "resource_exhausted"}, tool.Limit: {429, 429, "resource_exhausted"}, tool.Unavailable: {503, 503, "unavailable"},
		tool.Closed: {503, 503, "unavailable"}, tool.Unsupported: {501, 400, "unimplemented"}, tool.Internal: {500, 500, "internal"},
		tool.Conflict: {400, 409, "failed_precondition"}, tool.Timeout: {504, 500, "deadline_exceeded"},
	} {
		f.err = tool.Errorf(kind, "said so")
		res, body := ask(t, s, "POST", "/filesystem.Filesystem/MakeDir", []byte(`{"path":"a"}`), "Content-Type", "application/json")
		assert.Equal(t, want.status, res.StatusCode, kind)
		assert.JSONEq(t, fmt.Sprintf(`{"code":%q,"message":"said so"}`, want.code), body)
		res, body = ask(t, s, "POST", "/process.Process/Start", envelope(0, `{"process":{"cmd":"x"}}`), "Content-Type", "application/connect+json")
		assert.Equal(t, 200, res.StatusCode)
		assert.Equal(t, "application/connect+json", res.Header.Get("Content-Type"))
		flags, texts := messages(t, body)
		assert.Equal(t, []byte{2}, flags)
		assert.JSONEq(t, fmt.Sprintf(`{"error":{"code":%q,"message":"said so"}}`, want.code), texts[0])
		res, body = ask(t, s, "POST", "/files?path=a", []byte("x"), "Content-Type", "application/octet-stream")
		assert.Equal(t, want.file, res.StatusCode, kind)
		assert.JSONEq(t, fmt.Sprintf(`{"code":%d,"message":"said so"}`, want.file), body)
	}
	f.err = errors.New("open /host/path: no")
	_, body := ask(t, s, "POST", "/filesystem.Filesystem/MakeDir", []byte(`{}`), "Content-Type", "application/json")
	assert.NotContains(t, body, "/host/path")
}

func TestOnlyTheTokenOpensTheSandbox(t *testing.T) {
	s := server(t, newFake(), nil)
	for _, given := range []string{"", "wrong", token + "x", token[1:]} {
		for _, path := range []string{"/process.Process/List", "/process.Process/Start", "/filesystem.Filesystem/Stat", "/files"} {
			res, _ := ask(t, s, "POST", path, nil, "X-Access-Token", given)
			assert.Equal(t, 401, res.StatusCode, path)
		}
		res, _ := ask(t, s, "GET", "/envs", nil, "X-Access-Token", given)
		assert.Equal(t, 401, res.StatusCode)
		res, _ = ask(t, s, "GET", "/health", nil, "X-Access-Token", given)
		assert.Equal(t, 204, res.StatusCode)
	}
	_, body := ask(t, s, "GET", "/envs", nil)
	assert.Equal(t, "{}", body)
	res, _ := ask(t, server(t, newFake(), nil), "GET", "/process.Process/List", nil)
	assert.Equal(t, 405, res.StatusCode)
	res, _ = ask(t, s, "POST", "/process.Process/Unknown", nil)
	assert.Equal(t, 404, res.StatusCode)
	for name, status := range map[string]int{"user": 200, "root": 401, "nobody": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/filesystem.Filesystem/Stat", strings.NewReader(`{"path":"there"}`))
		require.NoError(t, err)
		req.Header.Set("X-Access-Token", token)
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		req.SetBasicAuth(name, "")
		res, err := s.Client().Do(req)
		require.NoError(t, err)
		res.Body.Close()
		assert.Equal(t, status, res.StatusCode, name)
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	s := server(t, newFake(), nil)
	for name, c := range map[string]struct {
		body []byte
		code string
	}{
		"nothing":    {nil, "invalid_argument"},
		"half":       {envelope(0, "{}")[:6], "invalid_argument"},
		"compressed": {envelope(1, "{}"), "unimplemented"},
		"flags":      {envelope(4, "{}"), "invalid_argument"},
		"huge":       {[]byte{0, 255, 255, 255, 255}, "resource_exhausted"},
		"no JSON":    {envelope(0, "{"), "invalid_argument"},
		"two":        {append(envelope(0, "{}"), envelope(0, "{}")...), "invalid_argument"},
		"no program": {envelope(0, `{"unknown":[1]}`), "invalid_argument"},
	} {
		res, body := ask(t, s, "POST", "/process.Process/Start", c.body, "Content-Type", "application/connect+json")
		assert.Equal(t, 200, res.StatusCode, name)
		flags, texts := messages(t, body)
		require.Equal(t, []byte{2}, flags, name)
		assert.Contains(t, texts[0], `"code":"`+c.code+`"`, name)
	}
	res, _ := ask(t, s, "POST", "/process.Process/Start", nil, "Content-Type", "application/json")
	assert.Equal(t, 415, res.StatusCode)
	for _, header := range []string{"soon", "-1", "99999999999"} {
		res, _ := ask(t, s, "POST", "/process.Process/List", nil, "Content-Type", "application/json", "Connect-Timeout-Ms", header)
		assert.Equal(t, 400, res.StatusCode)
	}
	res, _ = ask(t, s, "POST", "/process.Process/List", nil, "Content-Type", "application/json", "Connect-Timeout-Ms", "0")
	assert.Equal(t, 200, res.StatusCode, "no limit")
}

// FuzzEnvelopes: the answer to any body is a stream with one end.
func FuzzEnvelopes(f *testing.F) {
	f.Add(envelope(0, `{"path":"a"}`))
	f.Add(envelope(2, `{}`))
	f.Add([]byte{0, 0, 0, 0})
	session := newFake()
	session.err = tool.Errorf(tool.NotFound, "none")
	h := envd.New(envd.Options{Session: session, Token: token})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, method := range []string{"process.Process/Start", "process.Process/Connect", "filesystem.Filesystem/WatchDir"} {
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/"+method, bytes.NewReader(body))
			req.Header.Set("X-Access-Token", token)
			req.Header.Set("Content-Type", "application/connect+json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			require.Equal(t, 200, w.Code)
			flags, texts := messages(t, w.Body.String())
			require.Equal(t, []byte{2}, flags)
			require.True(t, json.Valid([]byte(texts[0])))
		}
	})
}

func TestTheEndOfASandboxIsACut(t *testing.T) {
	done := make(chan struct{})
	f := newFake()
	s := server(t, f, done)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/filesystem.Filesystem/WatchDir", bytes.NewReader(envelope(0, `{"path":"."}`)))
	require.NoError(t, err)
	req.Header.Set("X-Access-Token", token)
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := s.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	f.watched <- sandbox.FileEvent{Change: sandbox.FileCreated, Name: "f"}
	got := make([]byte, len(envelope(0, `{"start":{}}`)))
	_, err = io.ReadFull(res.Body, got)
	require.NoError(t, err)
	assert.Equal(t, envelope(0, `{"start":{}}`), got)
	close(done)
	_, err = io.ReadAll(res.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	late, body := ask(t, s, "GET", "/health", nil)
	assert.Equal(t, 502, late.StatusCode)
	assert.Contains(t, body, "The sandbox was not found")
}

func TestTheEndOfASandboxFreesWhoWaitsForAnUpload(t *testing.T) {
	done := make(chan struct{})
	f := newFake()
	f.reading, f.read = make(chan struct{}), make(chan struct{})
	s := server(t, f, done)
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/files?path=f", body)
	require.NoError(t, err)
	req.Header.Set("X-Access-Token", token)
	req.Header.Set("Content-Type", "application/octet-stream")
	go func() {
		_, _ = more.Write([]byte("the beginning"))
		<-f.reading
		close(done)
		<-f.read
		_ = more.Close()
	}()
	res, err := s.Client().Do(req)
	if err == nil {
		res.Body.Close()
	}
	require.Error(t, err)
	assert.Empty(t, f.files["/home/user/f"])
}

func TestPathsAreTheUsers(t *testing.T) {
	f := newFake()
	s := server(t, f, nil)
	for given, want := range map[string]string{"a": "/home/user/a", "~/a": "/home/user/a", "/x/../a": "/a", "./b/": "/home/user/b", "~a": "/home/user/~a"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/files", http.NoBody)
		q := req.URL.Query()
		q.Set("path", given)
		res, body := ask(t, s, "POST", "/files?"+q.Encode(), []byte(given), "Content-Type", "application/octet-stream")
		require.Equal(t, 200, res.StatusCode, body)
		assert.Equal(t, given, f.files[want])
	}
	res, _ := ask(t, s, "POST", "/files", []byte("x"), "Content-Type", "application/octet-stream")
	assert.Equal(t, 400, res.StatusCode)
	res, _ = ask(t, s, "POST", "/files?path=a", []byte("x"), "Content-Type", "text/plain")
	assert.Equal(t, 415, res.StatusCode)
	res, _ = ask(t, s, "POST", "/files?path=a", []byte("x"), "Content-Type", "application/octet-stream", "Content-Encoding", "br")
	assert.Equal(t, 415, res.StatusCode)
}

// TestAStrangerIsNotPassed, and little of what it sends is read.
func TestAStrangerIsNotPassed(t *testing.T) {
	passed := 0
	h := envd.New(envd.Options{Session: newFake(), Token: token, Pass: func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		passed++
		next(w, r)
	}})
	for given, want := range map[string]int{"wrong": 0, token: 1} {
		for _, path := range []string{"/files?path=f", "/filesystem.Filesystem/Stat"} {
			passed = 0
			body := strings.NewReader(strings.Repeat("x", 1<<20))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, body)
			r.Header.Set("X-Access-Token", given)
			r.Header.Set("Content-Type", "application/octet-stream")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, want, passed)
			if want == 0 {
				assert.Equal(t, 401, w.Code)
				assert.Equal(t, "close", w.Header().Get("Connection"))
				assert.GreaterOrEqual(t, body.Len(), 1<<20-256<<10)
			}
		}
	}
}

func TestMessagesAreBounded(t *testing.T) {
	f := newFake()
	g, err := httpguard.New(&httpguard.Options{OwnKeys: true, MaxBytes: 17 << 20})
	require.NoError(t, err)
	s := httptest.NewServer(g.Handler(envd.New(envd.Options{Session: f, Token: token, Pass: func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if assert.NoError(t, httpguard.LetIn(r, httpguard.Client{Name: "a"})) {
			next(w, r)
		}
	}})))
	defer s.Close()
	sized := func(n int) []byte { return []byte(`{"process":{"pid":1},"x":"` + strings.Repeat("x", n) + `"}`) }
	send := func(method string, n int) int {
		res, _ := ask(t, s, "POST", "/process.Process/"+method, sized(n), "Content-Type", "application/json")
		return res.StatusCode
	}
	assert.Equal(t, 200, send("SendInput", 4<<20-100))
	assert.Equal(t, 429, send("SendInput", 4<<20))
	assert.Equal(t, 200, send("CloseStdin", 64<<10-100))
	assert.Equal(t, 429, send("CloseStdin", 64<<10))

	f.typing, f.typed = make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { assert.Equal(t, 200, send("SendInput", 4<<20-100)) })
	}
	for range 4 {
		<-f.typing
	}
	assert.Equal(t, 429, send("SendInput", 2<<20), "no room for more")
	for range 4 {
		f.typed <- struct{}{}
	}
	all.Wait()
	f.typing = nil
	assert.Equal(t, 200, send("SendInput", 4<<20-100), "all room is given back")
}

// TestTheAnswerOfAnUploadIsCountedAsItGrows: it repeats the names and the metadata of each part.
func TestTheAnswerOfAnUploadIsCountedAsItGrows(t *testing.T) {
	f := newFake()
	g, err := httpguard.New(&httpguard.Options{OwnKeys: true, MaxBytes: 4 << 20})
	require.NoError(t, err)
	s := httptest.NewServer(g.Handler(envd.New(envd.Options{Session: f, Token: token, Pass: func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if assert.NoError(t, httpguard.LetIn(r, httpguard.Client{Name: "a"})) {
			next(w, r)
		}
	}})))
	defer s.Close()
	upload := func(parts int) int {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for i := range parts {
			_, err := form.CreateFormFile("file", fmt.Sprint(i))
			require.NoError(t, err)
		}
		require.NoError(t, form.Close())
		res, _ := ask(t, s, "POST", "/files", body.Bytes(), "Content-Type", form.FormDataContentType(), "X-Metadata-A", strings.Repeat("<", 1000))
		return res.StatusCode
	}
	assert.Equal(t, 200, upload(100))
	before := len(f.files)
	assert.Equal(t, 429, upload(5000))
	assert.Len(t, f.files, before, "it ends before all files are there, and so before the answer is made")
	assert.Equal(t, 200, upload(100), "all room is given back")
}

func (f *fake) List(_ context.Context, _ string, _ sandbox.ListOptions, each func(sandbox.FileInfo) error) error {
	for range f.listed {
		if err := each(sandbox.FileInfo{Path: strings.Repeat("\x01", 2000)}); err != nil {
			return errors.New("the list broke off")
		}
	}
	return f.err
}

// TestAListIsBounded by the bytes of the answer, whatever its names contain.
func TestAListIsBounded(t *testing.T) {
	f := newFake()
	s := server(t, f, nil)
	for n, status := range map[int]int{100: 200, 1000: 429} {
		f.listed = n
		res, body := ask(t, s, "POST", "/filesystem.Filesystem/ListDir", []byte(`{"path":"."}`), "Content-Type", "application/json")
		assert.Equal(t, status, res.StatusCode)
		assert.LessOrEqual(t, len(body), 17<<20)
	}
}

func TestTheLogHasCausesAsTheServerWantsThem(t *testing.T) {
	f := newFake()
	f.err = errors.New("open /host/path: no")
	for _, quiet := range []func(error) string{nil, func(error) string { return "quiet" }} {
		var log bytes.Buffer
		h := envd.New(envd.Options{Session: f, Token: token, Log: slog.New(slog.NewTextHandler(&log, nil)), Quiet: quiet})
		for _, path := range []string{"/filesystem.Filesystem/MakeDir", "/files?path=f"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
			r.Header.Set("X-Access-Token", token)
			r.Header.Set("Content-Type", map[bool]string{true: "application/octet-stream", false: "application/json"}[strings.HasPrefix(path, "/files?")])
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, 500, w.Code)
		}
		assert.Contains(t, log.String(), "failed")
		assert.Contains(t, log.String(), "could not be served")
		assert.NotContains(t, log.String(), "/host/path")
		assert.Equal(t, quiet != nil, strings.Contains(log.String(), "quiet"))
	}
}

func TestAnUploadHasFewParts(t *testing.T) {
	s := server(t, newFake(), nil)
	for n, status := range map[int]int{20_000: 200, 20_001: 413} {
		body := strings.Repeat("--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\nx\r\n", n) + "--b--\r\n"
		res, answer := ask(t, s, "POST", "/files", []byte(body), "Content-Type", "multipart/form-data; boundary=b")
		assert.Equal(t, status, res.StatusCode, answer)
	}
}

// TestAHeaderOfAPartIsSmall: the reader of forms would hold 10 MiB of it.
func TestAHeaderOfAPartIsSmall(t *testing.T) {
	s := server(t, newFake(), nil)
	for n, status := range map[int]int{32 << 10: 200, 80 << 10: 400} {
		body := "--b\r\nContent-Disposition: form-data; name=\"x\"\r\nX-Long: " + strings.Repeat("x", n) + "\r\n\r\n" + strings.Repeat("y", 1<<20) + "\r\n" +
			"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\n" + strings.Repeat("z", 1<<20) + "\r\n--b--\r\n"
		res, answer := ask(t, s, "POST", "/files", []byte(body), "Content-Type", "multipart/form-data; boundary=b")
		assert.Equal(t, status, res.StatusCode, answer)
	}
}

// TestAnInputToAProgramThatHasJustEndedFindsNone: E2B's command line takes only not_found for an end.
func TestAnInputToAProgramThatHasJustEndedFindsNone(t *testing.T) {
	for _, method := range []string{"SendInput", "CloseStdin"} {
		f := newFake()
		f.ends = true
		res, body := ask(t, server(t, f, nil), "POST", "/process.Process/"+method, []byte(`{"process":{"pid":1}}`), "Content-Type", "application/json")
		assert.Equal(t, 404, res.StatusCode, body)
		assert.Contains(t, body, `"not_found"`)
	}
}
