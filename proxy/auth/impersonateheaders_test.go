package auth

import (
	"bufio"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/listproxy/listproxy/test/expect"
)

// userSeenUpstream returns the user whom kube-apiserver's own filter reads from headers, if the sender may impersonate
// everybody. It returns nil if the filter refuses the request.
func userSeenUpstream(t testing.TB, h http.Header) user.Info {
	t.Helper()
	received := http.Header{} // as the other end of a connection reads h
	for name, values := range h {
		for _, value := range values {
			received.Add(name, strings.TrimSpace(value))
		}
	}
	list := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods"}
	var upstream grants // a kube-apiserver that allows everything, since the sender is not "account" (see grants)
	return upstream.impersonate(t.Context(), "listproxy", received, list)
}

// describeUser returns all properties of a user by their names, or nil if there is no user.
func describeUser(u user.Info) map[string][]string {
	if u == nil {
		return nil
	}
	all := map[string][]string{"name": {u.GetName()}, "uid": {u.GetUID()}, "groups": u.GetGroups()}
	for name, values := range u.GetExtra() {
		all["extra "+name] = values
	}
	return all
}

// FuzzImpersonate: kube-apiserver reads a verified user from the headers that writeImpersonation has written for this user, as
// a member of system:authenticated. writeImpersonation removes the caller's own identity headers, and no other header.
func FuzzImpersonate(f *testing.F) {
	// The arguments are a user's name, UID and two groups, and the key and the first value of an extra. A user has no group for
	// "", and no extra if both its arguments are "".
	f.Add("alice", "uid", "g", "h", "key", "value") // every property
	f.Add("alice", "", "", "", "", "")
	// Groups that kube-apiserver adds, or has a rule for.
	f.Add("alice", "", user.AllAuthenticated, "g", "", "")
	f.Add("alice", "", user.AllUnauthenticated, "", "", "")
	// Nodes and service accounts have modes of their own.
	f.Add("system:node:n", "", "system:nodes", "system:nodes", "", "")
	f.Add("system:serviceaccount:a:b", "", "", "", "", "")
	f.Add("system:serviceaccount:a:b", "", "system:masters", "", "authentication.kubernetes.io/credential-id", "X509SHA256=00")
	// Texts that must be encoded, or cannot be sent.
	f.Add("ælice in chains, esq.", "", "gruppe ü", "a  b", "100%/ä\x00", "v")
	f.Add("a\nb", " ", "", "c", "K", "\x7f")
	f.Fuzz(func(t *testing.T, name, uid, group1, group2, extraKey, extraValue string) {
		given := &user.DefaultInfo{Name: name, UID: uid}
		for _, group := range []string{group1, group2} {
			if group != "" {
				given.Groups = append(given.Groups, group)
			}
		}
		if extraKey != "" || extraValue != "" {
			given.Extra = map[string][]string{extraKey: {extraValue, "2"}}
		}
		sent, ok := userToImpersonate(given)
		if !ok {
			return
		}
		h := http.Header{"Authorization": {"Bearer x"}, "Impersonate-User": {"root"}, "Impersonate-Extra-Scopes": {"all"}, "Accept": {"a"}}
		writeImpersonation(h, sent)
		want := describeUser(given)
		if !slices.Contains(given.Groups, user.AllAuthenticated) && !slices.Contains(given.Groups, user.AllUnauthenticated) {
			want["groups"] = append(slices.Clone(given.Groups), user.AllAuthenticated)
		}
		expect.Same(t, want, describeUser(userSeenUpstream(t, h)))
		if h["Authorization"] != nil || h.Get("Accept") != "a" {
			t.Errorf("got the headers %v, want no Authorization, and Accept as it was", h)
		}
		for name := range h {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("got the header %q, want a canonical name", name)
			}
		}
	})
}

// readableHeaders has headers, one a line, that readImpersonation accepts (its ok is true).
var readableHeaders = map[string]string{
	"a user":                "Impersonate-User: alice",
	"a name in lower case":  "impersonate-user: alice",
	"a service account":     "Impersonate-User: system:serviceaccount:a:b",
	"groups and a UID":      "Impersonate-User: a\nImpersonate-Group: b\nImpersonate-Group: c\nImpersonate-Uid: 1",
	"two values of a key":   "Impersonate-User: a\nImpersonate-Extra-Scopes: b\nIMPERSONATE-EXTRA-SCOPES: c",
	"a percent-encoded key": "Impersonate-User: a\nImpersonate-Extra-Authentication.kubernetes.io%2Fcredential-id: x",
	"encoded Unicode":       "Impersonate-User: a\nImpersonate-Extra-%25%c3%a4: y",
}

// unreadableHeaders has headers, one a line, that readImpersonation does not accept.
var unreadableHeaders = map[string]string{
	"an empty user":                      "Impersonate-User:",
	"a group without a user":             "Impersonate-Group: b",
	"a group of an empty user":           "Impersonate-User:\nImpersonate-Group: b",
	"two users":                          "Impersonate-User: a\nImpersonate-User: b",
	"one user twice":                     "Impersonate-User: a\nImpersonate-User: a",
	"the user for anonymous requests":    "Impersonate-User: system:anonymous",
	"two UIDs":                           "Impersonate-User: a\nImpersonate-Uid: 1\nImpersonate-Uid: 2",
	"an empty UID":                       "Impersonate-User: a\nImpersonate-Uid:",
	"an empty group":                     "Impersonate-User: a\nImpersonate-Group:",
	"a name that gateways may change":    "Impersonate-User: a\nImpersonate_User: b",
	"an unknown property":                "Impersonate-User: a\nImpersonate-Tomorrow: b",
	"an empty key":                       "Impersonate-User: a\nImpersonate-Extra-: b",
	"an empty value of a key":            "Impersonate-User: a\nImpersonate-Extra-B:",
	"two spellings of a key":             "Impersonate-User: a\nImpersonate-Extra-B: 1\nImpersonate-Extra-%62: 2",
	"a key that is encoded without need": "Impersonate-User: a\nImpersonate-Extra-%62: 2",
	"a key with an encoded capital":      "Impersonate-User: a\nImpersonate-Extra-%42: 2",
	"a key that is encoded wrongly":      "Impersonate-User: a\nImpersonate-Extra-%zz: 2",
	"a control character":                "Impersonate-User: a\x7f",
	"a header of another kind of proxy":  "X-Remote-User: a",
}

// FuzzReadImpersonation: if readImpersonation reads a user from the caller's headers, kube-apiserver reads the same user from
// these headers, and from the headers that writeImpersonation writes for this user.
func FuzzReadImpersonation(f *testing.F) {
	for name, lines := range readableHeaders {
		if !checkImpersonation(f, lines) {
			f.Errorf("%s: got ok false, want true", name)
		}
		f.Add(lines)
	}
	for name, lines := range unreadableHeaders {
		if checkImpersonation(f, lines) {
			f.Errorf("%s: got ok true, want false", name)
		}
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) { checkImpersonation(t, lines) })
}

// checkImpersonation returns the ok of readImpersonation for the headers in lines. If ok is true, it requires that
// kube-apiserver reads the same user from these headers, and from those that writeImpersonation writes for this user.
func checkImpersonation(t testing.TB, lines string) (ok bool) {
	t.Helper()
	text := "GET / HTTP/1.1\r\nHost: x\r\n" + strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return false
	}
	read, ok := readImpersonation(r.Header)
	if !ok {
		return false
	}
	written := http.Header{}
	writeImpersonation(written, read)
	fromCaller := describeUser(userSeenUpstream(t, r.Header))
	expect.Same(t, fromCaller, describeUser(userSeenUpstream(t, written)))
	want := describeUser(read)
	// kube-apiserver appends groups of its own, which the headers do not name.
	fromCaller["groups"] = fromCaller["groups"][:len(want["groups"])]
	expect.Same(t, want, fromCaller, cmpopts.EquateEmpty())
	return true
}
