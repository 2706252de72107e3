// Package authntest has what tests need to make identities of callers.
package authntest

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
)

// New returns an authenticator that knows callers by their Authorization header only.
func New(t testing.TB) *authn.Authenticator {
	t.Helper()
	a, err := authn.New(authn.Config{})
	if err != nil {
		t.Fatalf("authn.New: %v", err)
	}
	return a
}

// Identify returns the identity of a request with these Authorization values.
func Identify(a *authn.Authenticator, authorization ...string) authn.Identity {
	r := &http.Request{Header: http.Header{}}
	for _, value := range authorization {
		r.Header.Add("Authorization", value)
	}
	id, refusal := a.Authenticate(r)
	if refusal != nil {
		panic(refusal.Message)
	}
	return id
}
