// Command pack appends an engine to a front: pack FRONT ENGINE OUT.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: pack FRONT ENGINE OUT")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack replaces out whole: it may be running.
func pack(front, behind, out string) error {
	first, err := os.ReadFile(front)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(behind)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(out+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer os.Remove(out + ".new")
	_, err = f.Write(first)
	if err := errors.Join(err, engine.Append(f, second), f.Close()); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}
