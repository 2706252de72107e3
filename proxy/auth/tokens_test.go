package auth

import (
	"cmp"
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
	for name, test := range map[string]struct {
		anonymous, before, upgrade bool // before: the token was accepted
		method                     string
		code                       int
		want                       Verdict
	}{
		"an answer":                          {code: http.StatusOK, want: Accepted},
		"no right":                           {code: http.StatusForbidden, want: Accepted},
		"no user":                            {code: http.StatusUnauthorized, want: Refused},
		"no user any more":                   {before: true, code: http.StatusUnauthorized, want: Refused},
		"a failure":                          {code: http.StatusInternalServerError, want: Unasked},
		"a failure, accepted before":         {before: true, code: http.StatusInternalServerError, want: Accepted},
		"a preflight, which asks for nobody": {method: http.MethodOptions, code: http.StatusOK, want: Unasked},
		"an upgrade":                         {upgrade: true, code: http.StatusSwitchingProtocols, want: Unasked},
		"an upgrade, refused":                {upgrade: true, code: http.StatusForbidden, want: Unasked},
		"an upgrade, accepted before":        {before: true, upgrade: true, code: http.StatusUnauthorized, want: Accepted},
		"an answer to nobody":                {anonymous: true, code: http.StatusOK, want: Anonymous},
		"an upgrade of nobody":               {anonymous: true, upgrade: true, code: http.StatusSwitchingProtocols, want: Anonymous},
	} {
		tokens, id := NewTokens(), token
		if test.anonymous {
			id = Identity{}
		}
		if test.before {
			tokens.Answered(id, false, http.MethodGet, http.StatusOK)
		}
		tokens.Answered(id, test.upgrade, cmp.Or(test.method, http.MethodGet), test.code)
		got, share := tokens.Caller(id, "192.0.2.1:1")
		if got != test.want || share != FlowOf(id, test.want == Accepted, "192.0.2.1:2") {
			t.Errorf("%s: the verdict is %d, want %d, or the share is another's", name, got, test.want)
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
		time.Sleep(refusedTTL)
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
