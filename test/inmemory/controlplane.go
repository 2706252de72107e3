package inmemory

import (
	"context"
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// ControlPlane is an etcd and the API servers before it, behind one address.
type ControlPlane struct {
	*Etcd
	// certified has the certificate of all servers.
	certified *httptest.Server

	mu         sync.Mutex // also of what the servers have
	servers    []*Server
	next       int      // connections so far
	definition int      // the newest generation
	forms      []formed // that were ever written
	rights     []right  // since when
	audits     int      // requests so far, for Audit-Id
}

// formed says that servers may have written a form from a time on, and until one (zero: still).
type formed struct {
	Form
	since, until time.Time
}

// right says that a user may list all widgets from a time on, or not.
type right struct {
	user    string
	allowed bool
	since   time.Time
}

// Own is the user of listproxy's own account. Each user's token is the user's name.
const Own = "listproxy"

// New returns a control plane without a server.
func New(t testing.TB) *ControlPlane {
	t.Helper()
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	c := &ControlPlane{Etcd: newEtcd(), certified: certified}
	c.Put(services, Object{
		Name: "v1.example.com", moreMeta: `"labels":{"kube-aggregator.kubernetes.io/automanaged":"true"},`,
		more: `,"spec":{"group":"example.com","version":"v1"}`,
	})
	c.Define()
	return c
}

// Config reaches the address of the servers as Own.
func (c *ControlPlane) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certified.Certificate().Raw})
	return &rest.Config{
		Host: "https://upstream", BearerToken: Own, TLSClientConfig: rest.TLSClientConfig{CAData: ca, ServerName: "example.com"},
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
	}
}

// dial opens a connection to one of the servers that are up, as a balancer does.
func (c *ControlPlane) dial(ctx context.Context) (net.Conn, error) {
	up := slices.DeleteFunc(c.Servers(), func(s *Server) bool { return !s.IsUp() })
	if len(up) == 0 {
		return nil, syscall.ECONNREFUSED
	}
	c.mu.Lock()
	c.next++
	to := up[c.next%len(up)].listener
	c.mu.Unlock()
	if to == nil {
		return nil, syscall.ECONNREFUSED // meanwhile
	}
	return to.Dial(ctx, "", "")
}

// Servers are all that were ever added.
func (c *ControlPlane) Servers() []*Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.servers)
}

// Up is how many are up.
func (c *ControlPlane) Up() int {
	return len(slices.DeleteFunc(c.Servers(), func(s *Server) bool { return !s.IsUp() }))
}

// lag is the longest time after which a server has learned of a changed definition.
const lag = 8 * time.Second

// Define changes the definition of widgets: each server learns of that by itself.
func (c *ControlPlane) Define() {
	c.mu.Lock()
	c.definition++
	generation, servers := c.definition, slices.Clone(c.servers)
	c.mu.Unlock()
	c.Put(definitions, Object{
		Name: "widgets.example.com", moreMeta: fmt.Sprintf(`"generation":%d,`, generation),
		more: `,"spec":{"group":"example.com","names":{"kind":"Widget","plural":"widgets"},"scope":"Namespaced",` +
			`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},` +
			`"status":{"acceptedNames":{"kind":"Widget","plural":"widgets"},"conditions":[{"type":"Established","status":"True"}],"storedVersions":["v1"]}`,
	})
	for _, s := range servers {
		time.AfterFunc(rand.N(lag), func() { s.learn(generation) })
	}
}

// noteForms notes which forms servers write from now on.
func (c *ControlPlane) noteForms() {
	now, writes := time.Now(), map[Form]bool{}
	for _, s := range c.Servers() {
		if s.IsUp() {
			writes[s.seen().form] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range c.forms {
		if f.until.IsZero() && !writes[f.Form] {
			c.forms[i].until = now
		}
		if f.until.IsZero() {
			delete(writes, f.Form)
		}
	}
	for f := range writes {
		c.forms = append(c.forms, formed{f, now, time.Time{}})
	}
}

// MayWrite reports whether a server that was up after the times may have written a form: by a definition
// that was known to one after the first time, and of a release after the second.
func (c *ControlPlane) MayWrite(f Form, definition, release time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	byDefinition, byRelease := false, false
	for _, was := range c.forms {
		byDefinition = byDefinition || was.Definition == f.Definition && (was.until.IsZero() || was.until.After(definition))
		byRelease = byRelease || was.Release == f.Release && (was.until.IsZero() || was.until.After(release))
	}
	return byDefinition && byRelease
}

// Allow says whether a user may list all widgets from now on.
func (c *ControlPlane) Allow(user string, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights = append(c.rights, right{user, allowed, time.Now()})
}

// Allowed reports whether a user may list all widgets.
func (c *ControlPlane) Allowed(user string) bool { return c.AllowedSince(user, time.Now()) }

// AllowedSince reports whether a user might list all widgets at some time since then.
func (c *ControlPlane) AllowedSince(user string, since time.Time) bool {
	if user == Own {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	allowed := false
	for _, r := range c.rights {
		switch {
		case r.user != user:
		case !r.since.After(since):
			allowed = r.allowed
		default:
			allowed = allowed || r.allowed
		}
	}
	return allowed
}
