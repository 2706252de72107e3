package observe

import (
	"encoding/json"
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

var auditReceived = time.Date(2025, 3, 4, 5, 6, 7, 8_009_000, time.UTC)

// auditedAlice is a user with everything that a user can have.
func auditedAlice() user.Info {
	return &user.DefaultInfo{
		Name: "alice", UID: "42", Groups: []string{"team-a", "system:authenticated"},
		Extra: map[string][]string{"example.com/scopes": {"read", "write"}, "a": nil},
	}
}

func auditedRequest(uri string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, uri, http.NoBody)
	r.RemoteAddr = "192.0.2.7:1234"
	r.Header.Set("User-Agent", "kubectl/v1.36.3")
	r.Header.Set("Authorization", "Bearer of-secrets")
	r.Header.Set("X-Forwarded-For", "198.51.100.1")
	r.Header.Set("X-Real-Ip", "198.51.100.2")
	return r
}

func auditedPods() *policy.Request {
	return &policy.Request{Version: "v1", Resource: "pods", Namespace: "team-a", Name: "web"}
}

// TestEvent: an event says who asked for what, and what the answer was made of; of the request's
// headers it has the User-Agent alone.
func TestEvent(t *testing.T) {
	r := auditedRequest("/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dweb&resourceVersion=1234")
	event := line(t, r, auditedPods(), auditedAlice(), AuditedAnswer{
		ID: "1b671a64-40d5-491e-99b0-da01ff1f3341", Semantics: policy.Exact, Representation: media.MetadataJSON, Revision: 1234, Items: 1,
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
	expect.Same(t, want, event)
	impersonating := line(t, r, auditedPods(), auditedAlice(), AuditedAnswer{Impersonated: &user.DefaultInfo{Name: "bob", Groups: []string{"b"}}})
	if !strings.Contains(impersonating, `}},"impersonatedUser":{"username":"bob","groups":["b"]},"sourceIPs"`) {
		t.Error(impersonating)
	}
}

// line is what is written of an event at the beginning of a bubble's time.
func line(t *testing.T, r *http.Request, list *policy.Request, who user.Info, answer AuditedAnswer) string {
	t.Helper()
	out := &sink{}
	synctest.Test(t, func(t *testing.T) {
		expect.NoError(t, NewAuditLog(out).Write(r, list, who, auditReceived, answer))
	})
	return out.String()
}

// FuzzEvent: whatever a client chooses, its event is one line of JSON.
func FuzzEvent(f *testing.F) {
	f.Add("/api/v1/pods", "limit=1&continue=abc", "kubectl/v1.36.3", "id", "alice", "group", "", "")
	f.Add("/api/v1/namespaces/a b/pods", "labelSelector=a\"\\<b>&\u2028", "\xff\xfe\x00\x1f\x7f", "\xff\"", "\n", "\u2029", "\xc3\x28", "\\")
	f.Add("//%2f/..", "%zz;a=%", strings.Repeat("é", 513), "", "", "", "k", "v")
	f.Fuzz(func(t *testing.T, path, query, agent, id, name, group, key, value string) {
		r := auditedRequest("/")
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header = http.Header{"User-Agent": {agent}}
		list := &policy.Request{Group: group, Version: value, Resource: key, Namespace: path, Name: name}
		who := &user.DefaultInfo{Name: name, UID: id, Groups: []string{group, value}, Extra: map[string][]string{key: {value, name}}}
		text := line(t, r, list, who, AuditedAnswer{ID: id, Revision: 1<<64 - 1, Items: 1<<63 - 1})
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("not one line of JSON: %q", text)
		}
	})
}
