//go:build !linux || (!amd64 && !arm64)

package native

var packed []byte
