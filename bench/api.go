package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// podmanAPI runs a program as a client of Podman's API would: create, attach, inspect. As the base
// of comparisons it is as lean as possible: one kept connection, and one for the attach.
type podmanAPI struct {
	url, container string
	client         *http.Client
	made           []string // containers that createAndStart created
}

func (a *podmanAPI) socket() string { return strings.TrimPrefix(a.url, "unix://") }

func (a *podmanAPI) http() *http.Client {
	if a.client == nil {
		a.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", a.socket())
		}}}
	}
	return a.client
}

func (a *podmanAPI) execTrue() error {
	var created struct{ Id string }
	body := `{"AttachStdout":true,"AttachStderr":true,"Cmd":["/bin/true"]}`
	if err := a.ask("POST", "/containers/"+a.container+"/exec", body, &created); err != nil {
		return err
	}
	if err := a.attach(created.Id); err != nil {
		return err
	}
	var state struct{ ExitCode int }
	if err := a.ask("GET", "/exec/"+created.Id+"/json", "", &state); err != nil {
		return err
	}
	if state.ExitCode != 0 {
		return fmt.Errorf("exit code %d", state.ExitCode)
	}
	return nil
}

// createAndStart does Podman's own work for a container: the minimum for a session's start.
func (a *podmanAPI) createAndStart(image string) error {
	var created struct{ Id string }
	if err := a.ask("POST", "/containers/create", fmt.Sprintf(`{"image":%q,"command":["sleep","infinity"],"netns":{"nsmode":"none"}}`, image), &created); err != nil {
		return err
	}
	a.made = append(a.made, created.Id)
	return a.ask("POST", "/containers/"+created.Id+"/start", "", nil)
}

// removeAll removes the containers of createAndStart.
func (a *podmanAPI) removeAll() {
	for _, id := range a.made {
		_ = a.ask("DELETE", "/containers/"+id+"?force=true&timeout=0", "", nil)
	}
}

func (a *podmanAPI) ask(method, path, body string, into any) error {
	req, err := http.NewRequest(method, "http://d/v4.0.0/libpod"+path, bytes.NewBufferString(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := a.http().Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, res.Status, raw)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// attach starts the exec and reads until its end.
func (a *podmanAPI) attach(id string) error {
	c, err := net.Dial("unix", a.socket())
	if err != nil {
		return err
	}
	defer c.Close()
	body := `{"Detach":false,"Tty":false}`
	_, err = fmt.Fprintf(c, "POST /v4.0.0/libpod/exec/%s/start HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}
