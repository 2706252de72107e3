package auth

import (
	"cmp"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAnswered: an answer that only authenticated callers get makes the verdict Accepted, and a 401 makes it Refused. An
// accepted token has the flow of its user, any other that of its address.
func TestAnswered(t *testing.T) {
	callers := NewAuthenticator(nil)
	token := proxytest.Identify(callers, "Bearer a")
	for name, test := range map[string]struct {
		anonymous bool // the request has no token
		accepted  bool // the token was accepted before
		upgrade   bool
		method    string // "": GET
		code      int
		want      Verdict
	}{
		"200":                               {code: http.StatusOK, want: Accepted},
		"403":                               {code: http.StatusForbidden, want: Accepted},
		"401":                               {code: http.StatusUnauthorized, want: Refused},
		"401, accepted before":              {accepted: true, code: http.StatusUnauthorized, want: Refused},
		"500":                               {code: http.StatusInternalServerError, want: Unasked},
		"500, accepted before":              {accepted: true, code: http.StatusInternalServerError, want: Accepted},
		"a CORS preflight, without a token": {method: http.MethodOptions, code: http.StatusOK, want: Unasked},
		"upgrade":                           {upgrade: true, code: http.StatusSwitchingProtocols, want: Unasked},
		"upgrade, 403":                      {upgrade: true, code: http.StatusForbidden, want: Unasked},
		"upgrade, 401, accepted before":     {accepted: true, upgrade: true, code: http.StatusUnauthorized, want: Accepted},
		"200, anonymous":                    {anonymous: true, code: http.StatusOK, want: Anonymous},
		"upgrade, anonymous":                {anonymous: true, upgrade: true, code: http.StatusSwitchingProtocols, want: Anonymous},
	} {
		tokens, id := NewTokens(), token
		if test.anonymous {
			id = Identity{}
		}
		if test.accepted {
			tokens.RecordAnswer(id, false, http.MethodGet, http.StatusOK)
		}
		tokens.RecordAnswer(id, test.upgrade, cmp.Or(test.method, http.MethodGet), test.code)
		got, flow := tokens.VerdictOn(id, "192.0.2.1:1")
		if got != test.want {
			t.Errorf("%s: got verdict %d, want %d", name, got, test.want)
		}
		if flow != FlowOf(id, test.want == Accepted, "192.0.2.1:2") {
			t.Errorf("%s: got the flow of another caller", name)
		}
	}
	tokens := NewTokens()
	impersonating := func(user string) Identity {
		return proxytest.IdentifyAs(callers, http.Header{"Impersonate-User": {user}})
	}
	tokens.RecordAnswer(impersonating("alice"), false, http.MethodGet, http.StatusForbidden)
	if got, _ := tokens.VerdictOn(impersonating("bob"), ""); got != Accepted {
		t.Errorf("a token that was accepted as alice: got verdict %d as bob, want %d", got, Accepted)
	}
}

// TestRefusedIsForgotten: the verdict Refused ends after refusedTTL, or with an answer that only authenticated callers get.
func TestRefusedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := NewTokens()
		token := proxytest.Identify(NewAuthenticator(nil), "Bearer a")
		want := func(want Verdict) {
			t.Helper()
			if got, _ := tokens.VerdictOn(token, "192.0.2.1:1"); got != want {
				t.Errorf("got verdict %d, want %d", got, want)
			}
		}
		tokens.RecordAnswer(token, false, http.MethodGet, http.StatusUnauthorized)
		time.Sleep(refusedTTL)
		want(Refused)
		time.Sleep(time.Nanosecond)
		want(Unasked)
		tokens.RecordAnswer(token, false, http.MethodGet, http.StatusUnauthorized)
		tokens.RecordAnswer(token, false, http.MethodGet, http.StatusOK)
		want(Accepted)
		tokens.RecordAnswer(token, false, http.MethodGet, http.StatusUnauthorized)
		want(Refused)
	})
}
