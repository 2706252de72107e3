package audit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/media"
	"github.com/listproxy/listproxy/test/expect"
)

var (
	auditReceived  = time.Date(2025, 3, 4, 5, 6, 7, 8_009_000, time.UTC)
	auditCompleted = auditReceived.Add(time.Millisecond)
)

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

func auditedPods() policy.Request {
	return policy.Request{Version: "v1", Resource: "pods", Namespace: "team-a", Name: "web"}
}

func auditedPage() Answer {
	return Answer{
		ID: "1b671a64-40d5-491e-99b0-da01ff1f3341", Semantics: policy.Exact, Representation: media.MetadataJSON,
		Revision: 1234, Items: 1, Bytes: 567,
	}
}

func TestAuditEvent(t *testing.T) {
	event := newEvent(
		auditedRequest("/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dweb&resourceVersion=1234"),
		auditedPods(), auditedAlice(), auditReceived)
	broken := auditedPage()
	broken.Broken = true
	completeEvent(event, broken, auditCompleted)
	line, err := encodeEvent(event)
	expect.NoError(t, err)
	want := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata",` +
		`"auditID":"1b671a64-40d5-491e-99b0-da01ff1f3341","stage":"ResponseComplete",` +
		`"requestURI":"/api/v1/namespaces/team-a/pods?fieldSelector=metadata.name%3Dweb\u0026resourceVersion=1234",` +
		`"verb":"list","user":{"username":"alice","uid":"42","groups":["team-a","system:authenticated"],` +
		`"extra":{"a":null,"example.com/scopes":["read","write"]}},` +
		`"sourceIPs":["192.0.2.7"],"userAgent":"kubectl/v1.36.3",` +
		`"objectRef":{"resource":"pods","namespace":"team-a","name":"web","apiVersion":"v1"},` +
		`"responseStatus":{"metadata":{},"code":200},` +
		`"requestReceivedTimestamp":"2025-03-04T05:06:07.008009Z","stageTimestamp":"2025-03-04T05:06:07.009009Z",` +
		`"annotations":{"authorization.k8s.io/decision":"allow","listproxy.io/answered-from":"memory",` +
		`"listproxy.io/broken-off":"true","listproxy.io/bytes":"567","listproxy.io/items":"1",` +
		`"listproxy.io/representation":"metadata-json","listproxy.io/revision":"1234","listproxy.io/semantics":"exact"}}` + "\n"
	if diff := cmp.Diff(want, string(line)); diff != "" {
		t.Error(diff)
	}
}

func TestAuditedAddress(t *testing.T) {
	for remote, want := range map[string][]string{
		"192.0.2.7:1234":        {"192.0.2.7"},
		"[2001:db8::1]:1234":    {"2001:db8::1"},
		"[::ffff:192.0.2.7]:80": {"192.0.2.7"},
		"@":                     nil,
		"":                      nil,
	} {
		r := auditedRequest("/api/v1/pods")
		r.RemoteAddr = remote
		if diff := cmp.Diff(want, peerAddress(r)); diff != "" {
			t.Errorf("%q: %s", remote, diff)
		}
	}
}

func TestAuditedUserAgent(t *testing.T) {
	longest := strings.Repeat("x", 1024)
	for _, tt := range []struct{ agent, want string }{
		{"", ""},
		{longest, longest},
		{longest + "y", longest + "...TRUNCATED"},
	} {
		if diff := cmp.Diff(tt.want, shortenUserAgent(tt.agent)); diff != "" {
			t.Error(diff)
		}
	}
}

// FuzzAuditEvent gives an event what clients can choose and holds its line against that of
// kube-apiserver's log backend.
func FuzzAuditEvent(f *testing.F) {
	f.Add("/api/v1/pods", "limit=1&continue=abc", "kubectl/v1.36.3", "id", "alice", "group", "", "")
	f.Add("/api/v1/namespaces/a b/pods", "labelSelector=a\"\\<b>&\u2028", "\xff\xfe\x00\x1f\x7f", "\xff\"", "\n", "\u2029", "\xc3\x28", "\\")
	f.Add("//%2f/..", "%zz;a=%", strings.Repeat("é", 513), "", "", "", "k", "v")
	f.Fuzz(func(t *testing.T, path, query, agent, id, name, group, key, value string) {
		r := auditedRequest("/")
		r.URL = &url.URL{Path: path, RawQuery: query}
		r.Header = http.Header{"User-Agent": {agent}}
		list := policy.Request{Group: group, Version: value, Resource: key, Namespace: path, Name: name}
		who := &user.DefaultInfo{Name: name, UID: id, Groups: []string{group, value}, Extra: map[string][]string{key: {value, name}}}
		event := newEvent(r, list, who, auditReceived)
		size := sizeOf(event, who, len(id))
		completeEvent(event, Answer{
			ID: id, Semantics: policy.NotOlderThan, Representation: media.MetadataProtobuf,
			Revision: 1<<64 - 1, Items: 1<<63 - 1, Bytes: 1<<63 - 1, Broken: true,
		}, auditCompleted)
		line, err := encodeEvent(event)
		expect.NoError(t, err)
		if len(line) > size {
			t.Errorf("a line of %d bytes, at most %d were expected: %s", len(line), size, line)
		}
		if !json.Valid(line) || !utf8.Valid(line) || bytes.Count(line, []byte("\n")) != 1 || !bytes.HasSuffix(line, []byte("\n")) {
			t.Errorf("not one line of JSON: %q", line)
		}
		if diff := cmp.Diff(backendLine(t, event), string(line)); diff != "" {
			t.Error(diff)
		}
	})
}

// backendLine is what kube-apiserver's log backend writes for an event.
func backendLine(t *testing.T, event *auditv1.Event) string {
	t.Helper()
	var internal auditinternal.Event
	expect.NoError(t, audit.Scheme.Convert(event, &internal, nil))
	var out bytes.Buffer
	if !auditlog.NewBackend(&out, auditlog.FormatJson, auditv1.SchemeGroupVersion).ProcessEvents(&internal) {
		t.Fatal("the backend did not take the event")
	}
	return out.String()
}

// TestAuditEventOfManyGroups holds the bound of a line against a user with long lists.
func TestAuditEventOfManyGroups(t *testing.T) {
	who := &user.DefaultInfo{Name: "\x00", Extra: map[string][]string{"": make([]string, 500)}}
	for range 500 {
		who.Groups = append(who.Groups, "", "<")
	}
	event := newEvent(auditedRequest("/api/v1/pods"), auditedPods(), who, auditReceived)
	size := sizeOf(event, who, 3)
	completeEvent(event, Answer{ID: "\xff\xff\xff"}, auditCompleted)
	line, err := encodeEvent(event)
	if err != nil || len(line) > size {
		t.Errorf("a line of %d bytes, at most %d were expected: %v", len(line), size, err)
	}
	if diff := cmp.Diff(metav1.NewMicroTime(auditReceived), event.RequestReceivedTimestamp); diff != "" {
		t.Error(diff)
	}
}
