package observe

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

// receivedAt is the time at which audited requests came.
var receivedAt = time.Date(2025, 3, 4, 5, 6, 7, 8_009_000, time.UTC)

// auditedAlice returns a user with all attributes that a user can have.
func auditedAlice() user.Info {
	return &user.DefaultInfo{
		Name: "alice", UID: "42", Groups: []string{"team-a", "system:authenticated"},
		Extra: map[string][]string{"example.com/scopes": {"read", "write"}, "a": nil},
	}
}

// auditedRequest returns a request whose User-Agent must be in its event. Its other headers must not be there.
func auditedRequest(uri string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, uri, http.NoBody)
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("User-Agent", "kubectl/v1.36.3")
	r.Header.Set("Authorization", "Bearer of-secrets")
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	r.Header.Set("X-Real-Ip", "198.51.100.2")
	return r
}

// auditedPods returns the parsed request for one pod.
func auditedPods() *policy.Request {
	return &policy.Request{Version: "v1", Resource: "pods", Namespace: "team-a", Name: "web"}
}

// TestEvent: AuditLog.Write writes who asked for what, and what the answer from memory was. Of the request's headers the
// event has only the User-Agent.
func TestEvent(t *testing.T) {
	r := auditedRequest("/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dweb&resourceVersion=1234")
	got := writeLine(t, AuditEvent{
		Request: r, Asked: auditedPods(), Caller: auditedAlice(),
		ID:        "1b671a64-40d5-491e-99b0-da01ff1f3341",
		Semantics: policy.Exact, Representation: media.MetadataJSON, Revision: 1234, Items: 1,
	})
	want := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",` +
		`"auditID":"1b671a64-40d5-491e-99b0-da01ff1f3341","stage":"ResponseStarted",` +
		`"requestURI":"/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dweb\u0026resourceVersion=1234",` +
		`"verb":"list","user":{"username":"alice","uid":"42","groups":["team-a","system:authenticated"],` +
		`"extra":{"a":null,"example.com/scopes":["read","write"]}},` +
		`"sourceIPs":["192.0.2.7"],"userAgent":"kubectl/v1.36.3",` +
		`"objectRef":{"resource":"pods","namespace":"team-a","name":"web","apiVersion":"v1"},` +
		`"responseStatus":{"metadata":{},"code":200},` +
		`"requestReceivedTimestamp":"2025-03-04T05:06:07.008009Z","stageTimestamp":"2000-01-01T00:00:00.000000Z",` +
		`"annotations":{"authorization.k8s.io/decision":"allow","listproxy.io/answered-from":"memory",` +
		`"listproxy.io/items":"1","listproxy.io/representation":"metadata-json","listproxy.io/revision":"1234",` +
		`"listproxy.io/semantics":"exact"}}` + "\n"
	expect.Same(t, want, got)

	// If the caller impersonates a user, the event has both.
	bob := &user.DefaultInfo{Name: "bob", Groups: []string{"b"}}
	got = writeLine(t, AuditEvent{Request: r, Asked: auditedPods(), Caller: auditedAlice(), Impersonated: bob})
	expect.Says(t, got, `}},"impersonatedUser":{"username":"bob","groups":["b"]},"sourceIPs"`)
}

// writeLine returns the line of an event of a request that came at receivedAt. The event is written at the beginning of
// synctest's time, in 2000.
func writeLine(t *testing.T, event AuditEvent) string {
	t.Helper()
	event.Received = receivedAt
	file := &fakeFile{}
	synctest.Test(t, func(t *testing.T) {
		expect.NoError(t, NewAuditLog(file).Write(event))
	})
	return file.String()
}

// FuzzEvent: the event of a request is one line of valid JSON, whatever the client chooses.
func FuzzEvent(f *testing.F) {
	// add is f.Add with the names of the arguments.
	add := func(path, query, agent, id, name, group, key, value string) {
		f.Add(path, query, agent, id, name, group, key, value)
	}
	add("/api/v1/pods", "limit=1&continue=abc", "kubectl/v1.36.3", "id", "alice", "group", "", "")
	// Quotes, line breaks, control characters, and bytes that are not UTF-8.
	add("/api/v1/namespaces/a b/pods", "labelSelector=a\"\\<b>&\u2028", "\xff\xfe\x00\x1f\x7f", "\xff\"", "\n", "\u2029", "\xc3\x28", "\\")
	// Bad escapes, and a long User-Agent.
	add("//%2f/..", "%zz;a=%", strings.Repeat("é", 513), "", "", "", "k", "v")
	f.Fuzz(func(t *testing.T, path, query, agent, id, name, group, key, value string) {
		r := auditedRequest("/")
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header = http.Header{"User-Agent": {agent}}
		asked := &policy.Request{Group: group, Version: value, Resource: key, Namespace: path, Name: name}
		caller := &user.DefaultInfo{
			Name: name, UID: id, Groups: []string{group, value}, Extra: map[string][]string{key: {value, name}},
		}
		text := writeLine(t, AuditEvent{
			Request: r, Asked: asked, Caller: caller, ID: id, Revision: math.MaxUint64, Items: math.MaxInt,
		})
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("not one line of JSON: %q", text)
		}
	})
}
