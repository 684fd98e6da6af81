package main

import (
	"encoding/json"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/sandbox"
)

func TestAVerdictDoesNotRestOnTheAgentsExitCode(t *testing.T) {
	began := time.Now()
	answer := func(path string, status int) egress.Line {
		return egress.Line{Time: began.Add(time.Second), Event: "request", Kind: "https", Host: "api.example.com", Port: 443, Method: "POST", Path: path, Status: status}
	}
	exited := func(code int) *programResult { return &programResult{ExitCode: code, Status: sandbox.StatusExited} }
	const gemini = "/v1beta/models/gemini-3-pro:streamGenerateContent"
	for name, c := range map[string]struct {
		program   *programResult
		ran       error
		interrupt syscall.Signal
		log       []egress.Line
		want      verdict
		code      int
	}{
		"nothing unusual":            {program: exited(0), want: verdict{End: "finished"}},
		"an exit code":               {program: exited(3), ran: exitCode(3), want: verdict{End: "failed"}, code: 3},
		"an interrupt that it hides": {program: exited(0), interrupt: syscall.SIGINT, want: verdict{End: "interrupted", Signal: "INT"}, code: 130},
		"TERM, then killed late":     {program: &programResult{ExitCode: 137, Status: sandbox.StatusCancelled}, ran: streams.Late{Signalled: streams.Signalled{Signal: syscall.SIGTERM}}, interrupt: syscall.SIGTERM, want: verdict{End: "interrupted", Signal: "TERM"}, code: 143},
		"a signal at a terminal":     {ran: streams.Signalled{Signal: syscall.SIGHUP}, interrupt: syscall.SIGHUP, want: verdict{End: "interrupted", Signal: "HUP"}, code: 129},
		"a signal of its own":        {program: &programResult{ExitCode: 139, Status: sandbox.StatusSignaled, Signal: "SEGV"}, ran: exitCode(139), want: verdict{End: "signal", Signal: "SEGV"}, code: 139},
		"a limit of time":            {program: &programResult{ExitCode: 124, Status: sandbox.StatusTimedOut}, ran: exitCode(124), want: verdict{End: "limit"}, code: 124},
		"a status modulo 256": {
			program: exited(145), ran: exitCode(145), log: []egress.Line{answer(gemini, 401)}, want: verdict{End: "api_error", Status: 401}, code: 1,
		},
		"a status of 512 modulo 256": {
			program: exited(0), log: []egress.Line{answer("/v1beta/models/m%3AgenerateContent", 512)}, want: verdict{End: "api_error", Status: 512}, code: 1,
		},
		"an error, and 0": {program: exited(0), log: []egress.Line{answer("/v1/messages", 200), answer("/v1/messages", 529)}, want: verdict{End: "api_error", Status: 529}, code: 1},
		"an error that a retry overcame": {
			program: exited(0), log: []egress.Line{answer("/v1/messages", 529), answer("/v1/messages", 200)}, want: verdict{End: "finished"},
		},
		"statistics that nobody took":  {program: exited(0), log: []egress.Line{answer("/v1/responses", 200), answer("/api/event_logging/batch", 404)}, want: verdict{End: "finished"}},
		"an error of plain HTTP":       {program: exited(0), log: []egress.Line{answer("", 500)}, want: verdict{End: "api_error", Status: 500}, code: 1},
		"an error of an earlier run":   {program: exited(0), log: []egress.Line{{Time: began.Add(-time.Hour), Event: "request", Host: "api.example.com", Method: "POST", Path: "/v1/messages", Status: 500}}, want: verdict{End: "finished"}},
		"an error of another host":     {program: exited(0), log: []egress.Line{{Time: began, Event: "request", Host: "other.example.com", Method: "POST", Path: "/v1/messages", Status: 500}}, want: verdict{End: "finished"}},
		"an error, but an interrupt":   {program: exited(1), ran: exitCode(1), interrupt: syscall.SIGINT, log: []egress.Line{answer("/v1/messages", 500)}, want: verdict{End: "interrupted", Signal: "INT"}, code: 130},
		"an error before the time ran": {program: &programResult{Status: sandbox.StatusTimedOut}, ran: exitCode(124), log: []egress.Line{answer("/v1/messages", 500)}, want: verdict{End: "limit"}, code: 124},
	} {
		t.Run(name, func(t *testing.T) {
			r := &agentReport{Agent: "claude", Began: began, Program: c.program, server: &url.URL{Scheme: "https", Host: "api.example.com"}}
			for _, l := range c.log {
				line, err := json.Marshal(l)
				require.NoError(t, err)
				require.NoError(t, r.connection(line))
			}
			ended := r.judge(c.interrupt, c.ran)
			assert.Equal(t, c.want, r.Verdict)
			assert.Equal(t, c.code, (&app{}).report(t.Context(), ended))
			assert.False(t, neverRan(ended), "a report is due")
		})
	}
}
