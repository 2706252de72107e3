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

// upstreamToken returns the token as kube-apiserver's watch cache writes it: its start begins with a slash, unlike that of
// etcd's tokens.
func upstreamToken(t testing.TB, start string, revision int64) string {
	t.Helper()
	token, err := storage.EncodeContinue("/registry/pods/"+start, "/registry/pods", revision)
	expect.NoError(t, err)
	return token
}

// encode returns the token with this JSON.
func encode(json string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(json))
}

// readUpstream returns how kube-apiserver reads a token. ok reports whether kube-apiserver writes it, from its cache or from
// etcd.
func readUpstream(t *testing.T, token string) (revision int64, start string, ok bool) {
	t.Helper()
	key, revision, err := storage.DecodeContinue(token, "/registry/pods/")
	start = strings.TrimPrefix(key, "/registry/pods/")
	if err != nil || start == "" {
		return 0, "", false
	}
	etcdToken, err := storage.EncodeContinue(key, "/registry/pods/", revision)
	if err == nil && token == etcdToken || token == upstreamToken(t, start, revision) {
		return revision, start, true
	}
	return 0, "", false
}

// checkToken checks the rule of FuzzDecodeContinue for one token.
func checkToken(t *testing.T, token string) {
	t.Helper()
	start, revision, ok := DecodeContinue(token)
	wantRevision, wantStart, wantOK := readUpstream(t, token)
	if ok != wantOK || ok && (revision != wantRevision || start != wantStart) {
		t.Errorf("%q is read as (%d, %q, %t), want (%d, %q, %t)", token, revision, start, ok, wantRevision, wantStart, wantOK)
	}
}

// FuzzDecodeContinue: DecodeContinue accepts a token if and only if kube-apiserver writes it, from its cache or from etcd, and
// reads the same revision and start from it.
func FuzzDecodeContinue(f *testing.F) {
	at := func(revision string) string { return `{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"/n"}` }
	from := func(start string) string { return `{"v":"meta.k8s.io/v1","rv":1,"start":"` + start + `"}` }
	for _, json := range []string{
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"/ns-00/name\u0000"}`, // the cache's form
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"ns-00/name\u0000"}`,  // etcd's
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"/name\u0000"}`,          // the newest state
		from(`/a\u003cb\u2028`), // escaped as encoding/json does
		`{"v":"meta.k8s.io/v1","rv":0,"start":"/../x"}`,
		// Other spellings.
		`{"v":"meta.k8s.io/v1", "rv":1,"start":"/n"}`, at("1") + " ", `{"rv":1,"v":"meta.k8s.io/v1","start":"/n"}`,
		`{"V":"meta.k8s.io/v1","rv":1,"start":"/n"}`, `{"v":"meta.k8s.io/v1","rv":1,"start":"/n","x":1}`,
		`{"v":"meta.k8s.io/v1","rv":1,"rv":2,"start":"/n"}`, from(`/\u006e`), from("/n\x00"), from("/a<b"), from("/\xff"),
		at("1e3"), at("9223372036854775808"), at("-0"),
		// Other values.
		`{"v":"","rv":1,"start":"/n"}`, `{"v":"meta.k8s.io/v2","rv":1,"start":"/n"}`, from(""), from("/"), from("//n"),
		from("/ns/"), `null`, `[]`,
		// Ways out of the scope.
		from("/../secrets/a"), from("../secrets/a"), from("/ns/../other/a"), from("/./ns/a"),
	} {
		f.Add(encode(json), json)
	}
	token := encode(from("/na"))
	// The last letter of base64 has two bits that stand for nothing. Lenient decoders ignore them.
	unusedBits := token[:len(token)-1] + string(token[len(token)-1]+1)
	for _, token := range []string{"", "not a token", "e30=", token + "=", "\n" + token, unusedBits} {
		f.Add(token, "")
	}
	f.Fuzz(func(t *testing.T, token, json string) {
		checkToken(t, token)
		checkToken(t, encode(json)) // most mutations of base64 are no longer JSON
	})
}

// FuzzEncodeContinue: EncodeContinue writes the upstream's bytes, and DecodeContinue reads the revision and the start back.
func FuzzEncodeContinue(f *testing.F) {
	for _, start := range []string{"name\x00", "ns-00/name\x00", "system:node<1>&c\x00", "ns/n\u00e4me\u2028\x00", "ns", "../x"} {
		f.Add(uint64(math.MaxInt64), start)
	}
	f.Fuzz(func(t *testing.T, revision uint64, start string) {
		token := EncodeContinue(revision, start)
		gotStart, gotRevision, ok := DecodeContinue(token)
		isKey := start != "" && utf8.ValidString(start) && path.Clean("/"+start) == "/"+start
		if !isKey || revision > math.MaxInt64 { // neither occurs in etcd
			return
		}
		if !ok || uint64(gotRevision) != revision || gotStart != start {
			t.Errorf("got (%d, %q, %t), want (%d, %q)", gotRevision, gotStart, ok, revision, start)
		}
		if want := upstreamToken(t, start, int64(revision)); token != want {
			t.Errorf("got the token %s, want the upstream's %s", token, want)
		}
	})
}
