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

// upstreamToken is the token that kube-apiserver's cache writes.
func upstreamToken(t testing.TB, start string, revision int64) string {
	t.Helper()
	token, err := storage.EncodeContinue("/registry/pods/"+start, "/registry/pods", revision)
	expect.NoError(t, err)
	return token
}

// etcdToken is the token that kube-apiserver writes when it reads from etcd.
func etcdToken(t testing.TB, start string, revision int64) string {
	t.Helper()
	token, err := storage.EncodeContinue("/registry/pods/"+start, "/registry/pods/", revision)
	expect.NoError(t, err)
	return token
}

func raw(json string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(json))
}

func TestEncodeContinueIsTheUpstreams(t *testing.T) {
	// Seen on a running kube-apiserver.
	want := raw(`{"v":"meta.k8s.io/v1","rv":20956,"start":"/ns-00/name\u0000"}`)
	expect.Same(t, want, EncodeContinue(20956, "ns-00/name\x00"))
	for _, start := range []string{"name\x00", "ns/name\x00", "system:a<b>&c\x00", "ns/näme\u2028\x00", "ns"} {
		want := upstreamToken(t, start, math.MaxInt64)
		if got := EncodeContinue(math.MaxInt64, start); got != want {
			t.Errorf("EncodeContinue(%q) = %s, want %s", start, got, want)
		}
	}
}

func TestDecodeContinue(t *testing.T) {
	type result struct {
		revision int64
		start    string
		ok       bool
	}
	for json, want := range map[string]result{
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"/ns-00/name\u0000"}`: {20956, "ns-00/name\x00", true}, // the cache's form
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"ns-00/name\u0000"}`:  {20956, "ns-00/name\x00", true}, // etcd's
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"/name\u0000"}`:          {-1, "name\x00", true},          // the newest state
		`{"v":"meta.k8s.io/v1","rv":0,"start":"/name"}`:                 {0, "name", true},
		`{"v":"meta.k8s.io/v1","rv":1,"start":"/a\u003cb\u0000"}`:       {1, "a<b\x00", true},
	} {
		revision, start, ok := DecodeContinue(raw(json))
		if got := (result{revision, start, ok}); got != want {
			t.Errorf("%s: %+v, want %+v", json, got, want)
		}
	}
	for name, token := range map[string]string{
		"empty":                   "",
		"not base64":              "not a token",
		"padded":                  raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/na"}`) + "=",
		"line break in base64":    "\n" + raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/n"}`),
		"not JSON":                raw(`hello`),
		"space in JSON":           raw(`{"v":"meta.k8s.io/v1", "rv":1,"start":"/n"}`),
		"space after JSON":        raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/n"} `),
		"other order":             raw(`{"rv":1,"v":"meta.k8s.io/v1","start":"/n"}`),
		"other case":              raw(`{"V":"meta.k8s.io/v1","rv":1,"start":"/n"}`),
		"more fields":             raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/n","x":1}`),
		"field twice":             raw(`{"v":"meta.k8s.io/v1","rv":1,"rv":2,"start":"/n"}`),
		"other escape":            raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/\u006e"}`),
		"zero byte not escaped":   raw("{\"v\":\"meta.k8s.io/v1\",\"rv\":1,\"start\":\"/n\x00\"}"),
		"HTML not escaped":        raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/a<b"}`),
		"not UTF-8":               raw("{\"v\":\"meta.k8s.io/v1\",\"rv\":1,\"start\":\"/\xff\"}"),
		"revision in exponent":    raw(`{"v":"meta.k8s.io/v1","rv":1e3,"start":"/n"}`),
		"revision over int64":     raw(`{"v":"meta.k8s.io/v1","rv":9223372036854775808,"start":"/n"}`),
		"revision -0":             raw(`{"v":"meta.k8s.io/v1","rv":-0,"start":"/n"}`),
		"no version":              raw(`{"v":"","rv":1,"start":"/n"}`),
		"other version":           raw(`{"v":"meta.k8s.io/v2","rv":1,"start":"/n"}`),
		"no start":                raw(`{"v":"meta.k8s.io/v1","rv":1,"start":""}`),
		"start is only a slash":   raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/"}`),
		"two slashes":             raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"//n"}`),
		"slash at the end":        raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/ns/"}`),
		"parent":                  raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/../secrets/a"}`),
		"parent without slash":    raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"../secrets/a"}`),
		"parent in the middle":    raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/ns/../other/a"}`),
		"this folder":             raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/./ns/a"}`),
		"null":                    raw(`null`),
		"list":                    raw(`[]`),
		"trailing bits in base64": trailingBits(t),
	} {
		if revision, start, ok := DecodeContinue(token); ok {
			t.Errorf("%s: read as (%d, %q)", name, revision, start)
		}
	}
}

// trailingBits is a good token with an unused bit of its last character set, which
// lenient base64 decoders ignore.
func trailingBits(t *testing.T) string {
	token := raw(`{"v":"meta.k8s.io/v1","rv":1,"start":"/ns"}`)
	if len(token)%4 == 0 {
		t.Fatal("the token has no unused bits")
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last|1])
}

// checkToken: whatever is accepted, the upstream accepts and understands in the
// same way, and it comes back from being written again.
func checkToken(t *testing.T, token string) {
	revision, start, ok := DecodeContinue(token)
	if !ok {
		return
	}
	key, upstreamRevision, err := storage.DecodeContinue(token, "/registry/pods/")
	if revision == 0 {
		if err == nil {
			t.Errorf("the upstream accepts revision 0 in %q", token)
		}
		return
	}
	if err != nil {
		t.Fatalf("%q is accepted, but the upstream says: %v", token, err)
	}
	if upstreamRevision != revision || key != "/registry/pods/"+start {
		t.Errorf("%q is (%d, %q), upstream (%d, %q)", token, revision, start, upstreamRevision, key)
	}
	if token != upstreamToken(t, start, revision) && token != etcdToken(t, start, revision) {
		t.Errorf("%q is none of the upstream's two forms", token)
	}
	if revision < 0 {
		return
	}
	again, sameStart, ok := DecodeContinue(EncodeContinue(uint64(revision), start))
	if !ok || again != revision || sameStart != start {
		t.Errorf("(%d, %q) comes back as (%d, %q, %t)", revision, start, again, sameStart, ok)
	}
}

func FuzzDecodeContinue(f *testing.F) {
	for _, json := range []string{
		`{"v":"meta.k8s.io/v1","rv":20956,"start":"/ns-00/name\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"ns-00/name\u0000"}`,
		`{"v":"meta.k8s.io/v1","rv":0,"start":"/../x"}`,
		`{"v":"meta.k8s.io/v1","rv":1,"start":"/a\u003cb\u2028"}`,
		`{"v":"meta.k8s.io/v2"}`,
		`[]`,
	} {
		f.Add(raw(json), json)
	}
	f.Add("not a token", "")
	f.Add("e30=", "{}")
	f.Fuzz(func(t *testing.T, token, json string) {
		checkToken(t, token)
		// Most mutations of base64 are no longer JSON; mutate that, too.
		checkToken(t, raw(json))
	})
}

func FuzzEncodeContinue(f *testing.F) {
	f.Add(uint64(20956), "ns-00/name\x00")
	f.Add(uint64(math.MaxInt64), "system:node<1>&\x00")
	f.Add(uint64(1), "../x")
	f.Fuzz(func(t *testing.T, revision uint64, start string) {
		token := EncodeContinue(revision, start)
		got, gotStart, ok := DecodeContinue(token)
		// Only what can be a key of a storage has to come back.
		isKey := start != "" && utf8.ValidString(start) && path.Clean("/"+start) == "/"+start
		if !isKey || revision > math.MaxInt64 {
			return
		}
		if !ok || uint64(got) != revision || gotStart != start {
			t.Errorf("(%d, %q) comes back as (%d, %q, %t)", revision, start, got, gotStart, ok)
		}
		if want := upstreamToken(t, start, int64(revision)); token != want {
			t.Errorf("token %s, upstream's %s", token, want)
		}
	})
}
