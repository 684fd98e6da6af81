package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/wisbox/wisbox/tool"
)

type greeting struct {
	Name  string `json:"name" jsonschema:"whom to greet"`
	Times int    `json:"times,omitempty" default:"1" min:"1" max:"3"`
}

type greeted struct {
	Said string `json:"said"`
}

func greet(_ context.Context, p greeting) (greeted, error) {
	return greeted{fmt.Sprintf("hello, %s (%d)", p.Name, p.Times)}, nil
}

// The schema and the checks of a tool come from its types.
func ExampleNew() {
	t := tool.New(tool.Spec{Name: "greet", Description: "Greet somebody.", ReadOnly: true}, greet)
	for _, args := range []string{`{"name":"agent"}`, `{"name":"agent","times":4}`} {
		res, err := t.Call(context.Background(), json.RawMessage(args))
		if err != nil {
			fmt.Println(tool.KindOf(err), tool.AsError(err).Field)
			continue
		}
		fmt.Println(res.Value.(greeted).Said)
	}
	// Output:
	// hello, agent (1)
	// invalid times
}

// Changes of a tool are for the log and for observers, not for the model.
func ExampleNewChanging() {
	t := tool.NewChanging(tool.Spec{Name: "greet"}, func(ctx context.Context, p greeting) (greeted, []tool.Change, error) {
		out, err := greet(ctx, p)
		return out, []tool.Change{{Path: "greetings.txt"}}, err
	})
	res, err := t.Call(context.Background(), json.RawMessage(`{"name":"agent"}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Changes[0].Path)
	// Output: greetings.txt
}

// A set calls its tools by name.
func ExampleNewSet() {
	set := tool.NewSet(tool.New(tool.Spec{Name: "greet"}, greet))
	for _, name := range []string{"greet", "wave"} {
		_, err := set.Call(context.Background(), name, json.RawMessage(`{"name":"agent"}`))
		fmt.Printf("%s %q\n", name, tool.KindOf(err))
	}
	// Output:
	// greet ""
	// wave "not_found"
}
