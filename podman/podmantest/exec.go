package podmantest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/wisbox/wisbox/agent/agenttest"
)

// session is one exec session: a relay to the container's agent.
type session struct {
	argv  []string
	agent *agenttest.Agent
}

func (s *Server) execCreate(w http.ResponseWriter, r *http.Request, c *Container) {
	var body struct{ Cmd []string }
	if json.NewDecoder(r.Body).Decode(&body) != nil || len(body.Cmd) == 0 {
		Fails(http.StatusBadRequest, "unreadable exec")(w, r)
		return
	}
	if c.agent == nil {
		c.agent = agenttest.Start(s.t, s.workspace(c))
	}
	id := "x" + strconv.Itoa(len(s.sessions))
	s.sessions[id] = session{body.Cmd, c.agent}
	answer(w, 201, map[string]any{"Id": id})
}

// workspace returns the directory that a container's programs see.
func (s *Server) workspace(c *Container) string {
	if s.Workspace != "" {
		return s.Workspace
	}
	for _, m := range c.Mounts {
		if m.Destination == "/workspace" {
			return m.Source
		}
	}
	return ""
}

// execStart takes over the connection and joins it to the agent, as a relay does.
func (s *Server) execStart(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	one := s.sessions[r.PathValue("id")]
	s.mu.Unlock()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	if !slices.Equal(one.argv, []string{"/.wisbox-agent", "relay"}) {
		_, _ = conn.Write(Frame(2, "there is nothing but the agent to execute"))
		return
	}
	frames := one.agent.Connect(s.t)
	defer frames.Close()
	go func() {
		_, _ = io.Copy(frames, buffered)
		frames.Close()
	}()
	_, _ = io.Copy(framed{conn}, frames)
}

// framed writes data as stdout frames of an attached stream.
type framed struct{ io.Writer }

func (f framed) Write(p []byte) (int, error) {
	if _, err := f.Writer.Write(Frame(1, string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Frame returns one frame of an attached stream: 1 is stdout, 2 stderr.
func Frame(stream byte, data string) []byte {
	head := make([]byte, 8, 8+len(data))
	head[0] = stream
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	return append(head, data...)
}
