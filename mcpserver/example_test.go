package mcpserver_test

import (
	"context"
	"log"
	"os"

	"github.com/wisbox/wisbox/mcpserver"
	"github.com/wisbox/wisbox/tool"
)

func ExampleNew() {
	type params struct {
		Name string `json:"name" jsonschema:"whom to greet"`
	}
	type result struct {
		Greeting string `json:"greeting"`
	}
	greet := tool.New(tool.Spec{Name: "greet", Description: "Greet somebody."},
		func(_ context.Context, p params) (result, error) { return result{"hello, " + p.Name}, nil })
	server := mcpserver.New(tool.NewSet(greet), &mcpserver.Options{Version: "1.0.0"})
	if err := server.ServeStdio(context.Background(), os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}
