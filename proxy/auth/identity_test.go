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
	"github.com/listproxy/listproxy/proxy/limits"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestIdentityKeys: no two callers have the same key, whether their identity is a token, a token that impersonates a user,
// another credential or a verified user. A caller has another key in another process.
func TestIdentityKeys(t *testing.T) {
	authenticator := auth.NewAuthenticator(nil)
	verified := func(u user.DefaultInfo) auth.Identity { return authenticator.NewVerifiedIdentity(&u) }
	// impersonating returns the identity of a token with Impersonate-* headers, each "Name: value".
	impersonating := func(token string, headers ...string) auth.Identity {
		r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			r.Header.Add("Impersonate-"+name, value)
		}
		id, _ := authenticator.Authenticate(r)
		return id
	}
	otherProcess := auth.NewAuthenticator(nil)
	seen := map[auth.Key]string{ // who has each key
		{}: "an unidentified caller",
		proxytest.Identify(otherProcess, "Bearer a").Key(): "token a in another process",
	}
	for name, id := range map[string]auth.Identity{
		"token a":  proxytest.Identify(authenticator, "Bearer a"),
		"token b":  proxytest.Identify(authenticator, "Bearer b"),
		"no token": proxytest.Identify(authenticator, "a"),

		"user a":                           verified(user.DefaultInfo{Name: "a"}),
		"user a, UID b":                    verified(user.DefaultInfo{Name: "a", UID: "b"}),
		"user ab":                          verified(user.DefaultInfo{Name: "ab"}),
		"no user, UID ab":                  verified(user.DefaultInfo{UID: "ab"}),
		"user a, group b":                  verified(user.DefaultInfo{Name: "a", Groups: []string{"b"}}),
		"user a, groups b and c":           verified(user.DefaultInfo{Name: "a", Groups: []string{"b", "c"}}),
		"user a, group bc":                 verified(user.DefaultInfo{Name: "a", Groups: []string{"bc"}}),
		"user a, group b quote c":          verified(user.DefaultInfo{Name: "a", Groups: []string{`b" "c`}}),
		"user a, group b with a bad byte":  verified(user.DefaultInfo{Name: "a", Groups: []string{"b\xff"}}),
		"user a, group b with an escape":   verified(user.DefaultInfo{Name: "a", Groups: []string{`b\xff`}}),
		"user a, groups c and b":           verified(user.DefaultInfo{Name: "a", Groups: []string{"c", "b"}}),
		"user a, extra b=c":                verified(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c"}}}),
		"user a, empty extras b and c":     verified(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {}, "c": {}}}),
		"user a, extra b=c,d":              verified(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c", "d"}}}),
		"user a, extra b=c, empty extra d": verified(user.DefaultInfo{Name: "a", Extra: map[string][]string{"b": {"c"}, "d": {}}}),

		"token a as user a":                 impersonating("a", "User: a"),
		"token b as user a":                 impersonating("b", "User: a"),
		"token a as user a, group b":        impersonating("a", "User: a", "Group: b"),
		"token a as user a, UID b":          impersonating("a", "User: a", "Uid: b"),
		"token a as user a, extras b and d": impersonating("a", "User: a", "Extra-B: c", "Extra-D: e", "Extra-D: f"),
	} {
		if other, ok := seen[id.Key()]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[id.Key()] = name
	}
	// Another spelling has the same key.
	for want, respelled := range map[string]auth.Identity{
		"token a":                           proxytest.Identify(authenticator, "bEARER a"),
		"user a, extra b=c, empty extra d":  verified(user.DefaultInfo{Name: "a", Extra: map[string][]string{"d": {}, "b": {"c"}}}),
		"token a as user a, extras b and d": impersonating("a", "Extra-D: e", "Extra-D: f", "Extra-B: c", "User: a"),
	} {
		expect.Same(t, want, seen[respelled.Key()])
	}
}

// TestImpersonator: Impersonator returns the caller's own identity, without the user whom the headers name.
func TestImpersonator(t *testing.T) {
	authenticator := auth.NewAuthenticator(nil)
	impersonator := proxytest.IdentifyAs(authenticator, http.Header{"Impersonate-User": {"a"}}).Impersonator()
	expect.Same(t, proxytest.Identify(authenticator, "Bearer impersonator").Key(), impersonator.Key())
	expect.Same(t, policy.PlainToken, impersonator.CredentialKind())
	expect.Same(t, (*user.DefaultInfo)(nil), impersonator.ImpersonatedUser())
}

// TestIdentityNeverPrintsItsCredential: no way to format an identity prints its credential.
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
			t.Errorf("a %s is printed with its credential: %s", name, &out)
		}
	}
	expect.Same(t, "Identity(hidden)", fmt.Sprint(id))
}

// TestFlowOf: the requests of a user with accepted credentials are one flow (FlowOf). All other requests from an IPv4 address,
// or from an IPv6 network, are one flow, too (FlowOfAddress).
func TestFlowOf(t *testing.T) {
	const (
		claims    = `{"iss":"https://issuer","sub":"system:serviceaccount:a:b","jti":"1"}`
		signature = "c2ln"
		address   = "192.0.2.1:1"
	)
	authenticator := auth.NewAuthenticator(nil)
	alice := proxytest.Identify(authenticator, "Bearer a")
	bob := proxytest.Identify(authenticator, "Bearer b")
	verified := func(name string, groups ...string) auth.Identity {
		return authenticator.NewVerifiedIdentity(&user.DefaultInfo{Name: name, Groups: groups})
	}
	// The callers with JSON web tokens: signed has the token with these claims and this signature, issued any token with these
	// claims, and issuedBut the token with the claims above, in which old is replaced.
	signed := func(claims, signature string) auth.Identity {
		return proxytest.Identify(authenticator, proxytest.WebToken(claims, signature))
	}
	issued := func(claims string) auth.Identity { return signed(claims, signature) }
	issuedBut := func(old, replacement string) auth.Identity {
		return issued(strings.Replace(claims, old, replacement, 1))
	}

	// Both requests of each case are in one flow.
	for name, flows := range map[string][2]limits.Flow{
		"two ports of an address":         {auth.FlowOfAddress(address), auth.FlowOfAddress("192.0.2.1:2")},
		"one network of IPv6":             {auth.FlowOfAddress("[2001:db8::1]:1"), auth.FlowOfAddress("[2001:db8::ffff:0:0:1]:1")},
		"two zones of an address of IPv6": {auth.FlowOfAddress("[fe80::1%eth0]:1"), auth.FlowOfAddress("[fe80::1%eth1]:1")},
		"an address of IPv4 in IPv6":      {auth.FlowOfAddress("[::ffff:192.0.2.1]:1"), auth.FlowOfAddress(address)},

		"two tokens of a subject":         {auth.FlowOf(issued(claims)), auth.FlowOf(issuedBut(`"1"`, `"2"`))},
		"a token in two spellings":        {auth.FlowOf(issued(claims)), auth.FlowOf(signed(claims, "c2lo"))},
		"a verified user in other groups": {auth.FlowOf(verified("jane", "a")), auth.FlowOf(verified("jane", "b"))},
		"a token, impersonating and not": {
			auth.FlowOf(proxytest.IdentifyAs(authenticator, http.Header{"Impersonate-User": {"a"}})),
			auth.FlowOf(proxytest.Identify(authenticator, "Bearer impersonator")),
		},
	} {
		if flows[0] != flows[1] {
			t.Errorf("%s: got two flows, want one", name)
		}
	}
	// The requests of each case are in two flows.
	for name, flows := range map[string][2]limits.Flow{
		"two accepted callers":          {auth.FlowOf(alice), auth.FlowOf(bob)},
		"one caller accepted, one not":  {auth.FlowOf(alice), auth.FlowOfAddress(address)},
		"two addresses":                 {auth.FlowOfAddress(address), auth.FlowOfAddress("192.0.2.2:1")},
		"two networks of IPv6":          {auth.FlowOfAddress("[2001:db8::1]:1"), auth.FlowOfAddress("[2001:db8:0:1::1]:1")},
		"two addresses of IPv4 in IPv6": {auth.FlowOfAddress("[::ffff:192.0.2.1]:1"), auth.FlowOfAddress("[::ffff:192.0.2.2]:1")},
		"a token with a fourth part":    {auth.FlowOf(issued(claims)), auth.FlowOf(signed(claims, "c2ln.c2ln"))},
		"two subjects":                  {auth.FlowOf(issued(claims)), auth.FlowOf(issuedBut("a:b", "a:c"))},
		"two issuers":                   {auth.FlowOf(issued(claims)), auth.FlowOf(issuedBut("issuer", "other"))},
		"issuer and subject ab, c and a, bc": {
			auth.FlowOf(issued(`{"iss":"ab","sub":"c"}`)), auth.FlowOf(issued(`{"iss":"a","sub":"bc"}`)),
		},
		"two tokens without a subject": {
			auth.FlowOf(issued(`{"iss":"a","jti":"1"}`)), auth.FlowOf(issued(`{"iss":"a","jti":"2"}`)),
		},
		"a claim with a capital letter": {
			auth.FlowOf(issued(`{"iss":"a","sub":"b"}`)), auth.FlowOf(issued(`{"iss":"a","sub":"c","Sub":"b"}`)),
		},
		"a subject, accepted and not": {auth.FlowOf(issued(claims)), auth.FlowOfAddress(address)},
		"two verified users":          {auth.FlowOf(verified("jane")), auth.FlowOf(verified("john"))},
	} {
		if flows[0] == flows[1] {
			t.Errorf("%s: got one flow, want two", name)
		}
	}
}
