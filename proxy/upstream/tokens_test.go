package upstream

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// TestAnswered: an answer that only somebody can have shows that the token is accepted, and a 401 that
// it is not, for a while. An accepted token has the share of its user, all others that of their address.
func TestAnswered(t *testing.T) {
	callers := authntest.New(t)
	token := authntest.Identify(callers, "Bearer a")
	for _, test := range []struct {
		id      authn.Identity
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
		{authn.Identity{}, false, false, http.MethodGet, http.StatusOK, Anonymous},
		{authn.Identity{}, false, true, http.MethodGet, http.StatusSwitchingProtocols, Anonymous},
	} {
		up, err := New((&proxytest.FakeAPI{}).Config())
		expect.NoError(t, err)
		if test.before {
			up.Answered(test.id, false, http.MethodGet, http.StatusOK)
		}
		up.Answered(test.id, test.upgrade, test.method, test.code)
		got, share := up.Caller(test.id, "192.0.2.1:1")
		if got != test.want || share != authn.FlowOf(test.id, test.want == Accepted, "192.0.2.1:2") {
			t.Errorf("%+v: the verdict is %d, or the share another's", test, got)
		}
	}
	up, err := New((&proxytest.FakeAPI{}).Config())
	expect.NoError(t, err)
	as := func(user string) authn.Identity {
		return authntest.IdentifyAs(callers, http.Header{"Impersonate-User": {user}})
	}
	up.Answered(as("alice"), false, http.MethodGet, http.StatusForbidden)
	if got, _ := up.Caller(as("bob"), ""); got != Accepted {
		t.Errorf("a token that was accepted as alice is not accepted as bob: %d", got)
	}
}

// TestRefusedIsForgotten: after ten seconds a token may be asked about again, and an answer to it that
// only somebody can have counts at once.
func TestRefusedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, err := New((&proxytest.FakeAPI{}).Config())
		expect.NoError(t, err)
		token := authntest.Identify(authntest.New(t), "Bearer a")
		want := func(want Verdict) {
			t.Helper()
			if got, _ := up.Caller(token, "192.0.2.1:1"); got != want {
				t.Errorf("the verdict is %d, want %d", got, want)
			}
		}
		up.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		time.Sleep(refusedFor)
		want(Refused)
		time.Sleep(time.Nanosecond)
		want(Unasked)
		up.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		up.Answered(token, false, http.MethodGet, http.StatusOK)
		want(Accepted)
		up.Answered(token, false, http.MethodGet, http.StatusUnauthorized)
		want(Refused)
	})
}
