package e2b

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
)

// signedWith reports whether a URL of /files has a valid signature by a token. The sandbox itself
// checks whether the signature has expired.
func signedWith(r *http.Request, token string) bool {
	query := r.URL.Query()
	operation := "write"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		operation = "read"
	}
	text := query.Get("path") + ":" + operation + ":" + query.Get("username") + ":" + token
	if until := query.Get("signature_expiration"); until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return same(query.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
}

// same compares secrets in constant time.
func same(given, want string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
