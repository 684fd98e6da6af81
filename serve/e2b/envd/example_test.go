package envd_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/wisbox/wisbox/serve/e2b/envd"
)

func ExampleNew() {
	session := newFake() // a *wisbox.Session
	h := envd.New(envd.Options{Session: session, Token: "the sandbox's own"})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/health", nil))
	fmt.Println(w.Code)
	// Output: 204
}
