package httpguard_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/wisbox/wisbox/httpguard"
)

func ExampleNew() {
	token := httpguard.NewToken()
	guard, err := httpguard.New(&httpguard.Options{Tokens: []string{token}})
	if err != nil {
		log.Fatal(err)
	}
	handler := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	for _, given := range []string{"", "Bearer " + token} {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		r.Header.Set("Authorization", given)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 401
	// 200
}
