package inmemory

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Server is an API server. Its methods are safe for concurrent use.
type Server struct {
	name  string
	plane *ControlPlane

	// plane.mu guards what follows. listener is nil if the server is not up.
	listener *Listener
	http     *http.Server
	starts   int
	is       moment
	// status is what it answers to all requests, and hangs is closed when it answers again.
	status int
	hangs  chan struct{}
}

// moment is what a server is at one moment.
type moment struct {
	// began is the revision at which its watch cache began, and revision how far that is.
	began, revision int64
	// frozen: it stands still there.
	frozen bool
	// form is that in which it writes, by the definition that it knows.
	form Form
	// changed is closed when something of this has changed.
	changed chan struct{}
}

// AddServer adds a server, which is not up yet.
func (c *ControlPlane) AddServer(release string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Server{name: fmt.Sprintf("apiserver-%d", len(c.servers)), plane: c, is: moment{form: Form{Release: release}, changed: make(chan struct{})}}
	c.servers = append(c.servers, s)
	return s
}

// IsUp reports whether it accepts connections.
func (s *Server) IsUp() bool {
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	return s.listener != nil
}

// seen is what it is now.
func (s *Server) seen() moment {
	head := s.plane.Revision()
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	now := s.is
	if !now.frozen {
		now.revision = head
	}
	return now
}

// Start starts it as a process of a release: its watch cache begins now.
func (s *Server) Start(release string) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	listener, began := NewListener(), s.plane.Revision()
	server := &http.Server{
		Handler: http.HandlerFunc(s.serve), ErrorLog: log.New(io.Discard, "", 0), Protocols: protocols, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: s.plane.certified.TLS.Certificates, MinVersion: tls.VersionTLS13},
	}
	s.plane.mu.Lock()
	s.starts++
	s.is.began, s.is.frozen, s.is.form = began, false, Form{s.plane.definition, release}
	s.status, s.hangs, s.http, s.listener = 0, nil, server, listener
	holder := fmt.Sprintf("%s_%d", s.name, s.starts)
	s.plane.mu.Unlock()
	go func() { _ = server.ServeTLS(listener, "", "") }()
	s.plane.noteForms()
	s.plane.Put(leases, Object{Name: s.name, more: fmt.Sprintf(`,"spec":{"holderIdentity":%q}`, holder)})
}

// Stop ends it at once, and all its connections.
func (s *Server) Stop() {
	s.plane.mu.Lock()
	up, server := s.listener != nil, s.http
	s.listener = nil
	s.plane.mu.Unlock()
	if !up {
		return
	}
	_ = server.Close()
	s.change(func() {})
	s.plane.noteForms()
}

func (s *Server) change(do func()) {
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	if s.hangs != nil {
		close(s.hangs)
		s.hangs = nil
	}
	do()
	close(s.is.changed)
	s.is.changed = make(chan struct{})
}

// Heal ends all that is wrong with it.
func (s *Server) Heal() { s.change(func() { s.is.frozen, s.status = false, 0 }) }

// Freeze makes its watch cache stand still.
func (s *Server) Freeze() {
	at := s.plane.Revision()
	s.change(func() { s.is.frozen, s.is.revision = true, at })
}

// Hang makes it accept requests and not answer them.
func (s *Server) Hang() { s.change(func() { s.hangs = make(chan struct{}) }) }

// Refuse makes it answer all requests with a status.
func (s *Server) Refuse(status int) { s.change(func() { s.status = status }) }

// learn says that it has learned of a definition.
func (s *Server) learn(generation int) {
	s.change(func() { s.is.form.Definition = max(s.is.form.Definition, generation) })
	s.plane.noteForms()
}

// reaches waits until its watch cache has come to a revision.
func (s *Server) reaches(ctx context.Context, revision int64, within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		written, is := s.plane.Etcd.next(), s.seen()
		if is.revision >= revision {
			return true
		}
		select {
		case <-written:
		case <-is.changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// serve answers a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.plane.mu.Lock()
	hangs, status := s.hangs, s.status
	s.plane.audits++
	w.Header().Set("Audit-Id", fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.plane.audits))
	s.plane.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Type", "application/json")
	user, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case status != 0:
		w.Header().Set("Retry-After", "1")
		fail(w, status, "")
	case r.Method == http.MethodPost:
		s.review(w, r, user)
	default:
		s.get(w, r, user)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, user string) {
	for _, kind := range []Kind{Widgets, definitions, services, leases} {
		namespace, within := namespaceOf(r.URL.Path, kind)
		if !within {
			continue
		}
		if kind == Widgets && !s.plane.Allowed(user) || kind != Widgets && user != Own {
			fail(w, http.StatusForbidden, "Forbidden")
			return
		}
		if q := readQuery(r, kind, namespace); r.URL.Query().Get("watch") == "true" {
			s.watch(w, r, kind, q)
		} else {
			s.list(w, r, kind, q)
		}
		return
	}
	switch document := documents[r.URL.Path]; {
	case r.URL.Path == "/version":
		document = fmt.Sprintf(`{"major":"1","minor":"36","gitVersion":%q}`, s.seen().form.Release)
		fallthrough
	case document != "":
		_, _ = io.WriteString(w, document)
	default:
		fail(w, http.StatusNotFound, "NotFound")
	}
}

// documents are what does not change.
var documents = map[string]string{
	"/readyz": "ok",
	"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[` +
		`{"name":"widgets","singularName":"widget","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`,
}

func fail(w http.ResponseWriter, status int, reason string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, statusOf(status, reason)+"\n")
}

func statusOf(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d}`, reason, code)
}

// review answers a SelfSubjectAccessReview: may the caller list widgets?
func (s *Server) review(w http.ResponseWriter, r *http.Request, user string) {
	var asked authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return // broken off
	}
	asked.Status.Allowed = s.plane.Allowed(user)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked)
}
