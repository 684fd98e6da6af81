package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/filewire"
)

// FuzzServe sends arbitrary frames: the process answers each ask with one end, in readable frames, or ends. Paths are
// rewritten to a directory of the test.
func FuzzServe(f *testing.F) {
	frame := func(typ filewire.Type, payload string) []byte {
		var b bytes.Buffer
		s := filewire.NewStream(nil, &b)
		_ = s.Put(typ, []byte(payload))
		_ = s.Flush()
		return b.Bytes()
	}
	write := frame(filewire.IsAsk, `{"do":"write","how":"replace","path":"YQ==","parents":true}`)
	f.Add(append(append(write, frame(filewire.IsData, "hello")...), frame(filewire.IsEnd, "")...))
	f.Add(append(write, frame(filewire.IsStop, "")...))
	f.Add(write)
	for _, ask := range []string{
		`{"do":"stat","path":"YQ==","attrs":true}`, `{"do":"list","path":"Yg==","depth":3,"limit":3}`, `{"do":"list","depth":-1,"limit":-1}`,
		`{"do":"read","path":"YQ==","offset":3,"length":-1}`, `{"do":"move","path":"YQ==","to":"Yg=="}`, `{"do":"remove","path":"YQ==","recursive":true,"limit":9}`,
		`{"do":"mkdir","path":"YQ==","mode":511}`, `{"do":"chmod","path":"YQ==","mode":4294967295}`, `{"do":"none"}`, `{`,
	} {
		f.Add(append(frame(filewire.IsAsk, ask), write...))
	}
	f.Add([]byte{'Q', 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, said []byte) {
		dir := t.TempDir()
		frames, asks := led(said, dir)
		var out bytes.Buffer
		err := Serve(bytes.NewReader(frames), &out)
		ends := 0
		for s := filewire.NewStream(&out, nil); ; {
			typ, payload, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if typ == filewire.IsEnded {
				require.NoError(t, filewire.Decode(payload, &filewire.Ended{}))
				ends++
			}
		}
		require.LessOrEqual(t, ends, asks)
		if err == nil {
			require.Equal(t, asks, ends)
		}
		_ = os.Chmod(dir, 0o700)
	})
}

// led rewrites input so that its asks have paths below a directory, and don't wait.
func led(said []byte, dir string) (frames []byte, asks int) {
	var b bytes.Buffer
	s, to := filewire.NewStream(bytes.NewReader(said), nil), filewire.NewStream(nil, &b)
	for {
		typ, payload, err := s.Next()
		if err != nil {
			_ = to.Flush()
			return b.Bytes(), asks
		}
		var ask filewire.Ask
		if typ == filewire.IsAsk && json.Unmarshal(payload, &ask) == nil {
			asks++
			ask.Path, ask.To = in(dir, ask.Path), in(dir, ask.To)
			if ask.Do == filewire.Watch {
				ask.Do = filewire.Stat
			}
			payload, _ = json.Marshal(ask)
			payload = payload[:min(len(payload), filewire.Chunk)]
		}
		_ = to.Put(typ, payload)
	}
}

func in(dir string, path []byte) []byte {
	name := bytes.Map(func(r rune) rune {
		if r == '.' {
			return '-'
		}
		return r
	}, path)
	return append([]byte(dir+"/"), name...)
}
