// Command pack appends an engine and its pages to a front: pack FRONT ENGINE PAGES OUT.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: pack FRONT ENGINE PAGES OUT")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack replaces out whole: it may be running.
func pack(front, behind, pages, out string) error {
	first, err := os.ReadFile(front)
	if err != nil {
		return err
	}
	second, err := os.ReadFile(behind)
	if err != nil {
		return err
	}
	third, err := os.ReadFile(pages)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(out+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer os.Remove(out + ".new")
	_, err = f.Write(first)
	if err := errors.Join(err, engine.Append(f, second, third), f.Close()); err != nil {
		return err
	}
	return os.Rename(out+".new", out)
}
