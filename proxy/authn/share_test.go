package authn

import (
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/internal/proxytest"
)

// TestShareKey: a share is a known user's, or else that of an address.
func TestShareKey(t *testing.T) {
	identifier := newAuthenticatorOf(t)
	alice, bob := identifyBy(identifier, "Bearer a"), identifyBy(identifier, "Bearer b")
	const issued = `{"iss":"https://issuer","sub":"system:serviceaccount:a:b","jti":"1"}`
	token := identifyBy(identifier, proxytest.WebToken(issued, "c2ln"))
	claims := func(c string) Identity { return identifyBy(identifier, proxytest.WebToken(c, "c2ln")) }
	verified := func(name string, groups ...string) Identity {
		return identifier.OfUser(&user.DefaultInfo{Name: name, Groups: groups})
	}
	type peer struct {
		id       Identity
		accepted bool
		address  string
	}
	known := func(id Identity) peer { return peer{id, true, "192.0.2.1:1"} }
	for _, test := range []struct {
		name   string
		a, b   peer
		shared bool
	}{
		{"a known caller everywhere", peer{alice, true, "192.0.2.1:1"}, peer{alice, true, "192.0.2.2:1"}, true},
		{"two known callers", peer{alice, true, "192.0.2.1:1"}, peer{bob, true, "192.0.2.1:1"}, false},
		{"an accepted one and another", peer{alice, true, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:1"}, false},
		{"two who are not accepted, of one address", peer{alice, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"nobody of one address", peer{Identity{}, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"two addresses", peer{alice, false, "192.0.2.1:1"}, peer{alice, false, "192.0.2.2:1"}, false},
		{"one network of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{bob, false, "[2001:db8::ffff:0:0:1]:1"}, true},
		{"two networks of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{alice, false, "[2001:db8:0:1::1]:1"}, false},
		{"zones", peer{alice, false, "[fe80::1%eth0]:1"}, peer{alice, false, "[fe80::1%eth1]:1"}, true},
		{"IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "192.0.2.1:1"}, true},
		{"two of IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "[::ffff:192.0.2.2]:1"}, false},

		{"two tokens of one subject", known(token), known(claims(strings.Replace(issued, `"1"`, `"2"`, 1))), true},
		{"one token in two spellings", known(token), known(identifyBy(identifier, proxytest.WebToken(issued, "c2lo"))), true},
		{"two subjects", known(token), known(claims(strings.Replace(issued, "a:b", "a:c", 1))), false},
		{"two issuers", known(token), known(claims(strings.Replace(issued, "issuer", "other", 1))), false},
		{"issuer and subject that meet elsewhere", known(claims(`{"iss":"ab","sub":"c"}`)), known(claims(`{"iss":"a","sub":"bc"}`)), false},
		{"tokens without a subject", known(claims(`{"iss":"a","jti":"1"}`)), known(claims(`{"iss":"a","jti":"2"}`)), false},
		{"a name in other letters is another", known(claims(`{"iss":"a","sub":"b"}`)), known(claims(`{"iss":"a","sub":"c","Sub":"b"}`)), false},
		{
			"who is not accepted is not believed",
			peer{token, false, "192.0.2.1:1"},
			peer{claims(`{"iss":"a","sub":"b"}`), false, "192.0.2.1:2"},
			true,
		},
		{"one who is not accepted, with another's subject", known(token), peer{token, false, "192.0.2.1:1"}, false},
		{"a verified user, whatever the groups", known(verified("jane", "a")), known(verified("jane", "b")), true},
		{"two verified users", known(verified("jane")), known(verified("john")), false},
	} {
		a := ShareKey(test.a.id, test.a.accepted, test.a.address)
		b := ShareKey(test.b.id, test.b.accepted, test.b.address)
		if (a == b) != test.shared {
			t.Errorf("%s: shared %t, want %t", test.name, a == b, test.shared)
		}
	}
}

// FuzzTokenSubject: what kube-apiserver has accepted may be anything, as far as this parser knows.
func FuzzTokenSubject(f *testing.F) {
	valid := strings.TrimPrefix(proxytest.WebToken(`{"iss":"https://issuer","sub":"alice"}`, "c2ln"), "Bearer ")
	f.Add(valid)
	f.Add(valid + ".")
	f.Add("..")
	f.Add("a.e30.b")
	f.Add(strings.TrimPrefix(proxytest.WebToken(`{"iss":1,"sub":["a"]}`, ""), "Bearer "))
	f.Add(strings.TrimPrefix(proxytest.WebToken(strings.Repeat("[", 20_000), ""), "Bearer "))
	f.Fuzz(func(t *testing.T, token string) {
		issuer, subject, ok := tokenSubject(token)
		if ok && (issuer == "" || subject == "") {
			t.Errorf("a subject without a name: %q, %q", issuer, subject)
		}
		if !ok {
			return
		}
		header, rest, _ := strings.Cut(token, ".")
		payload, signature, _ := strings.Cut(rest, ".")
		if len(token) > maxReadToken || strings.Contains(signature, ".") {
			t.Error("more was read than a token")
		}
		// Nothing but the claims says who it is.
		if i, s, ok := tokenSubject(header + "x." + payload + "." + signature + "x"); len(token) < maxReadToken-1 && (!ok || i != issuer || s != subject) {
			t.Errorf("%q, %q with another header and signature, not %q, %q", i, s, issuer, subject)
		}
	})
}

// BenchmarkShareKey is what a request of an accepted service account costs.
func BenchmarkShareKey(b *testing.B) {
	id := identifyBy(newAuthenticatorOf(b), proxytest.WebToken(`{"aud":["https://kubernetes.default.svc.cluster.local"],"exp":1790000000,"iat":1780000000,`+
		`"iss":"https://kubernetes.default.svc.cluster.local","jti":"7d5d3d3c-7d1e-4e5e-9b1c-0d4e7d4a3b2c","kubernetes.io":{"namespace":"kube-system",`+
		`"node":{"name":"node-1","uid":"7d5d3d3c-7d1e-4e5e-9b1c-0d4e7d4a3b2c"},"pod":{"name":"a-7d5d3d3c","uid":"7d5d3d3c-7d1e-4e5e-9b1c-0d4e7d4a3b2c"},`+
		`"serviceaccount":{"name":"a","uid":"7d5d3d3c-7d1e-4e5e-9b1c-0d4e7d4a3b2c"},"warnafter":1780003607},"nbf":1780000000,`+
		`"sub":"system:serviceaccount:kube-system:a"}`, strings.Repeat("x", 342)))
	b.ReportAllocs()
	for b.Loop() {
		ShareKey(id, true, "192.0.2.1:1")
	}
}
