// Package envd implements, for one session, the API of E2B's clients within a sandbox: programs
// and files, by the Connect protocol with JSON, and /files, /health and /envs. The caller finds the
// sandbox of a request and makes sure that it runs.
package envd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Session is the session of a sandbox: a [wisbox.Session] opened with UserHome.
type Session interface {
	StartAttached(ctx context.Context, cmd sandbox.Cmd, opts *wisbox.ProcessOptions, attach *wisbox.AttachOptions) (*wisbox.ProcessInfo, *wisbox.Attachment, error)
	AttachProcess(ctx context.Context, id string, opts *wisbox.AttachOptions) (*wisbox.Attachment, error)
	Processes(ctx context.Context) ([]wisbox.ProcessInfo, error)
	SignalProcess(ctx context.Context, id, signal string) (*wisbox.ProcessInfo, error)
	WriteProcess(ctx context.Context, id string, data []byte, end bool) error
	ResizeProcess(ctx context.Context, id string, size sandbox.WinSize) error
	Inside() sandbox.FileSystem
}

// Options of [New]. Session and Token are required.
type Options struct {
	// Session runs the programs. The handler keeps no state: after a resume or a restart of the server, a new handler
	// for the same session finds all programs again.
	Session Session
	// Token is the X-Access-Token of requests, and signs URLs of /files.
	Token string
	// Pass serves a request with a valid token or signature; the default just calls next.
	Pass func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
	// Dir is the default directory of programs; default the home.
	Dir string
	// Env is added for every program, any number of variables.
	Env map[string]string
	// Done is closed when the sandbox ends or is paused. Streams are then cut without an end,
	// and later requests get 502. nil means never.
	Done <-chan struct{}
	// Log; default none.
	Log *slog.Logger
	// Quiet returns the text of an error for Log; the default is only its kind.
	Quiet func(error) string
}

// New returns the handler of paths such as /health, /files and /process.Process/Start. It panics
// with [http.ErrAbortHandler] to end a stream that Done cuts. The [httpguard.Guard] in front bounds the time of reads
// and writes.
func New(opts Options) http.Handler {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Quiet == nil {
		opts.Quiet = func(err error) string { return string(tool.KindOf(err)) }
	}
	if opts.Pass == nil {
		opts.Pass = func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) { next(w, r) }
	}
	h := &handler{opts: opts}
	all := http.NewServeMux()
	all.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for pattern, serve := range h.routes() {
		all.HandleFunc(pattern, serve)
	}
	return h.alive(all)
}

// routes returns the routes of requests with the token.
func (h *handler) routes() map[string]http.HandlerFunc {
	all := map[string]http.HandlerFunc{
		"GET /envs":   h.private(func(w http.ResponseWriter, r *http.Request) { writeJSON(w, r, http.StatusOK, struct{}{}) }),
		"GET /files":  h.signed(h.download),
		"POST /files": h.signed(h.upload),
	}
	for name, method := range h.methods() {
		all["POST /"+name] = h.private(method)
	}
	return all
}

type handler struct{ opts Options }

// failed logs an error that a client didn't cause.
func (h *handler) failed(what string, err *tool.Error) {
	said, cause := h.opts.Quiet(err), ""
	if inner := errors.Unwrap(err); inner != nil {
		cause = h.opts.Quiet(inner)
	}
	h.opts.Log.Warn(what, "error", said, "cause", cause)
}

// methods returns the methods of the two services, by their paths.
func (h *handler) methods() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"process.Process/Start":          stream(h, maxMessage, processKeepalive, h.start),
		"process.Process/Connect":        stream(h, maxSmall, processKeepalive, h.connect),
		"process.Process/List":           unary(h, maxSmall, h.list),
		"process.Process/SendSignal":     unary(h, maxSmall, h.sendSignal),
		"process.Process/SendInput":      unary(h, maxMessage, h.sendInput),
		"process.Process/CloseStdin":     unary(h, maxSmall, h.closeStdin),
		"process.Process/Update":         unary(h, maxSmall, h.update),
		"filesystem.Filesystem/Stat":     unary(h, maxSmall, h.stat),
		"filesystem.Filesystem/ListDir":  inTurn(maxLists, unary(h, maxSmall, h.listDir)),
		"filesystem.Filesystem/MakeDir":  unary(h, maxSmall, h.makeDir),
		"filesystem.Filesystem/Move":     unary(h, maxSmall, h.move),
		"filesystem.Filesystem/Remove":   unary(h, maxSmall, h.remove),
		"filesystem.Filesystem/WatchDir": stream(h, maxSmall, watchKeepalive, h.watchDir),
	}
}

var errCut = errors.New("the sandbox has ended or is paused")

// alive cuts running requests when the sandbox ends, and refuses later ones.
func (h *handler) alive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-h.opts.Done:
			writeJSON(w, r, http.StatusBadGateway, refusal{http.StatusBadGateway, "The sandbox was not found"})
			return
		default:
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		over := make(chan struct{})
		defer close(over)
		defer cancel(nil)
		go func() {
			select {
			case <-h.opts.Done:
				cancel(errCut)
				unblock(http.NewResponseController(w))
			case <-over:
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
		if errors.Is(context.Cause(ctx), errCut) {
			unblock(http.NewResponseController(w)) // the server would wait for the rest of a request
			panic(http.ErrAbortHandler)
		}
	})
}

// private requires the token.
func (h *handler) private(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.hasToken(r) {
			w.Header().Set("Connection", "close")
			writeJSON(w, r, http.StatusUnauthorized, wireError{"unauthenticated", "the header X-Access-Token is missing or wrong; it is the sandbox's envdAccessToken"})
			return
		}
		h.opts.Pass(w, r, next)
	}
}

func (h *handler) hasToken(r *http.Request) bool {
	return h.opts.Token != "" && httpguard.Same(r.Header.Get("X-Access-Token"), h.opts.Token)
}

// refusal is an error outside of Connect.
type refusal struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func writeJSON(w http.ResponseWriter, r *http.Request, status int, body any) {
	raw, _, err := httpguard.Marshal(r.Context(), body)
	switch {
	case errors.Is(err, httpguard.ErrBusy):
		status, raw = http.StatusTooManyRequests, []byte(`{"code":"resource_exhausted","message":"this client has too many bytes of requests and answers at once; wait until some have ended, and try again"}`)
	case err != nil:
		status, raw = http.StatusInternalServerError, []byte(`{"code":500,"message":"the answer can't be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", itoa(len(raw)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(raw)
}

const userName = "user"

// checkUser refuses root, which would need rights that programs of wisbox never have.
func checkUser(name string) error {
	switch name {
	case "", userName:
		return nil
	case "root":
		return &wireError{"unauthenticated", "programs never run as root here; leave the user out, or name \"user\""}
	}
	return &wireError{"unauthenticated", "user not found; leave it out, or name \"user\""}
}

// resolve returns a path as the user means it: absolute, below the home, or with "~".
func resolve(p string) (string, error) {
	switch {
	case strings.ContainsRune(p, 0):
		return "", tool.Errorf(tool.Invalid, "the path has a NUL; remove it")
	case p == "~", strings.HasPrefix(p, "~/"):
		p = sandbox.UserHome + p[1:]
	case !path.IsAbs(p):
		p = sandbox.UserHome + "/" + p
	}
	return path.Clean(p), nil
}
