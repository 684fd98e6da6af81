// Package podbook stores the records of a server's sandboxes on their Pods, for all replicas of
// a gateway.
//
// A record is sealed, because it contains the ID, which grants access to the sandbox's ports,
// and variables that may be secret: users with read access to Pods must not learn these. A
// record that wasn't sealed with the replicas' secret, or that was copied from another Pod, is
// rejected.
package podbook

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/wisbox/wisbox/cluster"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/tool"
)

const (
	keyBytes  = 32
	maxRecord = 160 << 10 // bytes: all annotations of a Pod have at most 256 KiB
	hashLen   = 20        // characters of a hash in a name or a label
)

// again bounds the retries of a change after conflicts with other replicas.
var again = retry.Times{Count: 10, Pause: 20 * time.Millisecond}

// Book implements [registry.Book].
type Book struct {
	place cluster.Place
	names []byte // the key for the names of Pods
	seal  cipher.AEAD
	log   *slog.Logger
}

var _ registry.Book = (*Book)(nil)

// New returns a Book for the Pods of a place. All replicas must use the same secret.
func New(place cluster.Place, secret []byte, log *slog.Logger) (*Book, error) {
	b := &Book{place: place, log: log}
	var err error
	if b.names, err = hkdf.Key(sha256.New, secret, nil, "wisbox pod names", keyBytes); err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "wisbox pod records", keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	b.seal, err = cipher.NewGCMWithRandomNonce(block)
	return b, err
}

// Session returns the name of a sandbox's session and Pod. It doesn't reveal the ID.
func (b *Book) Session(id string) string {
	mac := hmac.New(sha256.New, b.names)
	_, _ = mac.Write([]byte(id))
	return hex.EncodeToString(mac.Sum(nil))[:hashLen]
}

// Owner returns the label value of an owner's Pods: the beginning of the SHA-256 of its name.
func Owner(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])[:hashLen]
}

// Notes returns the notes for a new Pod.
func (b *Book) Notes(rec registry.Record) (cluster.Notes, error) {
	text, err := b.sealed(rec)
	return cluster.Notes{Owner: Owner(rec.Owner), Record: text}, err
}

func (b *Book) sealed(rec registry.Record) (string, error) {
	raw, err := json.Marshal(rec)
	if err != nil {
		return "", err
	}
	if len(raw) > maxRecord {
		return "", tool.Errorf(tool.TooLarge, "the sandbox's variables and metadata have %d bytes together with its settings; on Kubernetes they may have %d: write large ones into a file of the sandbox", len(raw), maxRecord)
	}
	return base64.StdEncoding.EncodeToString(b.seal.Seal(nil, nil, raw, []byte(b.Session(rec.ID)))), nil
}

var errForeign = errors.New("the record of a Pod is not one of this gateway's secret")

func (b *Book) entry(pod *cluster.Pod) (registry.Entry, error) {
	e := registry.Entry{Ending: pod.Deleting}
	if !pod.Away {
		e.Problem = pod.Problem
	}
	raw, err := base64.StdEncoding.DecodeString(pod.Notes.Record)
	if err == nil {
		raw, err = b.seal.Open(nil, nil, raw, []byte(pod.Session))
	}
	if err == nil {
		err = json.Unmarshal(raw, &e.Record)
	}
	if err != nil || b.Session(e.ID) != pod.Session {
		e.Record = registry.Record{}
		return e, errForeign
	}
	return e, nil
}

// Follow implements [registry.Book].
func (b *Book) Follow(ctx context.Context, f *registry.Follower) {
	b.place.Follow(ctx, &cluster.Follower{
		All: func(all []*cluster.Pod) {
			entries := make([]registry.Entry, 0, len(all))
			for _, pod := range all {
				if e, ok := b.read(pod); ok {
					entries = append(entries, e)
				}
			}
			f.All(entries)
		},
		One: func(pod *cluster.Pod, gone bool) {
			if e, ok := b.read(pod); ok {
				f.One(e, gone)
			}
		},
		Lost: f.Lost,
	})
}

// read returns the entry of a Pod. It ignores Pods of gateways with another secret.
func (b *Book) read(pod *cluster.Pod) (registry.Entry, bool) {
	e, err := b.entry(pod)
	if err != nil {
		b.log.Debug("a Pod is left alone", "session", pod.Session, "error", err)
	}
	return e, err == nil
}

// Get implements [registry.Book].
func (b *Book) Get(ctx context.Context, id string) (registry.Entry, error) {
	_, e, err := b.look(ctx, id)
	return e, err
}

// Owned implements [registry.Book].
func (b *Book) Owned(ctx context.Context, owner string) ([]registry.Entry, error) {
	all, err := b.place.Noted(ctx, Owner(owner))
	if err != nil {
		return nil, Explain(err)
	}
	var entries []registry.Entry
	for _, pod := range all {
		if e, ok := b.read(pod); ok && e.Owner == owner {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// look returns a Pod with its entry. If the record is damaged, it returns the Pod with
// not_found.
func (b *Book) look(ctx context.Context, id string) (*cluster.Pod, registry.Entry, error) {
	pod, err := b.place.Look(ctx, b.Session(id))
	if err != nil {
		return nil, registry.Entry{}, Explain(err)
	}
	e, err := b.entry(pod)
	if err != nil {
		return pod, e, tool.Errorf(tool.NotFound, "the sandbox was not found").Because(err)
	}
	return pod, e, nil
}

// Change implements [registry.Book].
func (b *Book) Change(ctx context.Context, id string, edit func(*registry.Record) bool) (registry.Record, error) {
	var rec registry.Record
	err := again.Do(ctx, isConflict, func() error {
		pod, e, err := b.look(ctx, id)
		if pod == nil {
			return err
		}
		if e.Ending || e.Problem != "" {
			return tool.Errorf(tool.NotFound, "the sandbox was not found")
		}
		rec = e.Record
		next := e.Record
		if !edit(&next) {
			return err
		}
		next.Version++
		text, err := b.sealed(next)
		if err != nil {
			return err
		}
		if _, err = b.place.Note(ctx, pod, text); err != nil {
			return Explain(err)
		}
		rec = next
		return nil
	})
	return rec, lost(err)
}

// End implements [registry.Book].
func (b *Book) End(ctx context.Context, id string, may func(registry.Record) bool) (ended bool, rec registry.Record, _ error) {
	err := again.Do(ctx, isConflict, func() error {
		pod, e, err := b.look(ctx, id)
		if pod == nil && tool.KindOf(err) == tool.NotFound {
			ended = true
			return nil
		}
		if pod == nil {
			return err
		}
		rec = e.Record
		if may != nil && !may(rec) {
			ended = false
			return nil
		}
		rec.ID, ended = id, true
		return Explain(b.place.End(ctx, pod, may != nil))
	})
	return ended && err == nil, rec, lost(err)
}

func isConflict(err error) bool { return tool.KindOf(err) == tool.Conflict }

// lost returns the error for clients after a change failed because of repeated conflicts.
func lost(err error) error {
	if isConflict(err) {
		return tool.Errorf(tool.Busy, "the sandbox is being changed by others; try again").Because(err)
	}
	return err
}

// Hide returns an error without details of the cluster. The kind stays, except that permission
// and unsupported become unavailable. The cause stays for the log.
func Hide(err error) error {
	switch kind := tool.KindOf(err); {
	case err == nil:
		return nil
	case errors.Is(err, cluster.ErrMemory):
		return tool.Errorf(kind, "the sandbox's programs took all of its memory, and all of them were killed; kept interpreters and background processes are lost, files are not; use less memory, or create a sandbox with more").Because(err)
	case kind == tool.Closed:
		return tool.Errorf(kind, "the sandbox has ended, and its files are lost; create another one").Because(err)
	case kind == tool.Permission, kind == tool.Unavailable, kind == tool.Unsupported:
		return tool.Errorf(tool.Unavailable, "the sandbox can't be reached now; try again, and if the error stays ask the server's operator, whose log has the cause").Because(err)
	}
	return err
}

// Explain returns an error of the cluster in a form for the gateway's clients. Missing rights
// and exceeded quotas of the cluster are the operator's, not theirs.
func Explain(err error) error {
	if errors.Is(err, cluster.ErrNoNamespace) {
		return tool.Errorf(tool.Unavailable, "%s", tool.AsError(err).Message).Because(err)
	}
	switch tool.KindOf(err) {
	case tool.Limit:
		return tool.Errorf(tool.NoSpace, "this server has no room for one more sandbox now; try again later").Because(err)
	case tool.Permission, tool.Closed:
		return tool.Errorf(tool.Unavailable, "%s", tool.AsError(err).Message).Because(err)
	}
	return err
}
