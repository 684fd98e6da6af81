package redact_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/internal/redact"
)

func of(values ...string) *redact.Redactor {
	var raw [][]byte
	for _, v := range values {
		raw = append(raw, []byte(v))
	}
	return redact.New(raw...)
}

func TestAValueIsCoveredAndTheRestStays(t *testing.T) {
	r := of("hunter2hunter2\n", `with "quotes" in it`)
	for text, want := range map[string]string{
		"":                                     "",
		"nothing here":                         "nothing here",
		"a hunter2hunter2 b":                   "a ************** b",
		"hunter2hunter2hunter2hunter2":         strings.Repeat("*", 28),
		"hunter2hunter2hunter2":                strings.Repeat("*", 21), // it occurs twice, overlapping
		`{"k":"with \"quotes\" in it"}`:        `{"k":"` + strings.Repeat("*", 21) + `"}`,
		"hunter2":                              "hunter2",
		"x with \"quotes\" in it and the rest": "x ******************* and the rest",
	} {
		assert.Equal(t, want, r.Text(text))
	}
}

func TestEachLineOfALongSecretCounts(t *testing.T) {
	r := of("-----BEGIN KEY-----\nQUJDREVGR0g=\nshort\n-----END KEY-----\n")
	assert.Equal(t, "3: ************", r.Text("3: QUJDREVGR0g="))
	assert.Equal(t, "short", r.Text("short"))
}

func TestWhatIsTooShortIsNotFindable(t *testing.T) {
	assert.False(t, redact.Findable([]byte("1234567\n")))
	assert.True(t, redact.Findable([]byte("12345678\n")))
	var none *redact.Redactor
	assert.Equal(t, "1234567", none.Text("1234567"))
	assert.Nil(t, of("1234567", ""))
}

func TestAResultKeepsItsType(t *testing.T) {
	type result struct {
		Text  string            `json:"text"`
		Size  int               `json:"size"`
		Names map[string]string `json:"names"`
		List  []string          `json:"list"`
	}
	r := of("12345678", `a"b\c<d>e`)
	in := result{"it is 12345678.", 12345678, map[string]string{"12345678": `a"b\c<d>e`}, []string{"x"}}
	out, ok := r.Value(&in).(*result)
	require.True(t, ok)
	assert.Equal(t, result{"it is ********.", 12345678, map[string]string{"********": "*********"}, []string{"x"}}, *out)
	assert.Equal(t, "it is 12345678.", in.Text, "what was given is not changed")
	untouched := &result{Text: "x"}
	assert.Same(t, untouched, r.Value(untouched))
	raw := r.Value(json.RawMessage(`{"a":"12345678"}`))
	assert.JSONEq(t, `{"a":"********"}`, string(raw.(json.RawMessage)))
}

// stream writes text in the pieces given by cuts.
func stream(t require.TestingT, r *redact.Redactor, text string, cuts []int, all int64) string {
	var out bytes.Buffer
	w := r.NewWriter(&out)
	for _, n := range cuts {
		n = min(n, len(text))
		_, err := w.Write([]byte(text[:n]))
		require.NoError(t, err)
		text = text[n:]
	}
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close(all))
	return out.String()
}

// A stream that is cut into chunks in any way gives the same output as the whole text.
func TestChunksDontMatter(t *testing.T) {
	r := of("abababab", "bbbbbbbbb", "ababababX\nxyzxyzxyz")
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abXxyz\n")), 0, 60, -1).Draw(rt, "text")
		cuts := rapid.SliceOf(rapid.IntRange(0, 9)).Draw(rt, "cuts")
		require.Equal(rt, r.Text(text), stream(rt, r, text, cuts, int64(len(text))))
	})
}

func TestNothingWaitsThatCantBecomeAValue(t *testing.T) {
	var out bytes.Buffer
	w := of("hunter2hunter2").NewWriter(&out)
	_, err := w.Write([]byte("password: "))
	require.NoError(t, err)
	assert.Equal(t, "password: ", out.String())
	_, err = w.Write([]byte("hunt"))
	require.NoError(t, err)
	assert.Equal(t, "password: ", out.String())
	_, err = w.Write([]byte("ing"))
	require.NoError(t, err)
	assert.Equal(t, "password: hunting", out.String())
}

func TestAValueThatWasCutOffIsCovered(t *testing.T) {
	r := of("hunter2hunter2")
	assert.Equal(t, "key ******", stream(t, r, "key hunter", nil, 1000))
	assert.Equal(t, "key hunter", stream(t, r, "key hunter", nil, 10))
	assert.Equal(t, "******* rest", string(r.Tail([]byte("hunter2 rest"))))
	assert.Equal(t, "rest ******", r.Head("rest hunter"))
	assert.Equal(t, "rest hun", r.Head("rest hun"), "too little to tell")
	assert.Equal(t, "r2 rest", string(r.Tail([]byte("r2 rest"))), "too little to tell")
	assert.Equal(t, "x **************", string(r.Tail([]byte("x hunter2hunter2"))))
}

func TestBytesOfAPieceAreCovered(t *testing.T) {
	r := redact.New([]byte("0123456789"))
	for in, want := range map[string]string{
		"a\x00 0123456789 z": "a\x00 ********** z", "456789 z": "****** z", "a 012345": "a ******", "3456": "****", "345": "345",
		"0123456789": "**********", "": "", "x0123": "x****",
	} {
		require.Equal(t, want, string(r.Bytes([]byte(in))), in)
	}
}

// TestAStreamThatContinuesBeginsWithoutTheEndOfAValue.
func TestAStreamThatContinuesBeginsWithoutTheEndOfAValue(t *testing.T) {
	r := redact.New([]byte("hunter22-secret"))
	var out bytes.Buffer
	w := r.NewWriter(&out)
	w.Continues()
	for _, part := range []string{"22-secret and ", "22-secret, hunter22-", "secret\n"} {
		_, err := w.Write([]byte(part))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close(100))
	assert.Equal(t, "********* and 22-secret, ***************\n", out.String())
}
