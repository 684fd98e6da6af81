package profile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/mcpserver"
	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

// An MCP server whose clients have the tools that Anthropic's models were trained on.
func ExampleBind() {
	ctx := context.Background()
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	set, err := wisbox.ToolProfile("anthropic")
	if err != nil {
		log.Fatal(err)
	}
	server := mcpserver.New(set, &mcpserver.Options{
		Instructions: wisbox.Guidance("anthropic"),
		Open: func(ctx context.Context) (mcpserver.Session, error) {
			s, err := m.Open(ctx, nil)
			if err != nil {
				return nil, err
			}
			return profile.Bind("anthropic", wisbox.ToolSet(), s)
		},
	})
	if err := server.ServeStdio(ctx, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// withSession calls do with a session over the backend without isolation, so that the examples run
// without Podman.
func withSession(do func(ctx context.Context, s *wisbox.Session) error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "wb")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	opts := wisbox.Options{CacheDir: dir + "/state", Backend: sandboxtest.NewHost()}
	opts.Podman.RuntimeDir = dir
	m, err := wisbox.NewManager(ctx, &opts)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s, err := m.Open(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(do(ctx, s), s.Close(ctx)); err != nil {
		log.Fatal(err)
	}
}

// A profile gives a session's tools the names and parameters that a model knows.
func ExampleNew() {
	withSession(func(ctx context.Context, s *wisbox.Session) error {
		set, err := profile.New("anthropic", wisbox.ToolSet(), s)
		if err != nil {
			return err
		}
		res, err := set.Call(ctx, "bash", json.RawMessage(`{"command":"echo hello"}`))
		if err != nil {
			return err
		}
		fmt.Println(res.Text)
		return nil
	})
	// Output: hello
}

// Open is for a user who leaves before the session ends: Close ends the profile's own state, such
// as a shell.
func ExampleOpen() {
	withSession(func(ctx context.Context, s *wisbox.Session) error {
		p, err := profile.Open("anthropic", wisbox.ToolSet(), s)
		if err != nil {
			return err
		}
		defer p.Close(ctx)
		res, err := p.Call(ctx, "bash", json.RawMessage(`{"command":"echo hello"}`))
		if err != nil {
			return err
		}
		fmt.Println(res.Text)
		return nil
	})
	// Output: hello
}
