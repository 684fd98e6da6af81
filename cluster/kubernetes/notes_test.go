package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wisbox/wisbox/tool"
)

func withNotes(name, record string) PodOptions {
	o := session(name)
	o.Notes = Notes{Owner: "somebody", Record: record}
	return o
}

// TestNotesAreOnThePodFromItsCreationOn: notes are set at creation, and changes by a webhook are
// detected.
func TestNotesAreOnThePodFromItsCreationOn(t *testing.T) {
	s := newStore(t)
	pod, err := s.Create(t.Context(), withNotes("box", "first"))
	require.NoError(t, err)
	assert.Equal(t, Notes{Owner: "somebody", Record: "first"}, pod.Notes)
	made := s.pods["wisbox-box"]
	assert.Equal(t, "somebody", made.Labels["wisbox.dev/owner"])
	made.Annotations[recordNote] = "changed since"
	found, err := s.Find(t.Context(), "box")
	require.NoError(t, err, "a gateway changes it")
	assert.Equal(t, "changed since", found.Notes.Record)

	want := shapeFor(withNotes("box", "first")).generate("agents")
	got := want.DeepCopy()
	got.Labels[ownerLabel] = "another"
	says(t, verify(want, got), tool.Unavailable, "metadata.labels[wisbox.dev/owner]")
	for _, notes := range []Notes{{Owner: "UPPER", Record: "x"}, {Record: "x"}, {Owner: "x"}} {
		o := session("other")
		o.Notes = notes
		_, err := s.Create(t.Context(), o)
		says(t, err, tool.Invalid, "the notes of a Pod need")
	}
	assert.Equal(t, []string{"wisbox-box"}, s.names())
}

// TestANoteReplacesTheRecordThatWasSeen: Note replaces no other record.
func TestANoteReplacesTheRecordThatWasSeen(t *testing.T) {
	s := newStore(t)
	pod, err := s.Create(t.Context(), withNotes("box", "first"))
	require.NoError(t, err)
	var sent []map[string]string
	reply := http.StatusOK
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch {
			return false
		}
		assert.Equal(t, "application/json-patch+json", r.Header.Get("Content-Type"))
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&sent))
		switch reply {
		case http.StatusOK:
			answer(w, reply, s.pods["wisbox-box"])
		case http.StatusUnprocessableEntity:
			fail(w, reply, metav1.StatusReasonInvalid)
		default:
			fail(w, reply, metav1.StatusReasonNotFound)
		}
		return true
	}
	_, err = s.Note(t.Context(), pod, "second")
	require.NoError(t, err)
	const at = "/metadata/annotations/wisbox.dev~1record"
	assert.Equal(t, []map[string]string{
		{"op": "test", "path": "/metadata/uid", "value": pod.UID}, {"op": "test", "path": at, "value": "first"}, {"op": "replace", "path": at, "value": "second"},
	}, sent)
	reply = http.StatusUnprocessableEntity
	_, err = s.Note(t.Context(), pod, "second")
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	reply = http.StatusNotFound
	_, err = s.Note(t.Context(), pod, "second")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

// TestTheEndOfAnUnchangedPod: a Pod that was extended meanwhile stays.
func TestTheEndOfAnUnchangedPod(t *testing.T) {
	s := newStore(t)
	pod, err := s.Create(t.Context(), withNotes("box", "first"))
	require.NoError(t, err)
	object(pod).ResourceVersion = "7"
	var sent *metav1.Preconditions
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodDelete {
			return false
		}
		options := &metav1.DeleteOptions{}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(options))
		sent = options.Preconditions
		fail(w, http.StatusConflict, metav1.StatusReasonConflict)
		return true
	}
	assert.Equal(t, tool.Conflict, tool.KindOf(s.End(t.Context(), pod, true)))
	assert.Equal(t, "7", *sent.ResourceVersion)
	require.NoError(t, s.End(t.Context(), pod, false), "another Pod has its name")
	assert.Nil(t, sent.ResourceVersion)
	pod.Deleting = true
	require.NoError(t, s.End(t.Context(), pod, true))
	s.before, pod.Deleting = nil, false
	require.NoError(t, s.End(t.Context(), pod, false))
	assert.Empty(t, s.names())
	require.NoError(t, s.End(t.Context(), pod, false), "it is gone")
}

// heard is one call of a follower's function.
type heard struct {
	what string
	err  error
}

// TestAFollowerHearsOfEachChange: a follower also receives all Pods after a loss.
func TestAFollowerHearsOfEachChange(t *testing.T) {
	s := newStore(t)
	pod := shapeFor(withNotes("box", "first")).generate("agents")
	s.put(pod, "uid")
	theirs := shapeFor(withNotes("theirs", "x")).generate("agents")
	theirs.Name = "theirs" // has only the labels of a session's Pod
	s.put(theirs, "theirs")
	type reply struct {
		events []metav1.WatchEvent
		status int
	}
	replies := make(chan reply)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" {
			return false
		}
		assert.Contains(t, r.URL.Query().Get("labelSelector"), "wisbox.dev/owner")
		s.mu.Unlock() // a watch takes long
		defer s.mu.Lock()
		select {
		case a := <-replies:
			if a.status != 0 {
				fail(w, a.status, metav1.StatusReasonInternalError)
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			for _, e := range a.events {
				_ = json.NewEncoder(w).Encode(e)
			}
		case <-r.Context().Done():
		}
		return true
	}
	said := make(chan heard, 10)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Follow(ctx, &Follower{
			All: func(all []*Pod) {
				text := "all"
				for _, p := range all {
					text += " " + p.Session + "=" + p.Notes.Record
				}
				said <- heard{what: text}
			},
			One: func(p *Pod, gone bool) {
				said <- heard{what: fmt.Sprintf("one %s=%s %v %v %q", p.Session, p.Notes.Record, p.Deleting, gone, p.Problem)}
			},
			Lost: func(err error) { said <- heard{"lost", err} },
		})
	}()
	next := func() heard {
		select {
		case h := <-said:
			return h
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is heard")
			return heard{}
		}
	}
	event := func(kind string, edit func(*corev1.Pod)) metav1.WatchEvent {
		changed := pod.DeepCopy()
		changed.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		edit(changed)
		raw, err := json.Marshal(changed)
		require.NoError(t, err)
		e := metav1.WatchEvent{Type: kind}
		e.Object.Raw = raw
		return e
	}
	assert.Equal(t, "all box=first", next().what)
	replies <- reply{events: []metav1.WatchEvent{
		event("MODIFIED", func(p *corev1.Pod) { p.Annotations[recordNote] = "second" }),
		event("MODIFIED", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }),
		event("DELETED", func(*corev1.Pod) {}),
	}}
	assert.Equal(t, `one box=second false false ""`, next().what)
	assert.Regexp(t, `^one box=first true false "the Pod of session box is being deleted`, next().what)
	assert.Equal(t, `one box=first false true ""`, next().what)
	assert.Equal(t, "lost", next().what, "the watch was cut")
	assert.Equal(t, "all box=first", next().what)

	replies <- reply{status: http.StatusInternalServerError}
	lost := next()
	assert.Equal(t, "lost", lost.what)
	assert.Equal(t, tool.Unavailable, tool.KindOf(lost.err))
	assert.Equal(t, "all box=first", next().what)
	cancel()
	<-over
	assert.Empty(t, said)
}

// TestAFollowerIsToldOnceThatItMayNot: a forbidden watch causes one call of Lost.
func TestAFollowerIsToldOnceThatItMayNot(t *testing.T) {
	s := newStore(t)
	s.before = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		answer(w, http.StatusForbidden, &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
			Message: `pods is forbidden: User "u" cannot watch resource "pods" in API group "" in the namespace "agents"`,
		})
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond) // enough for several tries
	defer cancel()
	var told []error
	s.Follow(ctx, &Follower{Lost: func(err error) { told = append(told, err) }})
	require.Len(t, told, 1)
	says(t, told[0], tool.Permission, "you may not watch pods", "deploy/role.yaml")
	assert.Greater(t, len(s.asked), 1)
}

// TestAnAPIServerThatDoesNotAnswerAFollower: a silent API server counts as unreachable.
func TestAnAPIServerThatDoesNotAnswerAFollower(t *testing.T) {
	s := newStore(t)
	s.silence()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var told error
	s.Follow(ctx, &Follower{Lost: func(err error) { told = err; cancel() }})
	says(t, told, tool.Unavailable, "the API server of context prod")
}
