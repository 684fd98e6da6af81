package sshd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// KnownAs is the key's name in a client's file of known hosts.
const KnownAs = "wisbox"

// HostKey returns the host key in a directory, created at the first call. The key, like the
// directory, is private to this user.
func HostKey(dir string) (ssh.Signer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "host_key")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path); err == nil {
			raw, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, then wisbox ssh-config creates another one", path, err)
	}
	return key, nil
}

// makeKey creates a key, unless another process was quicker.
func makeKey(path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "wisbox")
	if err != nil {
		return err
	}
	made, err := writeBeside(path, pem.EncodeToMemory(block))
	if err != nil {
		return err
	}
	defer os.Remove(made)
	if err := os.Link(made, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// KnownHosts returns a file for UserKnownHostsFile with the directory's key.
func KnownHosts(dir string) (path string, err error) {
	key, err := HostKey(dir)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "known_hosts")
	line := append([]byte(KnownAs+" "), ssh.MarshalAuthorizedKey(key.PublicKey())...)
	made, err := writeBeside(path, line)
	if err != nil {
		return "", err
	}
	if err := os.Rename(made, path); err != nil {
		return "", errors.Join(err, os.Remove(made))
	}
	return path, nil
}

// writeBeside writes a new file in the directory of another one, with mode 0600.
func writeBeside(path string, content []byte) (made string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
