// Package cluster describes the places on Kubernetes where sessions live: one Pod per session, with a wisbox in each.
// Package [github.com/wisbox/wisbox/cluster/kubernetes] implements it, and registers itself in programs that import it. The
// content of a stream isn't this package's concern.
package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// InCluster is the name of the cluster that this process runs in, as a Pod.
const InCluster = "in-cluster"

// Place is a namespace of a cluster. Its methods may be called concurrently. The caller must close it.
type Place interface {
	// String returns the address of the place.
	String() string
	// Close closes idle connections. Pods and their streams stay.
	Close()

	// Create creates a Pod and returns once both of its containers run. The error for a name in use is exists. If Create
	// fails or ctx ends, no Pod is left.
	Create(ctx context.Context, s PodOptions) (*Pod, error)
	// Find returns the Pod of a session, and an error if it can't be used. The error for an unknown name is not_found.
	Find(ctx context.Context, name string) (*Pod, error)
	// Now returns the current state of the Pod. It returns an error if the Pod has ended or another Pod has its name.
	Now(ctx context.Context, of *Pod) (*Pod, error)
	// Lost returns the reason that programs ended unexpectedly, if the node has ended their container since the given
	// time or the container doesn't run. Otherwise it returns nil.
	Lost(of *Pod, since time.Time) error
	// List returns the Pods of all sessions. ListOf returns those of an owner, see [Notes].
	List(ctx context.Context) ([]*Pod, error)
	ListOf(ctx context.Context, owner string) ([]*Pod, error)
	// Remove ends a session with its programs and files, and returns the UID of its Pod when the Pod is gone. The error
	// for an unknown name is not_found.
	Remove(ctx context.Context, name string) (uid string, err error)
	// Withdraw ends the session of this Pod like Remove, but never another Pod of the same name. A missing Pod is not an
	// error.
	Withdraw(ctx context.Context, of *Pod) error

	// Relay opens a stream to the wisbox of a Pod. The stream outlives ctx.
	Relay(ctx context.Context, pod *Pod) (io.ReadWriteCloser, error)
	// Explain returns the reason that a relay's stream ended without a hello; err is the error that it ended with.
	Explain(of *Pod, opened io.ReadWriteCloser, err error) error

	// Look returns a Pod with notes, even one that can't be used. Noted returns those of an owner.
	Look(ctx context.Context, name string) (*Pod, error)
	Noted(ctx context.Context, owner string) ([]*Pod, error)
	// Note replaces the record in a Pod's notes. If the Pod has changed since it was read, the error is a conflict.
	Note(ctx context.Context, of *Pod, record string) (*Pod, error)
	// End requests the deletion of a Pod. With unchanged, the error is a conflict if the Pod has changed since it was
	// read.
	End(ctx context.Context, of *Pod, unchanged bool) error
	// Follow calls f with the Pods with notes until ctx ends. While the API server is unreachable, it retries at most
	// every 5 seconds.
	Follow(ctx context.Context, f *Follower)
}

// Options configure a Place. The zero value works.
type Options struct {
	// Kubeconfig is the path of the kubeconfig file. Default: as for kubectl, the files of
	// $KUBECONFIG, or ~/.kube/config.
	Kubeconfig string
	// Placing bounds the time that a Pod may wait for a node. Default 60 s.
	Placing time.Duration
	// Starting bounds the time that a node may then take to pull the image and start the
	// containers. Default 5 min.
	Starting time.Duration
	// Logger logs details that callers don't see. Default: none.
	Logger *slog.Logger
}

// Pod is the last known state of a session's Pod.
type Pod struct {
	Session string // the name of its session
	UID     string // identifies the Pod; another Pod may later have the same name
	Created time.Time
	// Problem is the reason that the session can't be used, or "".
	Problem string
	// Away reports that the problem is a node that doesn't answer. The session may recover.
	Away bool
	// Starting reports that the Pod waits for a node or an image. No session is open yet.
	Starting bool
	// Deleting reports whether the Pod's deletion was requested.
	Deleting bool
	// Notes are the gateway's data on the Pod.
	Notes Notes
	// Object belongs to the Place.
	Object any
}

// PodOptions describe the Pod of a session.
type PodOptions struct {
	// Name of the session: ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$, unique in the namespace.
	Name string
	// Image of both containers, with wisbox at /usr/local/bin/wisbox.
	Image string
	// Pull is the image pull policy. Default [PullMissing].
	Pull Pull
	// Limits of the session's programs. Default: as for [sandbox.Limits].
	Limits sandbox.Limits
	// Snapshots bounds the size of the session's snapshots in bytes. Default: twice the disk
	// limit.
	Snapshots int64
	// TTL is the time after which the Pod ends by itself; 0 means never.
	TTL time.Duration
	// UserHome mounts the workspace at /home/user as well, see [sandbox.Spec.UserHome].
	UserHome bool
	// RuntimeClass of the Pod, such as gVisor's. Default: the nodes' default.
	RuntimeClass string
	// Notes are set when the Pod is created. Default: none.
	Notes Notes
}

// Pull decides whether a node pulls an image. The values are Kubernetes's own.
type Pull string

// The values of [PodOptions.Pull].
const (
	PullMissing Pull = "IfNotPresent"
	PullAlways  Pull = "Always"
	PullNever   Pull = "Never"
)

// Notes are a gateway's data on the Pod of a session. The zero value means no notes.
type Notes struct {
	// Owner is a label: `kubectl get pods -l wisbox.dev/owner=…` finds an owner's Pods. It has
	// the form of a session's name.
	Owner string
	// Record is any text, stored in an annotation. It must not be empty if Owner is set.
	Record string
}

// Follower receives the Pods with notes.
type Follower struct {
	// All receives all Pods with notes: first, and again whenever changes may have been missed.
	All func([]*Pod)
	// One receives a new or changed Pod, in the order of the changes; gone reports that it was
	// deleted.
	One func(pod *Pod, gone bool)
	// Lost receives the reason when changes stop arriving, once per loss. The next call of All
	// ends the loss.
	Lost func(error)
}

var (
	// ErrNoNamespace is the cause of a not_found error if the namespace is missing, rather than a Pod.
	ErrNoNamespace = errors.New("the namespace doesn't exist")
	// ErrMemory is the cause of an error of [Place.Lost] if the programs ran out of memory.
	ErrMemory = errors.New("the container was out of memory")
)

var open func(kubeContext, namespace string, opts *Options) (Place, error)

// Register sets the function behind [New]. It must be called by an init function.
func Register(driver func(kubeContext, namespace string, opts *Options) (Place, error)) {
	open = driver
}

// Linked reports whether a driver is registered.
func Linked() bool { return open != nil }

// New returns the place with that context of the kubeconfig, which must have it, and namespace. If there is no context
// named [InCluster], that name means the cluster that this process runs in, accessed with the Pod's service account. The
// namespace may then be "", which means the Pod's own. New doesn't connect. If nothing is registered, it is unsupported.
func New(kubeContext, namespace string, opts *Options) (Place, error) {
	if open == nil {
		return nil, tool.Errorf(tool.Unsupported, "this program is built without Kubernetes; it must import github.com/wisbox/wisbox/cluster/kubernetes").In("address")
	}
	return open(kubeContext, namespace, opts)
}
