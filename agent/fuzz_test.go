package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// impostor is a stream whose other end says what it was given, after a hello.
// It takes whatever is written.
type impostor struct{ io.Reader }

func newImpostor(said []byte) *impostor {
	hello, _ := json.Marshal(Hello{Version: wire.Version})
	return &impostor{io.MultiReader(bytes.NewReader(wire.Append(nil, wire.IsHello, 0, hello)), bytes.NewReader(said))}
}

func (s *impostor) Write(p []byte) (int, error) { return len(p), nil }
func (s *impostor) Close() error                { return nil }

// run makes one call to an impostor; it must end as lost, or by an exit that
// makes sense, and never hang or panic.
func runImpostor(t require.TestingT, said []byte) (sandbox.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := Dial(ctx, newImpostor(said))
	if err != nil {
		return sandbox.Result{}, err
	}
	defer conn.Close()
	got, err := conn.Run(ctx, sandbox.Cmd{Argv: []string{"x"}, Stdout: io.Discard, Stdin: bytes.NewReader(make([]byte, 1<<20)), Capture: &sandbox.Capture{Tail: 10}})
	require.NoError(t, ctx.Err())
	return got, err
}

func FuzzHostileAgent(f *testing.F) {
	frames := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	exited := []byte(`{"status":"exited","code":0}`)
	f.Add(frames(wire.Append(nil, wire.Data|1, 1, []byte("hi")), wire.Append(nil, wire.Exited, 1, exited)))
	f.Add(frames(wire.Append(nil, wire.Exited, 1, exited), wire.Append(nil, wire.Exited, 1, exited)))
	f.Add(frames(wire.Append(nil, wire.Tail|1, 1, []byte("0123456789")), wire.Append(nil, wire.Tail|1, 1, []byte("0"))))
	f.Add(wire.Append(nil, wire.Credit, 1, []byte{255, 255, 255, 255}))
	f.Add(wire.Append(nil, wire.Started, 1, nil))
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31))
	f.Fuzz(func(t *testing.T, said []byte) { _, _ = runImpostor(t, said) })
}

func TestProtocolErrorsLoseTheConnection(t *testing.T) {
	many := func(n int, frame []byte) []byte { return bytes.Repeat(frame, n) }
	for name, said := range map[string][]byte{
		"unknown type":          wire.Append(nil, 0x7f, 1, nil),
		"unknown call":          wire.Append(nil, wire.Exited, 77, []byte(`{"status":"exited"}`)),
		"unknown channel":       wire.Append(nil, wire.Data|9, 1, []byte("x")),
		"channel not asked for": wire.Append(nil, wire.Data|2, 1, []byte("x")),
		"frame too large":       append(binary.BigEndian.AppendUint32(nil, wire.MaxFrame+1), 0x11, 0, 0, 0, 1),
		"credit not used":       wire.Append(nil, wire.Credit, 1, []byte{127, 255, 255, 255}),
		"tail too long":         wire.Append(nil, wire.Tail|1, 1, make([]byte, 11)),
		"start not asked for":   wire.Append(nil, wire.Started, 1, nil),
		"unknown status":        wire.Append(nil, wire.Exited, 1, []byte(`{"status":"fine"}`)),
		"exit is no json":       wire.Append(nil, wire.Exited, 1, []byte(`{`)),
		"cut frame":             wire.Append(nil, wire.Exited, 1, []byte(`{"status":"exited"}`))[:15],
		"more than granted":     many(wire.Window/wire.Chunk+100, wire.Append(nil, wire.Tail|2, 1, make([]byte, wire.Chunk))),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := runImpostor(t, said)
			if err != nil {
				require.ErrorIs(t, err, sandbox.ErrLost)
				return
			}
			require.Equal(t, sandbox.StatusSandboxLost, got.Status)
		})
	}
}

func TestFramesSurviveTheTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := wire.Type(rapid.Byte().Draw(t, "type"))
		call := rapid.Uint32().Draw(t, "call")
		payload := rapid.SliceOf(rapid.Byte()).Draw(t, "payload")
		got, err := wire.NewReader(bytes.NewReader(wire.Append(nil, typ, call, payload))).Next()
		require.NoError(t, err)
		require.Equal(t, typ, got.Type)
		require.Equal(t, call, got.Call)
		require.True(t, bytes.Equal(payload, got.Payload))
	})
}
