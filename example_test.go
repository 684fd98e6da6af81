package wisbox_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// The example of the README. It isn't run here: that takes Podman and the image.
func Example() {
	ctx := context.Background()
	m, _ := wisbox.NewManager(ctx, nil)
	defer m.Close()
	s, _ := m.Open(ctx, &wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 512 << 20}})
	defer s.Close(ctx)
	_, _ = s.Call(ctx, "write_file", json.RawMessage(`{"file_path": "hello.py", "content": "print(6 * 7)"}`))
	res, _ := s.Call(ctx, "shell_execute", json.RawMessage(`{"commands": ["python3", "hello.py"]}`))
	fmt.Print(res.Text)
}
