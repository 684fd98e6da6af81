package envd

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/serve/e2b/internal/signature"
	"github.com/wisbox/wisbox/tool"
)

// Bounds of an upload in parts.
const (
	maxParts    = 20_000
	maxPartHead = 64 << 10 // bytes of a part's header; the reader itself holds up to 10 MiB
)

// Bytes of a refused upload that are read, so that its client gets the answer.
const (
	maxDrained         = 4 << 30
	maxStrangerDrained = 256 << 10 // of an unauthorized client
)

// signed requires the token, or a signature made with it.
func (h *handler) signed(next func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.mayUse(r); err != nil {
			refuseStranger(w, r, err)
			return
		}
		h.opts.Pass(w, r, func(w http.ResponseWriter, r *http.Request) {
			if err := next(w, r); err != nil {
				h.refuse(w, r, err)
			}
		})
	}
}

func (h *handler) mayUse(r *http.Request) *refused {
	q := r.URL.Query()
	switch {
	case h.hasToken(r):
	case !q.Has("signature"):
		return &refused{http.StatusUnauthorized, "give the header X-Access-Token, or a signature"}
	case !signature.By(h.opts.Token, r):
		return &refused{http.StatusUnauthorized, "invalid signature"}
	case q.Get("signature_expiration") != "":
		until, err := strconv.ParseInt(q.Get("signature_expiration"), 10, 64)
		if err != nil || until < time.Now().Unix() {
			return &refused{http.StatusUnauthorized, "signature is already expired"}
		}
	}
	if err := checkUser(q.Get("username")); err != nil {
		return &refused{http.StatusUnauthorized, "user not found; leave username out, or give \"user\""}
	}
	return nil
}

// refused is an error with its HTTP status.
type refused struct {
	status  int
	message string
}

func (e *refused) Error() string { return e.message }

var errBadForm = &refused{http.StatusBadRequest, "the body is not multipart/form-data, or is incomplete"}

var fileStatuses = map[tool.Kind]int{
	tool.NotFound: 404, tool.NoSpace: 507, tool.Permission: 403, tool.Limit: 429, tool.Unavailable: 503, tool.Busy: 503, tool.Closed: 503,
	tool.Invalid: 400, tool.IsDir: 400, tool.NotDir: 400, tool.NotRegular: 400, tool.Exists: 409, tool.Conflict: 409, tool.Unsupported: 400,
}

// refuseStranger answers an unauthorized client. The server in front limits its time.
func refuseStranger(w http.ResponseWriter, r *http.Request, err *refused) {
	_, _ = io.CopyN(io.Discard, r.Body, maxStrangerDrained)
	w.Header().Set("Connection", "close")
	writeJSON(w, r, err.status, refusal{err.status, err.message})
}

// refuse answers with an error, once the client has sent its request.
func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	own := (*refused)(nil)
	if !errors.As(err, &own) {
		said := tool.AsError(err)
		own = &refused{fileStatuses[said.Kind], said.Message}
		if own.status == 0 {
			own.status = http.StatusInternalServerError
			h.failed("a file of a sandbox could not be served", said)
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) { // it has sent nothing for long enough
		w.Header().Set("Connection", "close")
	} else {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxDrained))
	}
	writeJSON(w, r, own.status, refusal{own.status, own.message})
}

// download sends a file's content. A browser must never show it as a page of the server.
func (h *handler) download(w http.ResponseWriter, r *http.Request) error {
	at, err := resolve(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	f, err := h.opts.Session.Inside().Open(r.Context(), at, sandbox.OpenOptions{})
	if err != nil {
		return err
	}
	defer f.Close()
	size := f.Info().Size
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(at)}))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.WriteHeader(http.StatusOK)
	if _, err := io.CopyN(w, f, size); err != nil {
		panic(http.ErrAbortHandler) // the file has become shorter, or the client reads nothing
	}
	return nil
}

// written is one file of an upload's answer.
type written struct {
	Name     string            `json:"name"`
	Path     string            `json:"path"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// cost returns the most bytes that the file takes in the answer, in which each may be an escape.
func (f *written) cost() int64 {
	const around, escaped = 128, len(`\u0000`)
	n := len(f.Name) + len(f.Path)
	for key, value := range f.Metadata {
		n += len(key) + len(value)
	}
	return int64(around + escaped*n)
}

func (h *handler) upload(w http.ResponseWriter, r *http.Request) error {
	body, err := plain(r)
	if err != nil {
		return err
	}
	form, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var all []written
	switch {
	case err == nil && form == "multipart/form-data" && params["boundary"] != "":
		heads := &headReader{r: body, last: []byte("--" + params["boundary"] + "--")}
		all, err = h.storeParts(r, multipart.NewReader(heads, params["boundary"]), heads)
	case err == nil && form == "application/octet-stream" && r.URL.Query().Get("path") == "":
		err = &refused{http.StatusBadRequest, "the query needs a path"}
	case err == nil && form == "application/octet-stream":
		all, err = h.store(r, r.URL.Query().Get("path"), body)
	default:
		err = &refused{http.StatusUnsupportedMediaType, "the content must be multipart/form-data or application/octet-stream"}
	}
	if err != nil {
		return err
	}
	writeJSON(w, r, http.StatusOK, all)
	return nil
}

// plain returns the decompressed body.
func plain(r *http.Request) (io.Reader, error) {
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, &refused{http.StatusBadRequest, "the body is not gzip"}
		}
		return body, nil
	}
	return nil, &refused{http.StatusUnsupportedMediaType, "the body may be compressed with gzip only"}
}

// headReader bounds the headers of parts, and notes the last boundary: the package multipart returns io.EOF for a body that
// ends within a header too.
type headReader struct {
	r     io.Reader
	head  bool // a header is being read
	left  int
	last  []byte // the last boundary
	seen  []byte // the end of what was read
	ended bool   // last was read
}

var errPartHead = errors.New("the header of a part is too large")

func (h *headReader) Read(p []byte) (int, error) {
	if h.head {
		if h.left <= 0 {
			return 0, errPartHead
		}
		p = p[:min(len(p), h.left)]
	}
	n, err := h.r.Read(p)
	if h.head {
		h.left -= n
	}
	h.seen = append(h.seen, p[:n]...)
	h.ended = h.ended || bytes.Contains(h.seen, h.last)
	h.seen = h.seen[max(0, len(h.seen)-len(h.last)):]
	return n, err
}

func (h *headReader) next(parts *multipart.Reader) (*multipart.Part, error) {
	h.head, h.left = true, maxPartHead
	defer func() { h.head = false }()
	return parts.NextRawPart()
}

// upload is the files of one multipart request.
type upload struct {
	r     *http.Request
	parts *multipart.Reader
	heads *headReader
	n     int
	files []written
	err   error // of the request, not of the files
}

// storeParts writes all files of a request, or none.
func (h *handler) storeParts(r *http.Request, parts *multipart.Reader, heads *headReader) ([]written, error) {
	u := &upload{r: r, parts: parts, heads: heads, files: []written{}}
	opts := options(r)
	opts.How = sandbox.WriteSeveral
	err := h.opts.Session.Inside().Write(r.Context(), "/", sandbox.Several(u.next), opts)
	if err = cmp.Or(u.err, err); err != nil {
		return nil, noneWritten(err, u.n)
	}
	return u.files, nil
}

// next returns the next file and its path.
func (u *upload) next() (string, io.Reader, error) {
	path, content, err := u.part()
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return path, content, err
}

func (u *upload) part() (string, io.Reader, error) {
	for ; ; u.n++ {
		if u.n > maxParts {
			return "", nil, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload has more than %d parts; send fewer at once", maxParts)}
		}
		part, err := u.heads.next(u.parts)
		if errors.Is(err, io.EOF) && u.heads.ended {
			return "", nil, io.EOF
		}
		if err != nil {
			return "", nil, errBadForm
		}
		_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition")) // FileName cuts directories
		if err != nil {
			return "", nil, &refused{http.StatusBadRequest, "the name of a part can't be read; each part needs Content-Disposition: form-data; name=\"file\"; filename=\"…\""}
		}
		if params["name"] != "file" {
			if _, err := io.Copy(io.Discard, part); err != nil {
				return "", nil, errBadForm
			}
			continue
		}
		to := cmp.Or(u.r.URL.Query().Get("path"), params["filename"])
		if to == "" {
			return "", nil, &refused{http.StatusBadRequest, "a part has no filename, and the query no path"}
		}
		at, err := resolve(to)
		if err != nil {
			return "", nil, err
		}
		file := fileAt(u.r, at)
		if err := httpguard.Take(u.r.Context(), file.cost()); err != nil {
			return "", nil, err
		}
		u.n++
		u.files = append(u.files, file)
		return at, &incoming{r: part, failed: &u.err}, nil
	}
}

// noneWritten says in an error of several files that none of them was written.
func noneWritten(err error, files int) error {
	if files < 2 {
		return err
	}
	const none = "; none of the files was written"
	if own := (*refused)(nil); errors.As(err, &own) {
		return &refused{own.status, own.message + none}
	}
	said := *tool.AsError(err)
	said.Message += none
	return &said
}

func fileAt(r *http.Request, at string) written {
	return written{Name: path.Base(at), Path: at, Type: "file", Metadata: metadataIn(r.Header)}
}

func options(r *http.Request) sandbox.WriteOptions {
	opts := sandbox.WriteOptions{Parents: true, Attrs: map[string]string{}}
	for key, value := range metadataIn(r.Header) {
		opts.Attrs[attrPrefix+key] = value
	}
	return opts
}

// store writes one file, whole or not at all.
func (h *handler) store(r *http.Request, to string, content io.Reader) ([]written, error) {
	at, err := resolve(to)
	if err != nil {
		return nil, err
	}
	var failed error
	err = h.opts.Session.Inside().Write(r.Context(), at, &incoming{r: content, failed: &failed}, options(r))
	return []written{fileAt(r, at)}, cmp.Or(failed, err)
}

// incoming notes that a client's content was incomplete.
type incoming struct {
	r      io.Reader
	failed *error
}

func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*i.failed = &refused{http.StatusBadRequest, "the body is incomplete or badly compressed"}
	}
	return n, err
}

// metadataIn returns the headers X-Metadata-KEY.
func metadataIn(h http.Header) map[string]string {
	var out map[string]string
	for name, values := range h {
		key, ok := strings.CutPrefix(strings.ToLower(name), "x-metadata-")
		if !ok || key == "" || len(values) == 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = values[0]
	}
	return out
}
