package proxytest

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"
)

// The tests of package auth (proxy/auth) import this package, so this package cannot import auth. Instead, functions here have
// type parameters for auth's types, which callers need not name: proxytest.Identify(auth.NewAuthenticator(nil), "Bearer x")
// returns an auth.Identity.

// Authenticator has the method of auth.Authenticator that identifies the caller of a request.
type Authenticator[Identity, Refusal any] interface {
	Authenticate(r *http.Request) (Identity, Refusal)
}

// Identify returns the identity of the caller of a request with these values of the header Authorization.
func Identify[Identity, Refusal any](a Authenticator[Identity, Refusal], authorization ...string) Identity {
	id, _ := a.Authenticate(&http.Request{Header: http.Header{"Authorization": authorization}})
	return id
}

// IdentifyAs returns the identity of a caller with the token "impersonator" and these Impersonate-* headers.
func IdentifyAs[Identity, Refusal any](a Authenticator[Identity, Refusal], headers http.Header) Identity {
	r := &http.Request{Header: headers.Clone()}
	r.Header.Set("Authorization", "Bearer impersonator")
	id, _ := a.Authenticate(r)
	return id
}

// Users is the part of an auth.Authenticator that identifies verified users.
type Users[Identity any] interface {
	NewVerifiedIdentity(u *user.DefaultInfo) Identity
}

// Jane returns the identity of the user jane, whom listproxy impersonates.
func Jane[Identity any](a Users[Identity]) Identity {
	return a.NewVerifiedIdentity(&user.DefaultInfo{Name: "jane", Groups: []string{user.AllAuthenticated}})
}

// SendWithCredentials returns a function that adds the credentials of an identity to a request and sends it through rt.
// Identity is auth.Identity.
func SendWithCredentials[Identity interface{ SetHeaders(h http.Header) }](
	rt Transport,
) func(context.Context, Identity, *http.Request) (*http.Response, error) {
	return func(ctx context.Context, id Identity, r *http.Request) (*http.Response, error) {
		id.SetHeaders(r.Header)
		return rt(r.WithContext(ctx))
	}
}
