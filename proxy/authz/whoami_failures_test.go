package authz

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/proxy/inflight"
	"github.com/listproxy/listproxy/proxy/internal/authntest"
)

// TestRecogniseAsksOnce: once for a caller and TTL, whatever becomes of it, and never for whom
// listproxy knows.
func TestRecogniseAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		u := &whoAmIUpstream{answer: func(*http.Request) (*http.Response, error) { return nil, errors.New("away") }}
		w := newWhoAmI(t, u, Config{TTL: ttl})
		callers := authntest.New(t)
		recognise := func(id authn.Identity, want string, asked int) {
			t.Helper()
			name := ""
			if who, err := w.Recognise(t.Context(), id, inflight.ShareKey(id.Key())); err == nil {
				name = who.GetName()
			}
			synctest.Wait()
			if name != want || u.askedYet() != asked {
				t.Errorf("it is %q, want %q; asked %d times, want %d", name, want, u.askedYet(), asked)
			}
		}
		alice, bob := authntest.Identify(callers, "Bearer alice"), authntest.Identify(callers, "Bearer bob")
		recognise(alice, "", 1)
		recognise(alice, "", 1)
		recognise(bob, "", 2)
		u.answerAsUsual()
		recognise(alice, "", 2)
		time.Sleep(ttl)
		recognise(alice, "Bearer alice", 3)
		recognise(alice, "Bearer alice", 3)
		recognise(callers.OfUser(&user.DefaultInfo{Name: "carol"}), "carol", 3)
		recognise(authn.Identity{}, "", 3)
		// The audit log needs to know, and asks again.
		u.mu.Lock()
		u.answer = func(*http.Request) (*http.Response, error) { return nil, errors.New("away") }
		u.mu.Unlock()
		time.Sleep(ttl)
		recognise(bob, "", 4)
		u.answerAsUsual()
		wantUser(t, w, bob, "Bearer bob")
		if u.askedYet() != 5 {
			t.Errorf("asked %d times, want 5", u.askedYet())
		}
	})
}
