package mcpserver

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// logLine returns a notification of the log; level is "" for another message.
func logLine(t *testing.T, r reply) (level string, line told) {
	t.Helper()
	var m struct {
		Method string
		Params struct {
			Level string
			Data  told
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.Line), &m))
	if m.Method != "notifications/message" {
		return "", told{}
	}
	return m.Params.Level, m.Params.Data
}

func TestTheLogHasALineOfEachCallFromItsLevelOn(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.call(1, "echo", `{"text":"x"}`)
	assert.Equal(t, "1", r.next().ID, "nobody asked for a log")
	r.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"notice"}}`)
	r.next()
	for id, c := range []struct{ tool, args, level, outcome string }{
		{"echo", `{"text":"x"}`, "", ""},
		{"status", `{}`, "notice", "failed"},
		{"refuse", `{}`, "warning", "exists"},
		{"break", `{}`, "error", "internal"},
	} {
		r.call(10+id, c.tool, c.args)
		got := r.next()
		level, line := logLine(t, got)
		assert.Equal(t, c.level, level, c.tool)
		if level != "" {
			assert.Equal(t, []string{c.tool, c.outcome}, []string{line.Tool, line.Outcome})
			assert.NotContains(t, got.Line, "secret")
			got = r.next()
		}
		assert.NotEmpty(t, got.ID, "then comes the answer")
	}
	r.end()
}

func TestALevelThatThereIsNotIsRefused(t *testing.T) {
	r := startReady(t, New(newFakes().set(), nil))
	r.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`)
	assert.NotNil(t, r.next().Error)
	r.end()
}
