package e2b_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/registry/registrytest"
	"github.com/wisbox/wisbox/serve/e2b"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sandboxes, err := registry.Open(context.Background(), &registry.Options{
		Engine: &registrytest.Engine{}, Dir: dir, // where sandboxes run
		Front: e2b.Fronts(&e2b.FrontOptions{}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sandboxes.Close()
	server := e2b.New(&e2b.Options{Registry: sandboxes})
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v2/sandboxes", strings.NewReader(`{"templateID":"base","timeout":60}`)))
	fmt.Println(w.Code)
	// Output:
	// 201
}
