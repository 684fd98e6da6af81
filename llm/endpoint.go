package llm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// EndpointOptions configure an Endpoint.
type EndpointOptions struct {
	// BaseURL is the URL before /chat/completions or /messages, including the version, e.g.
	// https://api.openai.com/v1. Required.
	BaseURL string
	// API is the form of requests and responses: OpenAI, the default, which most model servers
	// understand, or Anthropic.
	API   string
	Model string // required
	// Key is sent as a bearer token, or as X-Api-Key for Anthropic; "" sends none.
	Key string
	// Temperature is sent unless it is nil.
	Temperature *float64
	// MaxTokens bounds one answer if the API requires a bound, as Anthropic's does; default 8192.
	MaxTokens int
	// Client is the HTTP client; nil means one with a time limit of 10 minutes for each call that
	// follows no redirects.
	Client *http.Client
	// Wait is the pause before the second attempt of a call; the pause before the third is twice as
	// long. Default 1 s.
	Wait time.Duration
}

// Endpoint is a Model behind HTTP. A call is attempted up to three times if the endpoint asks for a
// retry (429 or 5xx) or doesn't respond.
type Endpoint struct {
	opts EndpointOptions
	wire wire
	url  string
}

// Bounds of a call to an endpoint.
const (
	maxAnswer        = 8 << 20 // bytes
	callTimeout      = 10 * time.Minute
	maxTries         = 3
	defaultMaxTokens = 8192
)

// NewEndpoint checks the options; it doesn't connect.
func NewEndpoint(opts *EndpointOptions) (*Endpoint, error) {
	e := &Endpoint{opts: *opts}
	u, err := url.Parse(opts.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, tool.Errorf(tool.Invalid, "the base URL must be an absolute http or https URL, https://api.openai.com/v1 for instance").In("base-url")
	}
	if opts.Model == "" {
		return nil, tool.Errorf(tool.Invalid, "the model's name is missing; give it").In("model")
	}
	known := false
	if e.wire, known = wires[cmp.Or(opts.API, OpenAI)]; !known {
		return nil, tool.Errorf(tool.Invalid, "the API must be %s or %s", OpenAI, Anthropic).In("api")
	}
	if e.opts.MaxTokens <= 0 {
		e.opts.MaxTokens = defaultMaxTokens
	}
	if e.opts.Client == nil {
		e.opts.Client = &http.Client{Timeout: callTimeout, CheckRedirect: noRedirect}
	}
	if e.opts.Wait <= 0 {
		e.opts.Wait = time.Second
	}
	e.url = strings.TrimRight(opts.BaseURL, "/") + e.wire.path
	return e, nil
}

// noRedirect keeps the key from a redirect's target.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// errAgain marks errors that the next attempt may avoid.
var errAgain = errors.New("the endpoint could not answer now")

// Complete implements Model. Its error is a *tool.Error of kind unavailable, or the context's.
func (e *Endpoint) Complete(ctx context.Context, messages []Message) (string, error) {
	body, err := json.Marshal(e.wire.request(&e.opts, messages))
	if err != nil {
		return "", err
	}
	wait := e.opts.Wait
	for try := 1; ; try++ {
		text, err := e.call(ctx, body)
		if ctx.Err() != nil {
			return "", tool.AsError(ctx.Err())
		}
		if err == nil {
			return text, nil
		}
		if !errors.Is(err, errAgain) || try == maxTries {
			return "", tool.Errorf(tool.Unavailable, "the model's endpoint gave no answer: %s", plain(err)).Because(err)
		}
		if err := pause(ctx, wait); err != nil {
			return "", err
		}
		wait *= 2
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return tool.AsError(ctx.Err())
	}
}

// statusError is the error of an unsuccessful response.
type statusError struct {
	code int
	next error // errAgain, or nil
}

func (e *statusError) Error() string { return fmt.Sprintf("HTTP status %d", e.code) }
func (e *statusError) Unwrap() error { return e.next }

// plain returns the part of an error that is safe to show: no URL, which may contain a key, and no
// body.
func plain(err error) string {
	if status := (*statusError)(nil); errors.As(err, &status) {
		return status.Error()
	}
	if errors.Is(err, errAgain) {
		return "it could not be reached"
	}
	return err.Error()
}

func (e *Endpoint) call(ctx context.Context, body []byte) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return "", errors.New("the request could not be made")
	}
	req.Header.Set("Content-Type", "application/json")
	e.wire.sign(req.Header, e.opts.Key)
	res, err := e.opts.Client.Do(req)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errAgain, err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", statusOf(res.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", errAgain, err)
	case len(raw) > maxAnswer:
		return "", errForm
	}
	return e.wire.content(raw)
}

func statusOf(code int) error {
	if code == http.StatusTooManyRequests || code >= 500 {
		return &statusError{code, errAgain}
	}
	return &statusError{code, nil}
}
