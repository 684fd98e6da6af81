// Command mcpclient is a client of the Model Context Protocol. It starts `wisbox mcp`, and calls
// two of its tools. Agent frameworks do the same with their own clients.
//
//	mcpclient [WISBOX]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	wisbox := "wisbox"
	if len(os.Args) > 1 {
		wisbox = os.Args[1]
	}
	if err := run(context.Background(), wisbox, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, wisbox string, out io.Writer) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "example", Version: "1"}, nil)
	s, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.Command(wisbox, "mcp", "--tools", "files,shell")}, nil)
	if err != nil {
		return err
	}
	defer s.Close() // the server and its session end
	if _, err := call(ctx, s, "write_file", map[string]any{"file_path": "hello.py", "content": "print(6 * 7)"}); err != nil {
		return err
	}
	said, err := call(ctx, s, "shell_execute", map[string]any{"commands": []string{"python3", "hello.py"}})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, said)
	return nil
}

// call returns the text that a model reads.
func call(ctx context.Context, s *mcp.ClientSession, name string, args map[string]any) (string, error) {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		return "", err
	}
	text := ""
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			text += t.Text
		}
	}
	if res.IsError {
		return "", errors.New(text)
	}
	return text, nil
}
