package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLinesStayWhereThereIsNoTerminal(t *testing.T) {
	var out strings.Builder
	a := &app{err: &out}
	err := a.watched(func(say func(string)) error {
		say("STEP 1/2: FROM x")
		say("\x1b[2J\u202eevil")
		return nil
	})
	assert.NoError(t, err)
	assert.Equal(t, "STEP 1/2: FROM x\n\\x1b[2J\\u202eevil\n", out.String())
}

func TestOneLineShowsHowFarABuildIs(t *testing.T) {
	var out strings.Builder
	s := &status{out: &out, live: true, width: 40}
	for _, line := range []string{"STEP 1/4: FROM x", "STEP 3/4: RUN make", strings.Repeat("é", 100), "\x1b[31mred\r"} {
		s.say(line)
	}
	drawn := strings.Split(out.String(), "\r\x1b[K")
	assert.Equal(t, []string{
		"", "[          ]   0 %  STEP 1/4: FROM x", "[#####     ]  50 %  STEP 3/4: RUN make",
		"[#####     ]  50 %  " + strings.Repeat("é", 20), `[#####     ]  50 %  \x1b[31mred\r`,
	}, drawn)
	out.Reset()
	s.end(errors.New("broken"))
	assert.Equal(t, "\r\x1b[KSTEP 1/4: FROM x\nSTEP 3/4: RUN make\n"+strings.Repeat("é", 100)+"\n\\x1b[31mred\\r\n", out.String(), "an error leaves what led to it")
	out.Reset()
	s.end(nil)
	assert.Equal(t, "\r\x1b[K", out.String())
}

// TestALineNeverWraps for tabs, for characters of two columns and for emoji of several.
func TestALineNeverWraps(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\nc": "a b c", strings.Repeat("日", 9): "日日日日日", "a" + strings.Repeat("日", 9): "a日日日日", "👩\u200d👩\u200d👩\u200d👩\u200d👩\u200d👩": "👩\u200d👩\u200d👩\u200d👩\u200d👩\u200d",
		strings.Repeat("e\u0301", 11): strings.Repeat("e\u0301", 10), "0123456789": "0123456789",
	} {
		var out strings.Builder
		(&status{out: &out, live: true, width: 10}).draw(text)
		assert.Equal(t, "\r\x1b[K"+want, out.String())
	}
}

func TestABarKeepsItsWidth(t *testing.T) {
	for _, part := range []int64{-1, 0, 1, 5, 7, 100} {
		assert.Len(t, bar(part, 7, 10), len("[          ] 100 % "))
	}
	assert.Equal(t, "[          ]   0 % ", bar(-1, 7, 10))
	assert.Equal(t, "[##########] 100 % ", bar(9, 7, 10))
}
