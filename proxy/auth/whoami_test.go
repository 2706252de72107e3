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

// newWhoAmI returns a WhoAmI whose upstream gives this answer to every request, and the number of requests so far.
func newWhoAmI(t testing.TB, answer proxytest.Transport, ttl time.Duration) (*WhoAmI, *int) {
	t.Helper()
	base, err := url.Parse("https://upstream.example/prefix")
	expect.NoError(t, err)
	requests := new(int)
	w := NewWhoAmI(proxytest.SendWithCredentials[Identity](func(r *http.Request) (*http.Response, error) {
		*requests++
		return answer(r)
	}), base, ReviewConfig{TTL: ttl})
	return w, requests
}

// TestWhoAmIUnusable: User returns an error for an answer that does not say who the caller is. The error is not remembered,
// and has nothing of the token or of the answer.
func TestWhoAmIUnusable(t *testing.T) {
	const secret = "hush"
	respond := func(status int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return inmemory.Answer(r, status, body), nil }
	}
	const head = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"`
	const good = head + `,"status":{"userInfo":{"username":"` + secret + `"}}}`
	for name, answer := range map[string]proxytest.Transport{
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
			w, requests := newWhoAmI(t, answer, time.Hour)
			id := proxytest.Identify(NewAuthenticator(nil), "Bearer "+secret)
			for range 2 {
				who, err := w.User(t.Context(), known(id))
				if err == nil || who != nil {
					t.Fatalf("got the user %v and error %v, want no user and an error", who, err)
				}
				proxytest.AssertNotContains(t, err.Error(), secret)
			}
			expect.Same(t, 2, *requests) // no error is remembered
		})
	}
}
