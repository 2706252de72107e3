package auth_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/proxy/auth"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestIdentityKeys: no two callers share a key, whether listproxy knows them by a token, another credential or a
// certificate; and a key is of no use to who does not have the process's secret.
func TestIdentityKeys(t *testing.T) {
	i := auth.NewAuthenticator(nil)
	identityOf := func(u user.DefaultInfo) auth.Identity { return i.OfUser(&u) }
	connection := auth.WithConnection(t.Context()) // one for all
	impersonating := func(token string, named ...string) auth.Identity {
		r := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(connection)
		for i := 0; i < len(named); i += 2 {
			r.Header.Add("Impersonate-"+named[i], named[i+1])
		}
		id, _ := i.Authenticate(r)
		return id
	}
	seen := map[auth.Key]string{{}: "nobody", proxytest.Identify(auth.NewAuthenticator(nil), "Bearer a").Key(): "another process's"}
	for name, id := range map[string]auth.Identity{
		"a token":                   proxytest.Identify(i, "Bearer a"),
		"another token":             proxytest.Identify(i, "Bearer b"),
		"no token":                  proxytest.Identify(i, "a"),
		"a user":                    identityOf(user.DefaultInfo{Name: "a"}),
		"with a UID":                identityOf(user.DefaultInfo{Name: "a", UID: "b"}),
		"of both words":             identityOf(user.DefaultInfo{Name: "ab"}),
		"with both in the UID":      identityOf(user.DefaultInfo{UID: "ab"}),
		"in a group":                identityOf(user.DefaultInfo{Name: "a", Groups: []string{"b"}}),
		"in two":                    identityOf(user.DefaultInfo{Name: "a", Groups: []string{"b", "c"}}),
		"in one of both words":      identityOf(user.DefaultInfo{Name: "a", Groups: []string{"bc"}}),
		"in two, the other way":     identityOf(user.DefaultInfo{Name: "a", Groups: []string{"c", "b"}}),
		"with an extra":             identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c"}}}),
		"with empty ones":           identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {}, "c": {}}}),
		"with one of two values":    identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c", "d"}}}),
		"with one and an empty one": identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c"}, "d": {}}}),

		"a token as a user":          impersonating("a", "User", "a"),
		"another token as that user": impersonating("b", "User", "a"),
		"as that user, in a group":   impersonating("a", "User", "a", "Group", "b"),
		"as that user, with a UID":   impersonating("a", "User", "a", "Uid", "b"),
		"as that user, with extras":  impersonating("a", "User", "a", "Extra-B", "c", "Extra-D", "e", "Extra-D", "f"),
	} {
		if other, ok := seen[id.Key()]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[id.Key()] = name
	}
	for want, again := range map[string]auth.Identity{
		"a token":                   proxytest.Identify(i, "bEARER a"),
		"with one and an empty one": identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"d": {}, "b": {"c"}}}),
		"as that user, with extras": impersonating("a", "Extra-D", "e", "Extra-D", "f", "Extra-B", "c", "User", "a"),
	} {
		expect.Same(t, want, seen[again.Key()])
	}
	impersonator := impersonating("a", "User", "a").Impersonator()
	expect.Same(t, "a token", seen[impersonator.Key()])
	expect.Same(t, []any{policy.PlainToken, true}, []any{impersonator.Credentials(), impersonator.Named() == nil})
}

// TestIdentityNeverPrintsItsCredential: however an identity is formatted, its credential is not in the text.
func TestIdentityNeverPrintsItsCredential(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.s3cr3t"
	id := proxytest.Identify(auth.NewAuthenticator(nil), "Bearer "+secret)
	type holder struct {
		Public  auth.Identity
		private auth.Identity
		pointer *auth.Identity
	}
	for name, value := range map[string]any{
		"value":   id,
		"pointer": &id,
		"slice":   []auth.Identity{id},
		"struct":  holder{Public: id, private: id, pointer: &id},
	} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p", "%T", "%!"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", value)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "value", value)
		expect.NoError(t, json.NewEncoder(&out).Encode(value))
		if strings.Contains(out.String(), "s3cr3t") {
			t.Errorf("a %s: %s", name, &out)
		}
	}
	expect.Same(t, []string{"Identity(hidden)", "Identity(hidden)", "Identity(hidden)"}, []string{id.String(), id.GoString(), id.LogValue().String()})
}

// TestFlowOf: a flow is a known user's, or else that of an address.
func TestFlowOf(t *testing.T) {
	identifier := auth.NewAuthenticator(nil)
	alice, bob := proxytest.Identify(identifier, "Bearer a"), proxytest.Identify(identifier, "Bearer b")
	const issued = `{"iss":"https://issuer","sub":"system:serviceaccount:a:b","jti":"1"}`
	long := strings.Replace(issued, `"1"`, `"`+strings.Repeat("1", 64<<10)+`"`, 1)
	signed := func(claims, signature string) auth.Identity {
		return proxytest.Identify(identifier, proxytest.WebToken(claims, signature))
	}
	claims := func(c string) auth.Identity { return signed(c, "c2ln") }
	token := claims(issued)
	verified := func(name string, groups ...string) auth.Identity {
		return identifier.OfUser(&user.DefaultInfo{Name: name, Groups: groups})
	}
	type peer struct {
		id       auth.Identity
		accepted bool
		address  string
	}
	known := func(id auth.Identity) peer { return peer{id, true, "192.0.2.1:1"} }
	for _, test := range []struct {
		name   string
		a, b   peer
		shared bool
	}{
		{name: "a known caller everywhere", a: peer{alice, true, "192.0.2.1:1"}, b: peer{alice, true, "192.0.2.2:1"}, shared: true},
		{name: "two known callers", a: peer{alice, true, "192.0.2.1:1"}, b: peer{bob, true, "192.0.2.1:1"}},
		{name: "an accepted one and another", a: peer{alice, true, "192.0.2.1:1"}, b: peer{bob, false, "192.0.2.1:1"}},
		{name: "two who are not accepted, of one address", a: peer{alice, false, "192.0.2.1:1"}, b: peer{bob, false, "192.0.2.1:2"}, shared: true},
		{name: "nobody of one address", a: peer{auth.Identity{}, false, "192.0.2.1:1"}, b: peer{bob, false, "192.0.2.1:2"}, shared: true},
		{name: "two addresses", a: peer{alice, false, "192.0.2.1:1"}, b: peer{alice, false, "192.0.2.2:1"}},
		{name: "one network of IPv6", a: peer{alice, false, "[2001:db8::1]:1"}, b: peer{bob, false, "[2001:db8::ffff:0:0:1]:1"}, shared: true},
		{name: "two networks of IPv6", a: peer{alice, false, "[2001:db8::1]:1"}, b: peer{alice, false, "[2001:db8:0:1::1]:1"}},
		{name: "zones", a: peer{alice, false, "[fe80::1%eth0]:1"}, b: peer{alice, false, "[fe80::1%eth1]:1"}, shared: true},
		{name: "IPv4 in IPv6", a: peer{alice, false, "[::ffff:192.0.2.1]:1"}, b: peer{alice, false, "192.0.2.1:1"}, shared: true},
		{name: "two of IPv4 in IPv6", a: peer{alice, false, "[::ffff:192.0.2.1]:1"}, b: peer{alice, false, "[::ffff:192.0.2.2]:1"}},

		{name: "two tokens of one subject", a: known(token), b: known(claims(strings.Replace(issued, `"1"`, `"2"`, 1))), shared: true},
		{name: "one token in two spellings", a: known(token), b: known(signed(issued, "c2lo")), shared: true},
		{name: "a token and more than a token", a: known(token), b: known(signed(issued, "c2ln.c2ln"))},
		{name: "tokens too long to be read", a: known(signed(long, "c2ln")), b: known(signed(long, "c2lo"))},
		{name: "two subjects", a: known(token), b: known(claims(strings.Replace(issued, "a:b", "a:c", 1)))},
		{name: "two issuers", a: known(token), b: known(claims(strings.Replace(issued, "issuer", "other", 1)))},
		{name: "issuer and subject that meet elsewhere", a: known(claims(`{"iss":"ab","sub":"c"}`)), b: known(claims(`{"iss":"a","sub":"bc"}`))},
		{name: "tokens without a subject", a: known(claims(`{"iss":"a","jti":"1"}`)), b: known(claims(`{"iss":"a","jti":"2"}`))},
		{name: "a name in other letters is another", a: known(claims(`{"iss":"a","sub":"b"}`)), b: known(claims(`{"iss":"a","sub":"c","Sub":"b"}`))},
		{
			name: "who is not accepted is not believed", a: peer{token, false, "192.0.2.1:1"},
			b: peer{claims(`{"iss":"a","sub":"b"}`), false, "192.0.2.1:2"}, shared: true,
		},
		{name: "one who is not accepted, with another's subject", a: known(token), b: peer{token, false, "192.0.2.1:1"}},
		{name: "a verified user, whatever the groups", a: known(verified("jane", "a")), b: known(verified("jane", "b")), shared: true},
		{
			name: "one token as two users", a: known(proxytest.IdentifyAs(identifier, http.Header{"Impersonate-User": {"a"}})),
			b: known(proxytest.Identify(identifier, "Bearer impersonator")), shared: true,
		},
		{name: "two verified users", a: known(verified("jane")), b: known(verified("john"))},
	} {
		a := auth.FlowOf(test.a.id, test.a.accepted, test.a.address)
		b := auth.FlowOf(test.b.id, test.b.accepted, test.b.address)
		if (a == b) != test.shared {
			t.Errorf("%s: shared %t, want %t", test.name, a == b, test.shared)
		}
	}
}
