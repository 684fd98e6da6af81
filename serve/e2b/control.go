package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// call is an admitted request of the control API.
type call struct {
	w   http.ResponseWriter
	r   *http.Request
	key apikeys.Key
}

// action performs a call. It returns the status and the value of the answer, or nil for none.
type action func(c call) (code int, v any, err error)

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, do := range s.actions() {
		mux.Handle(pattern, s.letIn(do))
	}
	for pattern, serve := range s.keyless() {
		mux.HandleFunc(pattern, serve)
	}
	return mux
}

// keyless returns the routes of requests without a key.
func (s *Server) keyless() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"GET /health":                      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"PUT /templates/{id}/files/{hash}": s.receive,
	}
}

// actions returns the routes of requests with a key.
func (s *Server) actions() map[string]action {
	all := map[string]action{
		"GET /sandboxes":                 s.listRunning,
		"GET /v2/sandboxes":              s.list,
		"GET /snapshots":                 s.listSnapshots,
		"GET /sandboxes/metrics":         s.latestMetrics,
		"GET /metrics":                   s.ownMetrics,
		"GET /templates":                 s.listTemplates,
		"GET /templates/aliases/{alias}": s.templateOf,
		"DELETE /templates/{id}":         s.deleteSnapshot,
		"/v2/templates":                  s.noBuilds,
		"/v2/templates/":                 s.noBuilds,
		"/v3/templates":                  s.noBuilds,
		"POST /templates":                s.noBuilds,
		"PATCH /v2/templates/{id}":       s.publish,
		"/mcp":                           func(c call) (int, any, error) { return s.mcp(c, nil) },
		"/mcp/{id}":                      s.ofOwner(s.mcp),
		"GET " + far.RemotePath:          s.remote,
		"/":                              s.unknownPath,
	}
	maps.Copy(all, s.buildRoutes())
	for version, defaultLife := range map[string]time.Duration{"": defaultV1, "/v2": defaultV2} {
		all["POST "+version+"/sandboxes"] = func(c call) (int, any, error) { return s.create(c, defaultLife) }
		for pattern, do := range map[string]func(call, *registry.Sandbox) (int, any, error){
			"GET %s/sandboxes/{id}":            s.info,
			"DELETE %s/sandboxes/{id}":         s.kill,
			"POST %s/sandboxes/{id}/timeout":   s.setTimeout,
			"POST %s/sandboxes/{id}/connect":   s.connect,
			"POST %s/sandboxes/{id}/resume":    s.resume,
			"POST %s/sandboxes/{id}/pause":     s.pause,
			"POST %s/sandboxes/{id}/fork":      s.fork,
			"POST %s/sandboxes/{id}/snapshots": s.snapshot,
			"GET %s/sandboxes/{id}/metrics":    s.metrics,
			"GET %s/sandboxes/{id}/logs":       s.logs,
			"PUT %s/sandboxes/{id}/network":    s.setNetwork,
		} {
			all[fmt.Sprintf(pattern, version)] = s.ofOwner(do)
		}
	}
	return all
}

// ClientOf returns the client of requests with an owner's key or the token of one of its sandboxes.
func ClientOf(owner string) httpguard.Client { return httpguard.Client{Name: "key " + owner} }

// visitorsOf returns the client of requests for a sandbox that need neither. The visitors of all sandboxes of an owner
// are one client.
func visitorsOf(owner, sandbox string) httpguard.Client {
	return httpguard.Client{Name: "visitors " + owner, Part: sandbox}
}

// letIn requires a valid key before it reads the request.
func (s *Server) letIn(do action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, ok := s.keyOf(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeFailure(w, errNoKey)
			return
		}
		if seen, ok := w.(*status); ok {
			seen.key = key.ID
		}
		if err := httpguard.LetIn(r, ClientOf(key.Owner)); err != nil {
			writeFailure(w, failureOf(err))
			return
		}
		if !s.enter() {
			writeFailure(w, &failure{Code: http.StatusServiceUnavailable, Message: "the server is being stopped; try again", after: busyAfter})
			return
		}
		defer s.calls.Done()
		code, v, err := do(call{w, r, key})
		var raw []byte
		if err == nil && v != nil {
			raw, _, err = httpguard.Marshal(r.Context(), v)
		}
		switch {
		case err != nil:
			f := failureOf(err)
			s.note(w, f)
			writeFailure(w, f)
		case code == 0: // the action has already answered
		case v == nil:
			w.WriteHeader(code)
		default:
			writeRaw(w, code, raw)
		}
	})
}

// note logs a failure that the client didn't cause.
func (s *Server) note(w http.ResponseWriter, f *failure) {
	if f.Code < http.StatusInternalServerError {
		return
	}
	said := error(f)
	if f.cause != nil {
		said = f.cause
	}
	s.opts.Log.Warn("a request failed", "request", w.Header().Get("X-Request-Id"), "error", registry.Quiet(said), "cause", registry.Quiet(causeOf(f)))
}

// causeOf returns the root cause of an error.
func causeOf(f *failure) error {
	for err := error(f); ; {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || inner.Unwrap() == nil {
			return err
		}
		err = inner.Unwrap()
	}
}

func (s *Server) keyOf(r *http.Request) (apikeys.Key, bool) {
	if s.opts.Keys == nil {
		return apikeys.Key{ID: "none", Owner: "local"}, true
	}
	if text := r.Header.Get(headerKey); text != "" {
		return s.opts.Keys(text)
	}
	if text, ok := bearer(r); ok {
		return s.opts.Keys(text)
	}
	return apikeys.Key{}, false
}

// bearer returns the token of the header Authorization.
func bearer(r *http.Request) (string, bool) {
	kind, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(text), strings.EqualFold(kind, "Bearer")
}

// ofOwner finds the sandbox of a path. Sandboxes of others are not found.
func (s *Server) ofOwner(do func(call, *registry.Sandbox) (int, any, error)) action {
	return func(c call) (int, any, error) {
		sandbox, ok, err := s.opts.Registry.Seek(c.r.Context(), c.key.Owner, c.r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		if !ok || sandbox.Record().Owner != c.key.Owner {
			return 0, nil, errUnknown
		}
		if seen, ok := c.w.(*status); ok {
			seen.box = sandbox.Alias()
		}
		return do(c, sandbox)
	}
}

func (s *Server) unknownPath(call) (int, any, error) {
	return 0, nil, fail(http.StatusNotFound, "unknown path; docs/serve.md lists the paths of this server")
}

// Default times of a sandbox.
const (
	defaultV1 = 15 * time.Second
	defaultV2 = 300 * time.Second
)

// life checks a timeout in seconds.
func (s *Server) life(seconds *int64, def time.Duration, least int64) (time.Duration, error) {
	if seconds == nil {
		return min(def, s.opts.MaxTimeout), nil
	}
	most := int64(s.opts.MaxTimeout / time.Second)
	if *seconds < least || *seconds > most {
		return 0, fail(http.StatusBadRequest, fmt.Sprintf("timeout is %d seconds; it must be %d to %d", *seconds, least, most))
	}
	return time.Duration(*seconds) * time.Second, nil
}

type createBody struct {
	TemplateID      string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"`
	Metadata        map[string]string `json:"metadata"`
	EnvVars         map[string]string `json:"envVars"`
	Internet        *bool             `json:"allow_internet_access"`
	Network         json.RawMessage   `json:"network"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	IAM          json.RawMessage   `json:"iam"`
	VolumeMounts []json.RawMessage `json:"volumeMounts"`
}

func (s *Server) create(c call, defaultLife time.Duration) (int, any, error) {
	var body createBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	life, err := s.life(body.Timeout, defaultLife, 1)
	if err != nil {
		return 0, nil, err
	}
	rec, err := s.recordOf(&body, c.key.Owner)
	if err != nil {
		return 0, nil, err
	}
	sandbox, err := s.start(c.r.Context(), c.key, rec, life)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.answer(sandbox), nil
}

// start creates a sandbox within the bounds of a key.
func (s *Server) start(ctx context.Context, key apikeys.Key, rec registry.Record, life time.Duration) (*registry.Sandbox, error) {
	if err := s.mayStart(key); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, createTime)
	defer cancel()
	return s.opts.Registry.Create(ctx, rec, life, s.quota(key))
}

// Create creates a sandbox for a key, within its bounds. It lives for life, but not longer than
// [Options.MaxTimeout], and has no network. Every error is a *[tool.Error].
func (s *Server) Create(ctx context.Context, key apikeys.Key, life time.Duration) (*registry.Sandbox, error) {
	closed := false
	rec, err := s.recordOf(&createBody{Internet: &closed}, key.Owner)
	if err != nil {
		return nil, toolError(err)
	}
	sandbox, err := s.start(ctx, key, rec, min(life, s.opts.MaxTimeout))
	if err != nil {
		return nil, toolError(err)
	}
	return sandbox, nil
}

// toolError returns an error as tools report it, without details of this machine.
func toolError(err error) error {
	f := failureOf(err)
	kind := tool.Unavailable
	if f.Code == http.StatusTooManyRequests {
		kind = tool.Limit
	}
	return tool.Errorf(kind, "%s", f.Message).Because(err)
}

// mcp serves MCP clients, whose requests may be long streams.
func (s *Server) mcp(c call, sandbox *registry.Sandbox) (int, any, error) {
	if s.opts.MCP == nil {
		return s.unknownPath(c)
	}
	return 0, nil, s.opts.MCP(c.w, c.r, c.key, sandbox)
}

// remote serves wisbox on other machines.
func (s *Server) remote(c call) (int, any, error) {
	if s.opts.Remote == nil {
		return s.unknownPath(c)
	}
	return 0, nil, s.opts.Remote(c.w, c.r, c.key, func() (apikeys.Key, bool) { return s.keyOf(c.r) })
}

// Bounds returns a key's quota, including snapshots, for one more session or template. It also limits the rate at which
// they are created. Every error is a *[tool.Error].
func (s *Server) Bounds(key apikeys.Key) (registry.Quota, error) {
	if err := s.mayStart(key); err != nil {
		return registry.Quota{}, toolError(err)
	}
	quota := s.quota(key)
	quota.Snapshots = s.opts.Snapshots
	return quota, nil
}

// mayStart limits the rate at which a key's owner creates sandboxes and snapshots.
func (s *Server) mayStart(key apikeys.Key) error {
	most := orDefault(key.Creations, s.opts.Creations)
	if wait := s.starts.wait(key.Owner, most); wait > 0 {
		return &failure{Code: http.StatusTooManyRequests, Message: fmt.Sprintf("this key creates more than %d sandboxes and snapshots in a minute, the maximum; wait and try again", most), after: wait}
	}
	return nil
}

// quota returns the bounds of a key's owner.
func (s *Server) quota(key apikeys.Key) registry.Quota {
	return registry.Quota{
		Sandboxes: orDefault(key.Sandboxes, s.opts.Sandboxes), CPUs: key.CPUs, Memory: key.Memory, Disk: key.Disk,
		Kept: func() (int, int64, error) {
			own, disk := s.snapshotsOf(key.Owner)
			return len(own), disk, nil
		},
	}
}

func orDefault(n, def int) int {
	if n > 0 {
		return n
	}
	return def
}

// fits refuses names and values that have more bytes in all than the maximum.
func fits(field string, values map[string]string, most int) error {
	n := 0
	for name, value := range values {
		n += len(name) + len(value)
	}
	if n > most {
		return fail(http.StatusBadRequest, fmt.Sprintf("%s has %d bytes of names and values; the maximum is %d: write large values to files of the sandbox", field, n, most))
	}
	return nil
}

// recordOf checks a client's request and returns the record for it.
func (s *Server) recordOf(body *createBody, owner string) (registry.Record, error) {
	if err := fits("metadata", body.Metadata, maxMetadata); err != nil {
		return registry.Record{}, err
	}
	if err := fits("envVars", body.EnvVars, maxEnv); err != nil {
		return registry.Record{}, err
	}
	rec := registry.Record{
		Owner: owner, CPUs: s.opts.Size.CPUs, Memory: s.opts.Size.MemoryMB << 20, Disk: s.opts.Size.DiskMB << 20, Beside: s.opts.Size.Beside,
		Template: body.TemplateID, Metadata: body.Metadata, Env: body.EnvVars, AutoPause: body.AutoPause, AutoPauseFiles: isFalse(body.AutoPauseMemory), AutoResume: body.AutoResume.Enabled,
	}
	var err error
	if rec.Template, err = s.resolve(body.TemplateID, owner); err != nil {
		return rec, err
	}
	switch {
	case given(body.IAM):
		return rec, fail(http.StatusBadRequest, "iam is not supported; leave it out")
	case len(body.VolumeMounts) > 0:
		return rec, fail(http.StatusBadRequest, "volumeMounts are not supported; leave them out")
	case rec.AutoPause && !s.opts.Pauses:
		return rec, fail(http.StatusNotImplemented, "this server can't pause sandboxes; leave autoPause out")
	case rec.AutoResume && !rec.AutoPause:
		return rec, fail(http.StatusBadRequest, "autoResume needs autoPause")
	case rec.AutoResume && rec.AutoPauseFiles:
		return rec, fail(http.StatusBadRequest, "autoResume needs the memory; leave autoPauseMemory or autoResume out")
	}
	for name, value := range rec.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return rec, fail(http.StatusBadRequest, "envVars has a name that is empty or has =, or a name or value with NUL")
		}
	}
	return rec, s.network(&rec, body.Internet, body.Network)
}

// given reports whether a JSON value is present and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// sandboxAnswer has the fields that a client needs to use a sandbox.
type sandboxAnswer struct {
	SandboxID    string  `json:"sandboxID"`
	TemplateID   string  `json:"templateID"`
	ClientID     string  `json:"clientID"`
	EnvdVersion  string  `json:"envdVersion"`
	EnvdToken    string  `json:"envdAccessToken"`
	TrafficToken *string `json:"trafficAccessToken"`
	Domain       *string `json:"domain"`
}

const clientID = "local"

func (s *Server) answer(sandbox *registry.Sandbox) sandboxAnswer {
	rec := sandbox.Record()
	a := sandboxAnswer{
		SandboxID: rec.ID, TemplateID: rec.Template, ClientID: clientID, EnvdVersion: envdVersion,
		EnvdToken: sandbox.EnvdToken(), Domain: s.domain(),
	}
	if rec.ClosedPorts {
		token := sandbox.TrafficToken()
		a.TrafficToken = &token
	}
	return a
}

func (s *Server) domain() *string {
	if s.opts.Domain == "" {
		return nil
	}
	return &s.opts.Domain
}

// item is a sandbox in a list.
type item struct {
	SandboxID    string            `json:"sandboxID"`
	TemplateID   string            `json:"templateID"`
	ClientID     string            `json:"clientID"`
	StartedAt    string            `json:"startedAt"`
	EndAt        string            `json:"endAt"`
	CPUCount     int               `json:"cpuCount"`
	MemoryMB     int64             `json:"memoryMB"`
	DiskSizeMB   int64             `json:"diskSizeMB"`
	Metadata     map[string]string `json:"metadata"`
	State        registry.State    `json:"state"`
	EnvdVersion  string            `json:"envdVersion"`
	VolumeMounts []string          `json:"volumeMounts"`
}

// milliseconds is the format of times that clients send back.
const milliseconds = "2006-01-02T15:04:05.000Z07:00"

func (s *Server) item(rec registry.Record) item {
	metadata := rec.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	return item{
		SandboxID: rec.ID, TemplateID: rec.Template, ClientID: clientID,
		StartedAt: rec.Started.UTC().Format(milliseconds), EndAt: rec.End.UTC().Format(milliseconds),
		CPUCount: s.opts.Size.cpuCount(), MemoryMB: s.opts.Size.MemoryMB, DiskSizeMB: s.opts.Size.DiskMB,
		Metadata: metadata, State: rec.State, EnvdVersion: envdVersion, VolumeMounts: []string{},
	}
}

type lifecycle struct {
	OnTimeout  string `json:"onTimeout"`
	AutoResume bool   `json:"autoResume"`
}

// detail is the full description of a sandbox.
type detail struct {
	item
	Domain    *string         `json:"domain"`
	Internet  *bool           `json:"allowInternetAccess"` // nil means unknown
	Network   json.RawMessage `json:"network,omitempty"`
	Lifecycle lifecycle       `json:"lifecycle"`
	EnvdToken string          `json:"envdAccessToken"`
}

func (s *Server) info(c call, sandbox *registry.Sandbox) (int, any, error) {
	rec := sandbox.Known(c.r.Context())
	if rec.State != registry.Running && rec.State != registry.Paused {
		return 0, nil, errUnknown
	}
	d := detail{
		item: s.item(rec), Domain: s.domain(), Network: rec.Network,
		Lifecycle: lifecycle{OnTimeout: "kill", AutoResume: rec.AutoResume}, EnvdToken: sandbox.EnvdToken(),
	}
	if rec.Wanted == nil {
		d.Internet = &rec.Internet
	}
	if rec.AutoPause {
		d.Lifecycle.OnTimeout = "pause"
	}
	return http.StatusOK, d, nil
}

func (s *Server) kill(c call, sandbox *registry.Sandbox) (int, any, error) {
	was, err := s.opts.Registry.Remove(c.r.Context(), sandbox)
	if err != nil {
		return 0, nil, err
	}
	if !was {
		return 0, nil, errUnknown
	}
	return http.StatusNoContent, nil, nil
}

type lifeBody struct {
	Timeout *int64 `json:"timeout"`
	Memory  *bool  `json:"memory"`
}

// isFalse reports whether a client has set an option to false.
func isFalse(given *bool) bool { return given != nil && !*given }

func (s *Server) setTimeout(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body lifeBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	if body.Timeout == nil {
		return 0, nil, fail(http.StatusBadRequest, "timeout is missing; give it in seconds")
	}
	life, err := s.life(body.Timeout, 0, 0)
	if err != nil {
		return 0, nil, err
	}
	if !sandbox.IsRunning() {
		return 0, nil, errUnknown
	}
	return http.StatusNoContent, nil, sandbox.SetEnd(life, false)
}

func (s *Server) connect(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body lifeBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	life, err := s.life(body.Timeout, defaultV2, 1)
	if err != nil {
		return 0, nil, err
	}
	if sandbox.IsRunning() {
		return http.StatusOK, s.answer(sandbox), sandbox.SetEnd(life, true)
	}
	err = sandbox.Resume(c.r.Context(), life, isFalse(body.Memory))
	if tool.KindOf(err) == tool.Conflict { // another client was faster
		return http.StatusOK, s.answer(sandbox), sandbox.SetEnd(life, true)
	}
	return http.StatusCreated, s.answer(sandbox), err
}

func (s *Server) resume(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body lifeBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	life, err := s.life(body.Timeout, defaultV1, 1)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.answer(sandbox), sandbox.Resume(c.r.Context(), life, isFalse(body.Memory))
}

func (s *Server) pause(c call, sandbox *registry.Sandbox) (int, any, error) {
	var body lifeBody
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, sandbox.Pause(c.r.Context(), isFalse(body.Memory))
}

// maxForks is the maximum of forks of one call.
const maxForks = 100

type forked struct {
	Sandbox *sandboxAnswer `json:"sandbox,omitempty"`
	Error   *failure       `json:"error,omitempty"`
}

func (s *Server) fork(c call, sandbox *registry.Sandbox) (int, any, error) {
	body := struct {
		Count   *int   `json:"count"`
		Timeout *int64 `json:"timeout"`
	}{}
	if err := decode(c.r, &body); err != nil {
		return 0, nil, err
	}
	life, err := s.life(body.Timeout, defaultV2, 1)
	if err != nil {
		return 0, nil, err
	}
	count := 1
	if body.Count != nil {
		count = *body.Count
	}
	switch {
	case count < 1 || count > maxForks:
		return 0, nil, fail(http.StatusBadRequest, fmt.Sprintf("count is %d; it must be 1 to %d", count, maxForks))
	case !sandbox.IsRunning():
		return 0, nil, fail(http.StatusConflict, "the sandbox is paused; resume it first")
	}
	all := make([]forked, count)
	for i := range all {
		all[i] = s.forkOnce(c, sandbox, life)
	}
	return http.StatusCreated, all, nil
}

func (s *Server) forkOnce(c call, sandbox *registry.Sandbox, life time.Duration) forked {
	err := s.mayStart(c.key)
	var made *registry.Sandbox
	if err == nil {
		made, err = s.opts.Registry.Fork(c.r.Context(), sandbox, life, s.quota(c.key), s.forkRules)
	}
	if err != nil {
		f := failureOf(err)
		s.note(c.w, f)
		return forked{Error: f}
	}
	a := s.answer(made)
	return forked{Sandbox: &a}
}
