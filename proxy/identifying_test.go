package proxy

import (
	"net/http"
	"testing"

	"github.com/listproxy/listproxy/proxy/authn"
)

func newIdentifier(t testing.TB) *authn.Authenticator {
	t.Helper()
	i, err := authn.New(authn.Config{})
	if err != nil {
		t.Fatalf("NewIdentifier: %v", err)
	}
	return i
}

// identify returns the identity of a request with these Authorization values.
func identify(i *authn.Authenticator, authorization ...string) authn.Identity {
	r := &http.Request{Header: http.Header{}}
	for _, value := range authorization {
		r.Header.Add("Authorization", value)
	}
	id, refusal := i.Authenticate(r)
	if refusal != nil {
		panic(refusal.Message)
	}
	return id
}
