package envd

import (
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

func (h *handler) upload(w http.ResponseWriter, r *http.Request) error {
	body, err := plain(r)
	if err != nil {
		return err
	}
	form, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	var all []written
	switch {
	case err == nil && form == "multipart/form-data" && params["boundary"] != "":
		heads := &headReader{r: body}
		all, err = h.storeParts(r, multipart.NewReader(heads, params["boundary"]), heads)
	case err == nil && form == "application/octet-stream" && r.URL.Query().Get("path") == "":
		err = &refused{http.StatusBadRequest, "the query needs a path"}
	case err == nil && form == "application/octet-stream":
		all, err = h.store(r, nil, r.URL.Query().Get("path"), body)
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

// headReader bounds the headers of parts.
type headReader struct {
	r    io.Reader
	head bool // a header is being read
	left int
}

var errPartHead = errors.New("the header of a part is too large")

func (h *headReader) Read(p []byte) (int, error) {
	if !h.head {
		return h.r.Read(p)
	}
	if h.left <= 0 {
		return 0, errPartHead
	}
	n, err := h.r.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}

func (h *headReader) next(parts *multipart.Reader) (*multipart.Part, error) {
	h.head, h.left = true, maxPartHead
	defer func() { h.head = false }()
	return parts.NextRawPart()
}

func (h *handler) storeParts(r *http.Request, parts *multipart.Reader, heads *headReader) ([]written, error) {
	all := []written{}
	for n := 0; ; n++ {
		if n > maxParts {
			return nil, &refused{http.StatusRequestEntityTooLarge, fmt.Sprintf("the upload has more than %d parts; send fewer at once", maxParts)}
		}
		part, err := heads.next(parts)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, errBadForm
		}
		_, params, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition")) // FileName cuts directories
		if params["name"] != "file" {
			if _, err := io.Copy(io.Discard, part); err != nil {
				return nil, errBadForm
			}
			continue
		}
		to := r.URL.Query().Get("path")
		if to == "" {
			to = params["filename"]
		}
		if to == "" {
			return nil, &refused{http.StatusBadRequest, "a part has no filename, and the query no path"}
		}
		if all, err = h.store(r, all, to, part); err != nil {
			return nil, err
		}
	}
}

// store writes one file, whole or not at all.
func (h *handler) store(r *http.Request, before []written, to string, content io.Reader) ([]written, error) {
	at, err := resolve(to)
	if err != nil {
		return nil, err
	}
	one := written{Name: path.Base(at), Path: at, Type: "file", Metadata: metadataIn(r.Header)}
	opts := sandbox.WriteOptions{Parents: true, Attrs: map[string]string{}}
	for key, value := range one.Metadata {
		opts.Attrs[attrPrefix+key] = value
	}
	source := &incoming{r: content}
	err = h.opts.Session.Inside().Write(r.Context(), at, source, opts)
	if source.err != nil {
		err = &refused{http.StatusBadRequest, "the body is incomplete or badly compressed"}
	}
	return append(before, one), err
}

// incoming remembers whether a client's content was incomplete.
type incoming struct {
	r   io.Reader
	err error
}

func (i *incoming) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		i.err = err
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
