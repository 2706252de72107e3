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
	// impersonating is a token's identity with Impersonate-* headers, each "Name: value".
	impersonating := func(token string, headers ...string) auth.Identity {
		r := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(connection)
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Add("Impersonate-"+name, value)
		}
		id, _ := i.Authenticate(r)
		return id
	}
	otherProcess := auth.NewAuthenticator(nil)
	seen := map[auth.Key]string{
		{}: "nobody",
		proxytest.Identify(otherProcess, "Bearer a").Key(): "another process's",
	}
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

		"a token as a user":          impersonating("a", "User: a"),
		"another token as that user": impersonating("b", "User: a"),
		"as that user, in a group":   impersonating("a", "User: a", "Group: b"),
		"as that user, with a UID":   impersonating("a", "User: a", "Uid: b"),
		"as that user, with extras":  impersonating("a", "User: a", "Extra-B: c", "Extra-D: e", "Extra-D: f"),
	} {
		if other, ok := seen[id.Key()]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[id.Key()] = name
	}
	// The same callers in other spellings.
	for want, again := range map[string]auth.Identity{
		"a token":                   proxytest.Identify(i, "bEARER a"),
		"with one and an empty one": identityOf(user.DefaultInfo{Name: "a", Extra: map[string][]string{"d": {}, "b": {"c"}}}),
		"as that user, with extras": impersonating("a", "Extra-D: e", "Extra-D: f", "Extra-B: c", "User: a"),
	} {
		expect.Same(t, want, seen[again.Key()])
	}
	impersonator := impersonating("a", "User: a").Impersonator()
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
	expect.Same(t, "Identity(hidden)", fmt.Sprint(id))
}

// TestFlowOf: requests of one accepted user share a flow, and else those of one address (or network of IPv6).
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
		accepted bool // by kube-apiserver
		address  string
	}
	acceptedAt := func(address string, id auth.Identity) peer { return peer{id: id, accepted: true, address: address} }
	unknownAt := func(address string, id auth.Identity) peer { return peer{id: id, address: address} }
	accepted := func(id auth.Identity) peer { return acceptedAt("192.0.2.1:1", id) }
	asUserA := proxytest.IdentifyAs(identifier, http.Header{"Impersonate-User": {"a"}})
	for _, test := range []struct {
		name       string
		one, other peer
		wantShared bool
	}{
		{
			name: "a known caller everywhere",
			one:  accepted(alice), other: acceptedAt("192.0.2.2:1", alice), wantShared: true,
		},
		{name: "two known callers", one: accepted(alice), other: accepted(bob)},
		{name: "an accepted one and another", one: accepted(alice), other: unknownAt("192.0.2.1:1", bob)},
		{
			name: "two who are not accepted, of one address",
			one:  unknownAt("192.0.2.1:1", alice), other: unknownAt("192.0.2.1:2", bob), wantShared: true,
		},
		{
			name: "nobody of one address",
			one:  unknownAt("192.0.2.1:1", auth.Identity{}), other: unknownAt("192.0.2.1:2", bob), wantShared: true,
		},
		{name: "two addresses", one: unknownAt("192.0.2.1:1", alice), other: unknownAt("192.0.2.2:1", alice)},
		{
			name: "one network of IPv6",
			one:  unknownAt("[2001:db8::1]:1", alice), other: unknownAt("[2001:db8::ffff:0:0:1]:1", bob), wantShared: true,
		},
		{
			name: "two networks of IPv6",
			one:  unknownAt("[2001:db8::1]:1", alice), other: unknownAt("[2001:db8:0:1::1]:1", alice),
		},
		{
			name: "zones",
			one:  unknownAt("[fe80::1%eth0]:1", alice), other: unknownAt("[fe80::1%eth1]:1", alice), wantShared: true,
		},
		{
			name: "IPv4 in IPv6",
			one:  unknownAt("[::ffff:192.0.2.1]:1", alice), other: unknownAt("192.0.2.1:1", alice), wantShared: true,
		},
		{
			name: "two of IPv4 in IPv6",
			one:  unknownAt("[::ffff:192.0.2.1]:1", alice), other: unknownAt("[::ffff:192.0.2.2]:1", alice),
		},

		{
			name: "two tokens of one subject",
			one:  accepted(token), other: accepted(claims(strings.Replace(issued, `"1"`, `"2"`, 1))), wantShared: true,
		},
		{
			name: "one token in two spellings",
			one:  accepted(token), other: accepted(signed(issued, "c2lo")), wantShared: true,
		},
		{name: "a token and more than a token", one: accepted(token), other: accepted(signed(issued, "c2ln.c2ln"))},
		{name: "tokens too long to be read", one: accepted(signed(long, "c2ln")), other: accepted(signed(long, "c2lo"))},
		{name: "two subjects", one: accepted(token), other: accepted(claims(strings.Replace(issued, "a:b", "a:c", 1)))},
		{
			name: "two issuers",
			one:  accepted(token), other: accepted(claims(strings.Replace(issued, "issuer", "other", 1))),
		},
		{
			name: "issuer and subject that meet elsewhere",
			one:  accepted(claims(`{"iss":"ab","sub":"c"}`)), other: accepted(claims(`{"iss":"a","sub":"bc"}`)),
		},
		{
			name: "tokens without a subject",
			one:  accepted(claims(`{"iss":"a","jti":"1"}`)), other: accepted(claims(`{"iss":"a","jti":"2"}`)),
		},
		{
			name: "a name in other letters is another",
			one:  accepted(claims(`{"iss":"a","sub":"b"}`)), other: accepted(claims(`{"iss":"a","sub":"c","Sub":"b"}`)),
		},
		{
			name:       "who is not accepted is not believed",
			one:        unknownAt("192.0.2.1:1", token),
			other:      unknownAt("192.0.2.1:2", claims(`{"iss":"a","sub":"b"}`)),
			wantShared: true,
		},
		{
			name: "one who is not accepted, with another's subject",
			one:  accepted(token), other: unknownAt("192.0.2.1:1", token),
		},
		{
			name: "a verified user, whatever the groups",
			one:  accepted(verified("jane", "a")), other: accepted(verified("jane", "b")), wantShared: true,
		},
		{
			name: "one token as two users",
			one:  accepted(asUserA), other: accepted(proxytest.Identify(identifier, "Bearer impersonator")), wantShared: true,
		},
		{name: "two verified users", one: accepted(verified("jane")), other: accepted(verified("john"))},
	} {
		one := auth.FlowOf(test.one.id, test.one.accepted, test.one.address)
		other := auth.FlowOf(test.other.id, test.other.accepted, test.other.address)
		if (one == other) != test.wantShared {
			t.Errorf("%s: shared %t, want %t", test.name, one == other, test.wantShared)
		}
	}
}
