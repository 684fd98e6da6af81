// Package signature checks the signatures of URLs of /files, which E2B's clients make for
// downloads and uploads without a token.
package signature

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/wisbox/wisbox/httpguard"
)

// By reports whether a request of /files is signed with a token, regardless of the signature's
// age. No request is signed with the empty token. It runs in constant time.
func By(token string, r *http.Request) bool {
	query, operation := r.URL.Query(), "write"
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		operation = "read"
	}
	text := query.Get("path") + ":" + operation + ":" + query.Get("username") + ":" + token
	if until := query.Get("signature_expiration"); until != "" {
		text += ":" + until
	}
	sum := sha256.Sum256([]byte(text))
	return token != "" && httpguard.Same(query.Get("signature"), "v1_"+base64.RawStdEncoding.EncodeToString(sum[:]))
}
