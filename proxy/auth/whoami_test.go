package auth

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/inmemory"
	"github.com/listproxy/listproxy/test/proxytest"
)

// newWhoAmI returns a WhoAmI whose upstream replies to every request through reply, and the number of requests so far.
func newWhoAmI(t testing.TB, reply proxytest.Transport, ttl time.Duration) (w *WhoAmI, requests *int) {
	t.Helper()
	base, err := url.Parse("https://upstream.example/prefix")
	expect.NoError(t, err)
	requests = new(int)
	send := proxytest.SendWithCredentials[Identity](func(r *http.Request) (*http.Response, error) {
		*requests++
		return reply(r)
	})
	return NewWhoAmI(send, base, ReviewConfig{TTL: ttl}), requests
}

// TestWhoAmIUnusable: User returns an error for a reply that does not say who the caller is. The error is not remembered,
// and has nothing of the token or of the reply.
func TestWhoAmIUnusable(t *testing.T) {
	const secret = "hush"
	respond := func(status int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return inmemory.Answer(r, status, body), nil }
	}
	const head = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"`
	const good = head + `,"status":{"userInfo":{"username":"` + secret + `"}}}`
	for name, reply := range map[string]proxytest.Transport{
		"forbidden":       respond(http.StatusForbidden, `{"message":"`+secret+`"}`),
		"too many":        respond(http.StatusTooManyRequests, secret),
		"internal error":  respond(http.StatusInternalServerError, secret),
		"redirect":        respond(http.StatusFound, secret),
		"accepted":        respond(http.StatusAccepted, good),
		"not JSON":        respond(http.StatusCreated, secret),
		"empty":           respond(http.StatusCreated, ""),
		"another kind":    respond(http.StatusCreated, strings.Replace(good, "SelfSubjectReview", "Status", 1)),
		"another version": respond(http.StatusCreated, strings.Replace(good, "k8s.io/v1", "k8s.io/v2", 1)),
		"no name":         respond(http.StatusCreated, head+`,"status":{"userInfo":{"uid":"`+secret+`"}}}`),
		"too long":        respond(http.StatusCreated, strings.Repeat(" ", maxReviewBody)+good),
	} {
		t.Run(name, func(t *testing.T) {
			w, requests := newWhoAmI(t, reply, time.Hour)
			id := proxytest.Identify(NewAuthenticator(nil), "Bearer "+secret)
			for range 2 {
				got, err := w.User(t.Context(), acceptedCaller(id))
				if err == nil || got != nil {
					t.Fatalf("got the user %v and error %v, want no user and an error", got, err)
				}
				proxytest.AssertNotContains(t, err.Error(), secret)
			}
			expect.Same(t, 2, *requests) // no error is remembered
		})
	}
}
