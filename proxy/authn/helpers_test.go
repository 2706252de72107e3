package authn

import (
	"net/http"
	"testing"
)

func newAuthenticatorOf(t testing.TB) *Authenticator {
	t.Helper()
	i, err := New(Config{})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return i
}

// identify returns the identity of a request with these Authorization values.
func identifyBy(i *Authenticator, authorization ...string) Identity {
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
