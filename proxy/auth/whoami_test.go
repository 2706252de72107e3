package auth

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// newWhoAmI returns a WhoAmI of an upstream that answers so, and how often that was asked.
func newWhoAmI(t testing.TB, answer proxytest.Transport, ttl time.Duration) (*WhoAmI, *int) {
	t.Helper()
	base, err := url.Parse("https://upstream.example/prefix")
	expect.NoError(t, err)
	asked := new(int)
	w := NewWhoAmI(proxytest.SendAs[Identity](func(r *http.Request) (*http.Response, error) {
		*asked++
		return answer(r)
	}), base, ReviewConfig{TTL: ttl})
	return w, asked
}

// TestWhoAmIUnusable lists answers that do not say who a caller is. None is remembered, and none of
// the errors says anything of what only the caller and the upstream know.
func TestWhoAmIUnusable(t *testing.T) {
	const secret = "hush"
	answer := func(status int, body string) proxytest.Transport {
		return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, status, body), nil }
	}
	const head = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"`
	const good = head + `,"status":{"userInfo":{"username":"` + secret + `"}}}`
	for name, answer := range map[string]proxytest.Transport{
		"forbidden":       answer(http.StatusForbidden, `{"message":"`+secret+`"}`),
		"too many":        answer(http.StatusTooManyRequests, secret),
		"internal error":  answer(http.StatusInternalServerError, secret),
		"redirect":        answer(http.StatusFound, secret),
		"accepted":        answer(http.StatusAccepted, good),
		"not JSON":        answer(http.StatusCreated, secret),
		"empty":           answer(http.StatusCreated, ""),
		"another kind":    answer(http.StatusCreated, strings.Replace(good, "SelfSubjectReview", "Status", 1)),
		"another version": answer(http.StatusCreated, strings.Replace(good, "k8s.io/v1", "k8s.io/v2", 1)),
		"no name":         answer(http.StatusCreated, head+`,"status":{"userInfo":{"uid":"`+secret+`"}}}`),
		"too long":        answer(http.StatusCreated, good+strings.Repeat(" ", maxWhoAmIBody)),
	} {
		t.Run(name, func(t *testing.T) {
			w, asked := newWhoAmI(t, answer, time.Hour)
			id := proxytest.Identify(NewAuthenticator(nil), "Bearer "+secret)
			for range 2 {
				who, err := w.User(t.Context(), known(id))
				if err == nil || who != nil {
					t.Fatalf("it is %v, %v", who, err)
				}
				proxytest.AssertNotContains(t, err.Error(), secret)
			}
			expect.Same(t, 2, *asked)
		})
	}
}
