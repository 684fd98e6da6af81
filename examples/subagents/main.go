// Command subagents tries three ideas at the same time, each in a fork of one prepared session, and
// continues with the best one. Here the ideas are scripts; in an agent, each would be a model's
// conversation.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
)

// ideas are ways to sum the numbers; the last one is wrong.
var ideas = []string{
	"import json; print(sum(json.load(open('numbers.json'))))",
	"print(sum(map(int, open('numbers.json').read().strip('[]').split(','))))",
	"print(len(open('numbers.json').read()))",
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	m, err := wisbox.NewManager(ctx, nil)
	if err != nil {
		return err
	}
	defer m.Close()
	parent, err := m.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer parent.Close(ctx)
	if err := write(ctx, parent, "numbers.json", "[1, 2, 39]"); err != nil {
		return err
	}
	// Each fork has the parent's files and its own container: none sees another.
	forks, err := parent.Fork(ctx, len(ideas), nil)
	if err != nil {
		return err
	}
	results := make([]string, len(forks))
	var tries sync.WaitGroup
	for i, fork := range forks {
		tries.Go(func() {
			defer fork.Close(ctx)
			results[i] = try(ctx, fork, ideas[i])
		})
	}
	tries.Wait()
	for i, said := range results {
		fmt.Fprintf(out, "idea %d: %s\n", i+1, said)
		if said == "42" {
			return write(ctx, parent, "solution.py", ideas[i])
		}
	}
	return fmt.Errorf("no idea gave 42")
}

func try(ctx context.Context, s *wisbox.Session, idea string) string {
	var said strings.Builder
	res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"python3", "-c", idea}, Stdout: &said, Stderr: &said})
	if err != nil {
		return err.Error()
	}
	if res.ExitCode != 0 {
		return fmt.Sprintf("exit code %d: %s", res.ExitCode, said.String())
	}
	return strings.TrimSpace(said.String())
}

func write(ctx context.Context, s *wisbox.Session, path, content string) error {
	args, err := json.Marshal(map[string]string{"file_path": path, "content": content})
	if err != nil {
		return err
	}
	_, err = s.Call(ctx, "write_file", args)
	return err
}
