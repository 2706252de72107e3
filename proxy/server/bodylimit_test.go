package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/proxy/kubehttp"
	"github.com/listproxy/listproxy/test/expect"
)

// unsized hides the length of a body.
type unsized struct{ io.Reader }

func TestLimitBodies(t *testing.T) {
	const limit = 10
	const pod = "/api/v1/namespaces/a/pods/b"
	tests := map[string]struct {
		target  string
		body    io.Reader
		limit   int64
		want    string // what the handler reads
		refused bool   // it is not called
		cutOff  bool
	}{
		"none":                     {pod, nil, limit, "", false, false},
		"short":                    {pod, strings.NewReader("short"), limit, "short", false, false},
		"as long as may be":        {pod, strings.NewReader("0123456789"), limit, "0123456789", false, false},
		"too long":                 {pod, strings.NewReader("0123456789a"), limit, "", true, false},
		"unsized":                  {pod, unsized{strings.NewReader("0123456789")}, limit, "0123456789", false, false},
		"unsized and too long":     {pod, unsized{strings.NewReader("0123456789a")}, limit, "0123456789", false, true},
		"no limit":                 {pod, strings.NewReader("0123456789a"), 0, "0123456789a", false, false},
		"no limit, unsized":        {pod, unsized{strings.NewReader("0123456789a")}, 0, "0123456789a", false, false},
		"long-running":             {pod + "/proxy/x", strings.NewReader("0123456789a"), limit, "0123456789a", false, false},
		"long-running and unsized": {pod + "/exec", unsized{strings.NewReader("0123456789a")}, limit, "0123456789a", false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			called := false
			handler := LimitBodies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				called = true
				body, err := io.ReadAll(r.Body)
				var tooLarge *http.MaxBytesError
				if string(body) != test.want || errors.As(err, &tooLarge) != test.cutOff || (err != nil) != test.cutOff {
					t.Errorf("read %q, %v", body, err)
				}
				if test.cutOff && tooLarge.Limit != limit {
					t.Errorf("cut off at %d", tooLarge.Limit)
				}
			}), test.limit, 0)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, test.target, test.body))
			if called == test.refused {
				t.Errorf("the handler was called: %t", called)
			}
			if !test.refused {
				return
			}
			var got metav1.Status
			expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			want := apierrors.NewRequestEntityTooLargeError("limit is 10").ErrStatus
			want.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			if diff := cmp.Diff(want, got); diff != "" || w.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("code %d, (-want +got):\n%s", w.Code, diff)
			}
		})
	}
}

func TestWriteTooManyRequests(t *testing.T) {
	w := httptest.NewRecorder()
	kubehttp.WriteTooManyRequests(w, httptest.NewRequest(http.MethodGet, "/", nil))
	const want = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"Too many requests, please try again later.","reason":"TooManyRequests",` +
		`"details":{"retryAfterSeconds":1},"code":429}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" || w.Code != http.StatusTooManyRequests {
		t.Errorf("code %d, (-want +got):\n%s", w.Code, diff)
	}
	if got := w.Header().Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After %q", got)
	}
	var status metav1.Status
	expect.NoError(t, json.Unmarshal(w.Body.Bytes(), &status))
	if seconds, ok := apierrors.SuggestsClientDelay(&apierrors.StatusError{ErrStatus: status}); seconds != 1 || !ok {
		t.Errorf("a client understands %d, %t", seconds, ok)
	}
}
