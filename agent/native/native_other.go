//go:build !amd64 && !arm64

package native

var packed []byte
