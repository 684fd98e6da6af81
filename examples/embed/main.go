// Command embed runs one program in a new session with the Go library.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 512 << 20}})
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	if _, err := s.Call(ctx, "write_file", json.RawMessage(`{"file_path": "hello.py", "content": "print(6 * 7)"}`)); err != nil {
		return err
	}
	res, err := s.Call(ctx, "shell_execute", json.RawMessage(`{"commands": ["python3", "hello.py"]}`))
	if err != nil {
		return err
	}
	fmt.Println(res.Text)
	return nil
}
