// Package authntest has what tests need to make identities of callers.
package authntest

import (
	"context"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/proxytest"
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

// IdentifyAs returns the identity of a caller with a token whose request has these Impersonate-* headers, too.
func IdentifyAs(a *authn.Authenticator, as http.Header) authn.Identity {
	r := &http.Request{Header: as.Clone()}
	r.Header.Set("Authorization", "Bearer impersonator")
	id, _ := a.Authenticate(r)
	return id
}

// Jane is a user who is impersonated.
func Jane(t testing.TB) authn.Identity {
	t.Helper()
	return New(t).OfUser(&user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}})
}

// SendAs returns a func that sends requests through rt with the caller's own credentials.
func SendAs(rt proxytest.Transport) func(context.Context, authn.Identity, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, id authn.Identity, r *http.Request) (*http.Response, error) {
		id.Present(r.Header)
		return rt(r.WithContext(ctx))
	}
}
