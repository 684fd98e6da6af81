//go:build !linux

package engine

func setName(string) {}
