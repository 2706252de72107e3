package policy

import (
	"encoding/base64"
	"math"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/storage"

	"github.com/listproxy/listproxy/test/expect"
)

// upstreamToken returns the token as kube-apiserver's watch cache writes it. In this token, the start begins with a slash. In
// tokens for reads of etcd, it does not.
func upstreamToken(t testing.TB, start string, revision int64) string {
	t.Helper()
	token, err := storage.EncodeContinue("/registry/pods/"+start, "/registry/pods", revision)
	expect.NoError(t, err)
	return token
}

// tokenOf returns the token with this JSON.
func tokenOf(json string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(json))
}

// readUpstream returns what kube-apiserver reads from a token. isCanonical reports whether kube-apiserver writes this token
// itself, with a page from its cache or from etcd.
func readUpstream(t *testing.T, token string) (start string, revision int64, isCanonical bool) {
	t.Helper()
	key, revision, err := storage.DecodeContinue(token, "/registry/pods/")
	start = strings.TrimPrefix(key, "/registry/pods/")
	if err != nil || start == "" {
		return "", 0, false
	}
	etcdToken, err := storage.EncodeContinue(key, "/registry/pods/", revision)
	isFromEtcd := err == nil && token == etcdToken
	isFromCache := token == upstreamToken(t, start, revision)
	return start, revision, isFromEtcd || isFromCache
}

// checkToken requires that DecodeContinue accepts a token if and only if kube-apiserver writes it, and reads the same from it.
func checkToken(t *testing.T, token string) {
	t.Helper()
	start, revision, isCanonical := DecodeContinue(token)
	wantStart, wantRevision, wantCanonical := readUpstream(t, token)
	switch {
	case isCanonical != wantCanonical:
		t.Errorf("%q: is canonical: %t, want %t", token, isCanonical, wantCanonical)
	case isCanonical && (revision != wantRevision || start != wantStart):
		t.Errorf("%q: got start %q and revision %d, want %q and %d", token, start, revision, wantStart, wantRevision)
	}
}

// FuzzDecodeContinue: DecodeContinue accepts a token if and only if kube-apiserver writes it with a page from its cache or from
// etcd. DecodeContinue and kube-apiserver read the same revision and start from the token.
func FuzzDecodeContinue(f *testing.F) {
	withRevision := func(revision string) string { return `{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"/n"}` }
	withStart := func(start string) string { return `{"v":"meta.k8s.io/v1","rv":1,"start":"` + start + `"}` }
	for _, json := range []string{
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"/ns-00/name\u0000"}`, // the cache's form
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"ns-00/name\u0000"}`,  // etcd's
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"/name\u0000"}`,          // the newest state
		withStart(`/a\u003cb\u2028`),                                    // escaped as encoding/json does
		`{"v":"meta.k8s.io/v1","rv":0,"start":"/../x"}`,
		// Other spellings: spaces, another order, upper case, more members, needless or missing escapes, other numbers.
		`{"v":"meta.k8s.io/v1", "rv":1,"start":"/n"}`, withRevision("1") + " ", `{"rv":1,"v":"meta.k8s.io/v1","start":"/n"}`,
		`{"V":"meta.k8s.io/v1","rv":1,"start":"/n"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"/n","x":1}`,
		`{"v":"meta.k8s.io/v1","rv":1,"rv":2,"start":"/n"}`,
		withStart(`/\u006e`), withStart("/n\x00"), withStart("/a<b"), withStart("/\xff"),
		withRevision("1e3"), withRevision("9223372036854775808"), withRevision("-0"),
		// Other values: versions of the token, kinds of JSON, start keys with an empty segment.
		`{"v":"","rv":1,"start":"/n"}`, `{"v":"meta.k8s.io/v2","rv":1,"start":"/n"}`, `null`, `[]`,
		withStart(""), withStart("/"), withStart("//n"), withStart("/ns/"),
		// Ways out of the scope.
		withStart("/../secrets/a"), withStart("../secrets/a"), withStart("/ns/../other/a"), withStart("/./ns/a"),
	} {
		f.Add(tokenOf(json), json)
	}
	token := tokenOf(withStart("/na"))
	// The last letter of this base64 has unused bits. Lenient decoders ignore them, so another last letter means the same JSON.
	unusedBits := token[:len(token)-1] + string(token[len(token)-1]+1)
	for _, token := range []string{"", "not a token", "e30=", token + "=", "\n" + token, unusedBits} {
		f.Add(token, "")
	}
	f.Fuzz(func(t *testing.T, token, json string) {
		checkToken(t, token)
		checkToken(t, tokenOf(json)) // most mutations of base64 are no longer JSON
	})
}

// FuzzEncodeContinue: EncodeContinue writes the upstream's bytes, and DecodeContinue reads the revision and the start back.
func FuzzEncodeContinue(f *testing.F) {
	for _, start := range []string{"name\x00", "ns-00/name\x00", "system:node<1>&c\x00", "ns/n\u00e4me\u2028\x00", "ns", "../x"} {
		f.Add(uint64(math.MaxInt64), start)
	}
	f.Fuzz(func(t *testing.T, revision uint64, start string) {
		token := EncodeContinue(revision, start) // must not panic, whatever the key
		isKey := start != "" && utf8.ValidString(start) && path.Clean("/"+start) == "/"+start
		if !isKey || revision > math.MaxInt64 {
			return // such a key or revision does not occur in etcd
		}
		gotStart, gotRevision, isCanonical := DecodeContinue(token)
		if !isCanonical || uint64(gotRevision) != revision || gotStart != start {
			t.Errorf("got start %q and revision %d (canonical: %t), want %q and %d", gotStart, gotRevision, isCanonical, start, revision)
		}
		if want := upstreamToken(t, start, int64(revision)); token != want {
			t.Errorf("got the token %s, want the upstream's %s", token, want)
		}
	})
}
