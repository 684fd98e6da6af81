package python

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/evaltool/python/driver"
)

func TestAnswersThatBreakTheProtocolAreRefused(t *testing.T) {
	good := `{"id":"i","status":"exited","globals":{"x":"1","y":"!repr:{1}"},"writes":[{"path":"a","mode":"append","content":"x"}]}`
	_, err := parseAnswer([]byte(good), "i")
	require.NoError(t, err)
	for name, body := range map[string]string{
		"empty":           ``,
		"no object":       `[]`,
		"two":             good + good,
		"other id":        strings.Replace(good, `"i"`, `"j"`, 1),
		"unknown field":   strings.Replace(good, `"id"`, `"extra":1,"id"`, 1),
		"unknown status":  strings.Replace(good, `exited`, `timed_out`, 1),
		"wrong type":      strings.Replace(good, `"1"`, `1`, 1),
		"global no JSON":  strings.Replace(good, `"1"`, `"{"`, 1),
		"mode":            strings.Replace(good, `append`, `w`, 1),
		"negative count":  strings.Replace(good, `"id"`, `"globals_dropped":-1,"id"`, 1),
		"mime":            strings.Replace(good, `"id"`, `"display":[{"mime":"text/html\n","data":""}],"id"`, 1),
		"count":           strings.Replace(good, `"id"`, `"count":-1,"id"`, 1),
		"no such display": strings.Replace(good, `"id"`, `"results":[{"display":[0]}],"id"`, 1),
		"negative index":  strings.Replace(good, `"id"`, `"display":[{"mime":"text/html","data":""}],"results":[{"display":[-1]}],"id"`, 1),
		"long result":     strings.Replace(good, `"id"`, `"results":[{"text":"`+strings.Repeat("x", 4097)+`"}],"id"`, 1),
		"data no JSON":    strings.Replace(good, `"id"`, `"results":[{"data":"{"}],"id"`, 1),
		"chart no object": strings.Replace(good, `"id"`, `"results":[{"chart":"[]"}],"id"`, 1),
		"many results":    `{"id":"i","status":"exited","results":[` + strings.Repeat(`{},`, 32) + `{}]}`,
		"too many writes": `{"id":"i","status":"exited","writes":[` + strings.Repeat(`{"path":"a","mode":"append","content":""},`, 64) + `{"path":"a","mode":"append","content":""}]}`,
	} {
		_, err := parseAnswer([]byte(body), "i")
		assert.ErrorIs(t, err, driver.ErrAnswer, name)
	}
}

func FuzzParseAnswerNeverPanicsAndKeepsItsBounds(f *testing.F) {
	f.Add([]byte(`{"id":"i","status":"exited","value":"2"}`))
	f.Add([]byte(`{"id":"i","status":"exited","display":[{"mime":"image/png","data":"?"},{"mime":"text/html","data":"x"}],"results":[{"display":[0,1],"chart":"{}"}]}`))
	f.Add([]byte(`{"id":"i","status":"exception","display":[{"mime":"image/png","data":"x"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body, "i")
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(a.Writes), driver.MaxWrites)
		var resp evaltool.Response
		a.Fill(&resp)
		require.LessOrEqual(t, len(resp.Display), driver.MaxDisplays)
		for _, r := range resp.Results {
			for _, i := range r.Display {
				require.Less(t, i, len(resp.Display))
			}
		}
	})
}

func TestTheDriverIsOneProgram(t *testing.T) {
	assert.Contains(t, program().Source, "def main(inp, out):")
	assert.Equal(t, evaltool.SandboxContainer, "container")
}
