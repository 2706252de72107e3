package authn_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

func TestIdentityKeys(t *testing.T) {
	i := authntest.New(t)
	a := authntest.Identify(i, "Bearer a")
	if again := authntest.Identify(i, "Bearer a"); again.Key() != a.Key() {
		t.Error("the same credential has two keys")
	}
	if again := authntest.Identify(i, "bEARER a"); again.Key() != a.Key() {
		t.Error("the same token has two keys")
	}
	if none := authntest.Identify(i, "a"); none.Key() == a.Key() {
		t.Error("a token and what is none have one key")
	}
	if b := authntest.Identify(i, "Bearer b"); b.Key() == a.Key() {
		t.Error("two credentials have one key")
	}
	if other := authntest.Identify(authntest.New(t), "Bearer a"); other.Key() == a.Key() {
		t.Error("the key does not depend on the process's secret")
	}
	if (a.Key() == authn.Key{}) {
		t.Error("a credential has the key of nobody")
	}
}

// An identity is its own once it is made: what becomes of the request's
// headers, which the forwarder edits, does not change whom a review is for.
func TestIdentityDoesNotShareTheRequestsHeader(t *testing.T) {
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer a"}}}
	id, _ := authntest.New(t).Authenticate(r)
	r.Header["Authorization"][0] = "Bearer b"
	sent := http.Header{}
	id.Present(sent)
	expect.Same(t, "Bearer a", sent.Get("Authorization"))
}

func TestIdentityNeverPrintsItsCredential(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.s3cr3t"
	id := authntest.Identify(authntest.New(t), "Bearer "+secret)
	type holder struct {
		Public  authn.Identity
		private authn.Identity
		pointer *authn.Identity
	}
	values := map[string]any{
		"value":   id,
		"pointer": &id,
		"slice":   []authn.Identity{id},
		"map":     map[string]authn.Identity{"id": id},
		"struct":  holder{Public: id, private: id, pointer: &id},
		"struct*": &holder{Public: id, private: id, pointer: &id},
	}
	for name, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%p", "%T", "%!"} {
			if got := fmt.Sprintf(verb, value); strings.Contains(got, "s3cr3t") {
				t.Errorf("%s of a %s: %s", verb, name, got)
			}
		}
		var out bytes.Buffer
		slog.New(slog.NewTextHandler(&out, nil)).Info("text", "value", value)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("json", "value", value)
		if err := json.NewEncoder(&out).Encode(value); err != nil {
			t.Errorf("encoding a %s: %v", name, err)
		}
		if strings.Contains(out.String(), "s3cr3t") {
			t.Errorf("log or JSON of a %s: %s", name, out.String())
		}
	}
	for _, got := range []string{id.String(), id.GoString(), id.LogValue().String()} {
		if got != "Identity(hidden)" {
			t.Errorf("got %q", got)
		}
	}
}

// TestBringsToken: it is asked about every request, so it makes nothing.
func TestBringsToken(t *testing.T) {
	i := authntest.New(t)
	for authorization, want := range map[string]bool{
		"Bearer a": true, "bearer a": true, "Basic eA==": false, "Bearer": false, "Bearer ": false, "a": false, "": false,
	} {
		id := authntest.Identify(i, authorization)
		if got := id.BringsToken(); got != want {
			t.Errorf("%q: %t, want %t", authorization, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { _ = id.BringsToken() }); n != 0 {
			t.Errorf("%q: %v allocations", authorization, n)
		}
	}
	if (authn.Identity{}).BringsToken() {
		t.Error("nobody brings a token")
	}
}

// TestFlowOf: a flow is a known user's, or else that of an address.
func TestFlowOf(t *testing.T) {
	identifier := authntest.New(t)
	alice, bob := authntest.Identify(identifier, "Bearer a"), authntest.Identify(identifier, "Bearer b")
	const issued = `{"iss":"https://issuer","sub":"system:serviceaccount:a:b","jti":"1"}`
	token := authntest.Identify(identifier, proxytest.WebToken(issued, "c2ln"))
	claims := func(c string) authn.Identity { return authntest.Identify(identifier, proxytest.WebToken(c, "c2ln")) }
	verified := func(name string, groups ...string) authn.Identity {
		return identifier.OfUser(&user.DefaultInfo{Name: name, Groups: groups})
	}
	type peer struct {
		id       authn.Identity
		accepted bool
		address  string
	}
	known := func(id authn.Identity) peer { return peer{id, true, "192.0.2.1:1"} }
	for _, test := range []struct {
		name   string
		a, b   peer
		shared bool
	}{
		{"a known caller everywhere", peer{alice, true, "192.0.2.1:1"}, peer{alice, true, "192.0.2.2:1"}, true},
		{"two known callers", peer{alice, true, "192.0.2.1:1"}, peer{bob, true, "192.0.2.1:1"}, false},
		{"an accepted one and another", peer{alice, true, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:1"}, false},
		{"two who are not accepted, of one address", peer{alice, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"nobody of one address", peer{authn.Identity{}, false, "192.0.2.1:1"}, peer{bob, false, "192.0.2.1:2"}, true},
		{"two addresses", peer{alice, false, "192.0.2.1:1"}, peer{alice, false, "192.0.2.2:1"}, false},
		{"one network of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{bob, false, "[2001:db8::ffff:0:0:1]:1"}, true},
		{"two networks of IPv6", peer{alice, false, "[2001:db8::1]:1"}, peer{alice, false, "[2001:db8:0:1::1]:1"}, false},
		{"zones", peer{alice, false, "[fe80::1%eth0]:1"}, peer{alice, false, "[fe80::1%eth1]:1"}, true},
		{"IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "192.0.2.1:1"}, true},
		{"two of IPv4 in IPv6", peer{alice, false, "[::ffff:192.0.2.1]:1"}, peer{alice, false, "[::ffff:192.0.2.2]:1"}, false},

		{"two tokens of one subject", known(token), known(claims(strings.Replace(issued, `"1"`, `"2"`, 1))), true},
		{"one token in two spellings", known(token), known(authntest.Identify(identifier, proxytest.WebToken(issued, "c2lo"))), true},
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
		a := authn.FlowOf(test.a.id, test.a.accepted, test.a.address)
		b := authn.FlowOf(test.b.id, test.b.accepted, test.b.address)
		if (a == b) != test.shared {
			t.Errorf("%s: shared %t, want %t", test.name, a == b, test.shared)
		}
	}
}
