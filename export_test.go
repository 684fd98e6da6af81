package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/settings"
	"github.com/wisbox/wisbox/sandbox"
)

// ServeTenantElsewhere is ServeTenant for a Manager whose sessions are another one's.
func (m *Manager) ServeTenantElsewhere(ctx context.Context, stream io.ReadWriteCloser, opts *TenantOptions) error {
	return m.serveTenant(ctx, stream, opts)
}

// OfCluster marks an error as one of the cluster, and ErrLost is the cause of one that isn't hidden.
var (
	OfCluster = ofCluster
	ErrLost   = errLost
)

// Told returns an error as a tenant sees it.
func (m *Manager) Told(err error, id, name string, hidden func(error)) error {
	return (&guest{m: m, opts: TenantOptions{Hidden: hidden}}).told(err, id, name)
}

// Hello returns a manager's introduction to another machine.
func (m *Manager) Hello() far.Hello { return m.hello() }

// Holders finds and starts the holders of a manager's sessions.
func (m *Manager) Holders() hold.Root { return m.here.holders }

// ManagerOf returns the manager of a session.
func ManagerOf(s *Session) *Manager { return s.m }

// CacheDir returns a manager's state root.
func (m *Manager) CacheDir() string { return m.here.store.Path() }

// SetTakeWait changes the time that a holder has to take an operation.
func SetTakeWait(t *testing.T, wait time.Duration) {
	usual := hold.TakeWait
	hold.TakeWait = wait
	t.Cleanup(func() { hold.TakeWait = usual })
}

// SetSystem changes the program's operating system.
func SetSystem(t *testing.T, name string) {
	usual := system
	system = name
	t.Cleanup(func() { system = usual })
}

// Operations returns the names of all operations on a session, with the names of their arguments.
func Operations() map[string][]string {
	all := map[string][]string{portOp: {"port"}}
	for _, s := range specs {
		if s.op != nil {
			all[s.name] = argNames(reflect.TypeOf(s.op()).Elem())
		}
	}
	return all
}

// PlaceOperations returns the names of all operations on a place.
func PlaceOperations() (all []string) {
	for _, s := range specs {
		if s.place != nil {
			all = append(all, s.name)
		}
	}
	return all
}

// Settings returns the names of all settings that one machine sends another.
func Settings() []string { return argNames(reflect.TypeFor[farOptions]()) }

// TenantOperations, TenantPlaceOperations and TenantSettings return those that a tenant may name.
func TenantOperations() map[string][]string {
	all := map[string][]string{}
	for _, s := range specs {
		if s.place == nil && s.tenants != nil {
			all[s.name] = s.tenants.args
		}
	}
	return all
}

func TenantPlaceOperations() (all []string) {
	for _, s := range specs {
		if s.place != nil && s.tenants != nil {
			all = append(all, s.name)
		}
	}
	return all
}
func TenantSettings() []string { return settings.Keys[farOptions]("tenant") }

func argNames(t reflect.Type) (out []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported() && !f.Anonymous:
		case f.Anonymous && name == "":
			out = append(out, argNames(f.Type)...)
		default:
			out = append(out, cmp.Or(name, f.Name))
		}
	}
	return out
}

// TenantArguments checks the arguments that a tenant gives an operation.
func TenantArguments(op string) func(raw json.RawMessage) error {
	return func(raw json.RawMessage) error { return specByName[op].tenants.names(op, raw) }
}

// CheckTenantSettings checks the settings that a tenant asks for.
var CheckTenantSettings = checkSettings

// FitsPods returns an error for options that sessions on Kubernetes lack.
var FitsPods = fits

// WrapSite replaces the context of a session on another machine.
func WrapSite(s *Session, wrap func(context.Context) context.Context) {
	at := s.at.(*outpost)
	at.ctx = wrap(at.ctx)
}

// ExplainFar sets the explanation of failed calls of a session on another machine.
func ExplainFar(s *Session, why func(ctx context.Context, began time.Time, err error) error) {
	s.at.(*outpost).t.why = why
}

// GuestDo performs an operation for a tenant.
func GuestDo(ctx context.Context, m *Manager, t Tenant, req hold.Request) error {
	_, err := (&guest{m: m, opts: TenantOptions{Tenant: t}}).Do(ctx, req, hold.Streams{})
	return err
}

// GuestProcess is a tenant's program. done is called with the error of its end.
func GuestProcess(m *Manager, p sandbox.Process, done func(error)) sandbox.Process {
	return guestProcess{p, &guest{m: m}, done, "id", "name"}
}
