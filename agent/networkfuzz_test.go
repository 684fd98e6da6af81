package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// The numbers of the sockets that useImpostor opens, in that order.
const listens, isUDP, dials, accepts = 1, 2, 3, 4

// lateImpostor is an [impostor] that says the rest once a number of sockets were asked for.
type lateImpostor struct {
	hello, rest io.Reader
	mu          sync.Mutex
	seen        []byte
	asked       int
	after       int
	ready       chan struct{}
}

func newLateImpostor(said []byte, after int) *lateImpostor {
	hello, _ := json.Marshal(Hello{Version: wire.Version})
	return &lateImpostor{hello: bytes.NewReader(wire.Append(nil, wire.IsHello, 0, hello)), rest: bytes.NewReader(said), after: after, ready: make(chan struct{})}
}

func (l *lateImpostor) Read(p []byte) (int, error) {
	if n, _ := l.hello.Read(p); n > 0 {
		return n, nil
	}
	<-l.ready
	return l.rest.Read(p)
}

func (l *lateImpostor) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, p...)
	for len(l.seen) >= wire.HeaderSize {
		size, typ, _ := wire.Header(l.seen)
		if len(l.seen) < wire.HeaderSize+size {
			break
		}
		l.seen = l.seen[wire.HeaderSize+size:]
		if typ == wire.SocketOpen {
			if l.asked++; l.asked == l.after {
				close(l.ready)
			}
		}
	}
	return len(p), nil
}

func (l *lateImpostor) Close() error { return nil }

// open is an agent's answer about an opened socket.
func open(number uint32) []byte {
	text, _ := json.Marshal(wire.Opened{Local: netip.MustParseAddrPort("127.0.0.1:53"), Peer: netip.MustParseAddrPort("127.0.0.1:1234")})
	return wire.Append(nil, wire.SocketOpened, number, text)
}

// useImpostor uses the network of an agent that says anything. Everything ends with the
// connection, which is lost when all is sent.
func useImpostor(t *testing.T, said []byte) (read []byte, lost error) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := Dial(ctx, newLateImpostor(said, dials))
	require.NoError(t, err)
	defer conn.Close()
	var all sync.WaitGroup
	at := netip.MustParseAddrPort("127.0.0.1:53")
	l, p := newListener(conn.net), newPackets(conn.net)
	for _, one := range []struct {
		s    carried
		port *port
	}{{l, &l.port}, {p, &p.port}} { // as openPort, with numbers that are known
		conn.net.ports <- struct{}{}
		one.port.number, err = conn.net.open(one.s, "", func() { <-conn.net.ports })
		require.NoError(t, err)
	}
	all.Go(func() {
		s, err := conn.DialPort(ctx, 1)
		if err != nil {
			return
		}
		all.Go(func() { _, _ = s.Write(make([]byte, 1<<20)) })
		read, err = io.ReadAll(s)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
	all.Go(func() {
		<-l.answered
		for l.local == at {
			s, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = s.Read(make([]byte, 1))
			_ = s.Close()
		}
	})
	all.Go(func() {
		<-p.answered
		for p.local == at {
			_, from, err := p.ReadFrom(make([]byte, 10))
			if err != nil {
				return
			}
			_, _ = p.WriteTo([]byte("x"), from)
		}
	})
	all.Wait()
	require.NoError(t, ctx.Err())
	<-conn.Done()
	return read, conn.Err()
}

// FuzzHostileNetwork: whatever an agent says of sockets, who uses them gets what it said
// they hold or an error, and nothing hangs.
func FuzzHostileNetwork(f *testing.F) {
	frame := func(typ wire.Type, number uint32, payload ...byte) []byte {
		return wire.Append(nil, typ, number, payload)
	}
	f.Add(bytes.Join([][]byte{open(dials), frame(wire.SocketData, dials, 'h', 'i'), frame(wire.SocketEnd, dials), frame(wire.SocketClosed, dials)}, nil))
	f.Add(bytes.Join([][]byte{open(listens), open(isUDP), frame(wire.SocketData, isUDP, 127, 0, 0, 1, 0, 53, 'x'), open(accepts), frame(wire.SocketClosed, listens)}, nil))
	f.Add(bytes.Join([][]byte{open(dials), frame(wire.SocketCredit, dials, 255, 255, 255, 255), frame(wire.SocketOpened, dials, '{', '}')}, nil))
	f.Fuzz(func(t *testing.T, said []byte) { _, _ = useImpostor(t, said) })
}

// TestAHostileNetworkEndsTheConnection, and nothing else happens.
func TestAHostileNetworkEndsTheConnection(t *testing.T) {
	frame := func(typ wire.Type, number uint32, payload ...byte) []byte {
		return wire.Append(nil, typ, number, payload)
	}
	refused, _ := json.Marshal(wire.Opened{Errno: 111})
	for name, said := range map[string][][]byte{
		"a socket that nobody asked for":    {open(77)},
		"opened twice":                      {open(dials), open(dials)},
		"opened in no words":                {frame(wire.SocketOpened, dials, '{')},
		"opened nowhere":                    {frame(wire.SocketOpened, dials, '{', '}')},
		"opened in many words":              {wire.Append(nil, wire.SocketOpened, dials, bytes.Repeat([]byte{' '}, wire.MaxOpened+1))},
		"refused, and then opened":          {wire.Append(nil, wire.SocketOpened, dials, refused), open(dials)},
		"data before it is open":            {frame(wire.SocketData, dials, 'x')},
		"data of a listener":                {open(listens), frame(wire.SocketData, listens, 'x')},
		"the end of a listener":             {open(listens), frame(wire.SocketEnd, listens)},
		"credit for a listener":             {open(listens), frame(wire.SocketCredit, listens, 0, 0, 0, 1)},
		"no data":                           {open(dials), frame(wire.SocketData, dials)},
		"a frame of data that is too large": {open(dials), wire.Append(nil, wire.SocketData, dials, make([]byte, wire.Chunk+1))},
		"data after the end":                {open(dials), frame(wire.SocketEnd, dials), frame(wire.SocketData, dials, 'x')},
		"ended twice":                       {open(dials), frame(wire.SocketEnd, dials), frame(wire.SocketEnd, dials)},
		"an end with data":                  {open(dials), frame(wire.SocketEnd, dials, 'x')},
		"closed twice":                      {open(dials), frame(wire.SocketClosed, dials), frame(wire.SocketClosed, dials)},
		"closed with data":                  {open(dials), frame(wire.SocketClosed, dials, 'x')},
		"data after closed":                 {open(dials), frame(wire.SocketClosed, dials), frame(wire.SocketData, dials, 'x')},
		"credit that was not used":          {open(dials), frame(wire.SocketCredit, dials, 255, 255, 255, 255)},
		"half a credit":                     {open(dials), frame(wire.SocketCredit, dials, 0, 0)},
		"half an address":                   {open(isUDP), frame(wire.SocketData, isUDP, 127, 0, 0, 1)},
		"the end of UDP":                    {open(isUDP), frame(wire.SocketEnd, isUDP)},
		"what only a host says":             {open(dials), frame(wire.SocketReset, dials)},
		"an accept of who listens not":      {open(listens), frame(wire.SocketClosed, listens), open(listens)},
	} {
		t.Run(name, func(t *testing.T) {
			ended := wire.Append(nil, wire.Pong, 0, nil) // the end of the stream comes later than what is wrong
			_, lost := useImpostor(t, append(bytes.Join(said, nil), ended...))
			require.ErrorIs(t, lost, sandbox.ErrLost)
			require.ErrorIs(t, lost, wire.ErrProtocol)
		})
	}
}

// TestMoreThanGrantedEndsTheConnection: nobody reads.
func TestMoreThanGrantedEndsTheConnection(t *testing.T) {
	said := bytes.Join([][]byte{open(1), bytes.Repeat(wire.Append(nil, wire.SocketData, 1, make([]byte, wire.Chunk)), wire.SocketWindow/wire.Chunk+1)}, nil)
	for name, of := range map[string]func(*network) (carried, chan struct{}){
		"a connection": func(n *network) (carried, chan struct{}) { s := newStream(n); return s, s.gone },
		"datagrams":    func(n *network) (carried, chan struct{}) { p := newPackets(n); return p, p.gone },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := Dial(t.Context(), newLateImpostor(said, 1))
			require.NoError(t, err)
			defer conn.Close()
			s, gone := of(conn.net)
			_, err = conn.net.open(s, "", func() {})
			require.NoError(t, err)
			<-gone
			<-conn.Done()
			require.ErrorIs(t, conn.Err(), wire.ErrProtocol)
		})
	}
}

// TestWhatEndsWithoutAnEndIsCut: an agent that has nothing more to say says so.
func TestWhatEndsWithoutAnEndIsCut(t *testing.T) {
	for name, end := range map[string][]byte{"closed": wire.Append(nil, wire.SocketClosed, 1, nil), "lost": nil} {
		t.Run(name, func(t *testing.T) {
			conn, err := Dial(t.Context(), newLateImpostor(bytes.Join([][]byte{open(1), wire.Append(nil, wire.SocketData, 1, []byte("half")), end}, nil), 1))
			require.NoError(t, err)
			defer conn.Close()
			s, err := conn.DialPort(t.Context(), 1)
			require.NoError(t, err)
			got, err := io.ReadAll(s)
			require.Error(t, err)
			require.NotErrorIs(t, err, net.ErrClosed)
			require.Equal(t, "half", string(got))
		})
	}
}

// TestAnAgentThatSaysNoLastWordsGetsNoMoreSockets: what it keeps open is counted here.
func TestAnAgentThatSaysNoLastWordsGetsNoMoreSockets(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		hello, _ := json.Marshal(Hello{Version: wire.Version})
		_, _ = theirs.Write(wire.Append(nil, wire.IsHello, 0, hello))
		for frames := wire.NewReader(theirs); ; {
			f, err := frames.Next()
			if err != nil {
				return
			}
			if f.Type == wire.SocketOpen {
				_, _ = theirs.Write(open(f.Call))
			}
		}
	}()
	conn, err := Dial(t.Context(), ours)
	require.NoError(t, err)
	defer conn.Close()
	for range mostStreams {
		s, err := conn.DialPort(t.Context(), 1)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = conn.DialPort(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	for range mostPorts {
		l, err := conn.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:53"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	_, err = conn.Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:53"))
	require.ErrorIs(t, err, errPorts)
}

// TestAnAgentThatTakesNothingIsGivenUp: what waits for it here is bounded, whatever it
// sends. Each 32 KiB of a connection that are read are worth a frame.
func TestAnAgentThatTakesNothingIsGivenUp(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		hello, _ := json.Marshal(Hello{Version: wire.Version})
		_, _ = theirs.Write(wire.Append(nil, wire.IsHello, 0, hello))
		_, _ = wire.NewReader(theirs).Next()
		_, _ = theirs.Write(open(1))
	}()
	conn, err := Dial(t.Context(), ours)
	require.NoError(t, err)
	defer conn.Close()
	s, err := conn.DialPort(t.Context(), 1)
	require.NoError(t, err)
	for range 3 * mostOut / wire.HeaderSize { // the writer has what waits once, and stays with it
		conn.net.say(wire.SocketCredit, 1, make([]byte, 4))
	}
	_, err = s.Read(make([]byte, 1))
	require.Error(t, err)
	<-conn.Done()
	require.ErrorIs(t, conn.Err(), wire.ErrProtocol)
	require.ErrorContains(t, conn.Err(), "takes nothing")
}
