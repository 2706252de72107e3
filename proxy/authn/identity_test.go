package authn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

func TestIdentifyNeedsExactlyOneCredential(t *testing.T) {
	i := newAuthenticatorOf(t)
	for _, test := range []struct {
		name          string
		authorization []string
		want          bool
	}{
		{"none", nil, false},
		{"empty", []string{""}, false},
		{"one", []string{"Bearer a"}, true},
		{"two", []string{"Bearer a", "Bearer b"}, false},
		{"the same twice", []string{"Bearer a", "Bearer a"}, false},
		{"empty and one", []string{"", "Bearer a"}, false},
		{"no token", []string{"Basic eA=="}, true},
		{"a word behind", []string{"Bearer a b"}, false},
		{"a space behind", []string{"Bearer a "}, false},
		{"a space that Unicode has", []string{"Bearer a\u00a0"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := identifyBy(i, test.authorization...).Known(); got != test.want {
				t.Errorf("known: got %v, want %v", got, test.want)
			}
		})
	}
}

func TestIdentityKeys(t *testing.T) {
	i := newAuthenticatorOf(t)
	a := identifyBy(i, "Bearer a")
	if again := identifyBy(i, "Bearer a"); again.key != a.key {
		t.Error("the same credential has two keys")
	}
	if again := identifyBy(i, "bEARER a"); again.key != a.key {
		t.Error("the same token has two keys")
	}
	if none := identifyBy(i, "a"); none.key == a.key {
		t.Error("a token and what is none have one key")
	}
	if b := identifyBy(i, "Bearer b"); b.key == a.key {
		t.Error("two credentials have one key")
	}
	if other := identifyBy(newAuthenticatorOf(t), "Bearer a"); other.key == a.key {
		t.Error("the key does not depend on the process's secret")
	}
	if (a.key == Key{}) {
		t.Error("a credential has the key of nobody")
	}
}

// An identity is its own once it is made: what becomes of the request's
// headers, which the forwarder edits, does not change whom a review is for.
func TestIdentityDoesNotShareTheRequestsHeader(t *testing.T) {
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer a"}}}
	id, _ := newAuthenticatorOf(t).Authenticate(r)
	r.Header["Authorization"][0] = "Bearer b"
	if got := *id.authorization; got != "Bearer a" {
		t.Errorf("got %q", got)
	}
}

func TestIdentityNeverPrintsItsCredential(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.s3cr3t"
	id := identifyBy(newAuthenticatorOf(t), "Bearer "+secret)
	type holder struct {
		Public  Identity
		private Identity
		pointer *Identity
	}
	values := map[string]any{
		"value":   id,
		"pointer": &id,
		"slice":   []Identity{id},
		"map":     map[string]Identity{"id": id},
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
		if got != hiddenIdentity {
			t.Errorf("got %q", got)
		}
	}
}

// TestBringsToken: it is asked about every request, so it makes nothing.
func TestBringsToken(t *testing.T) {
	i := newAuthenticatorOf(t)
	for authorization, want := range map[string]bool{
		"Bearer a": true, "bearer a": true, "Basic eA==": false, "Bearer": false, "Bearer ": false, "a": false, "": false,
	} {
		id := identifyBy(i, authorization)
		if got := id.BringsToken(); got != want {
			t.Errorf("%q: %t, want %t", authorization, got, want)
		}
		if n := testing.AllocsPerRun(100, func() { _ = id.BringsToken() }); n != 0 {
			t.Errorf("%q: %v allocations", authorization, n)
		}
	}
	if (Identity{}).BringsToken() {
		t.Error("nobody brings a token")
	}
}
