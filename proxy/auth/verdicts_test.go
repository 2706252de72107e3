package auth

import (
	"cmp"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

const (
	// notUpgraded is the argument of RecordAnswer for the answer to a request that asks for no upgrade.
	notUpgraded = false
	// remoteAddr and sameAddress are two connections from one address.
	remoteAddr, sameAddress = "192.0.2.1:1", "192.0.2.1:2"
)

var verdictNames = map[Verdict]string{Unjudged: "Unjudged", Accepted: "Accepted", Refused: "Refused", NoToken: "NoToken"}

// expectVerdict requires the verdict on a caller.
func expectVerdict(t *testing.T, verdicts *Verdicts, id Identity, want Verdict) {
	t.Helper()
	if got, _ := verdicts.VerdictOn(id, remoteAddr); got != want {
		t.Errorf("got the verdict %s, want %s", verdictNames[got], verdictNames[want])
	}
}

// TestRecordAnswer: an answer that only authenticated callers get makes the verdict Accepted, and a 401 makes it Refused. The
// answer to an upgrade changes nothing. A caller is in the flow of its user if its token is accepted, and in that of its
// address if not.
func TestRecordAnswer(t *testing.T) {
	token := proxytest.Identify(NewAuthenticator(nil), "Bearer a")
	for name, tt := range map[string]struct {
		anonymous bool // the request has no token
		accepted  bool // the token was accepted before
		upgrade   bool
		method    string // "": GET
		code      int
		want      Verdict
	}{
		"200":                  {code: http.StatusOK, want: Accepted},
		"403":                  {code: http.StatusForbidden, want: Accepted},
		"401":                  {code: http.StatusUnauthorized, want: Refused},
		"401, accepted before": {accepted: true, code: http.StatusUnauthorized, want: Refused},
		"500":                  {code: http.StatusInternalServerError, want: Unjudged},
		"500, accepted before": {accepted: true, code: http.StatusInternalServerError, want: Accepted},
		"200 to OPTIONS, which kube-apiserver gives a CORS preflight of anybody": {
			method: http.MethodOptions, code: http.StatusOK, want: Unjudged,
		},
		"upgrade":                       {upgrade: true, code: http.StatusSwitchingProtocols, want: Unjudged},
		"upgrade, 403":                  {upgrade: true, code: http.StatusForbidden, want: Unjudged},
		"upgrade, 401, accepted before": {accepted: true, upgrade: true, code: http.StatusUnauthorized, want: Accepted},
		"200, anonymous":                {anonymous: true, code: http.StatusOK, want: NoToken},
		"upgrade, anonymous":            {anonymous: true, upgrade: true, code: http.StatusSwitchingProtocols, want: NoToken},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts, id := NewVerdicts(), token
			if tt.anonymous {
				id = Identity{}
			}
			if tt.accepted {
				verdicts.RecordAnswer(id, notUpgraded, http.MethodGet, http.StatusOK)
			}
			verdicts.RecordAnswer(id, tt.upgrade, cmp.Or(tt.method, http.MethodGet), tt.code)
			expectVerdict(t, verdicts, id, tt.want)
			_, flow := verdicts.VerdictOn(id, remoteAddr)
			wantFlow := FlowOfAddress(sameAddress)
			if tt.want == Accepted {
				wantFlow = FlowOf(id)
			}
			expect.Same(t, wantFlow, flow)
		})
	}
}

// TestAcceptedWhoeverIsImpersonated: a token that was accepted as one user is accepted as any other.
func TestAcceptedWhoeverIsImpersonated(t *testing.T) {
	authenticator, verdicts := NewAuthenticator(nil), NewVerdicts()
	impersonating := func(user string) Identity {
		return proxytest.IdentifyAs(authenticator, http.Header{"Impersonate-User": {user}})
	}
	verdicts.RecordAnswer(impersonating("alice"), notUpgraded, http.MethodGet, http.StatusForbidden)
	expectVerdict(t, verdicts, impersonating("bob"), Accepted)
}

// TestRefusedIsForgotten: the verdict Refused ends after 10 s (refusedTTL), or with an answer that only authenticated callers
// get.
func TestRefusedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdicts := NewVerdicts()
		token := proxytest.Identify(NewAuthenticator(nil), "Bearer a")
		answer := func(code int) { verdicts.RecordAnswer(token, notUpgraded, http.MethodGet, code) }
		// The verdict ends after refusedTTL.
		answer(http.StatusUnauthorized)
		time.Sleep(refusedTTL)
		expectVerdict(t, verdicts, token, Refused)
		time.Sleep(time.Nanosecond)
		expectVerdict(t, verdicts, token, Unjudged)
		// The last answer decides.
		answer(http.StatusUnauthorized)
		answer(http.StatusOK)
		expectVerdict(t, verdicts, token, Accepted)
		answer(http.StatusUnauthorized)
		expectVerdict(t, verdicts, token, Refused)
	})
}
