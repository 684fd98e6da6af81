package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
)

// verdict says how an agent's run ended. wisbox doesn't take it from the agent's exit code alone:
// some agents end with 0 after an interrupt, or with the status of an API's answer modulo 256.
type verdict struct {
	End    string `json:"end"`
	Signal string `json:"signal,omitempty"`     // of interrupted and signal, without SIG
	Status int    `json:"api_status,omitempty"` // of api_error
}

// The values of verdict.End.
const (
	endFinished    = "finished"
	endFailed      = "failed"      // with an exit code that isn't 0, or it never ran
	endInterrupted = "interrupted" // wisbox got a signal, and passed it on
	endSignal      = "signal"      // a signal ended the agent that wisbox didn't send
	endAPIError    = "api_error"   // the API's last answer to a request for the model was an error
	endLimit       = "limit"       // of time, memory, processes or disk; or the sandbox was lost
)

// judge sets the verdict, and returns the error that the command ends with instead of ran.
func (r *agentReport) judge(interrupt syscall.Signal, ran error) error {
	p := r.Program
	switch {
	case interrupt != 0:
		r.Verdict = verdict{End: endInterrupted, Signal: streams.NameOf(interrupt)}
		return streams.Signalled{Signal: interrupt}
	case p != nil && p.Status == sandbox.StatusSignaled:
		r.Verdict = verdict{End: endSignal, Signal: p.Signal}
		return cmp.Or(ran, error(exitCode(exitError)))
	case p != nil && p.Status != sandbox.StatusExited:
		r.Verdict = verdict{End: endLimit}
	case p != nil && r.answered >= http.StatusBadRequest:
		r.Verdict = verdict{End: endAPIError, Status: r.answered}
		return exitCode(exitError)
	case ran != nil:
		r.Verdict = verdict{End: endFailed}
	default:
		r.Verdict = verdict{End: endFinished}
	}
	return ran
}

// text returns the verdict as a sentence, or "" if the exit code says it all.
func (v verdict) text(agent string) string {
	switch v.End {
	case endInterrupted:
		return "it was interrupted by " + v.Signal
	case endSignal:
		return agent + " was ended by the signal " + v.Signal
	case endAPIError:
		return fmt.Sprintf("the API's last answer was the error %d %s", v.Status, http.StatusText(v.Status))
	}
	return ""
}

// readAnswers looks up the status of the API's last answer.
func (a *app) readAnswers(r *agentReport) error {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.EgressLog(r.Session, func(line []byte) error {
		var l egress.Line
		if json.Unmarshal(line, &l) == nil {
			r.answer(&l)
		}
		return nil
	})
}

// models are the ends of paths of requests for a model. Agents send other requests to the same host,
// e.g. with statistics, whose answers say nothing about the task.
var models = []string{"/messages", "/responses", "/completions", ":generatecontent", ":streamgeneratecontent"}

// answer takes the status of an answer from the API to a request for a model in this run.
func (r *agentReport) answer(l *egress.Line) {
	if r.server == nil || l.Host != r.server.Hostname() || l.Method != http.MethodPost || l.Status == 0 || l.Time.Before(r.Began) {
		return
	}
	path := strings.ReplaceAll(strings.ToLower(l.Path), "%3a", ":")
	for _, end := range models {
		if path == "" || strings.HasSuffix(path, end) { // without TLS the log has no paths
			r.answered = l.Status
			return
		}
	}
}

// neverRan reports whether an error of the agent's run is wisbox's, not the program's or a signal's.
func neverRan(err error) bool {
	passed, sig := exitCode(0), streams.Signalled{}
	return err != nil && !errors.As(err, &passed) && !errors.As(err, &sig) && !errors.Is(err, context.Canceled)
}
