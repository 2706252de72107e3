package proxytest

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// What follows is for the types of package auth, which it does not import: that package's own tests use it.

// Authenticator is an auth.Authenticator.
type Authenticator[Identity, Refusal any] interface {
	Authenticate(r *http.Request) (Identity, Refusal)
}

// Identify returns the identity of a request with these Authorization values.
func Identify[Identity, Refusal any](a Authenticator[Identity, Refusal], authorization ...string) Identity {
	id, _ := a.Authenticate(&http.Request{Header: http.Header{"Authorization": authorization}})
	return id
}

// IdentifyAs returns the identity of a caller with a token whose request has these Impersonate-* headers, too.
func IdentifyAs[Identity, Refusal any](a Authenticator[Identity, Refusal], as http.Header) Identity {
	r := &http.Request{Header: as.Clone()}
	r.Header.Set("Authorization", "Bearer impersonator")
	id, _ := a.Authenticate(r)
	return id
}

// Jane is a user who is impersonated.
func Jane[Identity any](a interface {
	OfUser(u *user.DefaultInfo) Identity
},
) Identity {
	return a.OfUser(&user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}})
}

// SendAs returns a func that sends requests through rt with the caller's own credentials.
func SendAs[Identity interface{ Present(h http.Header) }](rt Transport) func(context.Context, Identity, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error) {
		id.Present(r.Header)
		return rt(r.WithContext(ctx))
	}
}
