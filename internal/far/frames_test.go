package far_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/far"
)

// frame returns a header of yamux.
func frame(kind byte, flags uint16, stream, length uint32) []byte {
	h := []byte{0, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint16(h[2:], flags)
	binary.BigEndian.PutUint32(h[4:], stream)
	binary.BigEndian.PutUint32(h[8:], length)
	return h
}

const (
	flooded   = 20_000
	helloLine = `wisbox-relay {"version":"v1","protocol":"1"}` + "\n"
)

// flood sends a frame until it isn't accepted any more, and reads nothing. It returns how often it
// was accepted, of flooded attempts, and the number of goroutines that remain.
func flood(c net.Conn, frame []byte) (taken, goroutines int) {
	for before := runtime.NumGoroutine(); taken < flooded; taken += 100 {
		if _, err := c.Write(bytes.Repeat(frame, 100)); err != nil {
			break
		}
		goroutines = max(goroutines, runtime.NumGoroutine()-before)
	}
	return taken, goroutines
}

// TestAClientThatPingsAndReadsNothingIsCutOff: for each answer, yamux has a waiting goroutine.
func TestAClientThatPingsAndReadsNothingIsCutOff(t *testing.T) {
	a, b := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- far.Serve(t.Context(), b, hello, func(context.Context, net.Conn) {}) }()
	_, err := bufio.NewReader(a).ReadString('\n')
	require.NoError(t, err)
	_, err = io.WriteString(a, helloLine)
	require.NoError(t, err)
	taken, goroutines := flood(a, frame(2, 1, 0, 7))
	assert.Less(t, taken, flooded)
	assert.Less(t, goroutines, 100)
	_ = a.Close()
	require.NoError(t, <-ended)
}

// TestAServerThatFloodsIsCutOff covers a server that sends many pings, and one that opens a
// connection, which only clients may do.
func TestAServerThatFloodsIsCutOff(t *testing.T) {
	for name, does := range map[string]func(c net.Conn){
		"pings": func(c net.Conn) {
			taken, goroutines := flood(c, frame(2, 1, 0, 7))
			assert.Less(t, taken, flooded)
			assert.Less(t, goroutines, 100)
		},
		"a connection": func(c net.Conn) {
			_, err := c.Write(frame(1, 1, 2, 0))
			require.NoError(t, err)
			_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err = c.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			c := far.NewClient(far.Func{Name: "box", Dial: func(context.Context) (io.ReadWriteCloser, error) { return b, nil }}, hello)
			said := make(chan error, 1)
			go func() {
				_, err := io.WriteString(a, helloLine)
				_, _ = io.ReadFull(a, make([]byte, len(helloLine)+12)) // and the frame of its connection
				said <- err
			}()
			_, err := c.Dial(t.Context())
			require.NoError(t, err)
			require.NoError(t, <-said)
			does(a)
			_ = a.Close()
			require.NoError(t, c.Close())
		})
	}
}

// TestPingsAmongDataAreFound, and data that looks like pings isn't counted.
func TestPingsAmongDataAreFound(t *testing.T) {
	ping := frame(2, 1, 0, 7)
	data := append(frame(0, 0, 1, 1200), bytes.Repeat(ping, 100)...)
	few := append(bytes.Repeat(ping, far.MaxPings), bytes.Repeat(data, 100)...)
	for _, size := range []int{1, 5, 12, 1000, 1 << 20} {
		in := far.Frames(bytes.NewReader(few))
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, make([]byte, size))
		require.NoError(t, err)
		assert.EqualValues(t, len(few), n)
		_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, far.Frames(bytes.NewReader(slices.Concat(few, ping))), make([]byte, size))
		require.ErrorContains(t, err, "pings more often")
	}
}
