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

	// plane.mu guards the following fields.
	listener *Listener    // nil if the server is not up
	server   *http.Server // nil before the first start
	starts   int
	state    serverState
	refusal  int           // the status of all answers; 0: requests are not refused
	hangEnds chan struct{} // requests wait until it is closed; nil: they do not wait
}

// serverState is the state of a server and of its watch cache at one time. A watch cache follows etcd, and answers watches and
// some lists, as that of kube-apiserver does.
type serverState struct {
	began    int64         // the watch cache's first revision
	revision int64         // the watch cache's revision
	frozen   bool          // the watch cache stays at its revision
	form     Form          // the form in which the server writes widgets
	changed  chan struct{} // closed at the next change of the state
}

// AddServer adds a server, which is not up yet.
func (c *ControlPlane) AddServer(release string) *Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Server{
		name: fmt.Sprintf("apiserver-%d", len(c.servers)), plane: c,
		state: serverState{form: Form{Release: release}, changed: make(chan struct{})},
	}
	c.servers = append(c.servers, s)
	return s
}

// IsUp reports whether the server accepts connections.
func (s *Server) IsUp() bool {
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	return s.listener != nil
}

// current returns the current state, with the revision that the watch cache has now.
func (s *Server) current() serverState {
	head := s.plane.Revision()
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	state := s.state
	if !state.frozen {
		state.revision = head
	}
	return state
}

// Start starts the server as a process of a release. Its watch cache begins at the current revision. Its Lease gets a new
// holder, by which listproxy notices the start.
func (s *Server) Start(release string) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	listener, began := NewListener(), s.plane.Revision()
	server := &http.Server{
		Handler: http.HandlerFunc(s.serve), ErrorLog: log.New(io.Discard, "", 0), Protocols: protocols, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: s.plane.certificate.TLS.Certificates, MinVersion: tls.VersionTLS13},
	}
	s.plane.mu.Lock()
	s.starts++
	s.state.began = began
	s.state.frozen = false
	s.state.form = Form{Definition: s.plane.generation, Release: release}
	s.refusal = 0
	s.hangEnds = nil
	s.server = server
	s.listener = listener
	holder := fmt.Sprintf("%s_%d", s.name, s.starts)
	s.plane.mu.Unlock()
	go func() { _ = server.ServeTLS(listener, "", "") }()
	s.plane.updateForms()
	s.plane.Put(Leases, Object{Namespace: "kube-system", Name: s.name, More: fmt.Sprintf(`,"spec":{"holderIdentity":%q}`, holder)})
}

// Stop stops the server and closes its connections. It does nothing if the server is not up.
func (s *Server) Stop() {
	s.plane.mu.Lock()
	server, wasUp := s.server, s.listener != nil
	s.listener = nil
	s.plane.mu.Unlock()
	if !wasUp {
		return
	}
	_ = server.Close()
	s.update(func() {}) // ends Hang and wakes watches
	s.plane.updateForms()
}

// update calls set, which changes the server's fields, and wakes watches. It also ends Hang, as all changes do.
func (s *Server) update(set func()) {
	s.plane.mu.Lock()
	defer s.plane.mu.Unlock()
	if s.hangEnds != nil {
		close(s.hangEnds)
		s.hangEnds = nil
	}
	set()
	close(s.state.changed)
	s.state.changed = make(chan struct{})
}

// Heal ends Freeze, Hang and Refuse.
func (s *Server) Heal() {
	s.update(func() {
		s.state.frozen = false
		s.refusal = 0
	})
}

// Freeze makes the watch cache stay at the current revision. It ends Hang.
func (s *Server) Freeze() {
	revision := s.plane.Revision()
	s.update(func() {
		s.state.frozen = true
		s.state.revision = revision
	})
}

// Hang makes the server accept requests and not answer.
func (s *Server) Hang() { s.update(func() { s.hangEnds = make(chan struct{}) }) }

// Refuse makes the server answer all requests with a status. It ends Hang.
func (s *Server) Refuse(status int) { s.update(func() { s.refusal = status }) }

// learnDefinition makes the server write widgets by the definition of a generation, unless it knows a newer one.
func (s *Server) learnDefinition(generation int) {
	s.update(func() { s.state.form.Definition = max(s.state.form.Definition, generation) })
	s.plane.updateForms()
}

// awaitRevision waits until the watch cache has reached a revision. It returns false if timeout or ctx ends before.
func (s *Server) awaitRevision(ctx context.Context, revision int64, timeout time.Duration) bool {
	ends := time.Now().Add(timeout)
	for {
		written, state := s.plane.Etcd.next(), s.current()
		if state.revision >= revision {
			return true
		}
		if left := time.Until(ends); left <= 0 || !waitForChange(ctx, written, state.changed, left) {
			return false
		}
	}
}

// serve answers a request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.plane.mu.Lock()
	hangEnds, refusal := s.hangEnds, s.refusal
	s.plane.requests++
	w.Header().Set("Audit-Id", fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.plane.requests))
	s.plane.mu.Unlock()
	if hangEnds != nil {
		select {
		case <-hangEnds:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("Content-Type", "application/json")
	user, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case refusal != 0:
		w.Header().Set("Retry-After", "1")
		writeStatus(w, refusal, "")
	case r.Method == http.MethodPost:
		s.review(w, r, user)
	default:
		s.get(w, r, user)
	}
}

// get answers a GET of a user.
func (s *Server) get(w http.ResponseWriter, r *http.Request, user string) {
	for _, kind := range s.plane.kinds() {
		namespace, ok := namespaceOf(r.URL.Path, kind)
		if !ok {
			continue
		}
		allowed := user == Own
		if kind == Widgets {
			allowed = s.plane.Allowed(user)
		}
		if !allowed {
			writeStatus(w, http.StatusForbidden, "Forbidden")
			return
		}
		if q := readQuery(r, kind, namespace); r.URL.Query().Get("watch") == "true" {
			s.watch(w, r, kind, q)
		} else {
			s.list(w, r, kind, q)
		}
		return
	}
	document := s.plane.document(r.URL.Path)
	if r.URL.Path == "/version" && document == "" {
		document = fmt.Sprintf(`{"major":"1","minor":"36","gitVersion":%q}`, s.current().form.Release)
	}
	if document == "" {
		writeStatus(w, http.StatusNotFound, "NotFound")
		return
	}
	_, _ = io.WriteString(w, document)
}

// documents are what servers answer at paths that are no lists, unless SetDocument changes it.
var documents = map[string]string{
	"/readyz": "ok",
	"/api":    `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis/example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"example.com/v1","resources":[` +
		`{"name":"widgets","singularName":"widget","kind":"Widget","namespaced":true,"verbs":["list","watch"]}]}`,
}

// writeStatus answers with a Status.
func writeStatus(w http.ResponseWriter, status int, reason string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, StatusOf(status, reason)+"\n")
}

// StatusOf returns a Status in JSON.
func StatusOf(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":%q,"code":%d}`, reason, code)
}

// review answers every SelfSubjectAccessReview as if it asked for a list of all widgets.
func (s *Server) review(w http.ResponseWriter, r *http.Request, user string) {
	var asked authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return // the request broke off
	}
	asked.Status.Allowed = s.plane.Allowed(user)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(asked)
}
