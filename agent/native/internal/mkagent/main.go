// Command mkagent builds the agent's binaries, which package native embeds, and writes them with their sums. The bytes
// are the same on every machine.
//
//	go run ./agent/native/internal/mkagent          # as make agent does
//	go run ./agent/native/internal/mkagent -check   # as make lint does
//
// The toolchain is the one that go.mod names, whichever Go runs this.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const (
	source = "./agent/inside/cmd"
	target = "agent/native"
)

// arches lists the architectures with an agent, which native_GOARCH.go embeds.
var arches = []string{"amd64", "arm64"}

func main() {
	check := flag.Bool("check", false, "build, and compare with the committed binaries")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "mkagent:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	toolchain, err := moduleToolchain()
	if err != nil {
		return err
	}
	sums := ""
	for _, arch := range arches {
		binary, err := build(toolchain, arch)
		if err != nil {
			return err
		}
		sums += fmt.Sprintf("%x  linux-%s\n", sha256.Sum256(binary), arch)
		if check {
			continue
		}
		if err := write(arch, binary); err != nil {
			return err
		}
	}
	path := filepath.Join(target, "SHA256SUMS")
	if !check {
		return os.WriteFile(path, []byte(sums), 0o644)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sums != string(have) {
		return fmt.Errorf("the agent's binaries in %s are not what %s builds with %s; run `make agent` and commit the result", target, source, toolchain)
	}
	return nil
}

// moduleToolchain returns the exact toolchain that go.mod names.
func moduleToolchain() (string, error) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		return "", fmt.Errorf("read go.mod: %w", err)
	}
	var mod struct{ Toolchain string }
	if err := json.Unmarshal(out, &mod); err != nil {
		return "", err
	}
	if mod.Toolchain == "" {
		return "", errors.New("go.mod names no toolchain; add a toolchain line, since the agent is built with exactly one version")
	}
	return mod.Toolchain, nil
}

// build returns the binary for an architecture. It doesn't depend on this machine.
func build(toolchain, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "mkagent-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", path, source)
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "GO") || name == "GOPATH" || name == "GOMODCACHE" || name == "GOCACHE" || name == "GOPROXY" || name == "GOSUMDB" {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "GOENV=off", "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN="+toolchain,
		"CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("build the agent for %s: %w", arch, err)
	}
	return os.ReadFile(path)
}

// write compresses a binary, unless the existing file has the same content: other versions of the compressor give other
// bytes.
func write(arch string, binary []byte) error {
	path := filepath.Join(target, "linux-"+arch+".zst")
	if old, err := os.ReadFile(path); err == nil {
		if same, err := decompress(old); err == nil && bytes.Equal(same, binary) {
			return nil
		}
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(8<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer encoder.Close()
	packed := encoder.EncodeAll(binary, nil)
	fmt.Printf("%s: %d bytes, %d compressed\n", arch, len(binary), len(packed))
	return os.WriteFile(path, packed, 0o644)
}

func decompress(packed []byte) ([]byte, error) {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	return decoder.DecodeAll(packed, nil)
}
