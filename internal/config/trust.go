package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/jsonfile"
)

// trusted is the record of trust: for each path, the hash of the content that a person has seen.
const trusted = "trusted.json"

// Hash returns the hash of the file's content and of the Containerfile that it names.
func (f *File) Hash() string {
	sum := sha256.Sum256(f.Raw)
	if f.Containerfile != nil {
		built := sha256.Sum256(f.Containerfile)
		sum = sha256.Sum256(append(sum[:], built[:]...))
	}
	return hex.EncodeToString(sum[:])
}

// place returns the path for the record of trust, without links.
func (f *File) place() (string, error) {
	dir, err := filepath.EvalSymlinks(f.Dir())
	return filepath.Join(dir, Name), err
}

// Trusted reports whether a person trusts the file with the content that was read.
func (f *File) Trusted() (bool, error) {
	dir, err := home()
	if err != nil {
		return false, nil //nolint:nilerr // nothing can be trusted without a record
	}
	at, err := f.place()
	if err != nil {
		return false, err
	}
	all := map[string]string{}
	err = jsonfile.Read(filepath.Join(dir, trusted), &all)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && all[at] == f.Hash(), err
}

// ofContext ends the key for the digest of a build's context.
const ofContext = "#context"

// TrustsContext reports whether a person trusts the file with a build context of this digest.
func (f *File) TrustsContext(digest string) (bool, error) {
	dir, err := home()
	if err != nil {
		return false, nil //nolint:nilerr // nothing can be trusted without a record
	}
	at, err := f.place()
	if err != nil {
		return false, err
	}
	all := map[string]string{}
	err = jsonfile.Read(filepath.Join(dir, trusted), &all)
	return err == nil && digest != "" && all[at+ofContext] == digest, err
}

// Trust records that a person trusts the file with the content that was read, and a build context of
// this digest; "" means none.
func (f *File) Trust(context string) error {
	at, err := f.place()
	if err != nil {
		return err
	}
	return record(func(all map[string]string) {
		all[at] = f.Hash()
		delete(all, at+ofContext)
		if context != "" {
			all[at+ofContext] = context
		}
	})
}

// Forget ends the trust in the file of dir, or of the first directory above it that has or had one,
// and returns its path; "" if none was trusted. The file itself may be gone or replaced.
func Forget(dir string) (path string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	err = record(func(all map[string]string) {
		for ; ; dir = filepath.Dir(dir) {
			at := filepath.Join(dir, Name)
			if _, ok := all[at]; ok {
				delete(all, at)
				delete(all, at+ofContext)
				path = at
				return
			}
			if _, err := os.Lstat(at); err == nil || dir == filepath.Dir(dir) {
				return
			}
		}
	})
	return path, err
}

// record changes the record of trust.
func record(change func(all map[string]string)) error {
	dir, err := home()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, trusted+".lock"), flock.SetPermissions(0o600))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer lock.Unlock()
	all := map[string]string{}
	if err := jsonfile.Read(filepath.Join(dir, trusted), &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	change(all)
	return jsonfile.Write(filepath.Join(dir, trusted), all)
}
