package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

// failure is an error in the form of the API's answers. Clients read the code from the body.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`

	after time.Duration // when to try again
	cause error         // for the log
}

func (f *failure) Error() string { return f.Message }
func (f *failure) Unwrap() error { return f.cause }

func fail(code int, message string) *failure { return &failure{Code: code, Message: message} }

var (
	errNoKey   = fail(http.StatusUnauthorized, "the API key is missing or wrong; give one that `wisbox serve key create` printed, as E2B_API_KEY")
	errUnknown = fail(http.StatusNotFound, "the sandbox was not found")
)

// busyAfter is the time after which a client may try again when the server or its share of it is full.
const busyAfter = httpguard.RetryAfter

// codes are the statuses of errors that a client can act on.
var codes = map[tool.Kind]int{
	tool.Invalid: http.StatusBadRequest, tool.NotFound: http.StatusNotFound, tool.Exists: http.StatusConflict,
	tool.Conflict: http.StatusConflict, tool.Limit: http.StatusTooManyRequests, tool.TooLarge: http.StatusRequestEntityTooLarge,
	tool.NoSpace: http.StatusServiceUnavailable, tool.Busy: http.StatusServiceUnavailable, tool.Timeout: http.StatusServiceUnavailable,
	tool.Unavailable: http.StatusServiceUnavailable, tool.Unsupported: http.StatusNotImplemented, tool.Closed: http.StatusNotFound,
}

// StatusOf returns the status of an error for logs, 200 for nil.
func StatusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case tool.KindOf(err) == tool.Permission:
		return http.StatusForbidden
	}
	return failureOf(err).Code
}

// failureOf returns an error as clients see it, without details of this machine.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fail(http.StatusRequestEntityTooLarge, "the body has more than 1 MiB; send less")
	}
	if errors.Is(err, context.Canceled) {
		return &failure{Code: http.StatusServiceUnavailable, Message: "the request was cancelled, or the server is being stopped; try again", after: busyAfter, cause: err}
	}
	known := tool.AsError(err)
	code, ok := codes[known.Kind]
	if !ok {
		return &failure{Code: http.StatusInternalServerError, Message: "wisbox failed in a way that it did not expect; the server's log says more", cause: err}
	}
	f := &failure{Code: code, Message: known.Message, cause: err}
	if known.Kind == tool.Unavailable { // the message is for the server's operator
		f.Message = "the server can't do this now; try again, and if the error stays ask the server's operator, whose log has the cause"
	}
	if code == http.StatusServiceUnavailable || errors.Is(err, httpguard.ErrBusy) {
		f.after = busyAfter
	}
	return f
}

func writeFailure(w http.ResponseWriter, f *failure) {
	if f.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.after.Seconds()))))
	}
	if f.Code == http.StatusUnauthorized || f.Code == http.StatusRequestEntityTooLarge || f.after > 0 {
		w.Header().Set("Connection", "close") // a body may still be on its way
	}
	writeJSON(w, f.Code, f)
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		code, raw = http.StatusInternalServerError, []byte(`{"code":500,"message":"the answer can't be written"}`)
	}
	writeRaw(w, code, raw)
}

func writeRaw(w http.ResponseWriter, code int, raw []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}

// decode reads a JSON object; an absent body counts as an empty object. It ignores unknown members, which clients of
// other versions send.
func decode(r *http.Request, into any) error {
	raw, free, err := httpguard.ReadBody(r, maxBody)
	defer free()
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large || errors.Is(err, httpguard.ErrBusy) {
			return err
		}
		return fail(http.StatusBadRequest, "the body is incomplete; send the request again")
	}
	if len(raw) == 0 {
		return nil
	}
	err = json.Unmarshal(raw, into)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fail(http.StatusBadRequest, "the field "+strconv.Quote(wrong.Field)+" is a JSON "+wrong.Value+"; see the client's documentation for its type")
	}
	if err != nil {
		return fail(http.StatusBadRequest, "the body is not a JSON object")
	}
	return nil
}
