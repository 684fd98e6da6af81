// Command mkbase writes the base of wisbox's default image to a file, for `wisbox image build --base-archive`: Debian's
// packages and CPython take as long as the compiler, and need no container store. If a registry answers, the image has
// another base, and mkbase writes nothing.
//
//	go run ./images/mkbase FILE
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/wisbox/wisbox/images"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mkbase FILE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	written, err := images.WriteBase(ctx, os.Args[1], &images.Options{Progress: func(line string) { fmt.Println(line) }})
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mkbase:", err)
		stop()
		os.Exit(1)
	case !written:
		fmt.Println("base: a registry answers; the image is based on its Python")
	}
}
