package codeinterp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/serve/e2b/codeinterp"
)

func ExampleNew() {
	var session *wisbox.Session // of Manager.Open
	h := codeinterp.New(codeinterp.Options{Session: session, Token: "the sandbox's own"})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
	fmt.Println(w.Code)
	// Output: 200
}
