package lisp

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const goodAnswer = `{"id":"i","outcome":"done","out_dropped":0,"package":"P","values":[{"text":"3","dropped":0}],"warnings":[{"type":"W","message":"m"}]}`

func TestAnswersThatBreakTheProtocolAreRefused(t *testing.T) {
	_, err := parseAnswer([]byte(goodAnswer), "i")
	require.NoError(t, err)
	for name, body := range map[string]string{
		"empty":           ``,
		"no object":       `[]`,
		"two":             goodAnswer + goodAnswer,
		"other id":        strings.Replace(goodAnswer, `"i"`, `"j"`, 1),
		"unknown field":   strings.Replace(goodAnswer, `"id"`, `"extra":1,"id"`, 1),
		"unknown outcome": strings.Replace(goodAnswer, `done`, `timed_out`, 1),
		"error without":   strings.Replace(goodAnswer, `done`, `error`, 1),
		"negative count":  strings.Replace(goodAnswer, `"out_dropped":0`, `"out_dropped":-1`, 1),
		"negative value":  strings.Replace(goodAnswer, `"dropped":0}`, `"dropped":-1}`, 1),
		"wrong type":      strings.Replace(goodAnswer, `"3"`, `3`, 1),
		"too many values": `{"id":"i","outcome":"done","values":[` + strings.Repeat(`{"text":""},`, maxItems) + `{"text":""}]}`,
	} {
		_, err := parseAnswer([]byte(body), "i")
		assert.ErrorIs(t, err, errAnswer, name)
	}
}

func FuzzParseAnswerNeverPanicsAndKeepsItsBounds(f *testing.F) {
	f.Add([]byte(goodAnswer))
	f.Add([]byte(`{"id":"i","outcome":"error","error":{"type":"T","message":"m","backtrace":["a","b"]},"timing":{"real_us":1}}`))
	f.Add([]byte(`{"id":"i","outcome":"done","forms":1,"position":3,"problem":{"type":"T"},"entries":[{"name":"A","kinds":["class"]}],"total":1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body, "i")
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(a.Values), maxItems)
		rep := &reply{answer: *a, status: StatusOK}
		e := rep.evaluation(request{})
		_ = e.Text()
		_ = Timed{e}.Text()
		_ = Compilation{OK: true, Errors: a.Errors, Warnings: a.Warnings, Notes: a.Notes}.Text()
		_ = Listing{Entries: a.Entries, Total: a.Total, Packages: a.Packages}.Text()
		line, column := place("(a)\n(b", a.Position)
		require.GreaterOrEqual(t, min(line, column), 1)
	})
}

func FuzzARequestIsOneReadableForm(f *testing.F) {
	f.Add("(+ 1 2)", "p", "n")
	f.Add(`"\"`, `\`, "\x00")
	f.Fuzz(func(t *testing.T, code, pkg, name string) {
		message := request{op: opEvaluate, Code: code, Package: pkg, Name: name}.encode("i", 0)[4:]
		inString, depth := false, 0
		for i := 0; i < len(message); i++ {
			switch c := message[i]; {
			case inString && c == '\\':
				i++
			case c == '"':
				inString = !inString
			case !inString && c == '(':
				depth++
			case !inString && c == ')':
				depth--
				require.Equal(t, len(message)-1, i, "the form ends with the message")
			}
		}
		require.False(t, inString)
		require.Zero(t, depth)
	})
}
