package ask_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// heard is what a server sees of a request.
type heard struct{ Method, Target, Accept, ContentType, Body string }

func TestRequests(t *testing.T) {
	object := map[string]any{"a": 1}
	for name, tt := range map[string]struct {
		send func(context.Context, *ask.Client) (ask.Answer, error)
		want heard
	}{
		"get": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) { return c.Get(ctx, "/api?a=b") },
			heard{Method: "GET", Target: "/api?a=b", Accept: "application/json"},
		},
		"get in a representation": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) { return c.GetAs(ctx, "x/y", "/api") },
			heard{Method: "GET", Target: "/api", Accept: "x/y"},
		},
		"get with a header": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.With("Accept", "x/y").Get(ctx, "/api")
			},
			heard{Method: "GET", Target: "/api", Accept: "x/y"},
		},
		"get in a representation beside another header": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.With("Accept", "a/b").GetAs(ctx, "x/y", "/api")
			},
			heard{Method: "GET", Target: "/api", Accept: "x/y"},
		},
		"patch of another type": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.With("Content-Type", "x/y").Send(ctx, http.MethodPatch, "/api", object)
			},
			heard{Method: "PATCH", Target: "/api", Accept: "application/json", ContentType: "x/y", Body: `{"a":1}`},
		},
		"get in JSON of a server where anything is accepted": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return ask.At(c.Base).GetAs(ctx, ask.JSON, "/api")
			},
			heard{Method: "GET", Target: "/api", Accept: "application/json"},
		},
		"create": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.Send(ctx, http.MethodPost, "/api", object)
			},
			heard{Method: "POST", Target: "/api", Accept: "application/json", ContentType: "application/json", Body: `{"a":1}`},
		},
		"patch": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.Send(ctx, http.MethodPatch, "/api", object)
			},
			heard{Method: "PATCH", Target: "/api", Accept: "application/json", ContentType: "application/merge-patch+json", Body: `{"a":1}`},
		},
		"delete": {
			func(ctx context.Context, c *ask.Client) (ask.Answer, error) {
				return c.Send(ctx, http.MethodDelete, "/api", nil)
			},
			heard{Method: "DELETE", Target: "/api", Accept: "application/json"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got heard
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = heard{r.Method, r.RequestURI, r.Header.Get("Accept"), r.Header.Get("Content-Type"), string(body)}
				w.Header().Set("Cache-Status", "listproxy; hit")
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"metadata": {"resourceVersion": "7"}}`)
			}))
			defer server.Close()
			a, err := tt.send(t.Context(), &ask.Client{Base: server.URL, HTTP: server.Client()})
			expect.NoError(t, err)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if a.Code != http.StatusConflict || !a.FromMemory() || a.Meta().ResourceVersion != "7" {
				t.Errorf("answer: %s", a)
			}
		})
	}
}

func TestDoFails(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	a, err := (&ask.Client{Base: server.URL, HTTP: server.Client()}).Do(t.Context(), http.MethodGet, "/api", nil)
	if err == nil || !strings.Contains(err.Error(), "GET /api: 404") || a.Code != http.StatusNotFound {
		t.Errorf("%s, %v", a, err)
	}
}

// TestEnsure: that an object is there is no error, anything else is.
func TestEnsure(t *testing.T) {
	for code, want := range map[int]bool{http.StatusCreated: true, http.StatusConflict: true, http.StatusForbidden: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		if err := ask.At(server.URL).Ensure(t.Context(), "/api", nil); (err == nil) != want {
			t.Errorf("%d: %v", code, err)
		}
		server.Close()
	}
}

// TestRevision is of what has one.
func TestRevision(t *testing.T) {
	if n, err := (ask.Answer{Body: []byte(`{"metadata": {"resourceVersion": "7"}}`)}).Revision(); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := (ask.Answer{Body: []byte(`{"kind": "Status"}`)}).Revision(); err == nil {
		t.Errorf("a Status has revision %d", n)
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		c := &ask.Client{Base: "http://server.test", HTTP: &http.Client{Transport: silent{}}, Timeout: time.Minute}
		_, err := c.Get(t.Context(), "/api")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Minute {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
