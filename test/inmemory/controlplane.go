package inmemory

import (
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// ControlPlane is an etcd and the API servers in front of it, behind one address.
type ControlPlane struct {
	*Etcd
	// certificate is a closed server, which is there only for its TLS certificate. All servers use that certificate.
	certificate *httptest.Server

	mu          sync.Mutex // guards the following fields, and those of the servers
	servers     []*Server
	connections int               // the number of connections so far
	generation  int               // the generation of the newest definition of widgets
	forms       []usedForm        // the forms in which servers have written widgets so far, see Form
	rights      []right           // the changes of users' rights so far, in order
	requests    int               // the number of requests so far, for Audit-Id
	served      []Kind            // what servers list and watch
	documents   map[string]string // what servers answer at other paths
}

// usedForm is a form in which servers write widgets, or wrote them for a while.
type usedForm struct {
	Form
	until time.Time // the time since which no server writes in the form; zero if a server still does
}

// isUsedAfter reports whether some server wrote in the form at a time after at.
func (u usedForm) isUsedAfter(at time.Time) bool { return u.until.IsZero() || u.until.After(at) }

// right allows or forbids a user to list all widgets, from a time on.
type right struct {
	user    string
	allowed bool
	since   time.Time
}

// Own is the user of listproxy's own account. The token of a user is the user's name.
const Own = "listproxy"

// New returns a control plane without a server.
func New(t testing.TB) *ControlPlane {
	t.Helper()
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	c := &ControlPlane{
		Etcd: newEtcd(), certificate: certificate, served: []Kind{Widgets, Definitions, APIServices, Leases}, documents: maps.Clone(documents),
	}
	c.Put(APIServices, APIService("v1", "example.com", ""))
	c.Define()
	return c
}

// APIService returns the APIService of a group and version. Its automanaged label is "onstart", as for built-in groups, if the
// group has no dot or ends in .k8s.io, else "true", as for custom resources. service is JSON; "" means no service.
func APIService(version, group, service string) Object {
	managed := "true"
	if !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io") {
		managed = "onstart"
	}
	if service != "" {
		service = `,"service":` + service
	}
	return Object{
		Name: version + "." + group, MoreMeta: fmt.Sprintf(`"labels":{"kube-aggregator.kubernetes.io/automanaged":%q},`, managed),
		More: fmt.Sprintf(`,"spec":{"group":%q,"version":%q%s}`, group, version, service),
	}
}

// Config returns a client's configuration, with the token of Own.
func (c *ControlPlane) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.certificate.Certificate().Raw})
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
	c.connections++
	listener := up[c.connections%len(up)].listener
	c.mu.Unlock()
	if listener == nil {
		return nil, syscall.ECONNREFUSED // the server has stopped meanwhile
	}
	return listener.Dial(ctx, "", "")
}

// Serve makes servers list and watch another kind. Only Own may.
func (c *ControlPlane) Serve(k Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.served = append(c.served, k)
}

// kinds returns what servers list and watch.
func (c *ControlPlane) kinds() []Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.served)
}

// SetDocument sets what servers answer at a path.
func (c *ControlPlane) SetDocument(path, document string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.documents[path] = document
}

// document returns what servers answer at a path, or "" for paths that SetDocument and documents do not name.
func (c *ControlPlane) document(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.documents[path]
}

// Servers returns all servers that were ever added.
func (c *ControlPlane) Servers() []*Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.servers)
}

// Up returns the number of servers that are up.
func (c *ControlPlane) Up() int {
	return len(slices.DeleteFunc(c.Servers(), func(s *Server) bool { return !s.IsUp() }))
}

// maxLag is the longest time until a server learns of a changed definition.
const maxLag = 8 * time.Second

// definitionOfWidgets is the definition of widgets without its metadata.
const definitionOfWidgets = `,"spec":{"group":"example.com","names":{"kind":"Widget","plural":"widgets"},"scope":"Namespaced",` +
	`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},` +
	`"status":{"acceptedNames":{"kind":"Widget","plural":"widgets"},"conditions":[{"type":"Established","status":"True"}],` +
	`"storedVersions":["v1"]}`

// Define changes the definition of widgets, at first by creating it. Each server learns of the change after a random time up to
// maxLag, and from then on writes widgets in another form.
func (c *ControlPlane) Define() {
	c.mu.Lock()
	c.generation++
	generation, servers := c.generation, slices.Clone(c.servers)
	c.mu.Unlock()
	c.Put(Definitions, Object{
		Name: "widgets.example.com", MoreMeta: fmt.Sprintf(`"generation":%d,`, generation),
		More: definitionOfWidgets,
	})
	for _, s := range servers {
		time.AfterFunc(rand.N(maxLag), func() { s.learnDefinition(generation) })
	}
}

// updateForms records which forms have come into use, and which ones no server that is up writes any longer.
func (c *ControlPlane) updateForms() {
	now := time.Now()
	written := map[Form]bool{} // by a server that is up
	for _, s := range c.Servers() {
		if s.IsUp() {
			written[s.current().form] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, f := range c.forms {
		switch {
		case !f.until.IsZero(): // ended earlier
		case written[f.Form]:
			delete(written, f.Form) // recorded already
		default:
			c.forms[i].until = now
		}
	}
	for f := range written {
		c.forms = append(c.forms, usedForm{Form: f})
	}
}

// MayWrite reports whether an answer may have the form f. Some server must have written by f's definition after
// definitionSince, and some server must have had f's release after releaseSince. It need not be the same server.
func (c *ControlPlane) MayWrite(f Form, definitionSince, releaseSince time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	hasDefinition := slices.ContainsFunc(c.forms, func(used usedForm) bool {
		return used.Definition == f.Definition && used.isUsedAfter(definitionSince)
	})
	hasRelease := slices.ContainsFunc(c.forms, func(used usedForm) bool {
		return used.Release == f.Release && used.isUsedAfter(releaseSince)
	})
	return hasDefinition && hasRelease
}

// Allow sets whether a user may list all widgets from now on.
func (c *ControlPlane) Allow(user string, allowed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rights = append(c.rights, right{user: user, allowed: allowed, since: time.Now()})
}

// Allowed reports whether a user may list all widgets.
func (c *ControlPlane) Allowed(user string) bool { return c.AllowedSince(user, time.Now()) }

// AllowedSince reports whether a user was allowed to list all widgets at any time from since until now.
func (c *ControlPlane) AllowedSince(user string, since time.Time) bool {
	if user == Own {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	allowed := false
	for _, r := range c.rights {
		switch {
		case r.user != user: // the right of somebody else
		case !r.since.After(since): // the last change up to since decides whether the user was allowed at since
			allowed = r.allowed
		default: // a later change can only add that the user was allowed after since
			allowed = allowed || r.allowed
		}
	}
	return allowed
}
