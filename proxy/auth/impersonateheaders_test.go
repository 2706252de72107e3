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

// readUpstream returns the user whom kube-apiserver's own filter reads from headers, for a sender who may impersonate
// everybody; nil if the filter refuses the request.
func readUpstream(t testing.TB, h http.Header) user.Info {
	t.Helper()
	received := http.Header{} // as the other end of a connection reads h
	for name, values := range h {
		for _, value := range values {
			received.Add(name, strings.TrimSpace(value))
		}
	}
	list := &request.RequestInfo{IsResourceRequest: true, Verb: "list", APIVersion: "v1", Resource: "pods"}
	return grants(nil).impersonate(t.Context(), "listproxy", received, list)
}

// describeUser returns all properties of a user by name.
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

// FuzzImpersonate: from the headers that writeImpersonation writes for a verified user, kube-apiserver reads the same user,
// as a member of system:authenticated. The caller's own identity headers are removed.
func FuzzImpersonate(f *testing.F) {
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
	f.Fuzz(func(t *testing.T, name, uid, first, second, key, value string) {
		given := &user.DefaultInfo{Name: name, UID: uid}
		for _, group := range []string{first, second} {
			if group != "" {
				given.Groups = append(given.Groups, group)
			}
		}
		if key+value != "" {
			given.Extra = map[string][]string{key: {value, "2"}}
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
		expect.Same(t, want, describeUser(readUpstream(t, h)))
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

// impersonationHeaders are the headers of requests, and whether readImpersonation accepts them.
var impersonationHeaders = map[string]bool{
	// Letters of either case, several values, percent-encoded keys.
	"Impersonate-User: alice": true,
	"impersonate-user: alice": true,
	"Impersonate-User: a\nImpersonate-Group: b\nImpersonate-Group: c\nImpersonate-Uid: 1":                                    true,
	"Impersonate-User: a\nImpersonate-Extra-Scopes: b\nIMPERSONATE-EXTRA-SCOPES: c":                                          true,
	"Impersonate-User: a\nImpersonate-Extra-Authentication.kubernetes.io%2Fcredential-id: x\nImpersonate-Extra-%25%c3%a4: y": true,
	"Impersonate-User: system:serviceaccount:a:b":                                                                            true,

	// No user, or more than one.
	"Impersonate-User:":                        false,
	"Impersonate-Group: b":                     false,
	"Impersonate-User:\nImpersonate-Group: b":  false,
	"Impersonate-User: a\nImpersonate-User: b": false,
	"Impersonate-User: a\nImpersonate-User: a": false,
	"Impersonate-User: system:anonymous":       false,
	// Repeated or empty properties, unknown ones, and names that gateways may change.
	"Impersonate-User: a\nImpersonate-Uid: 1\nImpersonate-Uid: 2": false,
	"Impersonate-User: a\nImpersonate-Uid:":                       false,
	"Impersonate-User: a\nImpersonate-Group:":                     false,
	"Impersonate-User: a\nImpersonate_User: b":                    false,
	"Impersonate-User: a\nImpersonate-Tomorrow: b":                false,
	"Impersonate-User: a\nImpersonate-Extra-: b":                  false,
	"Impersonate-User: a\nImpersonate-Extra-B:":                   false,
	// Two spellings of one key, and keys that are encoded without need or wrongly.
	"Impersonate-User: a\nImpersonate-Extra-B: 1\nImpersonate-Extra-%62: 2": false,
	"Impersonate-User: a\nImpersonate-Extra-%62: 2":                         false,
	"Impersonate-User: a\nImpersonate-Extra-%42: 2":                         false,
	"Impersonate-User: a\nImpersonate-Extra-%zz: 2":                         false,
	// A control character, and another proxy's header.
	"Impersonate-User: a\x7f": false,
	"X-Remote-User: a":        false,
}

// FuzzReadImpersonation: kube-apiserver reads the same user as readImpersonation, both from the caller's headers and from the
// headers that writeImpersonation writes for this user.
func FuzzReadImpersonation(f *testing.F) {
	for lines, want := range impersonationHeaders {
		if got := checkImpersonation(f, lines); got != want {
			f.Errorf("%q: got ok %t, want %t", lines, got, want)
		}
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) { checkImpersonation(t, lines) })
}

// checkImpersonation is the check of FuzzReadImpersonation. It returns readImpersonation's ok.
func checkImpersonation(t testing.TB, lines string) (ok bool) {
	t.Helper()
	text := "GET / HTTP/1.1\r\nHost: x\r\n" + strings.ReplaceAll(lines, "\n", "\r\n") + "\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return false
	}
	named, ok := readImpersonation(r.Header)
	if !ok {
		return false
	}
	written := http.Header{}
	writeImpersonation(written, named)
	got := describeUser(readUpstream(t, r.Header))
	expect.Same(t, got, describeUser(readUpstream(t, written)))
	want := describeUser(named)
	got["groups"] = got["groups"][:len(want["groups"])] // without those that kube-apiserver adds
	expect.Same(t, want, got, cmpopts.EquateEmpty())
	return true
}
