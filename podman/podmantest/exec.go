package podmantest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// session is one program to run.
type session struct {
	argv      []string
	workspace string
	code      int
}

func (s *Server) execCreate(w http.ResponseWriter, r *http.Request, c *Container) {
	var body struct{ Cmd []string }
	if json.NewDecoder(r.Body).Decode(&body) != nil || len(body.Cmd) == 0 {
		Fails(http.StatusBadRequest, "unreadable exec")(w, r)
		return
	}
	id := "x" + strconv.Itoa(len(s.sessions))
	made := session{argv: body.Cmd}
	for _, m := range c.Mounts {
		if m.Destination == "/workspace" {
			made.workspace = m.Source
		}
	}
	s.sessions[id] = made
	answer(w, 201, map[string]any{"Id": id})
}

// execStart takes the connection over, says what the program would have said and
// ends. "cat" gives back its input.
func (s *Server) execStart(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	one := s.sessions[r.PathValue("id")]
	s.mu.Unlock()
	conn, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	out, errOut, code := one.run(buffered)
	conn.Write(Frame(1, out))
	conn.Write(Frame(2, errOut))
	s.mu.Lock()
	one.code = code
	s.sessions[r.PathValue("id")] = one
	s.mu.Unlock()
}

func (s *Server) execInspect(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, 200, map[string]any{"Running": false, "ExitCode": s.sessions[r.PathValue("id")].code})
}

func (x session) run(stdin io.Reader) (out, errOut string, code int) {
	switch x.argv[0] {
	case "echo":
		return strings.Join(x.argv[1:], " ") + "\n", "", 0
	case "cat":
		data, _ := io.ReadAll(stdin)
		return string(data), "", 0
	case "stat":
		return x.stat(), "", 0
	case "sh":
		return "", "", 137
	}
	return "", "exec: " + x.argv[0] + ": executable file not found in $PATH", 127
}

// stat prints device and inode of the workspace.
func (x session) stat() string {
	info, err := os.Stat(x.workspace)
	if err != nil {
		return ""
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d %d\n", st.Dev, st.Ino)
}

// Frame is one frame of an attached stream: 1 is stdout, 2 stderr.
func Frame(stream byte, data string) []byte {
	head := make([]byte, 8, 8+len(data))
	head[0] = stream
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	return append(head, data...)
}
