package auth

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAnswered: an answer that only somebody can have shows that the token is accepted, and a 401 that
// it is not, for a while. An accepted token has the share of its user, all others that of their address.
func TestAnswered(t *testing.T) {
	callers := NewAuthenticator(nil)
	token := proxytest.Identify(callers, "Bearer a")
	for _, test := range []struct {
		id      Identity
		before  bool // the token is accepted
		upgrade bool
		method  string
		code    int
		want    Verdict
	}{
		{token, false, false, http.MethodGet, http.StatusOK, Accepted},
		{token, false, false, http.MethodGet, http.StatusForbidden, Accepted},
		{token, false, false, http.MethodGet, http.StatusUnauthorized, Refused},
		{token, true, false, http.MethodGet, http.StatusUnauthorized, Refused},
		{token, false, false, http.MethodGet, http.StatusInternalServerError, Unasked},
		{token, true, false, http.MethodGet, http.StatusInternalServerError, Accepted},
		{token, false, false, http.MethodOptions, http.StatusOK, Unasked},
		{token, false, true, http.MethodGet, http.StatusSwitchingProtocols, Unasked},
		{token, false, true, http.MethodGet, http.StatusForbidden, Unasked},
		{token, true, true, http.MethodGet, http.StatusUnauthorized, Accepted},
		{Identity{}, false, false, http.MethodGet, http.StatusOK, Anonymous},
		{Identity{}, false, true, http.MethodGet, http.StatusSwitchingProtocols, Anonymous},
	} {
		tokens := NewTokens()
		if test.before {
			tokens.Answered(test.id, false, http.MethodGet, http.StatusOK)
		}
		tokens.Answered(test.id, test.upgrade, test.method, test.code)
		got, share := tokens.Caller(test.id, "192.0.2.1:1")
		if got != test.want || share != FlowOf(test.id, test.want == Accepted, "192.0.2.1:2") {
			t.Errorf("%+v: the verdict is %d, or the share another's", test, got)
		}
	}
	tokens := NewTokens()
	impersonating := func(user string) Identity {
		return proxytest.IdentifyAs(callers, http.Header{"Impersonate-User": {user}})
	}
	tokens.Answered(impersonating("alice"), false, http.MethodGet, http.StatusForbidden)
	if got, _ := tokens.Caller(impersonating("bob"), ""); got != Accepted {
		t.Errorf("a token that was accepted as alice is not accepted as bob: %d", got)
	}
}

// TestRefusedIsForgotten: after ten seconds a token may be asked about again, and an answer to it that
// only somebody can have counts at once.
func TestRefusedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens()
		token := proxytest.Identify(NewAuthenticator(nil), "Bearer a")
		want := func(want Verdict) {
			t.Helper()
			if got, _ := tokens.Caller(token, "192.0.2.1:1"); got != want {
				t.Errorf("the verdict is %d, want %d", got, want)
			}
		}
		tokens.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		time.Sleep(refusedFor)
		want(Refused)
		time.Sleep(time.Nanosecond)
		want(Unasked)
		tokens.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		tokens.Answered(token, false, http.MethodGet, http.StatusOK)
		want(Accepted)
		tokens.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		want(Refused)
	})
}
