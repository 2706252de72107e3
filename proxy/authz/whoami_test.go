package authz

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/listproxy/listproxy/proxy/authn"
	"github.com/listproxy/listproxy/test/authntest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// whoAmIUpstream is an API server that takes a caller's Authorization value for its name.
type whoAmIUpstream struct {
	mu     sync.Mutex
	asked  int
	answer func(*http.Request) (*http.Response, error) // nil for the usual one
}

// send is a SendAs.
func (u *whoAmIUpstream) send(ctx context.Context, id authn.Identity, r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	u.asked++
	answer := u.answer
	u.mu.Unlock()
	r = r.Clone(ctx)
	id.Present(r.Header)
	if answer != nil {
		return answer(r)
	}
	return answerWhoAmI(r, authenticationv1.UserInfo{Username: r.Header.Get("Authorization")})
}

func answerWhoAmI(r *http.Request, info authenticationv1.UserInfo) (*http.Response, error) {
	var review authenticationv1.SelfSubjectReview
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = utiljson.Unmarshal(body, &review)
	}
	if err != nil {
		return nil, err
	}
	review.Status.UserInfo = info
	if body, err = utiljson.Marshal(review); err != nil {
		return nil, err
	}
	return proxytest.JSONResponse(r, http.StatusCreated, string(body)), nil
}

func newWhoAmI(t testing.TB, u *whoAmIUpstream, cfg Config) *WhoAmI {
	t.Helper()
	base, err := url.Parse("https://upstream.example/prefix")
	expect.NoError(t, err)
	w, err := NewWhoAmI(u.send, base, cfg)
	expect.NoError(t, err)
	return w
}

// wantUser asks who a caller is.
func wantUser(t *testing.T, w *WhoAmI, id authn.Identity, want string) {
	t.Helper()
	u, err := w.User(t.Context(), known(id))
	expect.NoError(t, err)
	if u.GetName() != want {
		t.Errorf("it is %q, want %q", u.GetName(), want)
	}
}

func TestWhoAmIAsks(t *testing.T) {
	u := &whoAmIUpstream{}
	var got *http.Request
	u.answer = func(r *http.Request) (*http.Response, error) {
		got = r
		return answerWhoAmI(r, authenticationv1.UserInfo{
			Username: "alice", UID: "42", Groups: []string{"b", "a"},
			Extra: map[string]authenticationv1.ExtraValue{"k": {"v", "w"}},
		})
	}
	w := newWhoAmI(t, u, Config{})
	who, err := w.User(t.Context(), known(authntest.Identify(authntest.New(t), "Bearer secret")))
	expect.NoError(t, err)
	want := &user.DefaultInfo{Name: "alice", UID: "42", Groups: []string{"b", "a"}, Extra: map[string][]string{"k": {"v", "w"}}}
	if diff := cmp.Diff(user.Info(want), who); diff != "" {
		t.Error(diff)
	}
	if line := got.Method + " " + got.URL.String(); line != "POST https://upstream.example/prefix"+whoAmIPath {
		t.Error(line)
	}
	wantHeader := http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/json"},
		"User-Agent": {"listproxy"}, "Authorization": {"Bearer secret"},
	}
	if diff := cmp.Diff(wantHeader, got.Header); diff != "" {
		t.Error(diff)
	}
}

func TestWhoAmINobody(t *testing.T) {
	u := &whoAmIUpstream{}
	if who, err := newWhoAmI(t, u, Config{TTL: time.Hour}).User(t.Context(), Caller{}); who != nil || !errors.Is(err, errNoIdentity) {
		t.Errorf("%v, %v", who, err)
	}
	if u.asked != 0 {
		t.Error("the upstream was asked")
	}
}

// TestWhoAmIUnusable lists answers that do not say who a caller is. None is remembered, and none of
// the errors says anything of what only the caller and the upstream know.
func TestWhoAmIUnusable(t *testing.T) {
	const secret = "hush"
	answer := func(status int, body string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) { return proxytest.JSONResponse(r, status, body), nil }
	}
	const head = `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"`
	for _, tt := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
	}{
		{"forbidden", answer(http.StatusForbidden, `{"message":"`+secret+`"}`)},
		{"not found", answer(http.StatusNotFound, secret)},
		{"too many", answer(http.StatusTooManyRequests, secret)},
		{"internal error", answer(http.StatusInternalServerError, secret)},
		{"redirect", answer(http.StatusFound, secret)},
		{"unreachable", func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }},
		{"not JSON", answer(http.StatusCreated, secret)},
		{"empty", answer(http.StatusCreated, "")},
		{"another kind", answer(http.StatusCreated, `{"kind":"Status","apiVersion":"v1","status":"`+secret+`"}`)},
		{"another version", answer(http.StatusCreated, `{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v2","status":{"userInfo":{"username":"`+secret+`"}}}`)},
		{"no name", answer(http.StatusCreated, head+`,"status":{"userInfo":{"uid":"`+secret+`"}}}`)},
		{"too long", answer(http.StatusCreated, head+`,"status":{"userInfo":{"username":"`+secret+`"}}}`+strings.Repeat(" ", maxWhoAmIBody))},
		{"broken off", func(r *http.Request) (*http.Response, error) {
			res := proxytest.JSONResponse(r, http.StatusCreated, "")
			res.Body = io.NopCloser(io.MultiReader(
				strings.NewReader(head+`,"status":{"userInfo":{"username":"`+secret+`"}}}`), brokenReader{}))
			return res, nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := &whoAmIUpstream{answer: tt.answer}
			w := newWhoAmI(t, u, Config{TTL: time.Hour})
			id := authntest.Identify(authntest.New(t), "Bearer "+secret)
			for range 2 {
				who, err := w.User(t.Context(), known(id))
				if err == nil || who != nil {
					t.Fatalf("it is %v, %v", who, err)
				}
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error says too much: %v", err)
				}
			}
			if u.asked != 2 {
				t.Errorf("asked %d times", u.asked)
			}
		})
	}
}

// brokenReader is a body that ends in an error.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestWhoAmIRemembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &whoAmIUpstream{}
		w := newWhoAmI(t, u, Config{TTL: time.Minute})
		identifier := authntest.New(t)
		alice, bob := authntest.Identify(identifier, "alice"), authntest.Identify(identifier, "bob")
		for range 3 {
			wantUser(t, w, alice, "alice")
			wantUser(t, w, bob, "bob")
		}
		if u.asked != 2 {
			t.Errorf("asked %d times about two callers", u.asked)
		}
		time.Sleep(time.Minute - time.Nanosecond) // the bubble's clock
		wantUser(t, w, alice, "alice")
		if u.asked != 2 {
			t.Error("an answer was forgotten early")
		}
		time.Sleep(time.Nanosecond)
		wantUser(t, w, alice, "alice")
		if u.asked != 3 {
			t.Error("an answer was used after its time")
		}
	})
}
